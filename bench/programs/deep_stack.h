/* deep_stack.h: what programs have in common that measure how long a walk of their own stack takes: a stack
 * of functions that differ, as they do in programs, a clock, and writing to memory at random, which leaves
 * little of anything else in the caches. */
#ifndef DEEP_STACK_H
#define DEEP_STACK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))

#define LEVEL(name, next)                                                                                    \
    static NOINLINE void name(void) {                                                                        \
        volatile int kept = 1;                                                                               \
        next();                                                                                              \
        kept++;                                                                                              \
    }
/* level_23 calls level_22, and so on; the last of them calls innermost. */
#define LEVELS_23(innermost)                                                                                 \
    LEVEL(level_1, innermost)                                                                                \
    LEVEL(level_2, level_1)                                                                                  \
    LEVEL(level_3, level_2)                                                                                  \
    LEVEL(level_4, level_3)                                                                                  \
    LEVEL(level_5, level_4)                                                                                  \
    LEVEL(level_6, level_5)                                                                                  \
    LEVEL(level_7, level_6)                                                                                  \
    LEVEL(level_8, level_7)                                                                                  \
    LEVEL(level_9, level_8)                                                                                  \
    LEVEL(level_10, level_9)                                                                                 \
    LEVEL(level_11, level_10)                                                                                \
    LEVEL(level_12, level_11)                                                                                \
    LEVEL(level_13, level_12)                                                                                \
    LEVEL(level_14, level_13)                                                                                \
    LEVEL(level_15, level_14)                                                                                \
    LEVEL(level_16, level_15)                                                                                \
    LEVEL(level_17, level_16)                                                                                \
    LEVEL(level_18, level_17)                                                                                \
    LEVEL(level_19, level_18)                                                                                \
    LEVEL(level_20, level_19)                                                                                \
    LEVEL(level_21, level_20)                                                                                \
    LEVEL(level_22, level_21)                                                                                \
    LEVEL(level_23, level_22)

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* For a millisecond; size in bytes. */
static NOINLINE void write_at_random(uint8_t *memory, size_t size) {
    static uint64_t state = 88172645463325252u;
    uint64_t end = now(CLOCK_MONOTONIC) + 1000000;
    while (size && now(CLOCK_MONOTONIC) < end)
        for (int i = 0; i < 256; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            memory[state % size]++;
        }
}

#endif
