/* many_threads.c: 1,000 threads at one time ("alive"), or 10,000 one after the other, 20 at a time ("churn").
 */
#include <pthread.h>
#include <stdatomic.h>

#include "battery.h"

static pthread_barrier_t barrier;
static atomic_int sum;

static void *live(void *unused) {
    pthread_barrier_wait(&barrier);
    burn(0.001);
    atomic_fetch_add(&sum, 1);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void *pass(void *unused) {
    for (volatile int i = 0; i < 20000; i++)
        ;
    atomic_fetch_add(&sum, 1);
    return unused;
}

int main(int argc, char **argv) {
    static pthread_t threads[1000];
    pthread_attr_t attributes;
    CHECK(argc == 2 && !pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, 65536));
    int at_once = strcmp(argv[1], "alive") ? 20 : 1000;
    int rounds = at_once == 20 ? 500 : 1;
    CHECK(!pthread_barrier_init(&barrier, NULL, 1001));
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < at_once; i++)
            CHECK(!pthread_create(&threads[i], &attributes, at_once == 20 ? pass : live, NULL));
        if (at_once == 1000) {
            pthread_barrier_wait(&barrier);
            burn(0.2);
            pthread_barrier_wait(&barrier);
        }
        for (int i = 0; i < at_once; i++)
            CHECK(!pthread_join(threads[i], NULL));
    }
    CHECK(sum == at_once * rounds);
    return done();
}
