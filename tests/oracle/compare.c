/* compare.c: see compare.h. */
#include "compare.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_LIMIT = 4096, STACK_COPY = 1 << 20 };

struct pending_walk {
    bool waits;
    enum verdict verdict; /* when nothing better turns up */
    struct walked walked; /* owned */
};

/* A check that waits to learn where control goes. */
struct pending {
    struct pending *next;
    struct pending_walk walk[READERS];
    uint64_t *truth; /* owned; as it was */
    uint64_t truth_count;
    uint64_t depth; /* frames then */
    bool limbo;
    uint64_t step, sp, fp;
};

static uint64_t get_pc(const struct comparison *comparison, const struct unspool_registers *registers) {
    bool x86_64 = comparison->unwinder.arch == UNSPOOL_X86_64;
    return registers->value[x86_64 ? UNSPOOL_X86_64_PC : UNSPOOL_AARCH64_PC];
}

static uint64_t get_sp(const struct comparison *comparison, const struct unspool_registers *registers) {
    bool x86_64 = comparison->unwinder.arch == UNSPOOL_X86_64;
    return registers->value[x86_64 ? UNSPOOL_X86_64_RSP : UNSPOOL_AARCH64_SP];
}

static uint64_t get_fp(const struct comparison *comparison, const struct unspool_registers *registers) {
    bool x86_64 = comparison->unwinder.arch == UNSPOOL_X86_64;
    return registers->value[x86_64 ? UNSPOOL_X86_64_RBP : UNSPOOL_AARCH64_FP];
}

void comparison_init(struct comparison *comparison, const struct target *target, uint32_t arch) {
    memset(comparison, 0, sizeof *comparison);
    comparison->target = target;
    comparison->unwinder.arch = arch;
    comparison->unwinder.address_bits = arch == UNSPOOL_X86_64 ? 47 : 48;
    comparison->truth = malloc(DEPTH_LIMIT * sizeof(uint64_t));
    comparison->walked = malloc(DEPTH_LIMIT * sizeof(uint64_t));
    comparison->copied = malloc(DEPTH_LIMIT * sizeof(uint64_t));
    comparison->batched = malloc(DEPTH_LIMIT * sizeof(uint64_t));
    comparison->walked_how = malloc(DEPTH_LIMIT);
    comparison->batched_how = malloc(DEPTH_LIMIT);
    comparison->copied_how = malloc(DEPTH_LIMIT);
    comparison->stack_copy = malloc(STACK_COPY);
    comparison_modules_changed(comparison);
}

void comparison_modules_changed(struct comparison *comparison) {
    comparison->unwinder.modules = comparison->target->modules;
    comparison->unwinder.module_count = comparison->target->module_count;
    unspool_cache_clear(&comparison->cache);
}

/* ------------------------------------------------------------------ verdicts */

static bool same_address(const struct comparison *comparison, const struct truth *truth, uint64_t walked,
                         uint64_t index, bool *rewritten) {
    if (walked == comparison->truth[index])
        return true;
    if (!index || index > truth->chain.count)
        return false;
    const struct truth_frame *frame = &truth->chain.frame[truth->chain.count - index];
    if (frame->kind == TRUTH_LIMBO)
        return true; /* decided later, or nobody can */
    uint64_t now;
    if (frame->kind != TRUTH_CALL || truth->stacks->link_register ||
        target_read(comparison->target, frame->slot, &now, 8) != 8)
        return false;
    *rewritten = now == walked;
    return *rewritten;
}

static bool guessed(const struct walked *walked) {
    for (uint64_t i = 0; i < walked->count; i++) {
        if (walked->how[i] & UNSPOOL_HOW_GUESS)
            return true;
    }
    return false;
}

static enum verdict verdict_of(const struct walked *walked, bool all, bool prefix, bool rewritten) {
    bool guess = guessed(walked);
    if (walked->end != UNSPOOL_END_ROOT)
        return prefix ? VERDICT_CUT : VERDICT_WRONG;
    if (guess)
        return all ? VERDICT_GUESSED_RIGHT : VERDICT_GUESSED_WRONG;
    if (!all)
        return VERDICT_WRONG_COMPLETE;
    return rewritten ? VERDICT_REWRITTEN : VERDICT_EXACT;
}

static enum verdict judge(const struct comparison *comparison, const struct truth *truth, uint64_t count,
                          const struct walked *walked, uint64_t *failed) {
    uint64_t same = 0;
    bool rewritten = false;
    while (same < count && same < walked->count &&
           same_address(comparison, truth, walked->address[same], same, &rewritten))
        same++;
    *failed = same;
    bool prefix = same == walked->count;
    return verdict_of(walked, prefix && same == count, prefix, rewritten);
}

/* ------------------------------------------------------------------ waiting */

static void *copy(const void *bytes, size_t size) {
    void *copied = malloc(size + 1);
    if (!copied)
        abort();
    return memcpy(copied, bytes, size);
}

static void count(struct comparison *comparison, const struct pending *pending, enum reader reader,
                  enum verdict verdict) {
    const struct walked *walked = &pending->walk[reader].walked;
    results_add(&comparison->results, reader, verdict, walked->end);
    if (verdict == VERDICT_EXACT)
        return;
    uint64_t failed = 0;
    while (failed < walked->count && failed < pending->truth_count &&
           walked->address[failed] == pending->truth[failed] && !(walked->how[failed] & UNSPOOL_HOW_GUESS))
        failed++; /* what comes after a guess comes of it */
    struct inexact inexact = {reader, verdict,       *walked,     pending->truth, pending->truth_count,
                              failed, pending->step, pending->sp, pending->fp};
    results_add_inexact(&comparison->results, &inexact);
}

static void settle(struct comparison *comparison, struct pending *pending) {
    for (int reader = 0; reader < READERS; reader++) {
        struct pending_walk *walk = &pending->walk[reader];
        if (walk->waits)
            count(comparison, pending, (enum reader)reader, walk->verdict);
        free((void *)(uintptr_t)walk->walked.address);
        free((void *)(uintptr_t)walk->walked.how);
    }
    free(pending->truth);
    free(pending);
}

/* The true stack of a check, seen from where control went: its pc, the destination, its callers. */
static void judge_destination(struct pending *pending, const struct truth *truth) {
    uint64_t depth = truth->chain.count;
    uint64_t total = depth + 1 + !truth->resolved_is_top;
    uint64_t *expected = malloc(total * sizeof *expected);
    expected[0] = pending->truth[0];
    expected[1] = truth->resolved;
    for (uint64_t i = 0; i < depth; i++)
        expected[total - depth + i] = truth->chain.frame[depth - 1 - i].address;
    for (int reader = 0; reader < READERS; reader++) {
        struct pending_walk *walk = &pending->walk[reader];
        uint64_t shared = walk->walked.count < total ? walk->walked.count : total;
        bool prefix =
            walk->walked.count <= total && !memcmp(expected, walk->walked.address, shared * sizeof *expected);
        enum verdict verdict = verdict_of(&walk->walked, prefix && shared == total, prefix, false);
        if (verdict == VERDICT_EXACT)
            verdict = VERDICT_DESTINATION;
        if (pending->limbo || verdict < walk->verdict)
            walk->verdict = verdict;
    }
    if (pending->limbo) {
        free(pending->truth);
        pending->truth = expected;
        pending->truth_count = total;
    } else {
        free(expected);
    }
}

/* The true stack of a check that was made while its function kept its return address elsewhere than on the
 * stack, and nothing came of it: what it was all the time. */
static void judge_kept(struct pending *pending) {
    for (int reader = 0; reader < READERS; reader++) {
        struct pending_walk *walk = &pending->walk[reader];
        uint64_t count = walk->walked.count;
        bool prefix = count <= pending->truth_count &&
                      !memcmp(pending->truth, walk->walked.address, count * sizeof *pending->truth);
        walk->verdict = verdict_of(&walk->walked, prefix && count == pending->truth_count, prefix, false);
    }
}

void comparison_stepped(struct comparison *comparison, struct waiting *waiting, const struct truth *truth) {
    if (truth->outcome == TRUTH_NOTHING)
        return;
    for (struct pending **link = &waiting->first; *link;) {
        struct pending *pending = *link;
        bool left = truth->outcome == TRUTH_FRAMES_LEFT && truth->chain.count < pending->depth;
        if (truth->outcome == TRUTH_FRAMES_LEFT && !left) {
            link = &pending->next;
            continue;
        }
        bool resolved = truth->outcome == TRUTH_RESOLVED;
        bool popped = pending->limbo && pending->truth[1];
        if (popped && (truth->outcome == TRUTH_KEPT || (resolved && truth->resolved == pending->truth[1])))
            judge_kept(pending);
        else if (resolved && (pending->limbo || pending->depth == truth->switch_depth))
            judge_destination(pending, truth);
        *link = pending->next;
        settle(comparison, pending);
    }
}

void comparison_finish(struct comparison *comparison, struct waiting *waiting) {
    while (waiting->first) {
        struct pending *pending = waiting->first;
        waiting->first = pending->next;
        settle(comparison, pending);
    }
}

/* ------------------------------------------------------------------ checks */

static uint64_t read_stack(struct comparison *comparison, const struct truth *truth, uint64_t sp) {
    const struct truth_region *region = &truth->stacks->region[truth->region];
    uint64_t size = sp >= region->start && sp < region->end ? region->end - sp : 0;
    if (size > STACK_COPY)
        size = STACK_COPY;
    return target_read(comparison->target, sp, comparison->stack_copy, size);
}

static struct walked walk_process(struct comparison *comparison, const struct unspool_registers *registers,
                                  uint64_t size) {
    struct unspool_memory *memory = &comparison->memory;
    memory->stack = (struct unspool_region){get_sp(comparison, registers), size, comparison->stack_copy};
    memory->regions = comparison->target->regions;
    memory->region_count = comparison->target->region_count;
    memory->pid = (int32_t)comparison->target->pid;
    unspool_memory_reset(memory);
    struct unspool_stack stack = {comparison->walked, comparison->walked_how, DEPTH_LIMIT, 0, 0, 0};
    struct unspool_unwinder unwinder = comparison->unwinder;
    unspool_walk(&unwinder, registers, memory, &stack);
    return (struct walked){stack.addresses, stack.how, stack.count, stack.end};
}

static struct walked walk_copy(struct comparison *comparison, const struct unspool_registers *registers,
                               uint64_t size) {
    struct unspool_memory *memory = &comparison->memory;
    memory->stack = (struct unspool_region){get_sp(comparison, registers), size, comparison->stack_copy};
    memory->region_count = 0;
    memory->pid = 0;
    unspool_memory_reset(memory);
    struct unspool_stack stack = {comparison->copied, comparison->copied_how, DEPTH_LIMIT, 0, 0, 0};
    struct unspool_unwinder unwinder = comparison->unwinder;
    unwinder.cache = &comparison->cache;
    unspool_walk(&unwinder, registers, memory, &stack);
    return (struct walked){stack.addresses, stack.how, stack.count, stack.end};
}

static struct walked walk_batch(struct comparison *comparison, const struct unspool_registers *registers,
                                uint64_t size) {
    uint64_t lr = comparison->unwinder.arch == UNSPOOL_AARCH64 ? registers->value[UNSPOOL_AARCH64_LR] : 0;
    uint64_t four[4] = {get_pc(comparison, registers), get_sp(comparison, registers),
                        get_fp(comparison, registers), lr};
    uint64_t stack_offsets[2] = {0, size}, offsets[2] = {0, 0};
    uint8_t end = 0;
    struct unspool_batch batch = {1,
                                  four,
                                  stack_offsets,
                                  comparison->stack_copy,
                                  DEPTH_LIMIT,
                                  DEPTH_LIMIT,
                                  comparison->batched,
                                  comparison->batched_how,
                                  offsets,
                                  &end,
                                  0,
                                  0};
    struct unspool_unwinder unwinder = comparison->unwinder;
    unwinder.cache = &comparison->cache;
    unspool_walk_many(&unwinder, &batch, 0);
    return (struct walked){comparison->batched, comparison->batched_how, offsets[1], end};
}

static struct pending *wait_for(struct comparison *comparison, const struct truth *truth, uint64_t count,
                                const struct unspool_registers *registers) {
    struct pending *pending = calloc(1, sizeof *pending);
    if (!pending)
        abort();
    pending->truth = copy(comparison->truth, count * sizeof *comparison->truth);
    pending->truth_count = count;
    pending->depth = truth->chain.count;
    pending->limbo = truth_in_limbo(truth);
    pending->step = comparison->results.steps;
    pending->sp = get_sp(comparison, registers);
    pending->fp = get_fp(comparison, registers);
    return pending;
}

static uint64_t true_addresses(struct comparison *comparison, const struct truth *truth, uint64_t pc) {
    uint64_t count = 0, depth = truth->chain.count;
    comparison->truth[count++] = pc;
    while (count < DEPTH_LIMIT && count <= depth) {
        comparison->truth[count] = truth->chain.frame[depth - count].address;
        count++;
    }
    return count;
}

static void compare(struct comparison *comparison, struct waiting *waiting, const struct truth *truth,
                    const struct unspool_registers *registers) {
    uint64_t sp = get_sp(comparison, registers);
    uint64_t count = true_addresses(comparison, truth, get_pc(comparison, registers));
    uint64_t size = read_stack(comparison, truth, sp);
    struct walked walked[READERS] = {walk_process(comparison, registers, size),
                                     walk_copy(comparison, registers, size),
                                     walk_batch(comparison, registers, size)};
    struct pending *pending = NULL;
    for (int reader = 0; reader < READERS; reader++) {
        uint64_t failed;
        enum verdict verdict = judge(comparison, truth, count, &walked[reader], &failed);
        if (!truth_in_limbo(truth) && verdict == VERDICT_EXACT) {
            results_add(&comparison->results, (enum reader)reader, verdict, walked[reader].end);
            continue;
        }
        if (!pending)
            pending = wait_for(comparison, truth, count, registers);
        struct pending_walk *walk = &pending->walk[reader];
        walk->waits = true;
        walk->verdict = verdict;
        walk->walked = walked[reader];
        walk->walked.address = copy(walked[reader].address, walked[reader].count * sizeof(uint64_t));
        walk->walked.how = copy(walked[reader].how, walked[reader].count);
    }
    if (!pending)
        return;
    pending->next = waiting->first;
    waiting->first = pending;
}

void comparison_check(struct comparison *comparison, struct waiting *waiting, const struct truth *truth,
                      const struct unspool_registers *registers) {
    uint64_t pc = get_pc(comparison, registers);
    const struct truth_frame *top = truth_top(truth);
    uint64_t key = pc * 0xff51afd7ed558ccdu;
    if (top)
        key = (key ^ top->hash ^ (get_sp(comparison, registers) - top->slot) << 48) * 0xc4ceb9fe1a85ec53u;
    value_set_add(&comparison->results.pcs, pc);
    if (!value_set_add(&comparison->seen, key))
        return;
    comparison->results.checks++;
    compare(comparison, waiting, truth, registers);
}
