/* truth.c: see truth.h. */
#include "truth.h"

#include <stdlib.h>
#include <string.h>

#define NO_REGION UINT32_MAX

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

/* ------------------------------------------------------------------ chains */

static void chain_push(struct truth_chain *chain, struct truth_frame frame) {
    if (chain->count == chain->capacity) {
        chain->capacity = chain->capacity ? chain->capacity * 2 : 64;
        chain->frame = realloc(chain->frame, chain->capacity * sizeof *chain->frame);
        if (!chain->frame)
            abort();
    }
    uint64_t below = chain->count ? chain->frame[chain->count - 1].hash : 0;
    frame.hash = mix(below, frame.address);
    chain->frame[chain->count++] = frame;
}

static void push(struct truth *truth, uint32_t kind, uint64_t address, uint64_t slot) {
    struct truth_frame frame = {.address = address, .slot = slot, .region = truth->region, .kind = kind};
    chain_push(&truth->chain, frame);
    if (truth->chain.count > truth->stacks->counts.deepest)
        truth->stacks->counts.deepest = truth->chain.count;
}

const struct truth_frame *truth_top(const struct truth *truth) {
    return truth->chain.count ? &truth->chain.frame[truth->chain.count - 1] : NULL;
}

bool truth_in_limbo(const struct truth *truth) {
    const struct truth_frame *top = truth_top(truth);
    return top && top->kind == TRUTH_LIMBO;
}

/* ------------------------------------------------------------------ stacks */

static uint32_t add_region(struct truth_stacks *stacks, uint64_t start, uint64_t end, bool declared) {
    if (stacks->count == stacks->capacity) {
        stacks->capacity = stacks->capacity ? stacks->capacity * 2 : 8;
        stacks->region = realloc(stacks->region, stacks->capacity * sizeof *stacks->region);
        if (!stacks->region)
            abort();
    }
    stacks->region[stacks->count] = (struct truth_region){.start = start, .end = end, .declared = declared};
    return (uint32_t)stacks->count++;
}

uint32_t truth_declare(struct truth_stacks *stacks, uint64_t start, uint64_t end) {
    for (size_t i = 0; i < stacks->count; i++) {
        struct truth_region *region = &stacks->region[i];
        if (!region->declared || region->gone)
            continue;
        if (region->start == start && region->end == end)
            return (uint32_t)i;
        if (region->start < end && start < region->end)
            region->gone = true;
    }
    return add_region(stacks, start, end, true);
}

/* A mapping that grew or was seen before keeps its number. An sp that is not mapped has moved on the same
 * stack: a large frame whose memory the kernel has not added yet. */
static uint32_t region_of_mapping(struct truth_stacks *stacks, uint32_t current, uint64_t sp) {
    uint64_t start, end;
    if (!stacks->mapping(stacks->context, sp, &start, &end)) {
        if (current != NO_REGION)
            return current;
        start = sp;
        end = sp + 1;
    }
    for (size_t i = 0; i < stacks->count; i++) {
        struct truth_region *region = &stacks->region[i];
        if (!region->declared && region->start < end && start < region->end) {
            region->start = start;
            region->end = end;
            return (uint32_t)i;
        }
    }
    return add_region(stacks, start, end, false);
}

/* sp == end is a stack on which nothing has been pushed yet. */
static uint32_t region_of(struct truth_stacks *stacks, uint32_t current, uint64_t sp) {
    uint32_t found = NO_REGION;
    for (uint32_t i = 0; i < stacks->count; i++) {
        const struct truth_region *region = &stacks->region[i];
        if (region->gone || sp < region->start || sp > region->end)
            continue;
        if (region->declared && sp > region->start)
            return i;
        if (sp < region->end)
            found = i;
    }
    return found != NO_REGION ? found : region_of_mapping(stacks, current, sp);
}

/* ------------------------------------------------------------------ steps */

static bool in_chain(const struct truth *truth, uint32_t region) {
    for (size_t i = 0; i < truth->chain.count; i++) {
        if (truth->chain.frame[i].region == region)
            return true;
    }
    return false;
}

static void move_to(struct truth *truth, uint32_t region) {
    if (in_chain(truth, region)) { /* out of a signal handler that ran on a stack of its own */
        while (truth->chain.frame[truth->chain.count - 1].region != region)
            truth->chain.count--;
    } else {
        struct truth_chain running = truth->chain;
        truth->chain = truth->stacks->region[region].suspended;
        truth->stacks->region[truth->region].suspended = running;
        truth->stacks->region[region].suspended = (struct truth_chain){0};
    }
    truth->region = region;
}

/* Drops the frames that sp has left behind; returns how many. */
static size_t drop_below(struct truth *truth, uint64_t sp) {
    size_t dropped = 0;
    for (; truth->chain.count; truth->chain.count--, dropped++) {
        const struct truth_frame *top = truth_top(truth);
        if (top->region != truth->region || top->slot >= sp)
            break;
    }
    return dropped;
}

/* With a link register, what registers were replaced from may stand at the same sp as callees of the
 * destination: those from the one that its function called are gone. */
static void drop_callees(struct truth *truth, uint64_t sp, uint64_t destination) {
    size_t least = truth->chain.count, called = truth->chain.count;
    for (size_t i = truth->chain.count; i--; least = i) {
        const struct truth_frame *frame = &truth->chain.frame[i];
        if (frame->region != truth->region || frame->slot != sp || frame->kind != TRUTH_CALL)
            break;
        if (called == truth->chain.count &&
            truth->stacks->same_function(truth->stacks->context, frame->address - 1, destination))
            called = i;
    }
    truth->chain.count = called < truth->chain.count ? called : least;
}

static void resolve(struct truth *truth, const struct truth_step *step, uint64_t address, bool pushed) {
    if (truth->stacks->link_register)
        drop_callees(truth, step->sp, address);
    truth->outcome = TRUTH_RESOLVED;
    truth->resolved = address;
    truth->resolved_is_top = pushed;
    truth->switching = false;
}

static void returned(struct truth *truth, const struct truth_step *step, bool limbo) {
    const struct truth_frame *top = truth_top(truth);
    if (!limbo && top && top->slot == step->sp_before) {
        bool right = top->address == step->pc;
        truth->stacks->counts.returns_right += right;
        truth->stacks->counts.returns_rewritten += !right;
        truth->outcome = TRUTH_FRAMES_LEFT;
        if (!right && truth->stacks->link_register) { /* no slot shows where it would go */
            truth->switch_depth = truth->chain.count;
            truth->switching = true;
        }
        truth->chain.count--;
    } else if (!truth->switching) {
        truth->stacks->counts.returns_stray++;
    }
    if (truth->switching)
        resolve(truth, step, step->pc, false);
}

/* A jump to where the running function must return to. */
static bool is_return(const struct truth *truth, const struct truth_step *step) {
    const struct truth_frame *top = truth_top(truth);
    return top && top->kind == TRUTH_CALL && top->slot == step->sp_before && top->address == step->pc;
}

static void remember_held_call(struct truth_stacks *stacks, const struct truth_step *step,
                               const struct truth_frame *limbo) {
    struct truth_held_call call = {step->value, limbo->slot, limbo->address};
    stacks->held_call[stacks->held_calls++ % TRUTH_HELD_CALLS] = call;
}

/* What a jump comes back to: the return address that is held there, or 0. */
static uint64_t held_at(const struct truth_stacks *stacks, uint64_t pc, uint64_t sp) {
    size_t kept = stacks->held_calls < TRUTH_HELD_CALLS ? stacks->held_calls : TRUTH_HELD_CALLS;
    for (size_t back = 1; back <= kept; back++) {
        const struct truth_held_call *call =
            &stacks->held_call[(stacks->held_calls - back) % TRUTH_HELD_CALLS];
        if (call->return_address == pc && call->slot + 8 == sp)
            return call->held;
    }
    return 0;
}

/* limbo: the frame that was in limbo before, if any. */
static void called(struct truth *truth, const struct truth_step *step, const struct truth_frame *limbo) {
    bool kept = truth->switching && limbo->address;
    bool abandoned = truth->switching && !kept;
    truth->outcome = kept ? TRUTH_KEPT : abandoned ? TRUTH_ABANDONED : TRUTH_ENTERED;
    truth->stacks->counts.switches_abandoned += abandoned;
    truth->switching = false;
    if (kept) {
        push(truth, TRUTH_HELD, limbo->address, limbo->slot);
        remember_held_call(truth->stacks, step, limbo);
    }
    truth->stacks->counts.calls++;
    /* On x86_64 a call of the next instruction only asks for the pc; on aarch64 it is of a function that
     * follows one that never returns from it. */
    if (step->value != step->pc || truth->stacks->link_register)
        push(truth, TRUTH_CALL, step->value, step->sp);
}

static void signal_returned(struct truth *truth) {
    size_t count = truth->chain.count;
    while (count && truth->chain.frame[count - 1].kind != TRUTH_SIGNAL)
        count--;
    if (!count) {
        truth->stacks->counts.signal_returns_stray++;
        return;
    }
    truth->stacks->counts.signal_returns++;
    truth->chain.count = count - 1;
    truth->outcome = TRUTH_FRAMES_LEFT;
}

/* Has sp been set by an instruction that transfers no control, so that where the running code will go on
 * is not known? It is when sp stands at a return address that will be popped next. */
static bool in_limbo(const struct truth *truth, uint64_t sp, bool moved, size_t dropped) {
    const struct truth_frame *top = truth_top(truth);
    if (truth->stacks->link_register)
        return moved || dropped || truth->switching;
    return moved || (dropped && !(top && top->region == truth->region && top->slot == sp));
}

/* Did nothing happen but that a function popped its own return address, as vfork and musl's sigsetjmp do? */
static bool is_popped(const struct truth *truth, const struct truth_frame *frame, uint64_t sp,
                      size_t dropped) {
    bool is_call = frame->kind == TRUTH_CALL || frame->kind == TRUTH_HELD;
    return dropped == 1 && is_call && frame->slot + 8 == sp && !truth->stacks->link_register;
}

/* limbo: the frame that was in limbo before, if any; its slot is 0 if none was, or if that is over. */
static void settle(struct truth *truth, const struct truth_step *step, struct truth_frame limbo) {
    size_t depth = truth->chain.count;
    uint32_t region = region_of(truth->stacks, truth->region, step->sp);
    bool moved = region != truth->region;
    if (moved)
        move_to(truth, region);
    if (step->event == TRUTH_SIGNAL_RETURN && truth_in_limbo(truth)) {
        truth->switching = true; /* back where registers were being replaced */
        return;
    }
    struct truth_frame innermost = truth_top(truth) ? *truth_top(truth) : (struct truth_frame){0};
    size_t dropped = drop_below(truth, step->sp);
    bool popped = !moved && is_popped(truth, &innermost, step->sp, dropped);
    bool stayed = step->event == TRUTH_OTHER || step->event == TRUTH_SET_SP || step->event == TRUTH_PUSHED;
    if (!stayed && !(popped && innermost.kind == TRUTH_HELD)) { /* control has gone somewhere */
        uint64_t held = step->event == TRUTH_JUMPED ? held_at(truth->stacks, step->pc, step->sp) : 0;
        if (held) {
            push(truth, TRUTH_LIMBO, held, step->sp - 8);
            truth->switching = true;
        }
        if (dropped && truth->outcome == TRUTH_NOTHING)
            truth->outcome = TRUTH_FRAMES_LEFT;
        return;
    }
    const struct truth_frame *top = truth_top(truth);
    bool set = truth->stacks->link_register && step->event == TRUTH_SET_SP && top && top->slot == step->sp;
    if ((moved || dropped || set) && !truth->switching) {
        truth->stacks->counts.switches++;
        truth->switching = true;
        truth->switch_depth = depth;
    }
    if (in_limbo(truth, step->sp, moved, dropped))
        limbo = (struct truth_frame){.slot = step->sp - 8, .address = moved || dropped ? 0 : limbo.address};
    if (popped)
        limbo.address = innermost.address;
    if (limbo.slot)
        push(truth, TRUTH_LIMBO, limbo.address, limbo.slot);
}

void truth_step(struct truth *truth, const struct truth_step *step) {
    truth->outcome = TRUTH_NOTHING;
    struct truth_frame limbo = {0};
    if (truth_in_limbo(truth)) {
        limbo = *truth_top(truth);
        truth->chain.count--;
    }
    switch (step->event) {
    case TRUTH_RETURNED:
        returned(truth, step, limbo.slot != 0);
        break;
    case TRUTH_SIGNAL_RETURN:
        signal_returned(truth);
        break;
    case TRUTH_JUMPED:
        if (truth->switching)
            resolve(truth, step, step->pc, false);
        else if (truth->stacks->link_register && is_return(truth, step))
            returned(truth, step, false);
        break;
    case TRUTH_PUSHED:
        if (limbo.slot == step->sp && truth->stacks->executable(truth->stacks->context, step->value)) {
            push(truth, TRUTH_CALL, step->value, limbo.slot);
            resolve(truth, step, step->value, true);
            limbo.slot = 0;
        }
        break;
    case TRUTH_CALLED:
        called(truth, step, &limbo);
        break;
    case TRUTH_OTHER:
    case TRUTH_SET_SP:
        break;
    }
    settle(truth, step, limbo);
}

void truth_signal(struct truth *truth, uint64_t interrupted, uint64_t slot, uint64_t restorer, uint64_t sp) {
    truth->outcome = TRUTH_NOTHING;
    truth->stacks->counts.signals++;
    truth->switching = false;
    truth->region = region_of(truth->stacks, truth->region, sp);
    push(truth, TRUTH_SIGNAL, interrupted, slot);
    push(truth, TRUTH_CALL, restorer, sp);
}

void truth_make_context(struct truth *truth, uint32_t region, uint64_t slot, uint64_t address) {
    struct truth_chain *chain = &truth->stacks->region[region].suspended;
    chain->count = 0;
    chain_push(chain, (struct truth_frame){address, slot, 0, region, TRUTH_BASE});
}

void truth_resume_context(struct truth *truth, uint64_t sp, uint64_t address) {
    push(truth, TRUTH_BASE, address, sp);
}

void truth_start(struct truth *truth, struct truth_stacks *stacks, uint64_t sp) {
    memset(truth, 0, sizeof *truth);
    truth->stacks = stacks;
    truth->region = region_of(stacks, NO_REGION, sp);
    stacks->region[truth->region].suspended.count = 0;
}

void truth_stop(struct truth *truth) {
    free(truth->chain.frame);
    truth->chain = (struct truth_chain){0};
}

void truth_stacks_free(struct truth_stacks *stacks) {
    for (size_t i = 0; i < stacks->count; i++)
        free(stacks->region[i].suspended.frame);
    free(stacks->region);
    stacks->region = NULL;
    stacks->count = stacks->capacity = 0;
}
