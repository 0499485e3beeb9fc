/* What runs before and after main: constructors, destructors, atexit, on_exit, indirect functions,
 * thread-local storage, and libraries opened and closed at run time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int started, ended;
static __thread int local = 5;

__attribute__((constructor)) static void begin(void) {
    started = (int)strlen("begin");
}
__attribute__((destructor)) static void end(void) {
    if (ended != 11)
        abort();
}
static void at_exit(void) {
    ended++;
}
static void with_status(int status, void *add) {
    ended += status * 0 + *(int *)add;
}

static int doubled(int value) {
    return value * 2;
}
static int (*choose(void))(int) {
    return doubled;
}
int indirect(int value) __attribute__((ifunc("choose")));

int main(void) {
    static int ten = 10;
    atexit(at_exit);
    on_exit(with_status, &ten);
    void *library = dlopen("libm.so.6", RTLD_NOW);
    if (!library)
        return 1;
    double (*cosine)(double);
    void *symbol = dlsym(library, "cos");
    memcpy(&cosine, &symbol, sizeof cosine);
    if (cosine(0.0) != 1.0 || dlclose(library) || dlopen("libnothing.so.0", RTLD_NOW))
        return 2;
    local += indirect(3);
    return started == 5 && local == 11 ? 0 : 3;
}
