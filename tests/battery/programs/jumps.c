/* jumps.c: longjmp over many frames, siglongjmp out of a handler, in four threads. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

#include "battery.h"

static __thread sigjmp_buf from_handler;
static __thread jmp_buf from_below;

static void on_signal(int signal) {
    siglongjmp(from_handler, signal);
}

/* Never returns. */
#pragma GCC diagnostic ignored "-Winfinite-recursion"
__attribute__((noinline)) static int dive(int depth) {
    volatile char frame[64];
    frame[depth % 64] = 1;
    if (!depth)
        longjmp(from_below, 42);
    return dive(depth - 1) + frame[depth % 64];
}

static void *work(void *unused) {
    sigset_t mask;
    volatile int jumps = 0;
    for (volatile int i = 0; i < 20000; i++) {
        if (setjmp(from_below) == 0)
            dive(i % 60);
        else
            jumps++;
        if (i % 10 == 0) {
            int got = sigsetjmp(from_handler, 1);
            if (!got)
                pthread_kill(pthread_self(), SIGUSR1);
            CHECK(got == SIGUSR1);
        }
    }
    CHECK(jumps == 20000);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < 32; i++)
        CHECK(!sigismember(&mask, i));
    burn(0.05);
    return unused;
}

int main(void) {
    pthread_t threads[4];
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, NULL));
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_join(threads[i], NULL));
    return done();
}
