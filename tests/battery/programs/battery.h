/*
 * battery.h: what the programs of the battery share. Each does something that a profiler could disturb,
 * checks it, and says "ok"; or it says which check failed and exits with status 1.
 */
#ifndef BATTERY_H
#define BATTERY_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);                         \
            fflush(stdout);                                                                                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static inline double clock_seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Spends the thread's CPU time in this program's code. */
static inline uint64_t burn(double seconds) {
    double end = clock_seconds(CLOCK_THREAD_CPUTIME_ID) + seconds;
    volatile uint64_t value = 1;
    while (clock_seconds(CLOCK_THREAD_CPUTIME_ID) < end)
        for (int i = 0; i < 20000; i++)
            value = value * 6364136223846793005u + 1442695040888963407u;
    return value;
}

static inline int done(void) {
    puts("ok");
    return fflush(stdout) ? 1 : 0;
}

#endif
