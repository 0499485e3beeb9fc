/*
 * fork_in_loader.c: forks while another thread holds the dynamic loader's lock, which nobody gives back in
 * the child. exec needs no such lock.
 */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <sys/wait.h>

#include "battery.h"

static volatile int is_held, is_over;

static int hold(struct dl_phdr_info *file, size_t size, void *unused) {
    (void)file;
    (void)size;
    (void)unused;
    is_held = 1;
    while (!is_over)
        usleep(1000);
    return 1;
}

static void *iterate(void *unused) {
    dl_iterate_phdr(hold, NULL);
    return unused;
}

int main(void) {
    pthread_t thread;
    int status;
    burn(0.1);
    CHECK(!pthread_create(&thread, NULL, iterate, NULL));
    while (!is_held)
        usleep(1000);
    pid_t child = fork();
    if (!child) {
        alarm(20);
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    is_over = 1;
    CHECK(!pthread_join(thread, NULL));
    return done();
}
