/* with_preload.c: a program whose calls another preloaded library counts; run once more as its own child. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>

#include "battery.h"

extern char **environ;

static void ignore(int signal) {
    (void)signal;
}

int main(int argc, char **argv) {
    char byte;
    int zero = open("/dev/zero", O_RDONLY);
    for (int i = 0; i < 10; i++)
        CHECK(read(zero, &byte, 1) == 1);
    struct sigaction action = {.sa_handler = ignore};
    CHECK(!sigaction(SIGUSR1, &action, NULL) && !sigaction(SIGUSR2, &action, NULL));
    burn(0.2);
    puts(argc > 1 ? "parent" : "child");
    fflush(stdout);
    if (argc > 1)
        execve(argv[0], (char *[]){argv[0], NULL}, environ);
    return done();
}
