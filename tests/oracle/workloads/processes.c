/* vfork, posix_spawn and fork with exec; threads that are started, cancelled, joined. argv[1]: rounds. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const command[] = {"/bin/true", NULL}, *const nothing[] = {NULL};

static int ended(pid_t child) {
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
}

static void *work(void *argument) {
    char text[32];
    memset(text, *(int *)argument, sizeof text);
    if (text[3] % 2)
        pthread_exit(NULL);
    pthread_testcancel();
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int i = 0; i < rounds; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execve(command[0], command, nothing);
            _exit(1);
        }
        pid_t spawned;
        if (!ended(child) || posix_spawn(&spawned, command[0], NULL, NULL, command, nothing) ||
            !ended(spawned))
            return 1;
        child = fork();
        if (child == 0)
            _exit(0);
        if (!ended(child))
            return 2;
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, &i) || pthread_join(thread, NULL))
            return 3;
    }
    return 0;
}
