/* main_ends.c: the main thread ends by pthread_exit; the others go on, and the last one ends the program. */
#include <pthread.h>
#include <stdatomic.h>

#include "battery.h"

static atomic_int finished;

static void *work(void *unused) {
    (void)unused;
    burn(0.15);
    if (atomic_fetch_add(&finished, 1) == 3)
        exit(done() + 7);
    return NULL;
}

int main(void) {
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&thread, NULL, work, NULL));
    burn(0.05);
    pthread_exit(NULL);
}
