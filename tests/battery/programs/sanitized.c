/* sanitized.c: a program built with AddressSanitizer, which wants to be loaded first; it starts itself once
 * more. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "battery.h"

static volatile int calls;

static void on_signal(int signal) {
    (void)signal;
    calls++;
}

static void *work(void *unused) {
    for (int i = 0; i < 200; i++) {
        char *block = malloc((size_t)i + 1);
        memset(block, i, (size_t)i + 1);
        burn(0.0005);
        free(block);
    }
    return unused;
}

int main(int argc, char **argv) {
    pthread_t threads[3];
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(!sigaction(SIGUSR1, &action, NULL) && !raise(SIGUSR1) && calls == 1);
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, NULL));
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_join(threads[i], NULL));
    if (argc == 1) {
        int status;
        int child = fork();
        if (!child) {
            execl(argv[0], argv[0], "child", NULL);
            _exit(9);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return done();
}
