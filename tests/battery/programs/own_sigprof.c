/*
 * own_sigprof.c: a program with its own handler for SIGPROF and its own timers. Argument: how it installs the
 * handler (libc, syscall, raw). Only its own signals may reach the handler: they are told apart by their
 * si_code.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "battery.h"

static volatile sig_atomic_t from_interval, from_timer, from_kill, strays;

static void count(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    sigset_t mask;
    int saved = errno;
    CHECK(!sigprocmask(SIG_BLOCK, NULL, &mask));
    CHECK(sigismember(&mask, SIGUSR1) == 1 && sigismember(&mask, SIGUSR2) == 0 &&
          sigismember(&mask, SIGPROF) == 1);
    if (info->si_code == SI_KERNEL)
        from_interval++;
    else if (info->si_code == SI_TIMER && info->si_value.sival_int == 77)
        from_timer++;
    else if (info->si_code == SI_USER || info->si_code == SI_TKILL)
        from_kill++;
    else
        strays++;
    errno = saved;
}

struct kernel_action {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};

__attribute__((noinline)) static long raw(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b, c, d);
#endif
}

#if defined(__x86_64__)
void restorer(void);
__asm__(".text\nrestorer: mov $15, %rax\nsyscall\n");
#endif

static void install_raw(int by_libc) {
    struct kernel_action action = {.handler = (void *)(uintptr_t)count, .flags = SA_SIGINFO | SA_RESTART};
    action.mask = 1u << (SIGUSR1 - 1);
#if defined(__x86_64__)
    action.flags |= 0x04000000;
    action.restorer = (void *)(uintptr_t)restorer;
#endif
    long result = by_libc ? syscall(SYS_rt_sigaction, SIGPROF, &action, NULL, 8)
                          : raw(SYS_rt_sigaction, SIGPROF, (long)&action, 0, 8);
    CHECK(!result);
}

static void install(const char *how) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigaction old;
    CHECK(!sigaction(SIGPROF, NULL, &old) && old.sa_handler == SIG_DFL);
    action.sa_sigaction = count;
    sigaddset(&action.sa_mask, SIGUSR1);
    if (strcmp(how, "libc") != 0) {
        install_raw(!strcmp(how, "syscall"));
        return;
    }
    CHECK(!sigaction(SIGPROF, &action, &old) && old.sa_handler == SIG_DFL && !(old.sa_flags & SA_SIGINFO));
    CHECK(!sigaction(SIGPROF, NULL, &old) && old.sa_sigaction == count);
    CHECK((old.sa_flags & (SA_SIGINFO | SA_RESTART | SA_ONSTACK | SA_NODEFER)) == (SA_SIGINFO | SA_RESTART));
    CHECK(sigismember(&old.sa_mask, SIGUSR1) == 1 && sigismember(&old.sa_mask, SIGUSR2) == 0);
}

static void *compute(void *unused) {
    burn(1.0);
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int is_raw = !strcmp(argv[1], "raw");
    burn(0.05);
    install(argv[1]);
    struct itimerval interval = {{0, 10000}, {0, 10000}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    struct itimerspec spec = {{0, 10000000}, {0, 10000000}};
    timer_t timer;
    event.sigev_value.sival_int = 77;
    CHECK(!timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) && !timer_settime(timer, 0, &spec, NULL));
    CHECK(!setitimer(ITIMER_PROF, &interval, NULL));
    if (is_raw) { /* a new thread, which has no timer yet */
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, compute, NULL) && !pthread_join(thread, NULL));
    }
    burn(is_raw ? 1.0 : 0.4);
    for (int i = 0; i < 100; i++) {
        int before = from_kill;
        CHECK(!raise(SIGPROF));
        CHECK(from_kill == before + 1);
    }
    CHECK(!setitimer(ITIMER_PROF, &(struct itimerval){{0, 0}, {0, 0}}, NULL) && !timer_delete(timer));
    /* 40 of each (raw: 200) on an idle machine; few where programs wait for a CPU, since the kernel looks
     * once a tick. */
    int most = 5 * (is_raw ? 200 : 40);
    CHECK(from_interval >= 1 && from_interval <= most);
    CHECK(from_timer >= 1 && from_timer <= most);
    CHECK(from_kill == 100);
    /* Behind everyone's back: one signal may be on its way, and a few more until it is noticed. */
    CHECK(strays <= (is_raw ? 500 : 0));
    return done();
}
