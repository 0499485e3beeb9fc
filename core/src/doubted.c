/*
 * doubted.c: steps from functions whose code does more than their unwind information says. What the code does
 * on the way to here, or on the way to the return, is a proof; a row that says another thing is not true
 * here.
 */
#include "analysis.h"
#include "exact.h"
#include "walk.h"

/* glibc's swapcontext goes on in its middle, with that very address in lr. */
static bool returns_to_itself(const struct code *code, const struct frame *frame) {
    uint64_t lr = strip_pac(code->unwinder, frame->lr);
    const struct unspool_module *module = find_module(code->unwinder, frame->pc);
    return module && module->table && module == find_module(code->unwinder, lr) && !follows_call(code, lr) &&
           table_find_row(module->table, lr - module->image_base) ==
               table_find_row(module->table, frame->pc - module->image_base);
}

/* By a recipe, or by the rule where both find the same: that knows the other registers, too. */
static enum step_result step_by_code(const struct code *code, const struct rule *rule,
                                     const struct frame_recipe *recipe, struct frame *frame,
                                     struct step *step) {
    uint64_t base = RULE_CFA_BASE(rule) == UNSPOOL_CFA_FP ? frame->fp : frame->sp;
    uint64_t cfa = base + (uint64_t)(int64_t)rule->cfa_offset;
    uint64_t ra_address = cfa + (uint64_t)((int64_t)rule->ra_slot * SLOT_SIZE);
    if (recipe_agrees(frame, recipe, cfa, RULE_RA(rule) == UNSPOOL_SAVED_SAME ? 0 : ra_address))
        return step_as_row_says(code, rule, frame, step);
    return step_by_recipe(code, recipe, frame, step);
}

/* What an aarch64 function does from here to its return, where its rows may lag behind its code. */
static enum epilogue find_epilogue(const struct code *code, const struct frame *frame,
                                   struct frame_recipe *recipe) {
    enum epilogue epilogue = frame->lr_is_live ? epilogue_recipe(code, frame->pc, recipe) : NO_EPILOGUE;
    if (epilogue == EPILOGUE_LEAPS ||
        (epilogue && recipe->return_address.kind == VALUE_LR && returns_to_itself(code, frame)))
        return NO_EPILOGUE;
    return epilogue;
}

static enum step_result step_by_epilogue(const struct code *code, const struct rule *rule,
                                         const struct frame_recipe *recipe, struct frame *frame,
                                         struct step *step) {
    bool leapt = recipe->return_address.kind == VALUE_LR && may_have_leapt(code, frame->pc);
    enum step_result result = step_by_code(code, rule, recipe, frame, step);
    if (leapt)
        step->how |= UNSPOOL_HOW_GUESS;
    return result;
}

enum step_result step_leaf(const struct code *code, const struct rule *rule, struct frame *frame,
                           struct step *step) {
    struct frame_recipe recipe;
    if (find_epilogue(code, frame, &recipe) == EPILOGUE_RETURNS)
        return step_by_epilogue(code, rule, &recipe, frame, step);
    return step_as_row_says(code, rule, frame, step);
}

/* Where only the row as at the start is known, and no path leads here from there. */
static enum step_result step_from_nowhere(const struct code *code, const struct rule *rule,
                                          struct frame *frame, struct step *step) {
    bool is_in_lr = RULE_RA(rule) == UNSPOOL_SAVED_SAME && frame->lr_is_live;
    /* glibc's swapcontext goes on in its middle, with that very address in lr. */
    if (is_in_lr && !follows_call(code, strip_pac(code->unwinder, frame->lr)))
        return end_stack(step, UNSPOOL_END_NO_UNWIND_INFO);
    enum step_result result = step_as_row_says(code, rule, frame, step);
    step->how |= UNSPOOL_HOW_GUESS;
    return result;
}

/* Where sp and lr are what they were at a function's start, going by its row: so they are along one path from
 * there, or the row is wrong. */
static enum step_result step_from_entry(const struct code *code, const struct rule *rule, uint64_t start,
                                        struct frame *frame, struct step *step) {
    struct frame_recipe recipe;
    enum step_result result;
    if (frame->is_interrupted && tells_new_thread(code, frame->pc))
        return step_new_thread(frame, step, &result) ? result : step_as_row_says(code, rule, frame, step);
    if (!recipe_from_entry(code, start, lookup_address(frame), &recipe))
        return step_from_nowhere(code, rule, frame, step);
    /* swapcontext has put another address into lr */
    if (recipe.sp.kind != VALUE_UNKNOWN && recipe.return_address.kind == VALUE_UNKNOWN)
        return end_stack(step, UNSPOOL_END_NO_UNWIND_INFO);
    if (recipe.sp.kind == VALUE_UNKNOWN) /* it has left its callers' stack: for good, or for another's */
        return end_stack(step,
                         code_never_returns(code, frame->pc) ? UNSPOOL_END_ROOT : UNSPOOL_END_NO_UNWIND_INFO);
    return step_by_code(code, rule, &recipe, frame, step);
}

enum step_result step_doubted(const struct code *code, const struct unspool_module *module,
                              const struct rule *rule, struct frame *frame, struct step *step) {
    struct frame_recipe leaving, here;
    enum epilogue epilogue = find_epilogue(code, frame, &leaving);
    uint64_t start;
    if (epilogue == EPILOGUE_RETURNS)
        return step_by_epilogue(code, rule, &leaving, frame, step);
    bool has_start = table_doubted_start(module->table, lookup_address(frame) - module->image_base, &start);
    start += module->image_base;
    if (rule_is_of_entry(rule, code->unwinder->arch))
        return step_from_entry(code, rule, start, frame, step);
    /* At a call such rows are true, else perhaps not yet, or no longer. */
    if (!frame->is_interrupted)
        return step_as_row_says(code, rule, frame, step);
    if (has_start && recipe_from_entry(code, start, frame->pc, &here) && here.sp.kind != VALUE_UNKNOWN &&
        here.return_address.kind != VALUE_UNKNOWN)
        return step_by_code(code, rule, &here, frame, step);
    if (epilogue == NO_EPILOGUE)
        return step_as_row_says(code, rule, frame, step);
    /* Another function follows, or the rest of this one's epilogue. */
    enum step_result result = step_by_code(code, rule, &leaving, frame, step);
    step->how |= UNSPOOL_HOW_GUESS;
    return result;
}

/* glibc's rawmemchr on aarch64 keeps its return address in x15 while it calls strlen, which leaves that
 * alone; its CFI names x15 from the start, though lr has it at first. What the register holds is only
 * believed if a call of this very function is before it. */
enum step_result step_by_other_register(const struct code *code, const struct exact_result *result,
                                        struct frame *frame, struct step *step) {
    struct frame_recipe recipe;
    uint32_t number = result->return_address_register;
    bool is_left = !frame->is_interrupted || (recipe_from_entry(code, result->function, frame->pc, &recipe) &&
                                              recipe.return_address.kind == VALUE_UNKNOWN);
    if (!is_left || number >= UNSPOOL_AARCH64_FP)
        return step_by_proof(code, frame, step);
    if (!frame->all)
        return STEP_NEEDS_REGISTERS;
    uint64_t pc = strip_pac(code->unwinder, frame->all->value[number]);
    if (!((frame->all->known | frame->untouched) >> number & 1) ||
        match_call(code, pc, result->function) != CALL_MATCHES)
        return end_stack(step, UNSPOOL_END_NO_UNWIND_INFO);
    const struct caller caller = {pc, frame->sp, frame->fp, frame->fp_is_known, true};
    frame->all->known = 0;
    return become_caller(frame, &caller, step, UNSPOOL_HOW_CFI_EXACT);
}
