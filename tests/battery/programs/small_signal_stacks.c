/*
 * small_signal_stacks.c: threads with signal stacks of 4 KB (or what the kernel asks for at least, if that is
 * more), an unreadable page below each; handlers run on them while the threads compute.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "battery.h"

static __thread volatile int calls;

static void on_signal(int signal) {
    char here;
    stack_t stack;
    CHECK(signal == SIGUSR1 && !sigaltstack(NULL, &stack) && stack.ss_flags & SS_ONSTACK);
    CHECK(&here >= (char *)stack.ss_sp && &here < (char *)stack.ss_sp + stack.ss_size);
    calls++;
}

static void *work(void *unused) {
    size_t least = getauxval(AT_MINSIGSTKSZ);
    size_t size = least + 600 > 4096 ? least + 600 : 4096; /* room for the frame that the kernel writes */
    size_t mapped = (size + 4095) & ~(size_t)4095;
    char *memory = mmap(NULL, mapped + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && !mprotect(memory, 4096, PROT_NONE));
    stack_t stack = {.ss_sp = memory + 4096, .ss_size = size};
    CHECK(!sigaltstack(&stack, NULL));
    for (int i = 0; i < 100; i++) {
        burn(0.002);
        CHECK(!pthread_kill(pthread_self(), SIGUSR1));
    }
    CHECK(calls == 100);
    return unused;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    pthread_t threads[4];
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, NULL));
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_join(threads[i], NULL));
    return done();
}
