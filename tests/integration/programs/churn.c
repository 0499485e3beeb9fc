/*
 * churn.c: threads begin and end all the time.
 */
#include "ready.h"

#include <pthread.h>

static void *live_shortly(void *unused) {
    usleep(300);
    return unused;
}

static void *start_others(void *unused) {
    for (;;) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            if (pthread_create(&threads[i], NULL, live_shortly, NULL))
                _exit(1);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    return unused;
}

int main(void) {
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, start_others, NULL))
            return 1;
    }
    tell_ready();
    wait_for_ever();
}
