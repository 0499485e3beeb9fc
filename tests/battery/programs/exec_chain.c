/*
 * exec_chain.c: replaces itself 300 times while its threads compute: no signal that was under way may reach
 * the new program, which would end by it.
 */
#include <pthread.h>

#include "battery.h"

static void *compute(void *unused) {
    burn(10);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    int left = argc == 2 ? atoi(argv[1]) : 300;
    if (!left)
        return done();
    CHECK(!pthread_create(&thread, NULL, compute, NULL));
    burn(0.001);
    char number[16];
    snprintf(number, sizeof number, "%d", left - 1);
    execl(argv[0], argv[0], number, NULL);
    return 1;
}
