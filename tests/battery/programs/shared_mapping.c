/*
 * shared_mapping.c: a thread whose stack is part of a larger mapping, of which another part is the stack of a
 * coroutine; what lies between is unmapped while the coroutine runs, in code whose unwind information points
 * there.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "battery.h"

#define PIECE (64 * 4096)

static ucontext_t thread_context, coroutine_context;
static char *mapping;

/* Loops `count` times with `frame` in rbp, from which the CFA is said to be known. */
#if defined(__x86_64__)
void loop(char *frame, long count);
__asm__("        .text\n"
        "        .type loop, @function\n"
        "loop:   .cfi_startproc\n"
        "        push %rbp\n"
        "        .cfi_def_cfa_offset 16\n"
        "        .cfi_offset rbp, -16\n"
        "        mov %rdi, %rbp\n"
        "        .cfi_def_cfa_register rbp\n"
        "1:      dec %rsi\n"
        "        jnz 1b\n"
        "        pop %rbp\n"
        "        .cfi_def_cfa rsp, 8\n"
        "        ret\n"
        "        .cfi_endproc\n"
        "        .size loop, . - loop\n");
#else
static void loop(char *frame, long count) {
    (void)frame;
    for (volatile long i = 0; i < count; i++)
        ;
}
#endif

static void run_coroutine(void) {
    burn(0.5);
    CHECK(!munmap(mapping + PIECE, PIECE));
    for (int i = 0; i < 20; i++)
        loop(mapping + PIECE + PIECE / 2, 40000000);
}

static void *run_thread(void *unused) {
    CHECK(!getcontext(&coroutine_context));
    coroutine_context.uc_stack.ss_sp = mapping;
    coroutine_context.uc_stack.ss_size = PIECE;
    coroutine_context.uc_link = &thread_context;
    makecontext(&coroutine_context, run_coroutine, 0);
    CHECK(!swapcontext(&thread_context, &coroutine_context));
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    mapping = mmap(NULL, (size_t)3 * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapping != MAP_FAILED);
    CHECK(!pthread_attr_init(&attributes));
    CHECK(!pthread_attr_setstack(&attributes, mapping + (size_t)2 * PIECE, PIECE));
    CHECK(!pthread_create(&thread, &attributes, run_thread, NULL));
    CHECK(!pthread_join(thread, NULL));
    return done();
}
