/*
 * main_ended.c: the main thread has ended, another one has not.
 */
#include "ready.h"

#include <pthread.h>

static void *run(void *unused) {
    tell_ready();
    wait_for_ever();
    return unused;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL))
        return 1;
    pthread_exit(NULL);
}
