/*
 * libraries.c: opens and closes libraries in a loop while two threads compute in others. Arguments: libraries
 * with a function `compute` whose results differ; they have different contents and mostly come to lie at the
 * same address.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "battery.h"

static atomic_int is_over;
static char **paths;
static int path_count;

static uint64_t use(int number) {
    void *library = dlopen(paths[number], RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    uint64_t (*compute)(uint64_t) = (uint64_t (*)(uint64_t))(uintptr_t)dlsym(library, "compute");
    CHECK(compute && compute(1000) == (uint64_t)(number + 1) * 1000);
    uint64_t sum = compute(200000);
    CHECK(!dlclose(library));
    return sum;
}

static void *compute_elsewhere(void *unused) {
    while (!is_over)
        burn(0.005);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    paths = argv + 1;
    path_count = argc - 1;
    CHECK(path_count >= 2);
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, compute_elsewhere, NULL));
    for (int i = 0; i < 1000; i++)
        use(i % path_count);
    is_over = 1;
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_join(threads[i], NULL));
    return done();
}
