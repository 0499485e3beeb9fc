/*
 * epilogue.c: aarch64: what a function does from pc to its return, where nothing but the return can follow.
 *
 * Such code is a proof: whatever CFI says, it will run, and what it leaves in lr, sp and fp is the caller's.
 * It is asked only where CFI is known to lag behind the code.
 */
#include "analysis.h"
#include "instruction.h"
#include "stack_state.h"
#include "walk.h"

enum { EPILOGUE_INSTRUCTIONS = 64, BEFORE_INSTRUCTIONS = 64 };

/* The row at address is that of a function's first instruction. */
bool is_function_entry(const struct code *code, uint64_t address) {
    struct unspool_row row;
    const struct unspool_module *module = find_module(code->unwinder, address);
    return module && module->table &&
           unspool_table_lookup(module->table, address - module->image_base, &row) == UNSPOOL_OK &&
           !(row.flags & (UNSPOOL_ROW_NONE | UNSPOOL_ROW_END | UNSPOOL_ROW_EXACT)) &&
           row.ra == UNSPOOL_SAVED_SAME && row.cfa_base == UNSPOOL_CFA_SP && row.cfa_offset == 0;
}

static struct frame_value as_frame_value(struct state_value value) {
    return (struct frame_value){(uint8_t)value.kind, value.offset};
}

/* What the registers are when the function has been left. */
static bool recipe_at_return(const struct stack_state *state, const struct written_memory *written,
                             struct frame_recipe *recipe) {
    struct state_value lr = state->registers[REGISTER_LR], sp = state->registers[REGISTER_SP],
                       fp = state->registers[REGISTER_FP];
    bool is_kept =
        fp.kind == VALUE_AT_SP || fp.kind == VALUE_AT_FP || (fp.kind == VALUE_FP && fp.offset == 0);
    *recipe = (struct frame_recipe){as_frame_value(lr), as_frame_value(sp), {VALUE_UNKNOWN, 0}};
    if (is_kept && !state_value_is_overwritten(written, fp))
        recipe->fp = as_frame_value(fp);
    return (lr.kind == VALUE_LR || lr.kind == VALUE_AT_SP || lr.kind == VALUE_AT_FP) &&
           (sp.kind == VALUE_SP || sp.kind == VALUE_FP) && !state_value_is_overwritten(written, lr);
}

/* Jumps are followed, also to another function: what clang outlines for size may be the rest of an epilogue.
 */
enum epilogue epilogue_recipe(const struct code *code, uint64_t pc, struct frame_recipe *recipe) {
    struct frame_recipe stub;
    struct stack_state state;
    struct written_memory written = {0};
    uint64_t address = pc;
    enum epilogue otherwise = NO_EPILOGUE;
    state_begin(&state, true);
    for (int i = 0; i < EPILOGUE_INSTRUCTIONS; i++) {
        uint8_t bytes[4];
        struct instruction instruction;
        if (code_read(code, address, bytes, sizeof bytes) != sizeof bytes)
            return otherwise;
        aarch64_decode(bytes, sizeof bytes, address, &instruction);
        state_apply(&state, &written, &instruction);
        bool is_lost = state.registers[REGISTER_LR].kind == VALUE_UNKNOWN ||
                       state.registers[REGISTER_SP].kind == VALUE_UNKNOWN;
        if (instruction.flow == FLOW_RETURN && is_lost)
            return EPILOGUE_LEAPS;
        if (instruction.flow == FLOW_RETURN)
            return recipe_at_return(&state, &written, recipe) ? EPILOGUE_RETURNS : otherwise;
        if (instruction.flow != FLOW_NEXT && instruction.flow != FLOW_JUMP)
            return otherwise;
        address = instruction.flow == FLOW_JUMP ? instruction.target : address + sizeof bytes;
        bool is_elsewhere = instruction.flow == FLOW_JUMP && otherwise == NO_EPILOGUE &&
                            (is_function_entry(code, address) || plt_recipe(code, address, &stub));
        if (is_elsewhere && is_lost)
            return EPILOGUE_LEAPS;
        if (is_elsewhere && recipe_at_return(&state, &written, recipe))
            otherwise = EPILOGUE_JUMPS;
    }
    return otherwise;
}

/* Going back from pc: sp was put there from elsewhere, and lr has not been loaded from the stack since. */
bool may_have_leapt(const struct code *code, uint64_t pc) {
    for (uint64_t address = pc - 4; pc - address <= 4 * BEFORE_INSTRUCTIONS; address -= 4) {
        uint8_t bytes[4];
        struct instruction instruction;
        if (code_read(code, address, bytes, sizeof bytes) != sizeof bytes)
            return false;
        aarch64_decode(bytes, sizeof bytes, address, &instruction);
        if (instruction.flow != FLOW_NEXT && instruction.flow != FLOW_BRANCH)
            return false; /* what comes after it is entered by a jump or a call */
        for (uint32_t i = 0; i < instruction.effect_count; i++) {
            const struct stack_effect *effect = &instruction.effects[i];
            if (effect->to == REGISTER_LR && effect->kind == EFFECT_LOAD)
                return false;
            if (effect->to == REGISTER_SP && effect->kind == EFFECT_CLOBBER)
                return true;
        }
    }
    return false;
}
