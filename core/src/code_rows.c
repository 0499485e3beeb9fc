/*
 * code_rows.c: rows for hand-written code without unwind information that keeps its frame by rbx, as
 * OpenBLAS's kernels do: they move sp by an amount that only runs tell.
 *
 * Such functions are too long to be analysed at every sample, so each is followed once, from its start, when
 * its table is compiled. What speaks for the rows is that every way out of the function is as it must be: at
 * each return and each jump to elsewhere sp is what it was at the start, rbp and rbx are the caller's again;
 * where two ways meet they agree. One that isn't so, or a jump that can't be followed: no rows for the whole
 * function. What is assumed of code is what stack_state.c says. x86_64 only.
 */
#include <stdlib.h>

#include "code_rows.h"
#include "frame_state.h"
#include "memo.h"

enum {
    FUNCTION_LIMIT = 1 << 17, /* bytes; OpenBLAS's longest have 40,000 */
    ALIGNMENT = 16,
    MOST_PASSES = 8,
    /* Code may be followed this many times its size: real code is below 3 times. More is code made to be
     * slow, in which each function reaches over many that follow. */
    WORK_FACTOR = 16,
    IS_IDLE = 16,          /* added to a length: it goes on to the next and has no effects */
    NOT_FOLLOWED = 255,    /* a length: an instruction begins here */
    MANY_STATES = 1 << 14, /* of those that are kept from function to function; most have a dozen */
};

struct followed_code {
    const uint8_t *bytes; /* of a function, from its start */
    uint64_t address, size;
    struct memo states; /* struct frame_state */
    uint16_t *state;    /* of each byte at which an instruction begins: the number of what holds there, */
    uint8_t *length;    /* and its length, or more; 0: none that any way leads to */
    uint64_t end;       /* behind its last instruction */
    uint64_t jumps_to;  /* the farthest place within that a jump leads to */
    uint64_t touched;   /* no instruction behind it has a length */
    uint64_t work_left; /* bytes that may still be followed, of all functions */
    bool is_by_rbx, returns, has_changed;
};

static const struct frame_state *state_of(const struct followed_code *function, uint16_t number) {
    return (const struct frame_state *)function->states.items.items + number;
}

/* The number of a state; -1: there are too many. */
static int32_t number_of(struct followed_code *function, const struct frame_state *state) {
    return memoize(&function->states, state, sizeof *state);
}

/* A way leads to a place of the function. What ways disagree on is lost; false: the frame is. */
static bool arrive(struct followed_code *function, uint64_t at, uint16_t number) {
    if (function->touched <= at)
        function->touched = at + 1;
    if (!function->length[at]) {
        function->state[at] = number;
        function->length[at] = NOT_FOLLOWED;
        function->has_changed |= at < function->end; /* it has been passed by */
    } else if (function->state[at] != number) {
        struct frame_state known = *state_of(function, function->state[at]);
        int32_t joined = function->state[at];
        if (join_frames(&known, state_of(function, number))) {
            function->has_changed = true;
            joined = number_of(function, &known);
        }
        if (joined < 0)
            return false;
        function->state[at] = (uint16_t)joined;
    }
    return has_base(state_of(function, function->state[at]));
}

static bool jump(struct followed_code *function, uint64_t target, uint16_t number) {
    uint64_t at = target - function->address;
    if (at >= function->size) /* elsewhere */
        return is_as_at_start(state_of(function, number));
    if (at > function->jumps_to)
        function->jumps_to = at;
    return arrive(function, at, number);
}

/* What comes after an instruction, which ends at `next`. False: it is no code that can be followed. */
static bool leave(struct followed_code *function, const struct instruction *instruction, uint64_t next,
                  uint16_t number) {
    switch (instruction->flow) {
    case FLOW_NEXT:
    case FLOW_CALL:
        return next < function->size && arrive(function, next, number);
    case FLOW_BRANCH:
        return jump(function, instruction->target, number) && next < function->size &&
               arrive(function, next, number);
    case FLOW_JUMP:
        return jump(function, instruction->target, number);
    case FLOW_RETURN:
        function->returns = true;
        return instruction->popped == 8 && is_as_at_start(state_of(function, number));
    case FLOW_STOP:
        return true;
    default:
        return false;
    }
}

/* From what holds before the instruction at `at` to what holds behind it. False: it can't be followed. */
static bool follow_instruction(struct followed_code *function, uint64_t at,
                               const struct instruction *instruction) {
    uint16_t before = function->state[at];
    struct frame_state state = *state_of(function, before);
    function->is_by_rbx |=
        state.registers[BX].holds == HOLDS_FRAME && state.registers[SP].holds != HOLDS_FRAME;
    if (instruction->effect_count == 0)
        return leave(function, instruction, function->end, before);
    if (!apply_to_frame(&state, instruction))
        return false;
    int32_t behind = number_of(function, &state);
    return behind >= 0 && leave(function, instruction, function->end, (uint16_t)behind);
}

/* Where a way leads into the middle of an instruction; 0: nowhere. */
static uint64_t find_overlap(const struct followed_code *function, uint64_t at, uint64_t end) {
    for (uint64_t i = at + 1; i < end; i++)
        if (function->length[i])
            return i;
    return 0;
}

static void decode(const struct followed_code *function, uint64_t at, struct instruction *instruction) {
    const uint8_t *bytes = function->bytes + at;
    uint64_t size = function->size - at;
    uint8_t known = function->length[at];
    instruction->length = 0;
    if (known > IS_IDLE && known != NOT_FOLLOWED)
        instruction->length = known - IS_IDLE;
    else if (size >= X86_64_LONGEST)
        instruction->length = (uint32_t)x86_64_idle_length(bytes);
    if (instruction->length == 0) {
        x86_64_decode(bytes, size, function->address + at, instruction);
        return;
    }
    instruction->flow = FLOW_NEXT;
    instruction->effect_count = 0;
}

/* The same for the longest instruction there is, quickly. */
static bool has_overlap(const struct followed_code *function, uint64_t at, uint32_t size) {
    uint64_t low, high;
    memcpy(&low, function->length + at + 1, sizeof low);
    memcpy(&high, function->length + at + 1 + sizeof low, sizeof high);
    uint32_t bits = 8 * (size - 1);
    return (bits < 64 ? low & ~(UINT64_MAX << bits) : low | (high & ~(UINT64_MAX << (bits - 64)))) != 0;
}

/* Whether of what holds at a place nothing is left but another state, when ways with both meet. */
static bool gives_way(const struct followed_code *function, uint16_t known, uint16_t number) {
    struct frame_state joined = *state_of(function, known);
    join_frames(&joined, state_of(function, number));
    return memcmp(&joined, state_of(function, number), sizeof joined) == 0 && has_base(&joined);
}

/* Passes over instructions without effects behind which nothing else holds, as most of a kernel's are.
 * Returns where it stops. What it does not pass is as follow_once finds it. */
static uint64_t pass_idle(struct followed_code *function, uint64_t at) {
    const uint16_t number = function->state[at];
    int32_t replaced = -1; /* by that one, where both meet */
    uint8_t *length = function->length;
    while (function->size - at > X86_64_LONGEST) {
        uint8_t known = length[at];
        uint32_t size = known > IS_IDLE ? known - (uint32_t)IS_IDLE : 0;
        if (known == NOT_FOLLOWED)
            size = (uint32_t)x86_64_idle_length(function->bytes + at);
        uint64_t next = at + size;
        if (!size || size > function->work_left || has_overlap(function, at, size))
            break;
        if (!length[next])
            length[next] = NOT_FOLLOWED;
        else if (function->state[next] != number) {
            if (function->state[next] != replaced && !gives_way(function, function->state[next], number))
                break;
            replaced = function->state[next];
            function->has_changed = true;
        }
        function->state[next] = number;
        length[at] = (uint8_t)(size + IS_IDLE);
        function->work_left -= size;
        at = next;
    }
    if (function->touched <= at)
        function->touched = at + 1;
    return at;
}

/* Follows a function from its first byte to its last, once: true if rows can be made of what was found. */
static bool follow_once(struct followed_code *function) {
    uint64_t at = 0, overlap;
    while (at < function->size) {
        struct instruction instruction;
        if (function->length[at])
            at = pass_idle(function, at);
        decode(function, at, &instruction);
        function->end = at + instruction.length;
        if (instruction.length == 0 || instruction.length > function->work_left)
            return false;
        function->work_left -= instruction.length;
        if ((overlap = find_overlap(function, at, function->end)) != 0) {
            if (function->length[at])
                return false;
            at = overlap; /* what stood there was no instruction, since nothing leads to it */
            continue;
        }
        bool goes_on =
            instruction.flow == FLOW_NEXT || instruction.flow == FLOW_CALL || instruction.flow == FLOW_BRANCH;
        if (function->length[at]) { /* else nothing leads there, but for jumps that come later */
            bool is_idle = instruction.flow == FLOW_NEXT && instruction.effect_count == 0;
            function->length[at] = (uint8_t)(instruction.length + (is_idle ? IS_IDLE : 0));
            if (!follow_instruction(function, at, &instruction))
                return false;
        }
        at = function->end;
        if (!goes_on && function->jumps_to < at)
            return function->returns;
    }
    return false;
}

static void forget_states(struct followed_code *function) {
    free_memo(&function->states);
    function->states = (struct memo){0};
}

/* The same, until what is known of places that are jumped back to holds on every way. */
static bool follow(struct followed_code *function) {
    static const struct frame_state start = {
        .registers = {[SP] = {HOLDS_FRAME, 8}, [FP] = {HOLDS_CALLERS, 0}, [BX] = {HOLDS_CALLERS, 0}}};
    uint64_t cleared = function->touched / 16; /* it costs so much less than following */
    function->work_left -= cleared < function->work_left ? cleared : function->work_left;
    memset(function->length, 0, function->touched);
    function->end = function->jumps_to = function->touched = 0;
    function->is_by_rbx = function->returns = false;
    if (function->states.items.count > MANY_STATES)
        forget_states(function);
    int32_t first = number_of(function, &start);
    if (first < 0)
        return false;
    arrive(function, 0, (uint16_t)first);
    for (int pass = 0; pass < MOST_PASSES; pass++) {
        function->has_changed = false;
        if (!follow_once(function))
            return false;
        if (!function->has_changed)
            return function->is_by_rbx;
    }
    return false;
}

/* ------------------------------------------------------------------ rows */

/* Where the caller's value of a register is. */
static enum unspool_saved saved_by(const struct frame_state *state, uint32_t number, int16_t *slot) {
    bool is_below =
        state->registers[SP].holds == HOLDS_FRAME && state->slot[number] < -state->registers[SP].offset;
    *slot = 0;
    if (state->registers[number].holds == HOLDS_CALLERS)
        return UNSPOOL_SAVED_SAME;
    if (!state->slot[number] || is_below)
        return UNSPOOL_SAVED_UNKNOWN;
    *slot = (int16_t)(state->slot[number] / SLOT_SIZE);
    return UNSPOOL_SAVED_AT_CFA;
}

static struct code_row as_row(const struct frame_state *state, uint64_t relative_address) {
    static const uint8_t bases[REGISTERS] = {UNSPOOL_CFA_SP, UNSPOOL_CFA_FP, UNSPOOL_CFA_RBX};
    struct code_row row = {.start = relative_address, .rule = {.flags = UNSPOOL_ROW_CODE, .ra_slot = -1}};
    uint32_t base = SP;
    while (state->registers[base].holds != HOLDS_FRAME)
        base++;
    row.rule.cfa_offset = state->registers[base].offset;
    enum unspool_saved fp = saved_by(state, FP, &row.rule.fp_slot);
    row.rule.kind = RULE_KIND(bases[base], UNSPOOL_SAVED_AT_CFA, (uint32_t)fp);
    int16_t slot;
    enum unspool_saved bx = saved_by(state, BX, &slot);
    row.set.slot[0] = bx == UNSPOOL_SAVED_UNKNOWN ? SAVED_SLOT_UNKNOWN : slot;
    for (uint32_t i = 1; i < SAVED_REGISTERS; i++) /* r12 to r15 were not followed */
        row.set.slot[i] = SAVED_SLOT_UNKNOWN;
    return row;
}

static bool add_row(struct vector *rows, const struct code_row *row) {
    struct code_row *added = vector_add(rows, 1, sizeof *row);
    if (added)
        *added = *row;
    return added != NULL;
}

static bool add_rows(const struct followed_code *function, uint64_t relative_address, struct vector *rows) {
    struct code_row last = {0};
    int32_t state = -1; /* the number of that of which the last row was made */
    for (uint64_t at = 0, next; at < function->end; at = next) {
        next = at + 1;
        if (!function->length[at])
            continue;
        if (state != function->state[at]) {
            state = function->state[at];
            struct code_row row = as_row(state_of(function, function->state[at]), relative_address + at);
            bool is_new = memcmp(&row.rule, &last.rule, sizeof row.rule) != 0 ||
                          memcmp(&row.set, &last.set, sizeof row.set) != 0;
            if (is_new && !add_row(rows, &row))
                return false;
            last = row;
        }
        next = at + function->length[at] % IS_IDLE;
        if (next < function->end && function->length[next])
            continue;
        last = (struct code_row){.start = relative_address + next, .rule = {.flags = UNSPOOL_ROW_NONE}};
        state = -1;
        if (!add_row(rows, &last))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------ code that no FDE covers */

static bool is_padding(uint8_t byte) {
    return byte == 0x90 || byte == 0xcc || byte == 0;
}

/* Where the next function may begin. */
static uint64_t skip_padding(const struct unspool_section *code, uint64_t offset, uint64_t end) {
    while (offset < end && (is_padding(code->bytes[offset]) || (code->address + offset) % ALIGNMENT))
        offset++;
    return offset;
}

/* Where the next mov %rsp, %rbx is, without which no frame is kept there; end: nowhere. */
static uint64_t find_mov(const struct unspool_section *code, uint64_t offset, uint64_t end) {
    while (end - offset >= 3) {
        const uint8_t *at = memchr(code->bytes + offset, 0x48, end - offset - 2);
        if (!at)
            break;
        if ((at[1] == 0x89 && at[2] == 0xe3) || (at[1] == 0x8b && at[2] == 0xdc))
            return (uint64_t)(at - code->bytes);
        offset = (uint64_t)(at - code->bytes) + 1;
    }
    return end;
}

/* What can't be followed is passed over up to an instruction that does not go on; 0: bytes that are none. */
static uint64_t pass_over(const struct unspool_section *code, uint64_t offset, uint64_t end) {
    while (offset < end) {
        struct instruction instruction;
        x86_64_decode(code->bytes + offset, end - offset, code->address + offset, &instruction);
        if (instruction.length == 0)
            return 0;
        offset += instruction.length;
        if (instruction.flow == FLOW_RETURN || instruction.flow == FLOW_JUMP ||
            instruction.flow == FLOW_INDIRECT_JUMP || instruction.flow == FLOW_STOP)
            break;
    }
    return offset;
}

/* The rows of one stretch of code, offsets in its section. False when memory is out. */
static bool stretch_rows(const struct unspool_section *code, uint64_t image_address, uint64_t start,
                         uint64_t end, struct followed_code *function, struct vector *rows) {
    uint64_t at = skip_padding(code, start, end), mov = find_mov(code, at, end);
    while (mov < end) {
        function->bytes = code->bytes + at;
        function->address = code->address + at;
        function->size = end - at < FUNCTION_LIMIT ? end - at : FUNCTION_LIMIT;
        if (!follow(function))
            at = pass_over(code, at, end);
        else if (add_rows(function, function->address - image_address, rows))
            at += function->end;
        else
            return false;
        if (at == 0)
            break;
        at = skip_padding(code, at, end);
        if (mov < at)
            mov = find_mov(code, at, end);
    }
    return true;
}

static struct followed_code *new_followed_code(void) {
    struct followed_code *function = calloc(1, sizeof *function);
    if (!function)
        return NULL;
    function->state = malloc(FUNCTION_LIMIT * sizeof *function->state);
    function->length = calloc(FUNCTION_LIMIT + X86_64_LONGEST + 1, 1);
    if (function->state && function->length)
        return function;
    free_followed_code(function);
    return NULL;
}

void free_followed_code(struct followed_code *function) {
    if (!function)
        return;
    free_memo(&function->states);
    free(function->state);
    free(function->length);
    free(function);
}

bool code_rows(const struct unspool_compile_input *input, uint64_t start, uint64_t end,
               struct followed_code **kept, struct vector *rows) {
    bool ok = true;
    uint64_t padding = -(start + input->image_address) % ALIGNMENT;
    if (input->arch != UNSPOOL_X86_64 || padding >= end - start) /* between most functions there is no more */
        return true;
    for (uint64_t i = 0; ok && i < input->code_count; i++) {
        const struct unspool_section *code = &input->code[i];
        uint64_t base = code->address - input->image_address;
        uint64_t from = start > base ? start - base : 0, to = end > base ? end - base : 0;
        if (to > code->size)
            to = code->size;
        if (from >= to || find_mov(code, from, to) == to)
            continue;
        if (!*kept && !(*kept = new_followed_code()))
            return false;
        (*kept)->work_left = (to - from) * WORK_FACTOR;
        ok = stretch_rows(code, input->image_address, from, to, *kept, rows);
        start = base + to; /* sections may overlap or come in any order; rows may not */
    }
    return ok;
}
