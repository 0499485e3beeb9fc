/* qsort and bsearch call back into the program from the middle of libc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compared;

static int by_value(const void *left, const void *right) {
    int a = *(const int *)left, b = *(const int *)right;
    compared++;
    return (a > b) - (a < b);
}

static int by_text(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

int main(void) {
    int numbers[200];
    unsigned state = 1;
    for (int i = 0; i < 200; i++) {
        state = state * 1103515245u + 12345u;
        numbers[i] = (int)(state >> 16 & 0x3ff);
    }
    qsort(numbers, 200, sizeof numbers[0], by_value);
    for (int i = 1; i < 200; i++)
        if (numbers[i - 1] > numbers[i])
            return 1;
    int wanted = numbers[77];
    int *found = bsearch(&wanted, numbers, 200, sizeof numbers[0], by_value);
    if (!found || *found != wanted || compared < 200)
        return 2;
    char *words[] = {"walrus", "heron", "lynx", "adder", "ibis", "otter", "newt", "crane"};
    qsort(words, 8, sizeof words[0], by_text);
    return strcmp(words[0], "adder") || strcmp(words[7], "walrus") ? 3 : 0;
}
