/*
 * vdso.c: asks for the time as fast as it can, so that most samples fall into the vDSO.
 */
#include "ready.h"

#include <time.h>

NOINLINE static void ask_for_ever(void) {
    struct timespec now;
    for (;;)
        clock_gettime(CLOCK_MONOTONIC, &now);
}

int main(void) {
    tell_ready();
    ask_for_ever();
    KEEP_FRAME;
}
