/* preloaded.c: another library in LD_PRELOAD: it stands before some functions of libc, and says so at the
 * end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int reads, actions, programs, was_hidden;

__attribute__((constructor)) static void begin(void) {
    was_hidden = !getenv("UNSPOOL_SESSION");
}

__attribute__((destructor)) static void end(void) {
    printf("preloaded: %d reads, %d actions, %d programs, hidden %d, LD_PRELOAD %s\n", reads, actions,
           programs, was_hidden, getenv("LD_PRELOAD"));
}

ssize_t read(int file, void *buffer, size_t size) {
    reads++;
    return ((ssize_t(*)(int, void *, size_t))(size_t)dlsym(RTLD_NEXT, "read"))(file, buffer, size);
}

int sigaction(int signal, const struct sigaction *action, struct sigaction *old) {
    actions++;
    return ((int (*)(int, const struct sigaction *, struct sigaction *))(size_t)dlsym(
        RTLD_NEXT, "sigaction"))(signal, action, old);
}

int execve(const char *path, char *const arguments[], char *const environment[]) {
    programs++;
    end();
    fflush(stdout);
    return ((int (*)(const char *, char *const[], char *const[]))(size_t)dlsym(RTLD_NEXT, "execve"))(
        path, arguments, environment);
}
