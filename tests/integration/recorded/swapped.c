/* swapped LIBRARY0 LIBRARY1 LIBRARY2 LIBRARY3: loads, uses and unloads libraries in turn, which come to lie
 * at the same addresses; now for a moment, now for long. Library n is used by function in_n only. */
#include <dlfcn.h>

#include "burn.h"

NOINLINE static void use(const char *path, const char *name, uint64_t nanoseconds) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    ((void (*)(uint64_t))(uintptr_t)dlsym(library, name))(nanoseconds);
    if (dlclose(library))
        exit(1);
}

#define DEFINE_USER(number)                                                                                  \
    NOINLINE static void in_##number(const char *path, uint64_t nanoseconds) {                               \
        use(path, "run_" #number, nanoseconds);                                                              \
        __asm__ volatile("" ::: "memory");                                                                   \
    }

DEFINE_USER(0)
DEFINE_USER(1)
DEFINE_USER(2)
DEFINE_USER(3)

int main(int count, char **arguments) {
    static void (*const users[])(const char *, uint64_t) = {in_0, in_1, in_2, in_3};
    if (count != 5)
        return 2;
    for (int turn = 0; turn < 12; turn++) {
        for (int i = 0; i < 16; i++)
            users[i % 4](arguments[1 + i % 4], MILLISECONDS);
        users[turn % 4](arguments[1 + turn % 4], 60 * MILLISECONDS);
    }
    return 0;
}
