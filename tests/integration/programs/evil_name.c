/*
 * evil_name.c: a process that calls itself by what clears a terminal.
 */
#define _GNU_SOURCE
#include "ready.h"

#include <pthread.h>

int main(void) {
    if (pthread_setname_np(pthread_self(), "\033[2Jgone"))
        return 1;
    tell_ready();
    wait_for_ever();
}
