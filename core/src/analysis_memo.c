/*
 * analysis_memo.c: what following code has shown already.
 *
 * The same places are asked about again and again when many stacks are walked, and following code takes a
 * thousand times as long as a step by a rule. The cache of an unwinder keeps the answers, for code that a
 * file brings (code that is made at run time changes), unless they rest on what a PLT slot held.
 */
#include "analysis.h"
#include "exact.h"
#include "memory.h"
#include "walk.h"

enum {
    ASKS_CALLER = 1,
    ASKS_REACHES,
    ASKS_RECIPE,
    ASKS_PAST_TABLES,
    ASKS_NEVER_RETURNS,
    ASKS_RETURNS,
    ASKS_OWN_FRAME,
    ASKS_STEP,
};

struct question {
    uint64_t words[5];   /* what is asked, pc, and what else matters */
    uint32_t slots_read; /* before it was asked */
};

static bool is_answered(const struct unspool_answer *answer, const struct question *question) {
    return answer && memcmp(answer->question, question->words, sizeof question->words) == 0;
}

/* Where the answer is, or is to be kept: one of two places, since two questions that displace each other
 * would cost more than all others. NULL: nowhere. */
static struct unspool_answer *place_of_answer(const struct code *code, const struct question *question) {
    if (!code->unwinder->cache)
        return NULL;
    uint64_t hash = 0;
    for (int i = 0; i < 5; i++)
        hash = (hash ^ question->words[i]) * 0x9e3779b97f4a7c15u;
    uint64_t place = hash >> 32 & (UNSPOOL_CACHE_ANSWERS - 1);
    struct unspool_answer *first = &code->unwinder->cache->answer[place];
    struct unspool_answer *second = &code->unwinder->cache->answer[place ^ 1];
    if (is_answered(first, question) || is_answered(second, question))
        return is_answered(first, question) ? first : second;
    const struct unspool_module *module = find_module(code->unwinder, question->words[1] - 1);
    if (!module || (!module->code && !(module->table && (code->memory->pid || code->memory->code_pid))))
        return NULL;
    return first->question[0] == 0 ? first : second;
}

static void keep(const struct code *code, struct unspool_answer *answer, const struct question *question,
                 uint8_t result, const struct frame_recipe *recipe) {
    if (!answer || code->memory->slots_read != question->slots_read)
        return;
    const struct frame_value values[] = {recipe->return_address, recipe->sp, recipe->fp};
    memcpy(answer->question, question->words, sizeof question->words);
    answer->result = result;
    for (int i = 0; i < 3; i++) {
        answer->kind[i] = values[i].kind;
        answer->offset[i] = values[i].offset;
    }
}

static struct frame_recipe kept_recipe(const struct unspool_answer *answer) {
    return (struct frame_recipe){
        .return_address = {answer->kind[0], answer->offset[0]},
        .sp = {answer->kind[1], answer->offset[1]},
        .fp = {answer->kind[2], answer->offset[2]},
    };
}

enum analysis_result analyse_code(const struct code *code, uint64_t pc, bool is_interrupted, bool lr_is_live,
                                  struct frame_recipe *recipe) {
    const struct question question = {{ASKS_CALLER, pc, is_interrupted, lr_is_live},
                                      code->memory->slots_read};
    struct unspool_answer *answer = place_of_answer(code, &question);
    if (is_answered(answer, &question)) {
        *recipe = kept_recipe(answer);
        return answer->result;
    }
    *recipe = (struct frame_recipe){0};
    enum analysis_result result = follow_to_returns(code, pc, is_interrupted, lr_is_live, recipe);
    keep(code, answer, &question, (uint8_t)result, recipe);
    return result;
}

typedef bool path_search(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe);

static bool recipe_by(path_search *search, uint64_t asks, const struct code *code, uint64_t entry,
                      uint64_t pc, struct frame_recipe *recipe) {
    const struct question question = {{asks, pc, entry}, code->memory->slots_read};
    struct unspool_answer *answer = place_of_answer(code, &question);
    if (is_answered(answer, &question)) {
        *recipe = kept_recipe(answer);
        return answer->result;
    }
    *recipe = (struct frame_recipe){0};
    bool result = search(code, entry, pc, recipe);
    keep(code, answer, &question, result, recipe);
    return result;
}

bool recipe_from_entry(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe) {
    return recipe_by(follow_from_entry, ASKS_RECIPE, code, entry, pc, recipe);
}

bool recipe_past_tables(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe) {
    return recipe_by(follow_past_tables, ASKS_PAST_TABLES, code, entry, pc, recipe);
}

/* Questions whose answer is yes or no. */

static const struct frame_recipe no_recipe;

bool code_never_returns(const struct code *code, uint64_t pc) {
    const struct question question = {{ASKS_NEVER_RETURNS, pc}, code->memory->slots_read};
    struct unspool_answer *answer = place_of_answer(code, &question);
    if (is_answered(answer, &question))
        return answer->result;
    bool result = follow_to_no_return(code, pc);
    keep(code, answer, &question, result, &no_recipe);
    return result;
}

enum { IS_FOUND = 1, IS_BY_FP = 2 };

static bool returns_from(const struct code *code, const struct code_place *place, uint64_t caller_sp,
                         bool *by_fp) {
    const struct question question = {{ASKS_RETURNS, place->pc, place->function_end,
                                       place->fp ? place->fp - place->sp : UINT64_MAX, caller_sp - place->sp},
                                      code->memory->slots_read};
    struct unspool_answer *answer = place_of_answer(code, &question);
    if (is_answered(answer, &question)) {
        *by_fp = answer->result & IS_BY_FP;
        return answer->result & IS_FOUND;
    }
    bool found = follow_to_return(code, place, caller_sp, by_fp);
    keep(code, answer, &question, (uint8_t)((found ? IS_FOUND : 0) | (*by_fp ? IS_BY_FP : 0)), &no_recipe);
    return found;
}

/* Most functions find their return by sp alone; what else happens to be in fp would make each question
 * another. */
bool code_returns(const struct code *code, const struct code_place *place, uint64_t caller_sp) {
    struct code_place by_sp = *place;
    bool by_fp;
    by_sp.fp = 0;
    return returns_from(code, &by_sp, caller_sp, &by_fp) ||
           (by_fp && returns_from(code, place, caller_sp, &by_fp));
}

enum own_frame own_frame(const struct code *code, uint64_t pc) {
    const struct question question = {{ASKS_OWN_FRAME, pc}, code->memory->slots_read};
    struct unspool_answer *answer = place_of_answer(code, &question);
    if (is_answered(answer, &question))
        return answer->result;
    enum own_frame result = follow_own_frame(code, pc);
    keep(code, answer, &question, (uint8_t)result, &no_recipe);
    return result;
}

bool code_reaches(const struct code *code, uint64_t entry, uint64_t pc) {
    const struct question question = {{ASKS_REACHES, pc, entry}, code->memory->slots_read};
    struct unspool_answer *answer = place_of_answer(code, &question);
    if (is_answered(answer, &question))
        return answer->result;
    bool result = follow_to_place(code, entry, pc);
    keep(code, answer, &question, result, &no_recipe);
    return result;
}

static struct question ask_step(const struct frame *frame, uint32_t slots_read) {
    return (struct question){{ASKS_STEP, frame->pc, frame->fp_is_known,
                              frame->fp_is_known ? frame->fp - frame->sp : 0, frame->is_interrupted},
                             slots_read};
}

enum known_step known_step(const struct code *code, const struct frame *frame, struct frame_recipe *recipe) {
    const struct question question = ask_step(frame, 0);
    struct unspool_answer *answer = place_of_answer(code, &question);
    if (!is_answered(answer, &question))
        return STEP_NOT_KNOWN;
    *recipe = kept_recipe(answer);
    return answer->result;
}

/* Where a thread is interrupted in an epilogue, a register may have its value back that the row still looks
 * for on the stack. */
static bool may_be_popped(const struct frame_recipe *recipe) {
    return recipe->sp.kind != VALUE_SP || recipe->return_address.offset < 0 || recipe->fp.kind != VALUE_FP;
}

void keep_step(const struct code *code, const struct unspool_module *module, const struct frame *frame,
               enum known_step known, uint32_t slots_read) {
    const struct question question = ask_step(frame, slots_read);
    struct unspool_answer *answer = place_of_answer(code, &question);
    struct frame_recipe recipe = {0};
    uint64_t lookup = lookup_address(frame) - module->image_base;
    if (answer && (!exact_row_recipe(code->unwinder->arch, module->table, lookup, frame->pc, &recipe) ||
                   (frame->is_interrupted && may_be_popped(&recipe))))
        known = STEP_NEVER_KNOWN;
    keep(code, answer, &question, (uint8_t)known, &recipe);
}
