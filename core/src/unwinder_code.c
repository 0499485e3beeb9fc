/*
 * unwinder_code.c: where a function that passes exceptions on (gcc's _Unwind_Resume and the like on aarch64)
 * may have written its handler's registers over its own frame.
 *
 * It does so in its last call but one (uw_install_context_1; then _Unwind_DebugHook), before it adds a
 * register to sp and goes to the handler.
 * Wherever more calls than one are still to come, or x4, which will be added, will be 0, the frame is
 * untouched.
 */
#include "analysis.h"
#include "instruction.h"
#include "walk.h"

#include <string.h>

enum { WAYS = 32, INSTRUCTIONS = 1024, LATER_CALLS = 1 };

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

/* mov x4, #0: what will be added to sp. */
static const uint8_t nothing_added[] = {0x04, 0x00, 0x80, 0xd2};

static bool leaves_frame(const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++)
        if (instruction->effects[i].to == REGISTER_SP && instruction->effects[i].kind == EFFECT_CLOBBER)
            return true;
    return false;
}

bool may_be_overwritten(const struct code *code, uint64_t pc) {
    struct ways ways = {.way = {{pc, 0}}, .count = 1};
    uint32_t left = INSTRUCTIONS;
    while (ways.next < ways.count) {
        struct way at = ways.way[ways.next++];
        while (at.calls <= LATER_CALLS) {
            uint8_t bytes[4];
            struct instruction instruction;
            if (left-- == 0 || code_read(code, at.address, bytes, sizeof bytes) != sizeof bytes)
                return true;
            aarch64_decode(bytes, sizeof bytes, at.address, &instruction);
            if (leaves_frame(&instruction))
                return true;
            if (memcmp(bytes, nothing_added, sizeof bytes) == 0) /* it returns as others do */
                break;
            at.calls += instruction.flow == FLOW_CALL;
            if ((instruction.flow == FLOW_BRANCH || instruction.flow == FLOW_JUMP) &&
                !add_way(&ways, instruction.target, at.calls))
                return true;
            if (instruction.flow != FLOW_NEXT && instruction.flow != FLOW_CALL &&
                instruction.flow != FLOW_BRANCH)
                break;
            at.address += 4;
        }
    }
    return false;
}
