/* allocation.c: malloc, realloc and free in 8 threads, blocks handed from one to another; contents are
 * checked. */
#include <pthread.h>
#include <stdatomic.h>

#include "battery.h"

#define BLOCKS 256
static _Atomic(uint64_t *) shared[BLOCKS]; /* [0]: how many words; all others: the same */

static void check_and_free(uint64_t *block) {
    for (uint64_t i = 0; block && i < block[0]; i++)
        CHECK(block[i] == block[0]);
    free(block);
}

static void *work(void *seed) {
    uint64_t random = (uintptr_t)seed * 7919 + 1;
    for (int i = 0; i < 60000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t words = (random >> 40) % 200 + 1;
        uint64_t *block = malloc(words * 4);
        block = realloc(block, words * 8);
        CHECK(block);
        for (uint64_t word = 0; word < words; word++)
            block[word] = words;
        check_and_free(atomic_exchange(&shared[(random >> 20) % BLOCKS], block));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    for (uintptr_t i = 0; i < 8; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < 8; i++)
        CHECK(!pthread_join(threads[i], NULL));
    for (int i = 0; i < BLOCKS; i++)
        check_and_free(shared[i]);
    return done();
}
