/* library.c: a library for libraries.c; NUMBER and SIZE make libraries differ in results and in code. */
#include <stdint.h>

uint64_t compute(uint64_t rounds);

#if SIZE > 1
static volatile uint64_t ballast[512 * SIZE];
__attribute__((noinline)) static uint64_t deeper(uint64_t value) {
    volatile uint64_t frame[SIZE * 16];
    frame[value % (SIZE * 16)] = value;
    ballast[value % 512] = value;
    return frame[value % (SIZE * 16)];
}
#else
__attribute__((noinline)) static uint64_t deeper(uint64_t value) {
    __asm__ volatile("" : "+r"(value));
    return value;
}
#endif

uint64_t compute(uint64_t rounds) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < rounds; i++)
        sum += deeper(i) == i ? NUMBER : 0;
    return sum;
}
