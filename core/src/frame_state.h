/*
 * frame_state.h: where a function's frame and its caller's rbp and rbx are, from its start on, in code that
 * may keep the frame by rbx. For code_rows.c, which follows such code. x86_64 only.
 */
#ifndef UNSPOOL_FRAME_STATE_H
#define UNSPOOL_FRAME_STATE_H

#include <stdbool.h>

#include "instruction.h"

enum content {
    HOLDS_OTHER = 0,
    HOLDS_CALLERS, /* what it held at the start */
    HOLDS_FRAME,   /* CFA - offset */
};

enum { SP = REGISTER_SP, FP = REGISTER_FP, BX = 2, REGISTERS };

/* What holds before an instruction. Offsets in bytes. */
struct frame_state {
    struct {
        int32_t holds; /* enum content */
        int32_t offset;
    } registers[REGISTERS];
    int32_t slot[REGISTERS]; /* where the caller's value was saved, from the CFA; 0: nowhere */
};

/* False: the instruction writes over the return address. */
bool apply_to_frame(struct frame_state *state, const struct instruction *instruction);

/* Keeps of *known what holds in the other, too; true if that took something away. */
bool join_frames(struct frame_state *known, const struct frame_state *other);

/* What holds is what held at the start: the function can be left. */
static inline bool is_as_at_start(const struct frame_state *state) {
    return state->registers[SP].holds == HOLDS_FRAME && state->registers[SP].offset == 8 &&
           state->registers[FP].holds == HOLDS_CALLERS && state->registers[BX].holds == HOLDS_CALLERS;
}

/* Where the frame is known by nothing, no row can be. */
static inline bool has_base(const struct frame_state *state) {
    for (uint32_t i = 0; i < REGISTERS; i++)
        if (state->registers[i].holds == HOLDS_FRAME)
            return true;
    return false;
}

#endif
