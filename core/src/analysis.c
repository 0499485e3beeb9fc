/*
 * analysis.c: follows code from a pc to the function's returns, keeping track of the stack.
 *
 * What counts as proof. Paths are first followed up to their calls. Those that come to a return, or
 * to a place where the unwind table says what holds, name the caller, and all must name the same one.
 * A path that ends in a trap (ud2, brk, ...) or goes round for ever never comes to a caller, so it
 * says nothing for or against; nor does one that ends at a call. Whatever can't be followed (an
 * indirect jump, bytes that are no instruction, unreadable code, the end of a stack by the table,
 * more code than the limits allow) leaves a path open: no proof.
 *
 * If no path gets to a return that way, calls are stepped over, as though each came back. One that
 * doesn't makes the path run on into code that it never reaches, hence CALLER_IF_CALLS_RETURN unless
 * each is seen to lead to a function that can return, or to be jumped over; the same holds for every pc that
 * is itself a return address. One mistake can be told at once: when such a call ends its function, the path
 * comes to the next function's return, which takes the stack to be just as the call left it, and the caller
 * would be at sp + 8 of the call (aarch64: at sp). But a function that calls another has pushed something by
 * then: on x86_64 to align the stack to 16 bytes, on aarch64 to save lr. So a caller at less than sp + 16 of
 * any call on the way is none.
 *
 * Memory: about 12 KB of the stack, nothing else; async-signal-safe. What a call leads to is analysed from
 * within, one level deep: that analysis does not look into calls. Time: at most three times
 * INSTRUCTION_LIMIT instructions are decoded, in a search for a path four times SEARCH_LIMIT.
 */
#include "analysis.h"
#include "machine_code.h"
#include "paths.h"

static struct frame_value frame_value(struct state_value value) {
    return (struct frame_value){(uint8_t)value.kind, value.offset};
}

/* Follows every path; true when they name one caller. */
static bool find_caller(struct analysis *a) {
    struct place *place;
    while ((place = next_place(a)) != NULL) {
        place->is_queued = false;
        if (follow(a, place) != PATH_DONE) {
            a->saw_open_path = true;
            return false;
        }
    }
    return a->has_caller && a->saw_return && !state_value_is_overwritten(&a->written, a->return_address) &&
           a->sp.offset >= a->least_sp[a->sp.kind == VALUE_SP ? 0 : 1];
}

enum analysis_result follow_to_returns(const struct code *code, uint64_t pc, bool is_interrupted,
                                       bool lr_is_live, struct frame_recipe *recipe) {
    struct analysis a;
    enum analysis_result result = is_interrupted ? CALLER_PROVED : CALLER_IF_CALLS_RETURN;
    for (bool over_calls = false;; over_calls = true) {
        begin_analysis(&a, code, pc, lr_is_live, over_calls);
        if (!is_interrupted)
            note_call(&a, &a.states[0]);
        if (find_caller(&a))
            break;
        if (over_calls || (a.has_caller && a.saw_return) || !a.saw_call)
            return CALLER_NOT_FOUND;
        result = CALLER_IF_CALLS_RETURN;
    }
    if (result == CALLER_IF_CALLS_RETURN && a.calls_return && (is_interrupted || call_returns(&a, pc)))
        result = CALLER_PROVED;
    /* A fp that was computed is none that the function kept. */
    if (state_value_is_overwritten(&a.written, a.fp) || a.fp.kind == VALUE_SP || a.fp.kind == VALUE_LR ||
        (a.fp.kind == VALUE_FP && a.fp.offset != 0))
        a.fp.kind = VALUE_UNKNOWN;
    recipe->return_address = frame_value(a.return_address);
    recipe->sp = frame_value(a.sp);
    recipe->fp = frame_value(a.fp);
    return result;
}

static void begin_search(struct analysis *a, const struct code *code, uint64_t entry, uint64_t pc,
                         bool over_calls) {
    begin_analysis(a, code, entry, true, over_calls);
    a->seeks = SEEKS_PLACE;
    a->goal = pc;
    a->instructions_left = SEARCH_LIMIT;
}

/* Looks for a path from entry to pc, at first for one without calls, since a call may not return.
 * a->at_goal says what holds at pc, in terms of entry's registers. */
static bool search(struct analysis *a, const struct code *code, uint64_t entry, uint64_t pc) {
    for (bool over_calls = false;; over_calls = true) {
        begin_search(a, code, entry, pc, over_calls);
        if (reaches_goal(a))
            return true;
        if (over_calls || !a->saw_call)
            return false;
    }
}

bool follow_to_no_return(const struct code *code, uint64_t pc) {
    struct analysis a;
    begin_analysis(&a, code, pc, true, true);
    return !find_caller(&a) && !a.has_caller && !a.saw_open_path;
}

bool follow_to_return(const struct code *code, const struct code_place *place, uint64_t caller_sp,
                      bool *by_fp) {
    struct analysis a;
    begin_analysis(&a, code, place->pc, true, true);
    a.seeks = SEEKS_RETURN;
    a.goal = caller_sp;
    a.sp_at_start = place->sp;
    a.fp_at_start = place->fp;
    a.function_end = place->function_end;
    bool found = reaches_goal(&a);
    *by_fp = a.saw_return_by_fp;
    return found;
}

bool follow_to_place(const struct code *code, uint64_t entry, uint64_t pc) {
    struct analysis a;
    return search(&a, code, entry, pc);
}

/* What a place on the stack, said from sp at entry, is from sp or fp at pc. memory: its content. */
static struct frame_value from_here(const struct stack_state *state, int32_t offset, bool memory) {
    struct state_value sp = state->registers[REGISTER_SP], fp = state->registers[REGISTER_FP];
    if (sp.kind == VALUE_SP)
        return (struct frame_value){memory ? VALUE_AT_SP : VALUE_SP, (int64_t)offset - sp.offset};
    if (fp.kind == VALUE_SP)
        return (struct frame_value){memory ? VALUE_AT_FP : VALUE_FP, (int64_t)offset - fp.offset};
    return (struct frame_value){VALUE_UNKNOWN, 0};
}

/* Where a register's value at entry is: where the path saved it, unless that has been popped, or still
 * in the register. */
static struct frame_value caller_register(const struct stack_state *state, enum stack_register number,
                                          uint32_t kind) {
    struct state_value original = {kind, 0}, sp = state->registers[REGISTER_SP];
    for (uint32_t i = 0; i < state->slot_count; i++) {
        struct state_value at = state->slots[i].address;
        if (state_value_equal(state->slots[i].value, original) && at.kind == VALUE_SP &&
            (sp.kind != VALUE_SP || at.offset >= sp.offset))
            return from_here(state, at.offset, true);
    }
    bool is_kept = state_value_equal(state->registers[number], original);
    return (struct frame_value){is_kept ? (uint8_t)kind : VALUE_UNKNOWN, 0};
}

static void goal_recipe(const struct analysis *a, struct frame_recipe *recipe) {
    bool is_aarch64 = a->code->unwinder->arch == UNSPOOL_AARCH64;
    recipe->sp = from_here(&a->at_goal, is_aarch64 ? 0 : 8, false);
    recipe->fp = caller_register(&a->at_goal, REGISTER_FP, VALUE_FP);
    recipe->return_address =
        is_aarch64 ? caller_register(&a->at_goal, REGISTER_LR, VALUE_LR) : from_here(&a->at_goal, 0, true);
}

bool follow_from_entry(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe) {
    struct analysis a;
    if (!search(&a, code, entry, pc))
        return false;
    goal_recipe(&a, recipe);
    return true;
}

bool recipe_before_calls(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe) {
    struct analysis a;
    begin_search(&a, code, entry, pc, false);
    if (!reaches_goal(&a))
        return false;
    goal_recipe(&a, recipe);
    return true;
}

bool follow_past_tables(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe) {
    struct analysis a;
    begin_search(&a, code, entry, pc, true);
    if (!reaches_goal(&a)) {
        struct stack_state state = a.table_state;
        if (!a.has_table_state)
            return false;
        begin_search(&a, code, entry, pc, true);
        a.table_state = state;
        a.has_table_state = a.enters_cases = true;
        if (!reaches_goal(&a))
            return false;
    }
    goal_recipe(&a, recipe);
    return true;
}

/* ------------------------------------------------------------------ by architecture */

bool plt_recipe(const struct code *code, uint64_t pc, struct frame_recipe *recipe) {
    return code->unwinder->arch == UNSPOOL_AARCH64 ? aarch64_plt_recipe(code, pc, recipe)
                                                   : x86_64_plt_recipe(code, pc, recipe);
}

uint64_t called_function(const struct code *code, uint64_t return_address) {
    return code->unwinder->arch == UNSPOOL_AARCH64 ? aarch64_called_function(code, return_address)
                                                   : x86_64_called_function(code, return_address);
}

bool is_signal_return(const struct code *code, uint64_t pc, bool interrupted) {
    return code->unwinder->arch == UNSPOOL_AARCH64 ? aarch64_is_signal_return(code, pc, interrupted)
                                                   : x86_64_is_signal_return(code, pc, interrupted);
}
