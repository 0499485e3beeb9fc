/*
 * own_process.h: this process as the walker sees it: executable mappings as modules, its own table
 * compiled at start, and the stacks that may be read directly. Set up outside of handlers.
 */
#ifndef UNSPOOL_OWN_PROCESS_H
#define UNSPOOL_OWN_PROCESS_H

#include <ucontext.h>

#include "unspool.h"

#if defined(__aarch64__)
#define OWN_ARCH UNSPOOL_AARCH64
#define OWN_PC UNSPOOL_AARCH64_PC
#define OWN_SP UNSPOOL_AARCH64_SP
#else
#define OWN_ARCH UNSPOOL_X86_64
#define OWN_PC UNSPOOL_X86_64_PC
#define OWN_SP UNSPOOL_X86_64_RSP
#endif

struct own_process {
    struct unspool_unwinder unwinder;
    struct unspool_module modules[16];
    struct unspool_region stacks[2]; /* the main stack and the alternate one, sorted */
    struct unspool_table *table;
};

/* Ends the program with a message when it can't be set up. */
void own_process_begin(struct own_process *process, const void *alternate_stack, size_t alternate_size);

/* A memory reader over the stacks, the one that holds sp first. */
void own_process_memory(const struct own_process *process, uint64_t sp, struct unspool_memory *memory);

/* The registers that a signal interrupted. */
void registers_of(const ucontext_t *context, struct unspool_registers *registers);

#endif
