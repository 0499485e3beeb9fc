/*
 * expression.c: DWARF expressions, as call frame information uses them (DWARF 5, 2.5 and 6.4.2.3).
 *
 * Untrusted: every operation checks the depth of the stack; steps are bounded, so that a branch
 * backwards ends.
 */
#include "cfi_program.h"
#include "exact.h"

#define EXPRESSION_DEPTH 64

enum {
    DW_OP_addr = 0x03,
    DW_OP_deref = 0x06,
    DW_OP_const1u = 0x08,
    DW_OP_const1s = 0x09,
    DW_OP_const2u = 0x0a,
    DW_OP_const2s = 0x0b,
    DW_OP_const4u = 0x0c,
    DW_OP_const4s = 0x0d,
    DW_OP_const8u = 0x0e,
    DW_OP_const8s = 0x0f,
    DW_OP_constu = 0x10,
    DW_OP_consts = 0x11,
    DW_OP_dup = 0x12,
    DW_OP_drop = 0x13,
    DW_OP_over = 0x14,
    DW_OP_pick = 0x15,
    DW_OP_swap = 0x16,
    DW_OP_rot = 0x17,
    DW_OP_abs = 0x19,
    DW_OP_and = 0x1a,
    DW_OP_div = 0x1b,
    DW_OP_minus = 0x1c,
    DW_OP_mod = 0x1d,
    DW_OP_mul = 0x1e,
    DW_OP_neg = 0x1f,
    DW_OP_not = 0x20,
    DW_OP_or = 0x21,
    DW_OP_plus = 0x22,
    DW_OP_plus_uconst = 0x23,
    DW_OP_shl = 0x24,
    DW_OP_shr = 0x25,
    DW_OP_shra = 0x26,
    DW_OP_xor = 0x27,
    DW_OP_bra = 0x28,
    DW_OP_eq = 0x29,
    DW_OP_ge = 0x2a,
    DW_OP_gt = 0x2b,
    DW_OP_le = 0x2c,
    DW_OP_lt = 0x2d,
    DW_OP_ne = 0x2e,
    DW_OP_skip = 0x2f,
    DW_OP_lit0 = 0x30,
    DW_OP_lit31 = 0x4f,
    DW_OP_breg0 = 0x70,
    DW_OP_breg31 = 0x8f,
    DW_OP_bregx = 0x92,
    DW_OP_deref_size = 0x94,
    DW_OP_nop = 0x96,
};

struct evaluation {
    const struct exact_input *input;
    const struct unspool_registers *registers;
    struct cursor cursor;
    const uint8_t *start;
    uint64_t bad_address;
    enum exact_status status;
    uint32_t depth;
    uint64_t stack[EXPRESSION_DEPTH];
};

static void push(struct evaluation *evaluation, uint64_t value) {
    if (evaluation->depth == EXPRESSION_DEPTH)
        evaluation->status = EXACT_NO_RULE;
    else
        evaluation->stack[evaluation->depth++] = value;
}

static uint64_t pop(struct evaluation *evaluation) {
    if (!evaluation->depth) {
        evaluation->status = EXACT_NO_RULE;
        return 0;
    }
    return evaluation->stack[--evaluation->depth];
}

/* The value `index` below the top, which stays. */
static uint64_t peek(struct evaluation *evaluation, uint32_t index) {
    if (index >= evaluation->depth) {
        evaluation->status = EXACT_NO_RULE;
        return 0;
    }
    return evaluation->stack[evaluation->depth - 1 - index];
}

static void push_register(struct evaluation *evaluation, uint64_t number, int64_t offset) {
    if (number >= UNSPOOL_REGISTERS) {
        evaluation->status = EXACT_NO_RULE;
        return;
    }
    if (!(evaluation->registers->known >> number & 1)) {
        evaluation->status = EXACT_REGISTER_UNKNOWN;
        return;
    }
    push(evaluation, evaluation->registers->value[number] + (uint64_t)offset);
}

static void dereference(struct evaluation *evaluation, uint8_t size) {
    uint64_t address = pop(evaluation);
    uint64_t value = 0;
    if (evaluation->status != EXACT_OK)
        return;
    if (size == 0 || size > sizeof value) {
        evaluation->status = EXACT_NO_RULE;
    } else if (memory_read(evaluation->input->memory, address, &value, size) != size) {
        evaluation->status = EXACT_UNREADABLE;
        evaluation->bad_address = address;
    } else {
        push(evaluation, value); /* little-endian, zero-extended */
    }
}

static bool run_constant(struct evaluation *evaluation, uint8_t operation) {
    struct cursor *cursor = &evaluation->cursor;
    switch (operation) {
    case DW_OP_addr: /* as the file has it: made an address of the process */
        push(evaluation,
             cursor_u64(cursor) - evaluation->input->table->image_address + evaluation->input->image_base);
        return true;
    case DW_OP_const1u:
        push(evaluation, cursor_u8(cursor));
        return true;
    case DW_OP_const1s:
        push(evaluation, (uint64_t)(int64_t)(int8_t)cursor_u8(cursor));
        return true;
    case DW_OP_const2u:
        push(evaluation, cursor_u16(cursor));
        return true;
    case DW_OP_const2s:
        push(evaluation, (uint64_t)(int64_t)(int16_t)cursor_u16(cursor));
        return true;
    case DW_OP_const4u:
        push(evaluation, cursor_u32(cursor));
        return true;
    case DW_OP_const4s:
        push(evaluation, (uint64_t)(int64_t)(int32_t)cursor_u32(cursor));
        return true;
    case DW_OP_const8u:
    case DW_OP_const8s:
        push(evaluation, cursor_u64(cursor));
        return true;
    case DW_OP_constu:
        push(evaluation, cursor_uleb(cursor));
        return true;
    case DW_OP_consts:
        push(evaluation, (uint64_t)cursor_sleb(cursor));
        return true;
    default:
        return false;
    }
}

static bool run_stack_operation(struct evaluation *evaluation, uint8_t operation) {
    uint64_t top, second, third;
    switch (operation) {
    case DW_OP_nop:
        return true;
    case DW_OP_dup:
        push(evaluation, peek(evaluation, 0));
        return true;
    case DW_OP_drop:
        pop(evaluation);
        return true;
    case DW_OP_over:
        push(evaluation, peek(evaluation, 1));
        return true;
    case DW_OP_pick:
        push(evaluation, peek(evaluation, cursor_u8(&evaluation->cursor)));
        return true;
    case DW_OP_swap:
        top = pop(evaluation);
        second = pop(evaluation);
        push(evaluation, top);
        push(evaluation, second);
        return true;
    case DW_OP_rot: /* the top becomes the third */
        top = pop(evaluation);
        second = pop(evaluation);
        third = pop(evaluation);
        push(evaluation, top);
        push(evaluation, third);
        push(evaluation, second);
        return true;
    case DW_OP_deref:
        dereference(evaluation, sizeof(uint64_t));
        return true;
    case DW_OP_deref_size:
        dereference(evaluation, cursor_u8(&evaluation->cursor));
        return true;
    default:
        return false;
    }
}

static bool run_unary(struct evaluation *evaluation, uint8_t operation) {
    uint64_t value;
    switch (operation) {
    case DW_OP_abs:
        value = pop(evaluation);
        push(evaluation, (int64_t)value < 0 ? -value : value);
        return true;
    case DW_OP_neg:
        push(evaluation, -pop(evaluation));
        return true;
    case DW_OP_not:
        push(evaluation, ~pop(evaluation));
        return true;
    case DW_OP_plus_uconst:
        value = pop(evaluation);
        push(evaluation, value + cursor_uleb(&evaluation->cursor));
        return true;
    default:
        return false;
    }
}

/* a op b for the operations that take two; comparisons and division are signed (DWARF 5, 2.5.1.4). */
static bool combine(uint8_t operation, uint64_t a, uint64_t b, uint64_t *result) {
    switch (operation) {
    case DW_OP_and:
        *result = a & b;
        return true;
    case DW_OP_or:
        *result = a | b;
        return true;
    case DW_OP_xor:
        *result = a ^ b;
        return true;
    case DW_OP_plus:
        *result = a + b;
        return true;
    case DW_OP_minus:
        *result = a - b;
        return true;
    case DW_OP_mul:
        *result = a * b;
        return true;
    case DW_OP_div:
        if (b == 0)
            return false;
        *result = b == UINT64_MAX ? -a : (uint64_t)((int64_t)a / (int64_t)b);
        return true;
    case DW_OP_mod:
        if (b == 0)
            return false;
        *result = a % b;
        return true;
    case DW_OP_shl:
        *result = b < 64 ? a << b : 0;
        return true;
    case DW_OP_shr:
        *result = b < 64 ? a >> b : 0;
        return true;
    case DW_OP_shra:
        *result = (uint64_t)((int64_t)a >> (b < 64 ? b : 63));
        return true;
    case DW_OP_eq:
        *result = a == b;
        return true;
    case DW_OP_ne:
        *result = a != b;
        return true;
    case DW_OP_ge:
        *result = (int64_t)a >= (int64_t)b;
        return true;
    case DW_OP_gt:
        *result = (int64_t)a > (int64_t)b;
        return true;
    case DW_OP_le:
        *result = (int64_t)a <= (int64_t)b;
        return true;
    case DW_OP_lt:
        *result = (int64_t)a < (int64_t)b;
        return true;
    default:
        return false;
    }
}

static void jump(struct evaluation *evaluation, bool taken) {
    int64_t offset = (int16_t)cursor_u16(&evaluation->cursor);
    int64_t from = evaluation->cursor.at - evaluation->start;
    if (!taken)
        return;
    if (from + offset < 0 || from + offset > evaluation->cursor.end - evaluation->start)
        evaluation->status = EXACT_NO_RULE;
    else
        evaluation->cursor.at = evaluation->start + from + offset;
}

static void run_operation(struct evaluation *evaluation, uint8_t operation) {
    struct cursor *cursor = &evaluation->cursor;
    if (operation >= DW_OP_lit0 && operation <= DW_OP_lit31) {
        push(evaluation, operation - DW_OP_lit0);
    } else if (operation >= DW_OP_breg0 && operation <= DW_OP_breg31) {
        push_register(evaluation, operation - DW_OP_breg0, cursor_sleb(cursor));
    } else if (operation == DW_OP_bregx) {
        uint64_t number = cursor_uleb(cursor);
        push_register(evaluation, number, cursor_sleb(cursor));
    } else if (operation == DW_OP_skip) {
        jump(evaluation, true);
    } else if (operation == DW_OP_bra) {
        jump(evaluation, pop(evaluation) != 0);
    } else if (!run_constant(evaluation, operation) && !run_stack_operation(evaluation, operation) &&
               !run_unary(evaluation, operation)) {
        uint64_t b = pop(evaluation);
        uint64_t a = pop(evaluation);
        uint64_t result = 0;
        if (!combine(operation, a, b, &result))
            evaluation->status = EXACT_NO_RULE;
        push(evaluation, result);
    }
}

enum exact_status evaluate_expression(const struct exact_input *input, struct cursor operations,
                                      const struct unspool_registers *registers, const uint64_t *first,
                                      struct expression_run *run, uint64_t *result) {
    struct evaluation evaluation;
    evaluation.input = input;
    evaluation.registers = registers;
    evaluation.cursor = operations;
    evaluation.start = operations.at;
    evaluation.status = EXACT_OK;
    evaluation.depth = 0;
    if (first)
        push(&evaluation, *first);
    while (cursor_left(&evaluation.cursor)) {
        if (!run->steps_left)
            return EXACT_NO_RULE;
        run->steps_left--;
        run_operation(&evaluation, cursor_u8(&evaluation.cursor));
        if (evaluation.status == EXACT_UNREADABLE)
            run->bad_address = evaluation.bad_address;
        if (evaluation.status != EXACT_OK)
            return evaluation.status;
        if (evaluation.cursor.failed)
            return EXACT_NO_RULE;
    }
    uint64_t top = pop(&evaluation);
    if (evaluation.status == EXACT_OK)
        *result = top;
    return evaluation.status;
}
