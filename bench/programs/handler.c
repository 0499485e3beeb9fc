/* handler COOKIE KILOBYTES SAMPLES [random]: what one sample costs at depth 30. The signal is raised as if it
 * came from the agent's timer, hence everything happens that a timer's signal makes happen, also that it is
 * set again. Before each signal so many kilobytes of memory are written, to fill the caches with the
 * program's own data; with "random", for a millisecond anywhere in them. In turn with it a signal with an
 * empty handler is raised in the same place: what that takes is not the agent's. Prints nanoseconds: "empty
 * sample", a pair a line. */
#include "deep_stack.h"
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The agent leaves out samples that take more than one part in five of the time. */
#define SHARE_OF_SAMPLES 6

static uint64_t cookie;
static size_t filled;
static int samples;
static bool is_random;
static uint8_t *memory;

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

static NOINLINE void fill_caches(void) {
    if (is_random) {
        write_at_random(memory, filled);
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

static NOINLINE void measure(void) {
    for (int i = 0; i < samples; i++) {
        fill_caches();
        uint64_t empty = raise_signal(SIGUSR1);
        fill_caches();
        uint64_t sample = raise_signal(SIGPROF);
        spend(sample * SHARE_OF_SAMPLES);
        printf("%llu %llu\n", (unsigned long long)empty, (unsigned long long)sample);
    }
}

/* The frames: syscall, raise_signal, measure, these 23, main and
 * two of libc and _start make 30. */
LEVELS_23(measure)

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
    samples = atoi(arguments[3]);
    level_23();
    return 0;
}
