/*
 * busy.c: threads that compute, sleep and talk to each other, and a handler that counts signals. For each
 * line on standard input it prints how often each was at it; it never misses one that it should not.
 */
#include "ready.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static volatile long computed, slept, received, signals, failures;
static int ends[2];

static void count_signal(int number) {
    (void)number;
    __atomic_add_fetch(&signals, 1, __ATOMIC_RELAXED); /* in several threads at one time */
}

static void *compute(void *unused) {
    for (;;)
        computed++;
    return unused;
}

static void *sleep_often(void *unused) {
    for (;; slept++) {
        struct timespec pause = {0, 200000};
        while (clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, &pause) == EINTR)
            continue;
    }
    return unused;
}

static void *send(void *unused) {
    for (;;) {
        failures += write(ends[1], "x", 1) != 1;
        usleep(100);
    }
    return unused;
}

static void *receive(void *unused) {
    char byte;
    for (;; received++)
        failures += read(ends[0], &byte, 1) != 1;
    return unused;
}

int main(void) {
    void *(*functions[])(void *) = {compute, sleep_often, send, receive};
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    char line[16];
    sigaction(SIGRTMIN, &action, NULL);
    if (pipe(ends))
        return 1;
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, functions[i], NULL))
            return 1;
    }
    tell_ready();
    while (fgets(line, sizeof line, stdin)) {
        printf("%ld %ld %ld %ld %ld\n", computed, slept, received, signals, failures);
        fflush(stdout);
    }
    return 0;
}
