/*
 * compare.h: walks a stopped thread with the product's walker and holds the result against the truth.
 *
 * Most verdicts fall at once. Where registers are being replaced (longjmp, exceptions, swapcontext) the
 * truth is where control will go: such a check waits until the thread has gone there.
 */
#ifndef ORACLE_COMPARE_H
#define ORACLE_COMPARE_H

#include "results.h"
#include "target.h"
#include "truth.h"
#include "unspool.h"

struct pending;

struct comparison {
    const struct target *target;
    struct unspool_unwinder unwinder;
    struct results results;
    struct value_set seen; /* (pc, caller chain, frame size) that were checked */
    struct unspool_cache cache;
    struct unspool_memory memory;
    uint64_t *truth, *walked, *copied, *batched; /* address lists, DEPTH_LIMIT entries */
    uint8_t *walked_how, *copied_how, *batched_how;
    uint8_t *stack_copy;
};

/* What a thread is waiting to know. */
struct waiting {
    struct pending *first;
};

void comparison_init(struct comparison *comparison, const struct target *target, uint32_t arch);
void comparison_modules_changed(struct comparison *comparison);

/* Checks the stack at registers, unless it was checked before. */
void comparison_check(struct comparison *comparison, struct waiting *waiting, const struct truth *truth,
                      const struct unspool_registers *registers);

/* To be called after each step of a thread: truth.outcome may decide waiting checks. */
void comparison_stepped(struct comparison *comparison, struct waiting *waiting, const struct truth *truth);
/* The thread has ended. */
void comparison_finish(struct comparison *comparison, struct waiting *waiting);

#endif
