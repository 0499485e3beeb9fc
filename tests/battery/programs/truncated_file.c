/*
 * truncated_file.c: a mapped file is truncated under the program, which handles SIGBUS; the stack pointer of
 * one thread lies in such a file, and a library's file is truncated while its functions are on the stack.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "battery.h"

static sigjmp_buf back;
static volatile int faults;
static ucontext_t outside;
static ucontext_t inside;
static int file;

static void on_fault(int signal) {
    CHECK(signal == SIGBUS);
    faults++;
    siglongjmp(back, 1);
}

/* On a stack in the file: its upper half, where the callers' frames are, is cut off. */
static void run_in_file(void) {
    burn(0.05);
    swapcontext(&inside, &outside);
}

static void on_a_stack_in_a_file(void) {
    char *stack = mmap(NULL, 131072, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(stack != MAP_FAILED && !ftruncate(file, 131072) && !getcontext(&inside));
    inside.uc_stack = (stack_t){.ss_sp = stack, .ss_size = 131072};
    makecontext(&inside, run_in_file, 0);
    CHECK(!swapcontext(&outside, &inside));
    CHECK(!ftruncate(file, 0));
    munmap(stack, 131072);
}

int main(int argc, char **argv) {
    char name[] = "/tmp/unspool-battery-XXXXXX";
    struct sigaction action = {.sa_handler = on_fault};
    CHECK(argc == 2 && (file = mkstemp(name)) >= 0 && !unlink(name) && !sigaction(SIGBUS, &action, NULL));
    for (volatile int i = 0; i < 200; i++) {
        CHECK(!ftruncate(file, 65536));
        volatile char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        CHECK(memory != MAP_FAILED);
        memory[60000] = 1;
        CHECK(!ftruncate(file, 4096));
        if (!sigsetjmp(back, 1))
            memory[60000] = 2;
        burn(0.001);
        CHECK(!munmap((void *)(uintptr_t)memory, 65536));
    }
    CHECK(faults == 200);
    on_a_stack_in_a_file();
    /* A library whose file is cut to its first page: its code is gone, what is left of the file is no ELF
     * file. */
    void *library = dlopen(argv[1], RTLD_NOW);
    CHECK(library && dlsym(library, "compute"));
    burn(0.05);
    CHECK(!truncate(argv[1], 100));
    burn(0.1);
    _exit(done()); /* the library can't be closed any more */
}
