/*
 * arena_stack.c: a coroutine with 20,000 frames, whose stack is a part of an arena of 64 MiB.
 */
#include "ready.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#define ARENA (64 << 20)
#define STACK (8 << 20)

NOINLINE static int descend(int depth) {
    volatile char room[64] = {0};
    if (depth == 1) {
        tell_ready();
        wait_for_line();
        return room[0];
    }
    int result = descend(depth - 1) + room[depth % 64];
    KEEP_FRAME;
    return result;
}

static void coroutine(void) {
    descend(20000);
    KEEP_FRAME;
}

int main(void) {
    static ucontext_t here, there;
    char *arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED || getcontext(&there))
        return 1;
    there.uc_stack.ss_sp = arena + (1 << 20);
    there.uc_stack.ss_size = STACK;
    there.uc_link = &here;
    makecontext(&there, coroutine, 0);
    return swapcontext(&here, &there);
}
