/*
 * limits.c: low resource limits. Argument: which; the program sets the limit itself, early, and uses what it
 * has up to the limit: all of it must be the program's.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "battery.h"

static void set(int which, rlim_t value) {
    struct rlimit limit = {value, value};
    CHECK(!setrlimit(which, &limit));
}

static void files(void) {
    set(RLIMIT_NOFILE, 16);
    for (int i = 3; i < 16; i++)
        close(i);
    for (int i = 3; i < 16; i++)
        CHECK(open("/dev/null", O_RDONLY) == i);
    CHECK(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE);
    burn(0.2);
    int child = fork();
    if (!child) {
        burn(0.05);
        execl("/bin/true", "true", NULL); /* all descriptors are open: inherited */
        _exit(9);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 127 || WEXITSTATUS(status) == 0);
    printf("true: %d\n", WEXITSTATUS(status)); /* its loader may find no descriptor left */
}

static void address_space(void) {
    const size_t chunk = 1 << 20;
    int count = 0;
    set(RLIMIT_AS, (rlim_t)512 << 20);
    while (mmap(NULL, chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) !=
           MAP_FAILED)
        count++;
    burn(0.1);
    CHECK(errno == ENOMEM && count > 100);
}

static void locked_memory(void) {
    set(RLIMIT_MEMLOCK, 65536);
    void *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && !mlock(memory, 65536));
    burn(0.2);
}

/* The limit is one of all processes of a user: become a user who has no other. */
static void alone(void) {
    uid_t user = 100000 + (uid_t)getpid();
    CHECK(!setresuid(user, user, user) || errno == EPERM);
}

static volatile sig_atomic_t queued;

static void count(int signal) {
    (void)signal;
    queued++;
}

/* Real-time signals that are queued while they are blocked: up to the limit, and none is lost. */
static void pending_signals(void) {
    sigset_t set_of_one;
    sigset_t old;
    alone();
    set(RLIMIT_SIGPENDING, 64);
    signal(SIGRTMIN, count);
    sigemptyset(&set_of_one);
    sigaddset(&set_of_one, SIGRTMIN);
    for (int round = 0; round < 20; round++) {
        CHECK(!sigprocmask(SIG_BLOCK, &set_of_one, &old));
        queued = 0;
        for (int i = 0; i < 32; i++) {
            CHECK(!sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}));
            burn(0.0003);
        }
        CHECK(!sigprocmask(SIG_SETMASK, &old, NULL));
        CHECK(queued == 32);
    }
}

static void *compute(void *unused) {
    burn(0.02);
    return unused;
}

/* As many timers as there are threads would be too many. */
static void pending_signals_with_threads(void) {
    pthread_t threads[60];
    alone();
    set(RLIMIT_SIGPENDING, 30);
    for (int i = 0; i < 60; i++)
        CHECK(!pthread_create(&threads[i], NULL, compute, NULL));
    for (int i = 0; i < 60; i++)
        CHECK(!pthread_join(threads[i], NULL));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    burn(0.1);
    if (!strcmp(argv[1], "nofile"))
        files();
    else if (!strcmp(argv[1], "as"))
        address_space();
    else if (!strcmp(argv[1], "memlock"))
        locked_memory();
    else if (!strcmp(argv[1], "sigpending"))
        pending_signals();
    else
        pending_signals_with_threads();
    return done();
}
