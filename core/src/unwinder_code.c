/*
 * unwinder_code.c: where a function that passes exceptions on (gcc's _Unwind_Resume and the like) may have
 * written its handler's registers over its own frame.
 *
 * It does so in its last call but one (uw_install_context_1; then _Unwind_DebugHook), before it sets sp from
 * a register, or adds one to it, and goes to the handler.
 * Wherever more calls than one are still to come, or an ordinary return, or on aarch64 x4, which will be
 * added, will be 0, the frame is untouched.
 */
#include "analysis.h"
#include "exact.h"
#include "instruction.h"
#include "walk.h"

#include <string.h>

enum { WAYS = 32, INSTRUCTIONS = 1024 };

struct way {
    uint64_t address;
    uint32_t calls;
};

struct ways {
    struct way way[WAYS]; /* every place that was branched to; those from next on are still to be followed */
    uint32_t count, next;
};

/* False when there are too many. */
static bool add_way(struct ways *ways, uint64_t address, uint32_t calls) {
    for (uint32_t i = 0; i < ways->count; i++)
        if (ways->way[i].address == address && ways->way[i].calls <= calls)
            return true;
    if (ways->count == WAYS)
        return false;
    ways->way[ways->count++] = (struct way){address, calls};
    return true;
}

/* aarch64: mov x4, #0: what will be added to sp. */
static const uint8_t nothing_added[] = {0x04, 0x00, 0x80, 0xd2};

/* The instruction at address; false: there is none. */
static bool decode(const struct code *code, uint64_t address, struct instruction *instruction,
                   bool *adds_nothing) {
    uint8_t bytes[15];
    size_t size = code_read(code, address, bytes, sizeof bytes);
    bool is_aarch64 = code->unwinder->arch == UNSPOOL_AARCH64;
    if (is_aarch64)
        aarch64_decode(bytes, size, address, instruction);
    else
        x86_64_decode(bytes, size, address, instruction);
    *adds_nothing = is_aarch64 && instruction->length && memcmp(bytes, nothing_added, 4) == 0;
    return instruction->length != 0;
}

static bool leaves_frame(const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++)
        if (instruction->effects[i].to == REGISTER_SP &&
            (instruction->effects[i].kind == EFFECT_CLOBBER || instruction->effects[i].from == REGISTER_BX))
            return true;
    return false;
}

/* Follows one way to its end, or while it has fewer calls than *least; false when it can't be followed. */
static bool follow_way(const struct code *code, struct ways *ways, struct way at, uint32_t *left,
                       uint32_t *least) {
    while (at.calls < *least) {
        struct instruction instruction;
        bool adds_nothing;
        if ((*left)-- == 0 || !decode(code, at.address, &instruction, &adds_nothing))
            return false;
        if (adds_nothing) /* it returns as others do */
            return true;
        if (leaves_frame(&instruction) || instruction.flow == FLOW_INDIRECT_JUMP) {
            *least = at.calls;
            return true;
        }
        at.calls += instruction.flow == FLOW_CALL;
        if ((instruction.flow == FLOW_BRANCH || instruction.flow == FLOW_JUMP) &&
            !add_way(ways, instruction.target, at.calls))
            return false;
        if (instruction.flow != FLOW_NEXT && instruction.flow != FLOW_CALL && instruction.flow != FLOW_BRANCH)
            return true;
        at.address += instruction.length;
    }
    return true;
}

enum own_frame follow_own_frame(const struct code *code, uint64_t pc) {
    struct ways ways = {.way = {{pc, 0}}, .count = 1};
    uint32_t left = INSTRUCTIONS, least = FRAME_UNTOUCHED;
    while (ways.next < ways.count)
        if (!follow_way(code, &ways, ways.way[ways.next++], &left, &least))
            return least ? FRAME_BEING_WRITTEN : FRAME_LOST;
    return (enum own_frame)least;
}

enum known_step trust_own_frame(const struct code *code, const struct frame *frame,
                                const struct exact_result *result) {
    struct code_place here = {frame->pc, frame->sp, frame->fp_is_known ? frame->fp : 0, result->function_end};
    if (result->is_in_lr && may_have_leapt(code, frame->pc))
        return STEP_NEVER_KNOWN;
    if (code_returns(code, &here, result->cfa))
        return STEP_KNOWN;
    enum own_frame state = own_frame(code, frame->pc);
    if (result->is_in_lr || state == FRAME_LOST)
        return STEP_KNOWN_LOST;
    return state == FRAME_UNTOUCHED ? STEP_KNOWN : STEP_KNOWN_IF_CALLED;
}
