/* usage.h: what a measured program says of itself when it ends, in one line: seconds of CPU time (user and
 * system, of all its threads), seconds of wall time since it began, and when it began (CLOCK_MONOTONIC).
 * To be compiled with -D_GNU_SOURCE. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double began;

static double wall_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void print_usage(void) {
    struct rusage usage;
    double wall = wall_time() - began;
    getrusage(RUSAGE_SELF, &usage);
    double user = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6;
    double system = (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
    printf("usage %.6f %.6f %.6f\n", user + system, wall, began);
}

/* From here on only this CPU, so that no move between caches counts. */
static inline void stay_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void begin(void) {
    began = wall_time();
    atexit(print_usage);
}
