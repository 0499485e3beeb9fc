/*
 * paths.c: follows code, instruction by instruction, keeping track of the stack: see analysis.c for what that
 * proves.
 */
#include "paths.h"
#include "machine_code.h"

#include <string.h>

static const uint8_t *code_at(struct analysis *a, uint64_t address, size_t *size) {
    uint64_t offset = address - a->window_address;
    if (offset >= a->window_size || a->window_size - offset < LONGEST_INSTRUCTION) {
        a->window_address = address;
        a->window_size = code_read(a->code, address, a->window, WINDOW_SIZE);
        offset = 0;
    }
    *size = a->window_size - (size_t)offset;
    return a->window + offset;
}

static void decode(struct analysis *a, uint64_t address, struct instruction *instruction) {
    size_t size;
    const uint8_t *bytes = code_at(a, address, &size);
    if (a->code->unwinder->arch == UNSPOOL_AARCH64)
        aarch64_decode(bytes, size, address, instruction);
    else
        x86_64_decode(bytes, size, address, instruction);
}

/* ------------------------------------------------------------------ places */

static uint32_t filter_hash(int32_t offset) {
    return (uint32_t)offset * 2654435761u >> 22;
}

static bool may_be_place(const struct analysis *a, int32_t offset) {
    uint32_t hash = filter_hash(offset);
    return a->filter[hash / 64] >> (hash % 64) & 1;
}

static void remember_place(struct analysis *a, int32_t offset) {
    uint32_t hash = filter_hash(offset);
    a->filter[hash / 64] |= (uint64_t)1 << (hash % 64);
}

static struct place *find_place(struct analysis *a, uint64_t address) {
    int32_t offset = (int32_t)(address - a->start);
    if (!may_be_place(a, offset))
        return NULL;
    for (uint32_t i = 0; i < a->place_count; i++)
        if (a->places[i].offset == offset)
            return &a->places[i];
    return NULL;
}

static bool state_is_used(const struct analysis *a, uint32_t index) {
    for (uint32_t i = 0; i < a->place_count; i++)
        if (a->places[i].state == index)
            return true;
    return false;
}

/* Finds or keeps a state; false when there are too many. */
static bool keep_state(struct analysis *a, const struct stack_state *state, uint8_t *index) {
    uint32_t i = 0;
    while (i < a->state_count && !state_equal(&a->states[i], state))
        i++;
    if (i == STATES)
        for (i = 0; i < STATES && state_is_used(a, i); i++)
            ;
    if (i == STATES)
        return false;
    if (i == a->state_count)
        a->state_count++;
    a->states[i] = *state;
    *index = (uint8_t)i;
    return true;
}

/* A path comes to a place that is known: what holds on every path to it is kept. */
static enum path_result join_place(struct analysis *a, struct place *place, const struct stack_state *state) {
    if (a->seeks != SEEKS_CALLER)
        return PATH_DONE;
    struct stack_state joined = a->states[place->state];
    if (!state_join(&joined, state))
        return PATH_DONE;
    place->is_queued = true;
    return keep_state(a, &joined, &place->state) ? PATH_DONE : PATH_OPEN;
}

/* Has a path go on at address some time. */
static enum path_result branch_to(struct analysis *a, uint64_t address, const struct stack_state *state) {
    int64_t distance = (int64_t)(address - a->start);
    if (distance > INT32_MAX || distance < INT32_MIN)
        return PATH_OPEN;
    struct place *place = find_place(a, address);
    if (place)
        return join_place(a, place, state);
    if (a->place_count == PLACES)
        return PATH_OPEN;
    place = &a->places[a->place_count];
    *place = (struct place){.offset = (int32_t)distance, .is_queued = true};
    if (!keep_state(a, state, &place->state))
        return PATH_OPEN;
    a->place_count++;
    remember_place(a, place->offset);
    return PATH_DONE;
}

/* ------------------------------------------------------------------ ends of paths */

static bool is_readable_address(struct state_value value) {
    return value.kind == VALUE_AT_SP || value.kind == VALUE_AT_FP || value.kind == VALUE_LR;
}

/* A path has come to its caller: the first one is kept, all others must agree. A fp that one path
 * loses is lost. */
static enum path_result end_path(struct analysis *a, const struct stack_state *state,
                                 const struct frame_recipe *recipe) {
    struct state_value return_address = state_resolve(state, &recipe->return_address);
    struct state_value sp = state_resolve(state, &recipe->sp);
    struct state_value fp = state_resolve(state, &recipe->fp);
    if (!is_readable_address(return_address) || (sp.kind != VALUE_SP && sp.kind != VALUE_FP))
        return PATH_OPEN;
    if (!a->has_caller) {
        a->has_caller = true;
        a->return_address = return_address;
        a->sp = sp;
        a->fp = fp;
        return PATH_DONE;
    }
    if (!state_value_equal(a->return_address, return_address) || !state_value_equal(a->sp, sp))
        return PATH_OPEN;
    if (!state_value_equal(a->fp, fp)) {
        if (a->fp.kind != VALUE_UNKNOWN && fp.kind != VALUE_UNKNOWN)
            return PATH_OPEN;
        a->fp = (struct state_value){VALUE_UNKNOWN, 0};
    }
    return PATH_DONE;
}

static enum path_result end_at_return(struct analysis *a, const struct stack_state *state, uint32_t popped) {
    bool is_aarch64 = a->code->unwinder->arch == UNSPOOL_AARCH64;
    struct frame_recipe recipe = {
        .return_address = {is_aarch64 ? VALUE_LR : VALUE_AT_SP, 0},
        .sp = {VALUE_SP, popped},
        .fp = {VALUE_FP, 0},
    };
    return end_path(a, state, &recipe);
}

/* A path has come to a return: is it the one that is sought? */
static enum path_result reach_return(struct analysis *a, const struct stack_state *state, uint32_t popped) {
    struct state_value sp = state->registers[REGISTER_SP];
    uint64_t base = sp.kind == VALUE_SP ? a->sp_at_start : a->fp_at_start;
    if (sp.kind != VALUE_SP && sp.kind != VALUE_FP)
        return PATH_DONE;
    a->saw_return_by_fp |= sp.kind == VALUE_FP;
    return base + (uint64_t)(int64_t)sp.offset + popped == a->goal ? PATH_GOAL : PATH_DONE;
}

/* What a row of the unwind table says, as a recipe; false when it can't be said so. */
static bool row_recipe(const struct unspool_row *row, bool is_aarch64, struct frame_recipe *recipe) {
    bool by_sp = row->cfa_base == UNSPOOL_CFA_SP;
    uint8_t address = by_sp ? VALUE_SP : VALUE_FP, memory = by_sp ? VALUE_AT_SP : VALUE_AT_FP;
    if ((row->flags & (UNSPOOL_ROW_END | UNSPOOL_ROW_EXACT | UNSPOOL_ROW_SIGNAL)) ||
        row->cfa_base == UNSPOOL_CFA_RBX)
        return false;
    *recipe = (struct frame_recipe){.sp = {address, row->cfa_offset}};
    if (row->ra == UNSPOOL_SAVED_AT_CFA)
        recipe->return_address = (struct frame_value){memory, (int64_t)row->cfa_offset + row->ra_offset};
    else if (row->ra == UNSPOOL_SAVED_SAME && is_aarch64)
        recipe->return_address.kind = VALUE_LR;
    else
        return false;
    if (row->fp == UNSPOOL_SAVED_AT_CFA)
        recipe->fp = (struct frame_value){memory, (int64_t)row->cfa_offset + row->fp_offset};
    else if (row->fp == UNSPOOL_SAVED_SAME)
        recipe->fp.kind = VALUE_FP;
    return true;
}

/* The row of the unwind table that covers address, if any does. Most instructions that are followed lie where
 * none does, hence the note of how far that goes. */
static bool find_row(struct analysis *a, uint64_t address, struct unspool_row *row) {
    if (address - a->bare_start < a->bare_size)
        return false;
    const struct unspool_module *module = find_module(a->code->unwinder, address);
    if (!module || !module->table)
        return false;
    uint64_t relative_address = address - module->image_base, mapped = module->end - address;
    if (unspool_table_lookup(module->table, relative_address, row) != UNSPOOL_OK)
        return false;
    if ((row->flags & (UNSPOOL_ROW_NONE | UNSPOOL_ROW_DOUBTED)) == 0)
        return true;
    a->bare_start = address;
    a->bare_size = row->end - relative_address < mapped ? row->end - relative_address : mapped;
    return false;
}

/* True when the path need not be followed beyond address: *result says how it ended. PLT stubs are
 * looked for only where a jump led to. */
static bool ends_at(struct analysis *a, uint64_t address, bool is_jump_target,
                    const struct stack_state *state, enum path_result *result) {
    struct frame_recipe recipe;
    struct unspool_row row;
    bool is_covered = find_row(a, address, &row);
    if (is_covered && row_recipe(&row, a->code->unwinder->arch == UNSPOOL_AARCH64, &recipe))
        *result = end_path(a, state, &recipe);
    else if (is_jump_target && plt_recipe(a->code, address, &recipe))
        *result = end_path(a, state, &recipe);
    else
        *result = PATH_OPEN;
    a->saw_return |= *result == PATH_DONE;
    return is_covered || *result == PATH_DONE;
}

/* ------------------------------------------------------------------ paths */

void note_call(struct analysis *a, const struct stack_state *state) {
    struct state_value sp = state->registers[REGISTER_SP];
    if (sp.kind != VALUE_SP && sp.kind != VALUE_FP)
        return;
    int32_t *least = &a->least_sp[sp.kind == VALUE_SP ? 0 : 1];
    if (*least < sp.offset + 16)
        *least = sp.offset + 16;
}

/* One instruction. True when the path goes on at *address; else *result says how it ended. */
static bool step(struct analysis *a, uint64_t *address, struct stack_state *state, bool *is_jump_target,
                 enum path_result *result) {
    struct instruction instruction;
    decode(a, *address, &instruction);
    if (a->seeks == SEEKS_PLACE && instruction.length > a->goal - *address) {
        a->at_goal = *state;
        *result = PATH_GOAL;
        return false;
    }
    *is_jump_target = false;
    if (instruction.flow == FLOW_CALL) {
        a->saw_call = true;
        *result = PATH_DONE;
        if (!a->steps_over_calls)
            return false;
        note_call(a, state);
        a->calls_return =
            a->calls_return && a->seeks == SEEKS_CALLER && call_returns(a, *address + instruction.length);
    }
    state_apply(state, &a->written, &instruction);
    switch (instruction.flow) {
    case FLOW_NEXT:
    case FLOW_CALL:
        *address += instruction.length;
        return true;
    case FLOW_BRANCH:
        *result = branch_to(a, instruction.target, state);
        *address += instruction.length;
        return *result == PATH_DONE || a->seeks != SEEKS_CALLER; /* then one path is enough */
    case FLOW_JUMP:
        if (instruction.target <= *address) { /* perhaps a loop without end */
            *result = branch_to(a, instruction.target, state);
            return false;
        }
        *address = instruction.target;
        *is_jump_target = true;
        return true;
    case FLOW_RETURN:
        *result = a->seeks == SEEKS_RETURN ? reach_return(a, state, instruction.popped)
                                           : end_at_return(a, state, instruction.popped);
        a->saw_return = true;
        return false;
    case FLOW_INDIRECT_JUMP: /* of another function, its caller the same: or no path agrees */
        if (a->seeks == SEEKS_PLACE && (instruction.target = loaded_jump_target(a->code, *address)) != 0) {
            *address = instruction.target;
            *is_jump_target = true;
            return true;
        }
        if (!a->has_table_state) {
            a->table_state = *state;
            a->has_table_state = true;
        }
        *result = end_at_return(a, state, a->code->unwinder->arch == UNSPOOL_AARCH64 ? 0 : 8);
        return false;
    case FLOW_STOP:
        *result = PATH_DONE;
        return false;
    default:
        *result = PATH_OPEN;
        return false;
    }
}

/* Behind the end of a path may be a case of a switch, which only its table leads to. What begins behind the
 * goal does not hold it. */
static void enter_case(struct analysis *a, uint64_t address) {
    struct instruction instruction;
    decode(a, address, &instruction);
    if (instruction.length && address + instruction.length <= a->goal)
        branch_to(a, address + instruction.length, &a->table_state);
}

enum path_result follow(struct analysis *a, struct place *place) {
    struct stack_state state = a->states[place->state];
    uint64_t address = a->start + (uint64_t)(int64_t)place->offset;
    bool is_jump_target = place->offset != 0;
    enum path_result result = PATH_OPEN;
    for (bool is_first = true;; is_first = false) {
        struct place *other = is_first ? NULL : find_place(a, address);
        if (other)
            return join_place(a, other, &state);
        if (a->instructions_left == 0)
            return PATH_OPEN;
        a->instructions_left--;
        if (a->seeks == SEEKS_RETURN && address == a->function_end && !is_jump_target)
            return PATH_DONE;
        if (a->seeks == SEEKS_CALLER && ends_at(a, address, is_jump_target, &state, &result))
            return result;
        uint64_t next = address;
        bool goes_on = step(a, &next, &state, &is_jump_target, &result);
        if (a->enters_cases && (!goes_on || is_jump_target) && result != PATH_GOAL)
            enter_case(a, address);
        if (!goes_on)
            return result;
        address = next;
    }
}

void begin_analysis(struct analysis *a, const struct code *code, uint64_t start, bool lr_is_live,
                    bool steps_over_calls) {
    memset(a, 0, offsetof(struct analysis, window));
    a->code = code;
    a->start = start;
    a->steps_over_calls = steps_over_calls;
    a->calls_return = true;
    a->instructions_left = a->instructions_for_callees = INSTRUCTION_LIMIT;
    a->least_sp[0] = a->least_sp[1] = INT32_MIN;
    struct stack_state state;
    state_begin(&state, lr_is_live);
    branch_to(a, start, &state);
}

struct place *next_place(struct analysis *a) {
    for (uint32_t i = 0; i < a->place_count; i++)
        if (a->places[i].is_queued)
            return &a->places[i];
    return NULL;
}

bool reaches_goal(struct analysis *a) {
    struct place *place;
    while ((place = next_place(a)) != NULL) {
        place->is_queued = false;
        if (follow(a, place) == PATH_GOAL)
            return true;
    }
    return false;
}

/* Some path through a function leads to its return, at first without further calls; then such are stepped
 * over. A function that never returns has no such path; where its last call is taken to come back, the path
 * runs on to another function's return, which takes sp to be just as that call left it. */
static bool function_returns(struct analysis *a, uint64_t function) {
    struct analysis callee;
    for (bool over_calls = false;; over_calls = true) {
        begin_analysis(&callee, a->code, function, true, over_calls);
        callee.seeks = SEEKS_RETURN;
        callee.goal = a->code->unwinder->arch == UNSPOOL_AARCH64 ? 0 : 8; /* sp at its start is 0 */
        callee.instructions_left = a->instructions_for_callees;
        bool found = reaches_goal(&callee);
        a->instructions_for_callees = callee.instructions_left;
        if (found)
            return callee.least_sp[0] <= (int32_t)callee.goal;
        if (over_calls || !callee.saw_call)
            return false;
    }
}

/* True when what a call leads to can return. Then the code behind calls of it is there to be reached. */
static bool callee_returns(struct analysis *a, uint64_t return_address) {
    uint64_t function = called_function(a->code, return_address);
    return function && function_returns(a, function);
}

bool call_returns(struct analysis *a, uint64_t return_address) {
    return callee_returns(a, return_address) || call_is_jumped_over(a->code, return_address);
}
