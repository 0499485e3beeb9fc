/*
 * burn.h: what recorded programs do: use the processor for a time, by the thread's own clock, in a function
 * that has a name.
 */
#ifndef BURN_H
#define BURN_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static inline uint64_t cpu_time(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t thread_time(void) {
    return cpu_time(CLOCK_THREAD_CPUTIME_ID);
}

/* DEFINE_BURNER(name): void name(nanoseconds), whose time is its own but for the clock's. */
#define DEFINE_BURNER(name)                                                                                  \
    NOINLINE void name(uint64_t nanoseconds) {                                                               \
        volatile uint64_t sum = 0;                                                                           \
        uint64_t end = thread_time() + nanoseconds;                                                          \
        while (thread_time() < end)                                                                          \
            for (unsigned i = 0; i < 20000; i++)                                                             \
                sum += i;                                                                                    \
    }

#define MILLISECONDS 1000000ull

#endif
