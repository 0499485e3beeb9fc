/*
 * interrupted_calls.c: counts the calls that return EINTR, of which there must be none: nobody sends this
 * program a signal. Argument: which call, made 10,000 to 100,000 times, mostly waiting for another thread.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "battery.h"

#define CALLS 100000
#define CONNECTIONS 10000

static int there[2];
static int back[2];
static int interrupted;
static uint32_t word;

static long noted(long result) {
    if (result < 0 && errno == EINTR)
        interrupted++;
    return result;
}

static void *echo(void *unused) {
    char byte;
    while (noted(read(there[0], &byte, 1)) == 1)
        CHECK(noted(write(back[1], &byte, 1)) == 1);
    return unused;
}

/* Sends a byte to the other thread, which sends it back. */
static void reads(void) {
    char byte = 'x';
    for (int i = 0; i < CALLS; i++) {
        CHECK(write(there[1], &byte, 1) == 1);
        CHECK(noted(read(back[0], &byte, 1)) == 1 && byte == 'x');
    }
}

static void waits(int by_poll) {
    char byte = 'x';
    struct epoll_event event = {.events = EPOLLIN};
    struct pollfd one = {.fd = back[0], .events = POLLIN};
    int set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0 && !epoll_ctl(set, EPOLL_CTL_ADD, back[0], &event));
    for (int i = 0; i < CALLS; i++) {
        CHECK(write(there[1], &byte, 1) == 1);
        CHECK(noted(by_poll ? poll(&one, 1, -1) : epoll_wait(set, &event, 1, -1)) == 1);
        CHECK(read(back[0], &byte, 1) == 1);
    }
    close(set);
}

static void sleeps(void) {
    struct timespec nap = {0, 1};
    for (int i = 0; i < CALLS / 10; i++)
        CHECK(!noted(nanosleep(&nap, NULL)));
}

static void *wake(void *unused) {
    for (int i = 0; i < CALLS; i++) {
        __atomic_store_n(&word, (uint32_t)i + 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) != 0)
            ;
    }
    return unused;
}

static void futexes(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, wake, NULL));
    for (int i = 0; i < CALLS; i++) {
        struct timespec limit = {1, 0};
        while (!__atomic_load_n(&word, __ATOMIC_SEQ_CST)) {
            long result = noted(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0));
            CHECK(!result || errno == EAGAIN);
        }
        __atomic_store_n(&word, 0, __ATOMIC_SEQ_CST);
    }
    CHECK(!pthread_join(thread, NULL));
}

static int listener;

static void *accept_all(void *unused) {
    for (int i = 0; i < CONNECTIONS; i++) {
        int connection = (int)noted(accept(listener, NULL, NULL));
        char byte = 'c';
        CHECK(connection >= 0 && noted(write(connection, &byte, 1)) == 1);
        noted(read(connection, &byte, 1)); /* until the other end is gone */
        CHECK(!close(connection));
    }
    return unused;
}

static void connects(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct linger at_once = {1, 0}; /* no port is left behind in TIME_WAIT */
    pthread_t thread;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 16));
    CHECK(!getsockname(listener, (struct sockaddr *)&address, &size));
    CHECK(!pthread_create(&thread, NULL, accept_all, NULL));
    for (int i = 0; i < CONNECTIONS; i++) {
        int connection = socket(AF_INET, SOCK_STREAM, 0);
        char byte;
        CHECK(!noted(connect(connection, (struct sockaddr *)&address, size)));
        CHECK(noted(read(connection, &byte, 1)) == 1 && byte == 'c');
        CHECK(!setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) && !close(connection));
    }
    CHECK(!pthread_join(thread, NULL));
}

int main(int argc, char **argv) {
    pthread_t thread;
    CHECK(argc == 2 && !pipe(there) && !pipe(back) && !pthread_create(&thread, NULL, echo, NULL));
    if (!strcmp(argv[1], "read"))
        reads();
    else if (!strcmp(argv[1], "epoll_wait"))
        waits(0);
    else if (!strcmp(argv[1], "poll"))
        waits(1);
    else if (!strcmp(argv[1], "nanosleep"))
        sleeps();
    else if (!strcmp(argv[1], "futex"))
        futexes();
    else
        connects();
    close(there[1]);
    CHECK(!pthread_join(thread, NULL));
    CHECK(interrupted == 0);
    return done();
}
