/*
 * crash.c: a thread that dies by a write to CRASH_ADDRESS, inside of qsort inside of a signal handler, while
 * another one and the main thread wait.
 */
#include "ready.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define CRASH_ADDRESS 0x1230
#define STACK_SIZE (128 << 10) /* core files stay small */

NOINLINE static int innermost(int n) {
    *(volatile int *)CRASH_ADDRESS = n;
    return n;
}

NOINLINE static int compare(const void *a, const void *b) {
    int result = innermost(*(const int *)a) - *(const int *)b;
    KEEP_FRAME;
    return result;
}

NOINLINE static void handle(int number) {
    int numbers[] = {3, number, 2};
    qsort(numbers, sizeof numbers / sizeof *numbers, sizeof *numbers, compare);
    KEEP_FRAME;
}

static void *die(void *argument) {
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    usleep(50000); /* until the others wait */
    raise(SIGUSR1);
    KEEP_FRAME;
    return argument;
}

static void *wait_there(void *argument) {
    wait_for_ever();
    return argument;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    if (pthread_create(&thread, &attributes, wait_there, NULL) ||
        pthread_create(&thread, &attributes, die, NULL))
        return 1;
    pthread_join(thread, NULL);
    return 0;
}
