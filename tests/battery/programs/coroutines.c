/*
 * coroutines.c: 64 coroutines on stacks of 16 KB by swapcontext, in two threads; each stack lies between
 * unreadable pages, comes and goes, and is used for three quarters.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "battery.h"

#define STACK 16384
#define COUNT 64

static __thread ucontext_t scheduler;
static __thread ucontext_t contexts[COUNT];
static __thread int steps[COUNT];
static __thread volatile int current;

__attribute__((noinline)) static uint64_t use_stack(int depth) {
    volatile uint64_t frame[62];
    frame[0] = (uint64_t)depth;
    for (volatile int i = 0; i < 200; i++)
        frame[0] += 1;
    return depth ? use_stack(depth - 1) + frame[0] : frame[0];
}

static void run(void) {
    for (int i = 0; i < 10; i++) {
        uint64_t sum = use_stack(20);
        CHECK(sum == 21 * 200 + 20 * 21 / 2);
        steps[current]++;
        swapcontext(&contexts[current], &scheduler);
    }
}

static char *make_stack(void) {
    char *memory = mmap(NULL, STACK + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && !mprotect(memory + 4096, STACK, PROT_READ | PROT_WRITE));
    return memory;
}

static void *work(void *unused) {
    for (int round = 0; round < 30; round++) {
        char *stacks[COUNT];
        for (int i = 0; i < COUNT; i++) {
            stacks[i] = make_stack();
            CHECK(!getcontext(&contexts[i]));
            contexts[i].uc_stack = (stack_t){.ss_sp = stacks[i] + 4096, .ss_size = STACK};
            contexts[i].uc_link = &scheduler;
            makecontext(&contexts[i], run, 0);
            steps[i] = 0;
        }
        for (int turn = 0; turn < 11; turn++)
            for (current = 0; current < COUNT; current++)
                CHECK(!swapcontext(&scheduler, &contexts[current]));
        for (int i = 0; i < COUNT; i++)
            CHECK(steps[i] == 10 && !munmap(stacks[i], STACK + 8192));
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, work, NULL));
    work(NULL);
    CHECK(!pthread_join(thread, NULL));
    return done();
}
