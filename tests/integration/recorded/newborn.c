/* newborn LIBRARY...: loads libraries, each of which uses the processor while it is loaded and right after,
 * and calls back into the program; then it is used in a thread that is new. */
#include <dlfcn.h>
#include <pthread.h>

#include "burn.h"

typedef void call_back(void (*function)(void));

DEFINE_BURNER(burn_below)

static void below(void) {
    burn_below(15 * MILLISECONDS);
    __asm__ volatile("" ::: "memory");
}

static void *in_thread(void *function) {
    ((call_back *)(uintptr_t)function)(below);
    return NULL;
}

NOINLINE static void load(const char *path) {
    pthread_t thread;
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void *function = dlsym(library, "use");
    in_thread(function);
    if (pthread_create(&thread, NULL, in_thread, function) || pthread_join(thread, NULL))
        exit(1);
}

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++)
        load(arguments[i]);
    return 0;
}
