/* stack_overflow.c: overflows the stack of the main thread and of another one, 30 times each; a handler on a
 * signal stack jumps back. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>

#include "battery.h"

static __thread sigjmp_buf back;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    char here;
    CHECK(signal == SIGSEGV && info->si_addr && labs((char *)info->si_addr - &here) > 0);
    siglongjmp(back, 1);
}

#pragma GCC diagnostic ignored "-Winfinite-recursion"
__attribute__((noinline)) static uint64_t dive(uint64_t depth) {
    volatile uint64_t frame[100];
    frame[depth % 100] = depth;
    for (volatile int i = 0; i < 30; i++)
        ;
    return dive(depth + 1) + frame[depth % 100];
}

static void *overflow(void *unused) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    CHECK(!sigaltstack(&stack, NULL));
    for (volatile int i = 0; i < 30; i++) {
        if (!sigsetjmp(back, 1))
            dive(0);
        burn(0.002);
    }
    stack.ss_flags = SS_DISABLE;
    CHECK(!sigaltstack(&stack, NULL));
    free(stack.ss_sp);
    return unused;
}

int main(void) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct rlimit limit = {2 << 20, 8 << 20};
    pthread_t thread;
    action.sa_sigaction = on_fault;
    CHECK(!sigaction(SIGSEGV, &action, NULL) && !setrlimit(RLIMIT_STACK, &limit));
    CHECK(!pthread_create(&thread, NULL, overflow, NULL));
    overflow(NULL);
    CHECK(!pthread_join(thread, NULL));
    return done();
}
