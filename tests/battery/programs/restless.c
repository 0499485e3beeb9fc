/*
 * restless.c: threads that compute, sleep and come and go, children that come and go, libraries that are
 * loaded; for as many seconds as the first argument says. With a second one SIGINT is handled.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "battery.h"

static atomic_int is_over;

static void on_interrupt(int signal) {
    (void)signal;
    static const char text[] = "interrupted\n";
    _exit(write(1, text, sizeof text - 1) < 0 ? 6 : 5);
}

static void *compute(void *unused) {
    while (!is_over)
        burn(0.005);
    return unused;
}

static void *pass(void *unused) {
    burn(0.002);
    return unused;
}

static void start_child(void) {
    int status;
    int child = fork();
    if (!child) {
        burn(0.005);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
    pthread_t threads[3];
    CHECK(argc >= 2);
    if (argc > 2)
        CHECK(signal(SIGINT, on_interrupt) != SIG_ERR);
    puts("ready");
    fflush(stdout);
    double end = clock_seconds(CLOCK_MONOTONIC) + atof(argv[1]);
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, compute, NULL));
    while (clock_seconds(CLOCK_MONOTONIC) < end) {
        CHECK(!pthread_create(&threads[2], NULL, pass, NULL));
        void *library = dlopen("libm.so.6", RTLD_NOW);
        start_child();
        usleep(1000);
        CHECK(!pthread_join(threads[2], NULL) && library && !dlclose(library));
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_join(threads[i], NULL));
    return done();
}
