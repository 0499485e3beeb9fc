/*
 * ordinary_step.h: the step that nearly all frames take: its rule is cached whole, and does with sp, fp and
 * words of the stack at hand. This is how walk_many.c takes it; a single stack's walk has its own
 * (ordinary_walk.c).
 *
 * It has two halves, so that the words of one stack can be fetched while others take their steps: look_ahead
 * finds out where they are, read_word reads them in the next turn. What is not ordinary is left to take_step
 * (walk.c), whose results are the same. Async-signal-safe.
 */
#ifndef UNSPOOL_ORDINARY_STEP_H
#define UNSPOOL_ORDINARY_STEP_H

#include "rule_cache.h"

/* The stack at hand, in the way that costs fewest instructions. */
struct stack_view {
    uint64_t to_bytes;        /* from an address on the stack to where its bytes are, by addition */
    uint64_t address, places; /* a word begins at address + n, n < places */
};

static inline struct stack_view view_stack(const struct unspool_region *stack) {
    return (struct stack_view){
        .to_bytes = (uintptr_t)stack->bytes - stack->address,
        .address = stack->address,
        .places = stack->size < sizeof(uint64_t) ? 0 : stack->size - sizeof(uint64_t) + 1,
    };
}

/* A frame whose fp is known, and which is no interrupted one, but for those of x86_64 where the bytes begin
 * at sp: then no slot that an epilogue has popped (is_popped in walk.c) can be taken for one. */
struct ordinary_frame {
    uint64_t sp, fp;
    uint64_t cfa;
    const void *pc_from, *fp_from; /* the caller's */
};

static inline bool may_be_ordinary(uint32_t arch, const struct unspool_region *stack,
                                   const struct frame *frame) {
    return frame->fp_is_known && !frame->all &&
           (!frame->is_interrupted || (arch == UNSPOOL_X86_64 && stack->address == frame->sp));
}

/* False: the step is not ordinary. Without branches, since what rules say changes from frame to frame. */
static inline bool look_ahead(uint64_t entry, const struct stack_view *view, uint64_t sp, uint64_t fp,
                              struct ordinary_frame *frame) {
    uint64_t cfa = (entry & PACKED_CFA_BY_FP ? fp : sp) + (uint64_t)packed_cfa_offset(entry);
    uint64_t pc_address = cfa + (uint64_t)packed_ra_offset(entry);
    uint64_t fp_address = cfa + (uint64_t)packed_fp_offset(entry);
    const void *fp_from = (const void *)(uintptr_t)(fp_address + view->to_bytes);
    frame->sp = sp;
    frame->fp = fp;
    frame->cfa = cfa;
    frame->pc_from = (const void *)(uintptr_t)(pc_address + view->to_bytes);
    frame->fp_from = entry & PACKED_FP_IS_SAVED ? fp_from : &frame->fp;
    return is_packed(entry) & (cfa > sp) & (pc_address - view->address < view->places) &
           (fp_address - view->address < view->places);
}

static inline uint64_t read_word(const void *from) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

#endif
