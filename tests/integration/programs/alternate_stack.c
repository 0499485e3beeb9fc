/*
 * alternate_stack.c: a signal handler that waits on a stack of its own, which interrupted a function in the
 * middle of its work; with an argument, the handler was called by a jump through a null pointer instead.
 */
#include "ready.h"

#include <signal.h>
#include <stdlib.h>

NOINLINE static void handle(int number) {
    (void)number;
    tell_ready();
    wait_for_ever();
}

NOINLINE static int work(volatile int *counter) {
    while (++*counter < 1000)
        continue;
    *(volatile int *)NULL = 1;
    return *counter;
}

NOINLINE static int call(int (*function)(volatile int *), volatile int *counter) {
    int result = function(counter);
    KEEP_FRAME;
    return result;
}

int main(int argc, char **argv) {
    (void)argv;
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    volatile int counter = 0;
    sigaltstack(&stack, NULL);
    sigaction(SIGSEGV, &action, NULL);
    int result = call(argc > 1 ? NULL : work, &counter);
    KEEP_FRAME;
    return result;
}
