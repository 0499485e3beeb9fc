/* threads ROUNDS: one thread for each of two CPUs; each sorts, hashes and allocates. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "usage.h"

#define NUMBERS 4096

static int compare(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static uint64_t hash(const void *data, size_t size, uint64_t value) {
    for (size_t i = 0; i < size; i++)
        value = (value ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    return value;
}

static void *work(void *rounds) {
    uint64_t value = 14695981039346656037u;
    for (intptr_t i = 0; i < (intptr_t)rounds; i++) {
        uint32_t *numbers = malloc(NUMBERS * sizeof *numbers);
        if (!numbers)
            abort();
        for (int n = 0; n < NUMBERS; n++)
            numbers[n] = (uint32_t)((value + (uint64_t)n) * 2654435761u);
        qsort(numbers, NUMBERS, sizeof *numbers, compare);
        value = hash(numbers, NUMBERS * sizeof *numbers, value);
        free(numbers);
    }
    return (void *)(uintptr_t)(value & 1);
}

int main(int count, char **arguments) {
    begin();
    pthread_t threads[2];
    intptr_t rounds = count > 1 ? atoi(arguments[1]) : 1;
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)rounds))
            abort();
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
