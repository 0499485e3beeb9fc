/*
 * frame_state.c: what instructions do to a frame, and what is left where two ways meet (frame_state.h).
 */
#include "frame_state.h"

static uint32_t index_of(uint8_t number) {
    return number == REGISTER_BX ? BX : number <= REGISTER_FP ? number : REGISTERS;
}

/* Memory at CFA + low .. CFA + high is written. False: the return address is. */
static bool overwrite(struct frame_state *state, int64_t low, int64_t high) {
    for (uint32_t i = FP; i < REGISTERS; i++)
        if (state->slot[i] && low < state->slot[i] + 8 && high > state->slot[i])
            state->slot[i] = 0;
    return low >= 0 || high <= -8;
}

static bool store(struct frame_state *state, const struct stack_effect *effect, uint32_t to, uint32_t from) {
    if (state->registers[to].holds != HOLDS_FRAME)
        return true;
    int64_t low = effect->offset - state->registers[to].offset;
    bool saves = from < REGISTERS && from != SP && state->registers[from].holds == HOLDS_CALLERS &&
                 state->slot[from] == 0 && low < 0 && low > INT16_MIN && low % 8 == 0;
    if (!overwrite(state, low, low + effect->size))
        return false;
    if (saves)
        state->slot[from] = (int32_t)low;
    return true;
}

static void set(struct frame_state *state, const struct stack_effect *effect, uint32_t to, uint32_t from) {
    int64_t offset = from < REGISTERS ? state->registers[from].offset - effect->offset : 0;
    bool is_frame = from < REGISTERS && state->registers[from].holds == HOLDS_FRAME &&
                    offset > INT32_MIN / 2 && offset < INT32_MAX / 2;
    state->registers[to].holds = is_frame ? HOLDS_FRAME : HOLDS_OTHER;
    state->registers[to].offset = is_frame ? (int32_t)offset : 0;
}

static void load(struct frame_state *state, const struct stack_effect *effect, uint32_t to, uint32_t from) {
    bool is_own = from < REGISTERS && state->registers[from].holds == HOLDS_FRAME && state->slot[to] != 0 &&
                  effect->offset - state->registers[from].offset == state->slot[to];
    state->registers[to].holds = is_own ? HOLDS_CALLERS : HOLDS_OTHER;
    state->registers[to].offset = 0;
}

bool apply_to_frame(struct frame_state *state, const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++) {
        const struct stack_effect *effect = &instruction->effects[i];
        uint32_t to = index_of(effect->to), from = index_of(effect->from);
        if (to == REGISTERS)
            continue;
        if (effect->kind == EFFECT_STORE && !store(state, effect, to, from))
            return false;
        if (effect->kind == EFFECT_SET)
            set(state, effect, to, from);
        if (effect->kind == EFFECT_LOAD)
            load(state, effect, to, from);
        if (effect->kind == EFFECT_CLOBBER)
            state->registers[to].holds = HOLDS_OTHER;
    }
    return true;
}

bool join_frames(struct frame_state *known, const struct frame_state *other) {
    bool changed = false;
    for (uint32_t i = 0; i < REGISTERS; i++) {
        bool is_same = known->registers[i].holds == other->registers[i].holds &&
                       known->registers[i].offset == other->registers[i].offset;
        if (!is_same && known->registers[i].holds != HOLDS_OTHER) {
            known->registers[i].holds = HOLDS_OTHER;
            known->registers[i].offset = 0;
            changed = true;
        }
        if (known->slot[i] != other->slot[i] && known->slot[i]) {
            known->slot[i] = 0;
            changed = true;
        }
    }
    return changed;
}
