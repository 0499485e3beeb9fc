/* setjmp and longjmp, near and far, with live callee-saved registers, and vfork. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static jmp_buf near_buffer, far_buffer;

__attribute__((noinline)) static void leap(int depth, jmp_buf buffer, int value) {
    volatile char room[40];
    room[depth] = (char)depth;
    if (depth)
        leap(room[depth] - 1, buffer, value);
    else
        longjmp(buffer, value);
    abort();
}

__attribute__((noinline)) static int near_jump(int rounds) {
    volatile int done = 0;
    int got = setjmp(near_buffer);
    if (got)
        done += got;
    if (done < rounds)
        leap(done % 5, near_buffer, 1);
    return done;
}

__attribute__((noinline)) static int middle(int value) {
    int result = near_jump(value);
    leap(8, far_buffer, result);
    return -1;
}

int main(void) {
    volatile int total = 0;
    for (volatile int i = 1; i < 6; i++) {
        int got = setjmp(far_buffer);
        if (!got)
            total += middle(i);
        else
            total += got;
    }
    pid_t child = vfork();
    if (child == 0)
        _exit(7);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7)
        return 2;
    return total == 15 ? 0 : 1;
}
