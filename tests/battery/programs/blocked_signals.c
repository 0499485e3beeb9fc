/*
 * blocked_signals.c: threads that block all signals: one computes, one waits by sigwait, one by sigtimedwait,
 * one reads a signalfd. None of them may see a signal that nobody sent.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "battery.h"

static void *compute(void *unused) {
    burn(0.3);
    return unused;
}

static void *wait_simply(void *unused) {
    sigset_t all;
    int signal;
    sigfillset(&all);
    sigdelset(&all, SIGUSR2);
    for (int i = 0; i < 50; i++) {
        burn(0.004);
        pthread_kill(pthread_self(), SIGUSR1);
        CHECK(!sigwait(&all, &signal) && signal == SIGUSR1);
    }
    return unused;
}

static void *wait_a_while(void *unused) {
    sigset_t all;
    siginfo_t info;
    struct timespec short_time = {0, 1000000};
    sigfillset(&all);
    for (int i = 0; i < 50; i++) {
        burn(0.004);
        CHECK(sigtimedwait(&all, &info, &short_time) == -1 && errno == EAGAIN);
    }
    return unused;
}

static void *read_descriptor(void *unused) {
    sigset_t all;
    sigfillset(&all);
    int file = signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(file >= 0);
    for (int i = 0; i < 50; i++) {
        struct signalfd_siginfo info;
        burn(0.004);
        CHECK(read(file, &info, sizeof info) == -1 && errno == EAGAIN);
        pthread_kill(pthread_self(), SIGUSR1);
        CHECK(read(file, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
    }
    close(file);
    return unused;
}

int main(void) {
    void *(*const jobs[])(void *) = {compute, wait_simply, wait_a_while, read_descriptor};
    pthread_t threads[4];
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, jobs[i], NULL));
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    burn(0.2);
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_join(threads[i], NULL));
    return done();
}
