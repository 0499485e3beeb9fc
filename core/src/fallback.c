/*
 * fallback.c: what is tried where no file says how to step: in a fixed order, proofs before guesses.
 *
 * A proof is code that was followed, or a direct call that leads to the function that pc is in. That
 * "some call precedes" an address is no proof: stale return addresses pass that test. A guess is
 * marked as one (UNSPOOL_HOW_GUESS) and makes no stack complete.
 */
#include "analysis.h"
#include "instruction.h"
#include "walk.h"

bool follows_call(const struct code *code, uint64_t return_address) {
    uint8_t bytes[8];
    struct instruction instruction;
    bool is_aarch64 = code->unwinder->arch == UNSPOOL_AARCH64;
    if (!find_module(code->unwinder, return_address - 1))
        return false;
    for (uint32_t length = is_aarch64 ? 4 : 2; length <= (is_aarch64 ? 4 : 7); length++) {
        uint64_t address = return_address - length;
        if (code_read(code, address, bytes, length) != length)
            continue;
        if (is_aarch64)
            aarch64_decode(bytes, length, address, &instruction);
        else
            x86_64_decode(bytes, length, address, &instruction);
        if (instruction.flow == FLOW_CALL && instruction.length == length)
            return true;
    }
    return false;
}

enum call_match match_call(const struct code *code, uint64_t return_address, uint64_t function) {
    struct frame_recipe recipe;
    if (!follows_call(code, return_address))
        return CALL_ELSEWHERE;
    uint64_t target = called_function(code, return_address);
    if (target == function)
        return CALL_MATCHES;
    return !target || plt_recipe(code, target, &recipe) ? CALL_UNKNOWN : CALL_ELSEWHERE;
}

static bool evaluate(const struct code *code, const struct frame *frame, struct frame_value value,
                     uint64_t *result) {
    uint64_t offset = (uint64_t)value.offset;
    bool is_fp = value.kind == VALUE_FP || value.kind == VALUE_AT_FP;
    if (is_fp && !frame->fp_is_known)
        return false;
    switch (value.kind) {
    case VALUE_SP:
        *result = frame->sp + offset;
        return true;
    case VALUE_FP:
        *result = frame->fp + offset;
        return true;
    case VALUE_LR:
        *result = frame->lr;
        return frame->lr_is_live;
    case VALUE_AT_SP:
        return memory_read_u64(code->memory, frame->sp + offset, result);
    case VALUE_AT_FP:
        return memory_read_u64(code->memory, frame->fp + offset, result);
    default:
        return false;
    }
}

/* Where a return address is kept: its address, or 0 for lr. */
static bool evaluate_place(const struct frame *frame, struct frame_value value, uint64_t *address) {
    *address = 0;
    if (value.kind == VALUE_AT_SP)
        *address = frame->sp + (uint64_t)value.offset;
    else if (value.kind == VALUE_AT_FP)
        *address = frame->fp + (uint64_t)value.offset;
    return value.kind == VALUE_LR || value.kind == VALUE_AT_SP ||
           (value.kind == VALUE_AT_FP && frame->fp_is_known);
}

bool recipe_agrees(const struct frame *frame, const struct frame_recipe *recipe, uint64_t cfa,
                   uint64_t ra_address) {
    bool by_fp = recipe->sp.kind == VALUE_FP;
    uint64_t place, sp = (by_fp ? frame->fp : frame->sp) + (uint64_t)recipe->sp.offset;
    return (by_fp ? frame->fp_is_known : recipe->sp.kind == VALUE_SP) && sp == cfa &&
           evaluate_place(frame, recipe->return_address, &place) && place == ra_address;
}

/* True when the call before return_address leads to the function that pc is in, and that function's
 * code keeps its return address in this place. */
static bool is_proved_by_call(const struct code *code, const struct frame *frame, uint64_t return_address,
                              uint64_t place, struct frame_recipe *recipe) {
    uint64_t expected, target = called_function(code, return_address);
    return target && recipe_from_entry(code, target, lookup_address(frame), recipe) &&
           evaluate_place(frame, recipe->return_address, &expected) && expected == place;
}

/* Forgets the registers that a recipe says nothing about. */
static void forget_others(struct frame *frame) {
    if (frame->all)
        frame->all->known = 0;
}

/* False when the recipe's return address can't be had or is not code: then it is not followed. */
static bool follow_recipe(const struct code *code, const struct frame_recipe *recipe, enum unspool_how how,
                          struct frame *frame, struct step *step, enum step_result *result) {
    struct caller caller = {0};
    if (!evaluate(code, frame, recipe->sp, &caller.sp))
        return false;
    if (!evaluate(code, frame, recipe->return_address, &caller.pc)) {
        bool at_fp = recipe->return_address.kind == VALUE_AT_FP;
        uint64_t address = (at_fp ? frame->fp : frame->sp) + (uint64_t)recipe->return_address.offset;
        *result = end_stack(step, memory_end(code->memory, address));
        return true;
    }
    caller.pc = strip_pac(code->unwinder, caller.pc);
    caller.fp_is_known = evaluate(code, frame, recipe->fp, &caller.fp);
    forget_others(frame);
    *result = become_caller(frame, &caller, step, how);
    return true;
}

enum step_result step_by_recipe(const struct code *code, const struct frame_recipe *recipe,
                                struct frame *frame, struct step *step) {
    enum step_result result;
    if (follow_recipe(code, recipe, UNSPOOL_HOW_CODE_ANALYSIS, frame, step, &result))
        return result;
    return end_stack(step, UNSPOOL_END_NO_UNWIND_INFO);
}

/* The caller of a function that has not touched the stack. */
static bool leaf_caller(const struct code *code, const struct frame *frame, struct caller *caller) {
    *caller = (struct caller){.fp = frame->fp, .fp_is_known = frame->fp_is_known};
    if (!frame->is_interrupted)
        return false;
    if (code->unwinder->arch == UNSPOOL_AARCH64) {
        caller->sp = frame->sp;
        caller->pc = strip_pac(code->unwinder, frame->lr);
        return frame->lr_is_live && follows_call(code, caller->pc);
    }
    caller->sp = frame->sp + 8;
    return memory_read_u64(code->memory, frame->sp, &caller->pc) && follows_call(code, caller->pc);
}

/* Code that was made at run time may push the addresses of its own parts, as the interpreter of a JVM
 * does. These follow no call; what speaks for them is that the chain of records goes on above. */
static bool is_pushed_by_hand(const struct code *code, const struct frame *frame,
                              const struct caller *caller) {
    const struct unspool_module *from = find_module(code->unwinder, frame->pc);
    const struct unspool_module *to = find_module(code->unwinder, caller->pc);
    uint64_t next;
    return from && !from->table && to && !to->table && caller->fp > frame->fp && caller->fp % 8 == 0 &&
           memory_read_u64(code->memory, caller->fp, &next);
}

/* The caller by the frame record at fp: caller's fp, return address. */
static bool frame_pointer_caller(const struct code *code, const struct frame *frame, struct caller *caller) {
    *caller = (struct caller){.sp = frame->fp + 16, .fp_is_known = true};
    if (!frame->fp_is_known || frame->fp < frame->sp || frame->fp % 8)
        return false;
    if (!memory_read_u64(code->memory, frame->fp, &caller->fp) ||
        !memory_read_u64(code->memory, frame->fp + 8, &caller->pc))
        return false;
    caller->pc = strip_pac(code->unwinder, caller->pc);
    return follows_call(code, caller->pc) || is_pushed_by_hand(code, frame, caller);
}

/* As is_proved_by_call; the function's own code then knows the caller's sp and fp best. */
static bool prove_caller(const struct code *code, const struct frame *frame, uint64_t place,
                         struct caller *caller) {
    struct frame_recipe recipe;
    if (!is_proved_by_call(code, frame, caller->pc, place, &recipe) ||
        !evaluate(code, frame, recipe.sp, &caller->sp))
        return false;
    caller->fp_is_known = evaluate(code, frame, recipe.fp, &caller->fp);
    return true;
}

/* How many words above sp are looked at for the return address, how far before pc the function may begin that
 * a call leads to, and how many such functions are tried. */
enum { SCAN_WORDS = 1280, SCAN_REACH = 1 << 16, SCAN_TARGETS = 16 };

/* Functions that were tried, and where their code keeps the return address; 0: nowhere. */
struct tried {
    uint32_t count;
    uint64_t target[SCAN_TARGETS], place[SCAN_TARGETS];
};

/* The function near pc that the call before a word leads to, directly or by what is on the stack; else 0. */
static uint64_t near_target(const struct code *code, uint64_t lookup, uint64_t word, uint64_t place) {
    static const struct unspool_registers none = {0};
    uint64_t target = called_function(code, word);
    for (uint32_t length = SHORTEST_INDIRECT_CALL; !target && length <= LONGEST_INDIRECT_CALL; length++)
        if (!called_by_register(code, &none, word, length, place + 8, &target))
            target = 0;
    return target && target + SCAN_REACH - lookup <= 2 * SCAN_REACH ? target : 0;
}

/* Where a function's code keeps its caller's registers at pc. Where no path is found, jumps through tables
 * are taken to lead on right behind themselves, too: then a path from pc must come to a return that agrees.
 */
static bool find_recipe(const struct code *code, const struct frame *frame, uint64_t function,
                        struct frame_recipe *recipe, uint64_t *place) {
    uint64_t lookup = lookup_address(frame);
    if (recipe_from_entry(code, function, lookup, recipe))
        return evaluate_place(frame, recipe->return_address, place);
    const struct code_place here = {frame->pc, frame->sp, frame->fp_is_known ? frame->fp : 0, 0};
    return recipe_past_tables(code, function, lookup, recipe) &&
           evaluate_place(frame, recipe->return_address, place) && code_returns(code, &here, *place + 8);
}

/* The place where the code of a function keeps the return address; 0: it does not lead to pc. */
static uint64_t kept_place(const struct code *code, const struct frame *frame, struct tried *tried,
                           uint64_t target) {
    struct frame_recipe recipe;
    uint64_t place;
    for (uint32_t i = 0; i < tried->count; i++)
        if (tried->target[i] == target)
            return tried->place[i];
    if (tried->count == SCAN_TARGETS)
        return 0;
    if (!find_recipe(code, frame, target, &recipe, &place))
        place = 0;
    tried->target[tried->count] = target;
    tried->place[tried->count++] = place;
    return place;
}

/* The word at place follows the call of a function that keeps it there. */
static bool is_kept(const struct code *code, const struct frame *frame, struct tried *tried, uint64_t place,
                    struct caller *caller) {
    struct frame_recipe recipe;
    uint64_t target = near_target(code, lookup_address(frame), caller->pc, place);
    if (!target || kept_place(code, frame, tried, target) != place ||
        !find_recipe(code, frame, target, &recipe, &place) || !evaluate(code, frame, recipe.sp, &caller->sp))
        return false;
    caller->fp_is_known = evaluate(code, frame, recipe.fp, &caller->fp);
    return true;
}

/* A frame that a call proves, wherever its return address lies: a function that some call leads to keeps its
 * return address at one place, and there is that very call's. Or, up to the end of the stack, nothing can be
 * a return address but one of code that nobody called. Code of no file is left out: it may push addresses by
 * hand. */
static bool scan_for_caller(const struct code *code, const struct frame *frame, struct caller *caller) {
    const struct unspool_module *module = find_module(code->unwinder, lookup_address(frame));
    struct tried tried = {0};
    struct caller outermost = {0};
    uint64_t word, place = frame->sp, end = place + 8 * SCAN_WORDS;
    uint32_t candidates = 0;
    if (!module || !module->table || code->unwinder->arch != UNSPOOL_X86_64)
        return false;
    for (; place < end && memory_read_u64(code->memory, place, &word); place += 8) {
        if (!find_module(code->unwinder, word - 1) || !follows_call(code, word))
            continue;
        const struct unspool_module *to = find_module(code->unwinder, word);
        *caller = (struct caller){.pc = word, .sp = place + 8};
        const struct frame root = {.pc = word, .sp = caller->sp};
        if (candidates++ == 0 && to && is_root_code(code, to, &root))
            outermost = *caller;
        if (is_kept(code, frame, &tried, place, caller))
            return true;
    }
    *caller = outermost;
    return outermost.pc && candidates == 1 && place < end;
}

/* Where a leaf has its return address; 0: in lr. */
static uint64_t leaf_place(const struct code *code, const struct frame *frame) {
    return code->unwinder->arch == UNSPOOL_AARCH64 ? 0 : frame->sp;
}

/* True when the call before a leaf's return address goes where a register points to, and that leads to pc: to
 * this very instruction, or by code that leaves the return address where it is. */
static bool prove_by_register(const struct code *code, const struct frame *frame,
                              const struct caller *caller) {
    struct frame_recipe recipe;
    uint64_t place;
    for (uint32_t length = SHORTEST_INDIRECT_CALL; frame->all && length <= LONGEST_INDIRECT_CALL; length++) {
        uint64_t target;
        if (!called_by_register(code, frame->all, caller->pc, length, caller->sp, &target))
            continue;
        if (target == frame->pc)
            return true;
        if (recipe_from_entry(code, target, frame->pc, &recipe) &&
            evaluate_place(frame, recipe.return_address, &place) && place == leaf_place(code, frame))
            return true;
    }
    return false;
}

/* A leaf that registers may prove, but they are not there yet. */
static bool needs_registers(const struct code *code, const struct frame *frame, const struct caller *leaf) {
    return !frame->all && !called_function(code, leaf->pc);
}

static enum step_result step_by_frames(const struct code *code, struct frame *frame, struct step *step) {
    struct caller leaf, record, scanned;
    bool has_leaf = leaf_caller(code, frame, &leaf);
    bool has_record = frame_pointer_caller(code, frame, &record);
    struct frame_recipe recipe;
    bool leaps = frame->lr_is_live && epilogue_recipe(code, frame->pc, &recipe) == EPILOGUE_LEAPS;
    enum unspool_how how = UNSPOOL_HOW_GUESS;
    const struct caller *caller = NULL;
    if (has_leaf && (prove_caller(code, frame, leaf_place(code, frame), &leaf) ||
                     prove_by_register(code, frame, &leaf))) {
        caller = &leaf;
        how = UNSPOOL_HOW_LEAF;
    } else if (has_record && prove_caller(code, frame, frame->fp + 8, &record)) {
        caller = &record;
        how = UNSPOOL_HOW_FRAME_POINTER;
    } else if (scan_for_caller(code, frame, &scanned)) {
        caller = &scanned;
        how = UNSPOOL_HOW_CODE_ANALYSIS;
    } else if (has_leaf && needs_registers(code, frame, &leaf)) {
        return STEP_NEEDS_REGISTERS;
    } else if (has_record && !leaps) { /* what longjmp leaves behind is no frame */
        caller = &record;
        how = UNSPOOL_HOW_FRAME_POINTER | UNSPOOL_HOW_GUESS;
    } else if (has_leaf && !leaps) {
        caller = &leaf;
        how = UNSPOOL_HOW_LEAF | UNSPOOL_HOW_GUESS;
    }
    if (!caller)
        return end_stack(step, UNSPOOL_END_NO_UNWIND_INFO);
    forget_others(frame);
    return become_caller(frame, caller, step, how);
}

enum step_result step_by_proof(const struct code *code, struct frame *frame, struct step *step) {
    struct caller leaf;
    if (!leaf_caller(code, frame, &leaf) || !prove_caller(code, frame, leaf_place(code, frame), &leaf))
        return end_stack(step, UNSPOOL_END_NO_UNWIND_INFO);
    forget_others(frame);
    return become_caller(frame, &leaf, step, UNSPOOL_HOW_LEAF);
}

/* What rests on calls that return, or on an lr that may be another stack's, is a guess, unless the call
 * before the return address leads here. */
static enum unspool_how analysis_how(const struct code *code, const struct frame *frame,
                                     enum analysis_result analysis, const struct frame_recipe *recipe) {
    uint64_t return_address, place;
    struct frame_recipe from_entry;
    bool leapt = recipe->return_address.kind == VALUE_LR && may_have_leapt(code, frame->pc);
    if (analysis == CALLER_PROVED && !leapt)
        return UNSPOOL_HOW_CODE_ANALYSIS;
    if (evaluate(code, frame, recipe->return_address, &return_address) &&
        evaluate_place(frame, recipe->return_address, &place) &&
        is_proved_by_call(code, frame, strip_pac(code->unwinder, return_address), place, &from_entry))
        return UNSPOOL_HOW_CODE_ANALYSIS;
    return UNSPOOL_HOW_CODE_ANALYSIS | UNSPOOL_HOW_GUESS;
}

enum step_result step_without_rule(const struct code *code, const struct unspool_module *module,
                                   struct frame *frame, struct step *step) {
    struct frame_recipe recipe;
    enum step_result result;
    if (frame->is_interrupted && plt_recipe(code, frame->pc, &recipe) &&
        follow_recipe(code, &recipe, UNSPOOL_HOW_PLT, frame, step, &result))
        return result;
    enum thread_start start = is_new_thread(code, frame);
    if (start == THREAD_NEEDS_REGISTERS)
        return STEP_NEEDS_REGISTERS;
    if (start == THREAD_IS_NEW || is_root_code(code, module, frame))
        return end_stack(step, UNSPOOL_END_ROOT);
    if (frame->is_interrupted && tells_new_thread(code, frame->pc) && step_new_thread(frame, step, &result))
        return result;
    enum analysis_result analysis =
        analyse_code(code, frame->pc, frame->is_interrupted, frame->lr_is_live, &recipe);
    if (analysis == CALLER_NOT_FOUND)
        return step_by_frames(code, frame, step);
    enum unspool_how how = analysis_how(code, frame, analysis, &recipe);
    struct caller scanned;
    if ((how & UNSPOOL_HOW_GUESS) && scan_for_caller(code, frame, &scanned)) {
        forget_others(frame);
        return become_caller(frame, &scanned, step, UNSPOOL_HOW_CODE_ANALYSIS);
    }
    if (follow_recipe(code, &recipe, how, frame, step, &result))
        return result;
    return step_by_frames(code, frame, step);
}

enum step_result step_unmapped(const struct code *code, struct frame *frame, struct step *step) {
    struct caller caller;
    if (!leaf_caller(code, frame, &caller))
        return end_stack(step, UNSPOOL_END_UNMAPPED_PC);
    if (needs_registers(code, frame, &caller))
        return STEP_NEEDS_REGISTERS;
    enum unspool_how how = UNSPOOL_HOW_LEAF;
    uint64_t called = called_function(code, caller.pc); /* 0: not known, which proves no jump to 0 */
    if ((!called || called != frame->pc) && !prove_by_register(code, frame, &caller))
        how |= UNSPOOL_HOW_GUESS;
    forget_others(frame);
    return become_caller(frame, &caller, step, how);
}
