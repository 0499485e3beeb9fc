/*
 * signal_waits.c: threads that block SIGPROF and wait for it by sigtimedwait, out of which a handler jumps
 * again and again: one thread after the other, so many of them.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile sig_atomic_t may_jump;

static void jump(int signal) {
    (void)signal;
    if (may_jump)
        siglongjmp(back, 1);
}

static double cpu_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *wait_often(void *prof) {
    const struct itimerspec often = {{0, 20000}, {0, 20000}};
    const struct timespec no_time = {0, 0};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    timer_t timer;
    double end = cpu_time() + 0.02; /* until it has a timer of the agent's */
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    while (cpu_time() < end)
        ;
    pthread_sigmask(SIG_BLOCK, prof, NULL);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &often, NULL);
    end = cpu_time() + 0.05;
    while (cpu_time() < end) {
        if (!sigsetjmp(back, 1)) {
            may_jump = 1;
            sigtimedwait(prof, NULL, &no_time);
        }
        may_jump = 0;
    }
    timer_delete(timer);
    return NULL;
}

int main(int argc, char **argv) {
    sigset_t prof;
    sigemptyset(&prof);
    sigaddset(&prof, SIGPROF);
    signal(SIGALRM, jump);
    for (int i = 0; argc > 1 && i < atoi(argv[1]); i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_often, &prof) || pthread_join(thread, NULL))
            return 1;
    }
    puts("ok");
    return 0;
}
