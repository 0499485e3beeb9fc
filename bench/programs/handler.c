/* handler COOKIE KILOBYTES SAMPLES [random]: what one sample costs at depth 30. The signal is raised as if it
 * came from the agent's timer, hence everything happens that a timer's signal makes happen, also that it is
 * set again. Before each signal so many kilobytes of memory are written, to fill the caches with the
 * program's own data; with "random", for a millisecond anywhere in them. In turn with it a signal with an
 * empty handler is raised in the same place: what that takes is not the agent's. Prints nanoseconds: "empty
 * sample", a pair a line. */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
/* The agent leaves out samples that take more than one part in five of the time. */
#define SHARE_OF_SAMPLES 6

static uint64_t cookie;
static size_t filled;
static bool is_random;
static uint8_t *memory;

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void nothing(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
}

/* Nanoseconds from before the system call to after the handler. */
static NOINLINE uint64_t raise_signal(int number) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_code = SI_TIMER;
    info.si_value.sival_ptr = (void *)(uintptr_t)cookie;
    long pid = getpid(), tid = gettid();
    uint64_t before = now(CLOCK_MONOTONIC);
    syscall(SYS_rt_tgsigqueueinfo, pid, tid, number, &info);
    return now(CLOCK_MONOTONIC) - before;
}

static NOINLINE void write_at_random(void) {
    static uint64_t state = 88172645463325252u;
    uint64_t end = now(CLOCK_MONOTONIC) + 1000000;
    while (now(CLOCK_MONOTONIC) < end)
        for (int i = 0; i < 256; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            memory[state % filled]++;
        }
}

static NOINLINE void fill_caches(void) {
    if (is_random) {
        write_at_random();
        return;
    }
    for (size_t i = 0; i < filled; i += 64)
        memory[i]++;
}

static void spend(uint64_t nanoseconds) {
    uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + nanoseconds;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
}

static NOINLINE void measure(int samples) {
    for (int i = 0; i < samples; i++) {
        fill_caches();
        uint64_t empty = raise_signal(SIGUSR1);
        fill_caches();
        uint64_t sample = raise_signal(SIGPROF);
        spend(sample * SHARE_OF_SAMPLES);
        printf("%llu %llu\n", (unsigned long long)empty, (unsigned long long)sample);
    }
}

/* Frames of functions that differ, as they do in programs: syscall, raise_signal, measure, these 23, main and
 * two of libc and _start make 30. */
#define LEVEL(name, next)                                                                                    \
    static NOINLINE void name(int samples) {                                                                 \
        volatile int kept = samples;                                                                         \
        next(kept);                                                                                          \
        kept++;                                                                                              \
    }
LEVEL(level_1, measure)
LEVEL(level_2, level_1)
LEVEL(level_3, level_2)
LEVEL(level_4, level_3)
LEVEL(level_5, level_4)
LEVEL(level_6, level_5)
LEVEL(level_7, level_6)
LEVEL(level_8, level_7)
LEVEL(level_9, level_8)
LEVEL(level_10, level_9)
LEVEL(level_11, level_10)
LEVEL(level_12, level_11)
LEVEL(level_13, level_12)
LEVEL(level_14, level_13)
LEVEL(level_15, level_14)
LEVEL(level_16, level_15)
LEVEL(level_17, level_16)
LEVEL(level_18, level_17)
LEVEL(level_19, level_18)
LEVEL(level_20, level_19)
LEVEL(level_21, level_20)
LEVEL(level_22, level_21)
LEVEL(level_23, level_22)

int main(int count, char **arguments) {
    if (count < 4)
        return 2;
    cookie = strtoull(arguments[1], NULL, 10);
    filled = strtoull(arguments[2], NULL, 10) << 10;
    is_random = count > 4 && filled;
    memory = calloc(filled ? filled : 1, 1);
    struct sigaction action = {.sa_sigaction = nothing, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigfillset(&action.sa_mask);
    if (!memory || sigaction(SIGUSR1, &action, NULL))
        abort();
    puts("ready");
    fflush(stdout);
    (void)!getchar(); /* until everything is in place */
    level_23(atoi(arguments[3]));
    return 0;
}
