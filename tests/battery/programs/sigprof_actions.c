/*
 * sigprof_actions.c: what a program may do with SIGPROF's action besides having a handler: each way of
 * setting and asking, SIG_IGN, SA_RESETHAND, calls that a handler without SA_RESTART interrupts, and its
 * default, which ends the program.
 */
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "battery.h"

static volatile sig_atomic_t calls;

static void count(int signal) {
    CHECK(signal == SIGPROF);
    calls++;
}

/* Before any library begins, the agent's too. */
static void install_early(void) {
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGPROF);
    sigaction(SIGUSR1, &action, NULL);
}
__attribute__((section(".preinit_array"), used)) static void (*const early)(void) = install_early;

static void masks_are_as_they_were_set(void) {
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_ONSTACK};
    struct sigaction old;
    CHECK(!sigaction(SIGUSR1, NULL, &old) && sigismember(&old.sa_mask, SIGPROF));
    CHECK(!sigaction(SIGUSR1, &action, &old) && sigismember(&old.sa_mask, SIGPROF));
    CHECK(!sigaction(SIGUSR1, &old, &action) && !sigismember(&action.sa_mask, SIGPROF));
    CHECK(!sigaction(SIGUSR1, NULL, &old) && sigismember(&old.sa_mask, SIGPROF));
}

static void *nag(void *thread) {
    usleep(30000);
    pthread_kill(*(pthread_t *)thread, SIGPROF);
    return NULL;
}

/* read() in which a SIGPROF comes: interrupted or not. */
static int is_interrupted(void) {
    int ends[2];
    char byte;
    pthread_t self = pthread_self();
    pthread_t other;
    CHECK(!pipe(ends) && !pthread_create(&other, NULL, nag, &self));
    int child = fork();
    if (!child) { /* ends the wait */
        usleep(120000);
        _exit(write(ends[1], "x", 1) != 1);
    }
    long got = read(ends[0], &byte, 1);
    int was = got < 0 && errno == EINTR;
    CHECK(got == 1 || was);
    pthread_join(other, NULL);
    CHECK(waitpid(child, NULL, 0) == child);
    close(ends[0]);
    close(ends[1]);
    return was;
}

static void ends_by_default(void) {
    int status;
    int child = fork();
    if (!child) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGPROF, SIG_DFL);
        burn(0.03);
        raise(SIGPROF);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF);
}

static void inherits_ignored(const char *self) {
    int status;
    int child = fork();
    if (!child) {
        signal(SIGPROF, SIG_IGN);
        execl(self, self, "ignored?", NULL);
        _exit(9);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 33);
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = count};
    struct sigaction old;
    if (argc == 2) {
        CHECK(!sigaction(SIGPROF, NULL, &old));
        return old.sa_handler == SIG_IGN ? 33 : 34;
    }
    CHECK(signal(SIGPROF, SIG_IGN) == SIG_DFL);
    raise(SIGPROF);
    CHECK(signal(SIGPROF, count) == SIG_IGN);
    raise(SIGPROF);
    CHECK(calls == 1 && !is_interrupted());
    CHECK(!siginterrupt(SIGPROF, 1) && is_interrupted());
    CHECK(!siginterrupt(SIGPROF, 0) && !is_interrupted());
    CHECK(!sigaction(SIGPROF, &action, &old) && old.sa_handler == count && old.sa_flags & SA_RESTART);
    CHECK(is_interrupted());
    action.sa_flags = (int)SA_RESETHAND;
    CHECK(!sigaction(SIGPROF, &action, &old));
    calls = 0;
    raise(SIGPROF);
    CHECK(calls == 1 && !sigaction(SIGPROF, NULL, &old) && old.sa_handler == SIG_DFL);
    CHECK(sigset(SIGPROF, count) == SIG_DFL && sigset(SIGPROF, SIG_HOLD) == count);
    raise(SIGPROF);
    CHECK(calls == 1);
    CHECK(sigset(SIGPROF, count) == SIG_HOLD && calls == 2);
    CHECK(!sigignore(SIGPROF) && !raise(SIGPROF) && calls == 2);
    masks_are_as_they_were_set();
    ends_by_default();
    inherits_ignored(argv[0]);
    burn(0.1);
    return done();
}
