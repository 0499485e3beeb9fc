/*
 * blocked.c: threads that wait deep in libc: for a line of a pipe, for a condition, in qsort's callback.
 */
#include "ready.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static FILE *pipe_end;

NOINLINE static void read_line(void) {
    char line[80];
    pthread_barrier_wait(&barrier);
    while (fgets(line, sizeof line, pipe_end))
        continue;
    KEEP_FRAME;
}

NOINLINE static void wait_for_condition(void) {
    pthread_mutex_lock(&mutex);
    pthread_barrier_wait(&barrier);
    for (;;)
        pthread_cond_wait(&never, &mutex);
}

NOINLINE static int compare(const void *a, const void *b) {
    static int calls;
    if (++calls == 5) {
        pthread_barrier_wait(&barrier);
        wait_for_ever();
    }
    KEEP_FRAME;
    return *(const int *)a - *(const int *)b;
}

NOINLINE static void sort(void) {
    int numbers[] = {5, 3, 8, 1, 9, 2, 7};
    qsort(numbers, sizeof numbers / sizeof *numbers, sizeof *numbers, compare);
    KEEP_FRAME;
}

static void *run(void *function) {
    ((void (*)(void))function)();
    return NULL;
}

int main(void) {
    void (*functions[])(void) = {read_line, wait_for_condition, sort};
    int ends[2];
    if (pipe(ends))
        return 1;
    pipe_end = fdopen(ends[0], "r");
    pthread_barrier_init(&barrier, NULL, 4);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)functions[i]))
            return 1;
    }
    pthread_barrier_wait(&barrier);
    usleep(50000); /* from the barrier to where they wait */
    tell_ready();
    wait_for_ever();
}
