/* Threads one after another, each of which uses 200 ms of the processor while all others wait; then all at
 * once. Prints the process' CPU time in nanoseconds. */
#include <pthread.h>
#include <sys/prctl.h>

#include "burn.h"

DEFINE_BURNER(burn)

static void *body(void *name) {
    prctl(PR_SET_NAME, name);
    burn(200 * MILLISECONDS);
    return NULL;
}

int main(void) {
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    char names[THREADS][16];
    for (int i = 0; i < THREADS; i++) {
        snprintf(names[i], sizeof names[i], "alone-%d", i);
        pthread_create(&threads[i], NULL, body, names[i]);
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        snprintf(names[i], sizeof names[i], "together-%d", i);
        pthread_create(&threads[i], NULL, body, names[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%llu\n", (unsigned long long)cpu_time(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
