/*
 * vfork_parent.c: a child of vfork waits for a line on standard input; until it ends, its parent can't be
 * stopped by any signal.
 */
#define _GNU_SOURCE
#include "ready.h"

#include <sys/wait.h>

NOINLINE static void wait_in_child(void) {
    tell_ready();
    wait_for_line();
    _exit(0);
}

NOINLINE static int spawn(void) {
    pid_t child = vfork();
    if (child == 0)
        wait_in_child();
    int status;
    waitpid(child, &status, 0);
    KEEP_FRAME;
    return status;
}

int main(void) {
    int status = spawn();
    if (status == 0 && write(1, "done\n", 5) == 5)
        wait_for_ever();
    return status;
}
