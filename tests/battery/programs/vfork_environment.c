/*
 * vfork_environment.c: execve in the child of a vfork on a stack of 64 KB, with an environment that is
 * larger.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>

#include "battery.h"

#define COUNT 20000

static char text[COUNT][8];
static char *environment[COUNT + 1];

static void *start(void *unused) {
    char *arguments[] = {"true", NULL};
    int status;
    burn(0.1);
    pid_t child = vfork();
    if (!child) {
        execve("/bin/true", arguments, environment);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    for (int i = 0; i < COUNT; i++) {
        snprintf(text[i], sizeof text[i], "V%05d=", i);
        environment[i] = text[i];
    }
    CHECK(!pthread_attr_init(&attributes));
    CHECK(!pthread_attr_setstacksize(&attributes, 65536));
    CHECK(!pthread_create(&thread, &attributes, start, NULL));
    CHECK(!pthread_join(thread, NULL));
    return done();
}
