/*
 * lives.c: becomes itself again (execve) every few milliseconds, with the other of two functions.
 */
#include "ready.h"

#include <string.h>

static volatile long counter;

NOINLINE static void first_life(void) {
    for (long i = 0; i < 3000000; i++)
        counter++;
}

NOINLINE static void second_life(void) {
    for (long i = 0; i < 3000000; i++)
        counter--;
}

int main(int argc, char **argv) {
    if (argc == 1)
        tell_ready();
    if (argc > 1 && strcmp(argv[1], "second") == 0)
        second_life();
    else
        first_life();
    int is_second = argc > 1 && strcmp(argv[1], "second") == 0;
    execl("/proc/self/exe", argv[0], is_second ? "first" : "second", (char *)NULL);
    return 1;
}
