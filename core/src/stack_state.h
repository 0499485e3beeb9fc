/*
 * stack_state.h: what code analysis knows at one place of the code about sp, fp, lr and the stack, in
 * terms of the registers and the memory at pc, where the analysis began.
 *
 * Small, since many are kept at once on a signal handler's stack.
 */
#ifndef UNSPOOL_STACK_STATE_H
#define UNSPOOL_STACK_STATE_H

#include "analysis.h"
#include "instruction.h"

/* As frame_value, packed; equal values have equal bytes. */
struct state_value {
    uint32_t kind; /* enum frame_value_kind */
    int32_t offset;
};

/* A stack register that the path stored, and where. */
struct state_slot {
    struct state_value address; /* VALUE_SP or VALUE_FP, + offset */
    struct state_value value;
};

#define STATE_SLOTS 4
struct stack_state {
    struct state_value registers[STACK_REGISTERS];
    uint32_t slot_count;
    struct state_slot slots[STATE_SLOTS];
};

/* Memory that some path may have written, as ranges of offsets from sp and fp at pc. It belongs to an
 * analysis, not to a state: what was once in such a place counts as lost on every path. */
#define WRITTEN_RANGES 4
struct written_memory {
    struct {
        uint32_t count;
        struct {
            int32_t low, high; /* low <= offset < high */
        } ranges[WRITTEN_RANGES];
    } by_base[2]; /* from sp, from fp */
};

void state_begin(struct stack_state *state, bool lr_is_live);

/* Does what an instruction does; a call is stepped over. */
void state_apply(struct stack_state *state, struct written_memory *written,
                 const struct instruction *instruction);

/* What a value said in terms of the registers at this place is in terms of those at pc. */
struct state_value state_resolve(const struct stack_state *state, const struct frame_value *value);

bool state_equal(const struct stack_state *a, const struct stack_state *b);

/* Keeps of *state what holds in other too; true if that took something away. */
bool state_join(struct stack_state *state, const struct stack_state *other);

static inline bool state_value_equal(struct state_value a, struct state_value b) {
    return a.kind == b.kind && a.offset == b.offset;
}

/* True when value is read from memory that may have been written. */
bool state_value_is_overwritten(const struct written_memory *written, struct state_value value);

#endif
