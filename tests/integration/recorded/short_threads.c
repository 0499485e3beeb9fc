/* A hundred threads one after another, each of which uses 6 ms of the processor. */
#include <pthread.h>

#include "burn.h"

DEFINE_BURNER(burn)

static void *body(void *unused) {
    burn(6 * MILLISECONDS);
    return unused;
}

int main(void) {
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, body, NULL))
            return 1;
        pthread_join(thread, NULL);
    }
    return 0;
}
