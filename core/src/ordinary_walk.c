/*
 * ordinary_walk.c: the steps of a single stack that are ordinary: a rule is cached, and it does with sp, fp
 * and words of the stack at hand. This is step_once (walk.c) for them, made short; ordinary_step.h has them
 * for who walks many stacks, for whom the processor need not guess what comes next.
 *
 * A thread's stack is mostly what it was at its last sample. So the frames from which ordinary steps led to
 * the root are kept, each with the slots that its pc and fp were read from. Where a walk arrives at a kept
 * frame (the same pc, sp and fp) the steps from there on would read those slots, and do nothing else but add:
 * while they hold the same words the frames are the same. The loads do not wait for each other, and no rule
 * is looked for. That is no guess: whatever memory holds, the result is the same. Async-signal-safe.
 */
#include "rule_cache.h"

enum {
    KEPT = UNSPOOL_KEPT_FRAMES, /* the outermost ones; a power of two */
    WORTH = 4,                  /* frames taken over: less does not pay for keeping them */
    PATIENCE = 4,               /* walks in vain, one after the other; then nothing is kept */
    PAUSE = 64,                 /* until there were so many: then it is tried again */
};

/* The stack at hand. */
struct words {
    const uint8_t *bytes;
    uint64_t address, places; /* a word begins at address + n, n < places */
    uint64_t address_mask;    /* of a return address, without its PAC */
};

static inline bool word_is(const struct words *words, uint64_t address, uint64_t mask, uint64_t value) {
    uint64_t word, at = address - words->address;
    if (at >= words->places)
        return false;
    memcpy(&word, words->bytes + at, sizeof word);
    return (word & mask) == value;
}

static inline uint64_t slot_address(uint64_t cfa, int16_t slot) {
    return cfa + (uint64_t)((int64_t)slot * SLOT_SIZE);
}

/* What a walk finds out about the frames that it adds, to be kept. */
struct finding {
    struct unspool_last_walk *last;        /* its frames: outermost first */
    uint32_t next;                         /* of the last walk's frames, the ones from here on are passed */
    uint32_t below;                        /* so many of them, up to the root, hold again and stay */
    uint32_t count;                        /* frames found */
    uint32_t taken;                        /* frames taken over */
    struct unspool_kept_frame frame[KEPT]; /* the last ones found, innermost first, at their number % KEPT */
};

static inline void find_frame(struct finding *found, const struct unspool_kept_frame *frame) {
    found->frame[found->count++ % KEPT] = *frame;
}

/* Whether `at`, which has been reached, is one of the last walk's; then it is found->next. sp only grows. */
static inline bool was_there(struct finding *found, const struct unspool_kept_frame *at) {
    const struct unspool_kept_frame *kept = found->last->frame;
    while (found->next && kept[found->next - 1].sp < at->sp)
        found->next--;
    if (!found->next)
        return false;
    kept += found->next - 1;
    return kept->sp == at->sp && kept->pc == at->pc && kept->fp == at->fp && found->next--;
}

/* Adds the frames behind found->next that are the same as in the last walk; *at becomes the last of them. */
static void take_over(struct finding *found, const struct words *words, struct unspool_stack *stack,
                      struct unspool_kept_frame *at) {
    const struct unspool_kept_frame *kept = found->last->frame;
    const uint32_t reached = found->next;
    uint64_t count = stack->count;
    uint32_t i = reached;
    for (; i && count < stack->capacity; i--, count++) {
        const struct unspool_kept_frame *caller = &kept[i - 1];
        if (!word_is(words, slot_address(caller->sp, caller->pc_slot), words->address_mask, caller->pc) ||
            (caller->fp_is_saved &&
             !word_is(words, slot_address(caller->sp, caller->fp_slot), UINT64_MAX, caller->fp)))
            break;
        stack->addresses[count] = caller->pc;
        stack->how[count] = UNSPOOL_HOW_CFI;
    }
    stack->count = count;
    found->taken += reached - i;
    found->next = i;
    if (i == reached)
        return;
    *at = kept[i];
    found->below = i ? 0 : reached;
    for (uint32_t k = reached; i && k > i; k--)
        find_frame(found, &kept[k - 1]);
}

/* The walk has come to the root: what it has found becomes the last walk. Who came to the root by frames that
 * were taken over has found nothing behind them. */
static void keep_frames(struct finding *found) {
    struct unspool_last_walk *last = found->last;
    uint32_t room = KEPT - found->below, count = found->count < room ? found->count : room;
    for (uint32_t k = 0; k < count; k++)
        last->frame[found->below + k] = found->frame[(found->count - 1 - k) % KEPT];
    last->count = found->below + count;
    last->in_vain = found->taken >= WORTH ? 0 : last->in_vain + 1;
}

/* found: NULL, or what is to be kept. */
static __attribute__((always_inline)) inline bool
walk_words(const struct code *code, struct frame *frame, struct unspool_stack *stack, struct finding *found) {
    const struct unspool_cache *cache = code->unwinder->cache;
    const struct unspool_region *copy = &code->memory->stack;
    const struct words words = {
        .bytes = copy->bytes,
        .address = copy->address,
        .places = copy->size < sizeof(uint64_t) ? 0 : copy->size - sizeof(uint64_t) + 1,
        .address_mask = strip_pac(code->unwinder, UINT64_MAX),
    };
    struct unspool_kept_frame at = {.pc = frame->pc, .sp = frame->sp, .fp = frame->fp};
    uint64_t popped_below = frame->is_interrupted ? at.sp : 0, entry; /* see is_popped in walk.c */
    bool fp_is_known = frame->fp_is_known, is_caller = !frame->is_interrupted;
    while (entry = cached_rule(cache, at.pc - is_caller),
           is_packed(entry) && stack->count < stack->capacity) {
        const struct rule rule = unpack_rule(entry);
        bool is_by_fp = RULE_CFA_BASE(&rule) == UNSPOOL_CFA_FP;
        uint64_t cfa = (is_by_fp ? at.fp : at.sp) + (uint64_t)(int64_t)rule.cfa_offset;
        uint64_t fp_address = slot_address(cfa, rule.fp_slot);
        uint64_t ra_at = slot_address(cfa, rule.ra_slot) - words.address;
        bool fp_is_popped = RULE_FP(&rule) == UNSPOOL_SAVED_AT_CFA && fp_address < popped_below;
        bool fp_is_saved = RULE_FP(&rule) == UNSPOOL_SAVED_AT_CFA && !fp_is_popped;
        uint64_t fp_at = fp_is_saved ? fp_address - words.address : ra_at;
        if ((is_by_fp && !fp_is_known) || cfa <= at.sp || ra_at >= words.places || fp_at >= words.places)
            break;
        memcpy(&at.pc, words.bytes + ra_at, sizeof at.pc);
        if (fp_is_saved)
            memcpy(&at.fp, words.bytes + fp_at, sizeof at.fp);
        at.pc &= words.address_mask;
        at.sp = cfa;
        fp_is_known |= fp_is_saved;
        popped_below = 0;
        is_caller = true;
        stack->addresses[stack->count] = at.pc;
        stack->how[stack->count++] = UNSPOOL_HOW_CFI;
        if (found && fp_is_known) {
            at.pc_slot = rule.ra_slot, at.fp_slot = rule.fp_slot, at.fp_is_saved = fp_is_saved;
            find_frame(found, &at);
            if (was_there(found, &at))
                take_over(found, &words, stack, &at);
        }
    }
    if (is_caller)
        *frame = (struct frame){.pc = at.pc, .sp = at.sp, .fp = at.fp, .fp_is_known = fp_is_known};
    bool is_root = is_caller && ends_stack(entry);
    if (found && is_root && found->count)
        keep_frames(found);
    return is_root;
}

static bool walk_and_keep(const struct code *code, struct frame *frame, struct unspool_stack *stack,
                          struct unspool_last_walk *last) {
    struct finding found; /* its frames are not set before they are found */
    found.last = last;
    found.next = last->count;
    found.below = found.count = found.taken = 0;
    return walk_words(code, frame, stack, &found);
}

bool walk_by_cache(const struct code *code, struct frame *frame, struct unspool_stack *stack) {
    struct unspool_cache *cache = code->unwinder->cache;
    if (!cache || frame->all || (frame->is_interrupted && code->unwinder->arch == UNSPOOL_AARCH64))
        return false;
    struct unspool_last_walk *last = &cache->last;
    if (last->in_vain < PATIENCE)
        return walk_and_keep(code, frame, stack, last);
    if (++last->in_vain == PAUSE)
        last->in_vain = PATIENCE - 2; /* one walk to be kept, one to compare it with */
    return walk_words(code, frame, stack, NULL);
}
