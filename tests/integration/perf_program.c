/* What test_perf_event.py watches: a thread, a child and a library opened late, each busy for a while.
 * usage: perf_program LIBRARY MILLISECONDS [wait]; with "wait" it says its pid and begins when a line comes
 * in. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;

static uint64_t cpu_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

__attribute__((noinline)) static void burn(uint64_t milliseconds) {
    uint64_t end = cpu_time() + milliseconds * 1000000;
    while (cpu_time() < end)
        for (int i = 0; i < 100000; i++)
            sink += (uint64_t)i;
}

__attribute__((noinline)) void little(uint64_t milliseconds) {
    burn(milliseconds);
    sink++;
}

__attribute__((noinline)) void much(uint64_t milliseconds) {
    burn(3 * milliseconds);
    sink++;
}

static void *in_thread(void *milliseconds) {
    pthread_setname_np(pthread_self(), "second");
    much((uintptr_t)milliseconds);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t milliseconds = strtoull(argv[2], NULL, 10);
    if (argc > 3) {
        printf("%d\n", (int)getpid());
        fflush(stdout);
        getchar();
    }
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, (void *)(uintptr_t)milliseconds);
    little(milliseconds);
    pthread_join(thread, NULL);
    void (*late)(void (*)(uint64_t), uint64_t);
    void *library = dlopen(argv[1], RTLD_NOW);
    *(void **)&late = dlsym(library, "late");
    late(burn, milliseconds);
    pid_t child = fork();
    if (child == 0) {
        little(milliseconds);
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) + 4;
}
