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
#include "instruction.h"

enum {
    FUNCTION_LIMIT = 1 << 17, /* bytes; OpenBLAS's longest have 40,000 */
    ALIGNMENT = 16,
    MOST_PASSES = 8,
    /* Code may be followed this many times its size: real code is below 3 times. More is code made to be
     * slow, in which each function reaches over many that follow. */
    WORK_FACTOR = 16,
    IS_IDLE = 16,       /* added to a length: it goes on to the next and has no effects */
    NOT_FOLLOWED = 255, /* a length: an instruction begins here */
};

enum content {
    HOLDS_OTHER = 0,
    HOLDS_CALLERS, /* what it held at the start */
    HOLDS_FRAME,   /* CFA - offset */
};

enum { SP = REGISTER_SP, FP = REGISTER_FP, BX = 2, REGISTERS };

/* What holds before an instruction. Offsets in bytes. */
struct frame_state {
    struct {
        int32_t holds; /* enum content */
        int32_t offset;
    } registers[REGISTERS];
    int32_t slot[REGISTERS]; /* where the caller's value was saved, from the CFA; 0: nowhere */
};

struct function {
    const uint8_t *bytes; /* from its start */
    uint64_t address, size;
    struct frame_state *state; /* of each byte at which an instruction begins, */
    uint8_t *length;           /* whose length this is, or more; 0: none that any way leads to */
    uint64_t end;              /* behind its last instruction */
    uint64_t jumps_to;         /* the farthest place within that a jump leads to */
    uint64_t touched;          /* no instruction behind it has a length */
    uint64_t work_left;        /* bytes that may still be followed, of all functions */
    bool is_by_rbx, returns, has_changed;
};

static uint32_t index_of(uint8_t number) {
    return number == REGISTER_BX ? BX : number <= REGISTER_FP ? number : REGISTERS;
}

/* ------------------------------------------------------------------ one instruction */

/* Memory at CFA + low .. CFA + high is written. False: the return address is. */
static bool overwrite(struct frame_state *state, int64_t low, int64_t high) {
    for (uint32_t i = FP; i < REGISTERS; i++)
        if (state->slot[i] && low < state->slot[i] + 8 && high > state->slot[i])
            state->slot[i] = 0;
    return low >= 0 || high <= -8;
}

static bool store(struct frame_state *state, const struct stack_effect *effect, uint32_t to, uint32_t from) {
    if (state->registers[to].holds != HOLDS_FRAME)
        return true;
    int64_t low = effect->offset - state->registers[to].offset;
    bool saves = from < REGISTERS && from != SP && state->registers[from].holds == HOLDS_CALLERS &&
                 state->slot[from] == 0 && low < 0 && low > INT16_MIN && low % 8 == 0;
    if (!overwrite(state, low, low + effect->size))
        return false;
    if (saves)
        state->slot[from] = (int32_t)low;
    return true;
}

static void set(struct frame_state *state, const struct stack_effect *effect, uint32_t to, uint32_t from) {
    int64_t offset = from < REGISTERS ? state->registers[from].offset - effect->offset : 0;
    bool is_frame = from < REGISTERS && state->registers[from].holds == HOLDS_FRAME &&
                    offset > INT32_MIN / 2 && offset < INT32_MAX / 2;
    state->registers[to].holds = is_frame ? HOLDS_FRAME : HOLDS_OTHER;
    state->registers[to].offset = is_frame ? (int32_t)offset : 0;
}

static void load(struct frame_state *state, const struct stack_effect *effect, uint32_t to, uint32_t from) {
    bool is_own = from < REGISTERS && state->registers[from].holds == HOLDS_FRAME && state->slot[to] != 0 &&
                  effect->offset - state->registers[from].offset == state->slot[to];
    state->registers[to].holds = is_own ? HOLDS_CALLERS : HOLDS_OTHER;
    state->registers[to].offset = 0;
}

static bool apply(struct frame_state *state, const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++) {
        const struct stack_effect *effect = &instruction->effects[i];
        uint32_t to = index_of(effect->to), from = index_of(effect->from);
        if (to == REGISTERS)
            continue;
        if (effect->kind == EFFECT_STORE && !store(state, effect, to, from))
            return false;
        if (effect->kind == EFFECT_SET)
            set(state, effect, to, from);
        if (effect->kind == EFFECT_LOAD)
            load(state, effect, to, from);
        if (effect->kind == EFFECT_CLOBBER)
            state->registers[to].holds = HOLDS_OTHER;
    }
    return true;
}

/* ------------------------------------------------------------------ one function */

/* What holds is what held at the start: the function can be left. */
static bool is_as_at_start(const struct frame_state *state) {
    return state->registers[SP].holds == HOLDS_FRAME && state->registers[SP].offset == 8 &&
           state->registers[FP].holds == HOLDS_CALLERS && state->registers[BX].holds == HOLDS_CALLERS;
}

/* Where the frame is known by nothing, no row can be. */
static bool has_base(const struct frame_state *state) {
    for (uint32_t i = 0; i < REGISTERS; i++)
        if (state->registers[i].holds == HOLDS_FRAME)
            return true;
    return false;
}

/* Keeps of *known what holds in the other, too; true if that took something away. */
static bool join(struct frame_state *known, const struct frame_state *other) {
    bool changed = false;
    for (uint32_t i = 0; i < REGISTERS; i++) {
        bool is_same = known->registers[i].holds == other->registers[i].holds &&
                       known->registers[i].offset == other->registers[i].offset;
        if (!is_same && known->registers[i].holds != HOLDS_OTHER) {
            known->registers[i].holds = HOLDS_OTHER;
            known->registers[i].offset = 0;
            changed = true;
        }
        if (known->slot[i] != other->slot[i] && known->slot[i]) {
            known->slot[i] = 0;
            changed = true;
        }
    }
    return changed;
}

/* A way leads to a place of the function. What ways disagree on is lost; false: the frame is. */
static bool arrive(struct function *function, uint64_t at, const struct frame_state *state) {
    struct frame_state *known = &function->state[at];
    if (function->touched <= at)
        function->touched = at + 1;
    if (function->length[at]) {
        function->has_changed |= join(known, state);
    } else {
        *known = *state;
        function->length[at] = NOT_FOLLOWED;
        function->has_changed |= at < function->end; /* it has been passed by */
    }
    return has_base(known);
}

static bool jump(struct function *function, uint64_t target, const struct frame_state *state) {
    uint64_t at = target - function->address;
    if (at >= function->size) /* elsewhere */
        return is_as_at_start(state);
    if (at > function->jumps_to)
        function->jumps_to = at;
    return arrive(function, at, state);
}

/* What comes after an instruction, which ends at `next`. False: it is no code that can be followed. */
static bool leave(struct function *function, const struct instruction *instruction, uint64_t next,
                  const struct frame_state *state) {
    switch (instruction->flow) {
    case FLOW_NEXT:
    case FLOW_CALL:
        return next < function->size && arrive(function, next, state);
    case FLOW_BRANCH:
        return jump(function, instruction->target, state) && next < function->size &&
               arrive(function, next, state);
    case FLOW_JUMP:
        return jump(function, instruction->target, state);
    case FLOW_RETURN:
        function->returns = true;
        return instruction->popped == 8 && is_as_at_start(state);
    case FLOW_STOP:
        return true;
    default:
        return false;
    }
}

/* From what holds before the instruction at `at` to what holds behind it. False: it can't be followed. */
static bool follow_instruction(struct function *function, uint64_t at,
                               const struct instruction *instruction) {
    const struct frame_state *before = &function->state[at];
    struct frame_state state;
    function->is_by_rbx |=
        before->registers[BX].holds == HOLDS_FRAME && before->registers[SP].holds != HOLDS_FRAME;
    if (instruction->effect_count == 0)
        return leave(function, instruction, function->end, before);
    state = *before;
    return apply(&state, instruction) && leave(function, instruction, function->end, &state);
}

/* Where a way leads into the middle of an instruction; 0: nowhere. */
static uint64_t find_overlap(const struct function *function, uint64_t at, uint64_t end) {
    for (uint64_t i = at + 1; i < end; i++)
        if (function->length[i])
            return i;
    return 0;
}

static void decode(const struct function *function, uint64_t at, struct instruction *instruction) {
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

/* Follows a function from its first byte to its last, once: true if rows can be made of what was found. */
static bool follow_once(struct function *function) {
    uint64_t at = 0, overlap;
    while (at < function->size) {
        struct instruction instruction;
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

/* The same, until what is known of places that are jumped back to holds on every way. */
static bool follow(struct function *function) {
    static const struct frame_state start = {
        .registers = {[SP] = {HOLDS_FRAME, 8}, [FP] = {HOLDS_CALLERS, 0}, [BX] = {HOLDS_CALLERS, 0}}};
    uint64_t cleared = function->touched / 16; /* it costs so much less than following */
    function->work_left -= cleared < function->work_left ? cleared : function->work_left;
    memset(function->length, 0, function->touched);
    function->end = function->jumps_to = function->touched = 0;
    function->is_by_rbx = function->returns = false;
    arrive(function, 0, &start);
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

static bool add_rows(const struct function *function, uint64_t relative_address, struct vector *rows) {
    struct code_row last = {0};
    const struct frame_state *state = NULL; /* of which the last row was made */
    for (uint64_t at = 0; at < function->end; at++) {
        if (!function->length[at])
            continue;
        if (!state || memcmp(state, &function->state[at], sizeof *state) != 0) {
            state = &function->state[at];
            struct code_row row = as_row(state, relative_address + at);
            bool is_new = memcmp(&row.rule, &last.rule, sizeof row.rule) != 0 ||
                          memcmp(&row.set, &last.set, sizeof row.set) != 0;
            if (is_new && !add_row(rows, &row))
                return false;
            last = row;
        }
        uint64_t next = at + function->length[at] % IS_IDLE;
        if (next < function->end && function->length[next])
            continue;
        last = (struct code_row){.start = relative_address + next, .rule = {.flags = UNSPOOL_ROW_NONE}};
        state = NULL;
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
                         uint64_t end, struct function *function, struct vector *rows) {
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

bool code_rows(const struct unspool_compile_input *input, uint64_t start, uint64_t end, struct vector *rows) {
    struct function function = {0};
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
        if (!function.state) {
            function.state = malloc(FUNCTION_LIMIT * sizeof *function.state);
            function.length = calloc(FUNCTION_LIMIT, 1);
        }
        function.work_left = (to - from) * WORK_FACTOR;
        ok = function.state && function.length &&
             stretch_rows(code, input->image_address, from, to, &function, rows);
        start = base + to; /* sections may overlap or come in any order; rows may not */
    }
    free(function.state);
    free(function.length);
    return ok;
}
