/*
 * stack_state.c: how instructions change what is known about sp, fp, lr and the stack.
 *
 * What is assumed of code: a function's saved registers and return address are written only through
 * sp and fp, without an index (no pointer to them is made); memory addressed from sp and memory
 * addressed from fp are told apart by the register at pc, and one does not overwrite what is saved in
 * the other; below sp nothing lasts over a call; a callee keeps sp and fp.
 */
#include "stack_state.h"

static const struct state_value unknown = {VALUE_UNKNOWN, 0};

static bool is_address(struct state_value value) {
    return value.kind == VALUE_SP || value.kind == VALUE_FP;
}

static struct state_value add(struct state_value value, int64_t offset) {
    if (offset == 0 || value.kind == VALUE_UNKNOWN)
        return value;
    if (!is_address(value) || offset > INT32_MAX / 2 || offset < INT32_MIN / 2)
        return unknown;
    int64_t sum = value.offset + offset;
    if (sum > INT32_MAX / 2 || sum < INT32_MIN / 2)
        return unknown;
    return (struct state_value){value.kind, (int32_t)sum};
}

static bool overlap(int32_t low_a, int32_t high_a, int32_t low_b, int32_t high_b) {
    return low_a < high_b && low_b < high_a;
}

/* ------------------------------------------------------------------ written memory */

static void mark_written(struct written_memory *written, uint32_t base, int32_t low, int32_t high) {
    uint32_t b = base == VALUE_SP ? 0 : 1;
    uint32_t count = written->by_base[b].count, nearest = 0;
    int64_t smallest_gap = INT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        int32_t range_low = written->by_base[b].ranges[i].low,
                range_high = written->by_base[b].ranges[i].high;
        int64_t gap = low > range_high ? (int64_t)low - range_high : (int64_t)range_low - high;
        if (gap < smallest_gap) {
            smallest_gap = gap;
            nearest = i;
        }
    }
    if (smallest_gap > 0 && count < WRITTEN_RANGES) {
        written->by_base[b].ranges[count].low = low;
        written->by_base[b].ranges[count].high = high;
        written->by_base[b].count++;
        return;
    }
    if (written->by_base[b].ranges[nearest].low > low)
        written->by_base[b].ranges[nearest].low = low;
    if (written->by_base[b].ranges[nearest].high < high)
        written->by_base[b].ranges[nearest].high = high;
}

bool state_value_is_overwritten(const struct written_memory *written, struct state_value value) {
    if (value.kind != VALUE_AT_SP && value.kind != VALUE_AT_FP)
        return false;
    uint32_t b = value.kind == VALUE_AT_SP ? 0 : 1;
    for (uint32_t i = 0; i < written->by_base[b].count; i++)
        if (overlap(value.offset, value.offset + 8, written->by_base[b].ranges[i].low,
                    written->by_base[b].ranges[i].high))
            return true;
    return false;
}

/* ------------------------------------------------------------------ memory */

static void remove_slot(struct stack_state *state, uint32_t index) {
    state->slots[index] = state->slots[--state->slot_count];
}

static void store(struct stack_state *state, struct written_memory *written, struct state_value address,
                  uint32_t size, struct state_value value) {
    if (!is_address(address))
        return;
    int32_t high = address.offset + (int32_t)size;
    mark_written(written, address.kind, address.offset, high);
    for (uint32_t i = state->slot_count; i-- > 0;) {
        int32_t at = state->slots[i].address.offset;
        if (state->slots[i].address.kind == address.kind && overlap(at, at + 8, address.offset, high))
            remove_slot(state, i);
    }
    /* A value that finds no slot is lost, which the written memory tells. */
    if (value.kind != VALUE_UNKNOWN && state->slot_count < STATE_SLOTS)
        state->slots[state->slot_count++] = (struct state_slot){address, value};
}

static struct state_value load(const struct stack_state *state, struct state_value address) {
    if (!is_address(address))
        return unknown;
    for (uint32_t i = 0; i < state->slot_count; i++) {
        struct state_value at = state->slots[i].address;
        if (at.kind != address.kind)
            continue;
        if (at.offset == address.offset)
            return state->slots[i].value;
        if (overlap(at.offset, at.offset + 8, address.offset, address.offset + 8))
            return unknown;
    }
    if (address.kind == VALUE_SP && address.offset < 0) /* nothing that anyone stored for keeps */
        return unknown;
    return (struct state_value){address.kind == VALUE_SP ? VALUE_AT_SP : VALUE_AT_FP, address.offset};
}

static void step_over_call(struct stack_state *state, struct written_memory *written) {
    struct state_value sp = state->registers[REGISTER_SP];
    state->registers[REGISTER_LR] = unknown;
    if (!is_address(sp))
        return;
    mark_written(written, sp.kind, INT32_MIN / 2, sp.offset);
    for (uint32_t i = state->slot_count; i-- > 0;)
        if (state->slots[i].address.kind == sp.kind && state->slots[i].address.offset < sp.offset)
            remove_slot(state, i);
}

/* ------------------------------------------------------------------ states */

void state_begin(struct stack_state *state, bool lr_is_live) {
    *state = (struct stack_state){0};
    state->registers[REGISTER_SP].kind = VALUE_SP;
    state->registers[REGISTER_FP].kind = VALUE_FP;
    state->registers[REGISTER_LR].kind = lr_is_live ? VALUE_LR : VALUE_UNKNOWN;
}

void state_apply(struct stack_state *state, struct written_memory *written,
                 const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++) {
        const struct stack_effect *effect = &instruction->effects[i];
        if (effect->to >= STACK_REGISTERS)
            continue;
        struct state_value *to = &state->registers[effect->to];
        struct state_value from = effect->from < STACK_REGISTERS ? state->registers[effect->from] : unknown;
        switch (effect->kind) {
        case EFFECT_SET:
            *to = add(from, effect->offset);
            break;
        case EFFECT_LOAD:
            *to = load(state, add(from, effect->offset));
            break;
        case EFFECT_STORE:
            store(state, written, add(*to, effect->offset), effect->size, from);
            break;
        default:
            *to = unknown;
        }
    }
    if (instruction->flow == FLOW_CALL)
        step_over_call(state, written);
}

struct state_value state_resolve(const struct stack_state *state, const struct frame_value *value) {
    switch (value->kind) {
    case VALUE_SP:
        return add(state->registers[REGISTER_SP], value->offset);
    case VALUE_FP:
        return add(state->registers[REGISTER_FP], value->offset);
    case VALUE_LR:
        return state->registers[REGISTER_LR];
    case VALUE_AT_SP:
        return load(state, add(state->registers[REGISTER_SP], value->offset));
    case VALUE_AT_FP:
        return load(state, add(state->registers[REGISTER_FP], value->offset));
    default:
        return unknown;
    }
}

static bool has_slot(const struct stack_state *state, const struct state_slot *slot) {
    for (uint32_t i = 0; i < state->slot_count; i++)
        if (state_value_equal(state->slots[i].address, slot->address) &&
            state_value_equal(state->slots[i].value, slot->value))
            return true;
    return false;
}

bool state_equal(const struct stack_state *a, const struct stack_state *b) {
    for (uint32_t i = 0; i < STACK_REGISTERS; i++)
        if (!state_value_equal(a->registers[i], b->registers[i]))
            return false;
    if (a->slot_count != b->slot_count)
        return false;
    for (uint32_t i = 0; i < a->slot_count; i++)
        if (!has_slot(b, &a->slots[i]))
            return false;
    return true;
}

bool state_join(struct stack_state *state, const struct stack_state *other) {
    bool changed = false;
    for (uint32_t i = 0; i < STACK_REGISTERS; i++) {
        struct state_value *value = &state->registers[i];
        if (value->kind != VALUE_UNKNOWN && !state_value_equal(*value, other->registers[i])) {
            *value = unknown;
            changed = true;
        }
    }
    for (uint32_t i = state->slot_count; i-- > 0;)
        if (!has_slot(other, &state->slots[i])) {
            remove_slot(state, i);
            changed = true;
        }
    return changed;
}
