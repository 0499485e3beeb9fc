/* Signal handlers on the program's stack and on one of their own, nested, in the middle of libc, left by
 * siglongjmp, and after a call through a bad pointer. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t handled, nested, ticks;
static sigjmp_buf back;
static char alternate[65536];

static void on_user(int signal, siginfo_t *info, void *context) {
    char text[32];
    (void)context;
    handled += snprintf(text, sizeof text, "%d", info->si_signo) > 0 && signal == SIGUSR1;
    if (handled == 1)
        raise(SIGUSR2);
}

static void on_nested(int signal) {
    nested += signal == SIGUSR2;
}

static void on_tick(int signal) {
    ticks += signal == SIGALRM;
}

static void on_fault(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void install(int signal, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(signal, &action, NULL);
}

__attribute__((noinline)) static int work(int rounds) {
    char text[64];
    int length = 0;
    for (int i = 0; i < rounds; i++)
        length += snprintf(text, sizeof text, "%d:%s", i, "tick");
    return length;
}

__attribute__((noinline)) static void call_nowhere(void (*volatile nowhere)(void)) {
    nowhere();
    nested = -1;
}

int main(void) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_user;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR1, &action, NULL);
    install(SIGUSR2, on_nested, SA_ONSTACK);
    install(SIGALRM, on_tick, SA_ONSTACK | SA_RESTART);
    install(SIGSEGV, on_fault, SA_ONSTACK);
    install(SIGFPE, on_fault, 0);
    if (sigaltstack(&stack, NULL) || raise(SIGUSR1) || handled != 1 || nested != 1)
        return 1;
    struct itimerval timer = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    int length = work(100);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    if (length != 10 * 6 + 90 * 7)
        return 2;
    volatile int zero = 0, faults = 0;
    volatile int *volatile bad = (volatile int *)8;
    if (sigsetjmp(back, 1) == 0) {
        faults = 77 / zero;
        raise(SIGFPE); /* aarch64's division does not */
    } else {
        faults = 100;
    }
    if (sigsetjmp(back, 1) == 0)
        call_nowhere(NULL);
    else
        faults++;
    if (sigsetjmp(back, 1) == 0)
        *bad = 1;
    else
        faults++;
    if (sigsetjmp(back, 1) == 0)
        call_nowhere((void (*)(void))(uintptr_t)0x10);
    else
        faults++;
    return faults == 103 && nested == 1 ? 0 : 3;
}
