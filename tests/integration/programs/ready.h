/*
 * ready.h: what all targets do: say that they are where a test wants them, and wait there.
 */
#ifndef READY_H
#define READY_H

#include <stdio.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define FUNCTION __attribute__((noinline, unused))
/* At the end of a function: its calls are no tail calls. */
#define KEEP_FRAME __asm__ volatile("" ::: "memory")

static inline void tell_ready(void) {
    if (write(1, "ready\n", 6) != 6)
        _exit(1);
}

FUNCTION static void wait_for_ever(void) {
    for (;;)
        pause();
}

/* Until the end of a line on standard input. */
FUNCTION static void wait_for_line(void) {
    char byte;
    while (read(0, &byte, 1) == 1 && byte != '\n')
        continue;
}

#endif
