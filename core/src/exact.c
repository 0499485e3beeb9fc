/*
 * exact.c: the exact evaluator.
 *
 * Runs the CFI of one function up to the lookup address and applies every register's rule. It is
 * slower than a table row by an order of magnitude and runs only where a row can't say it.
 */
#include "exact.h"
#include "cfi_program.h"

struct evaluator {
    const struct exact_input *input;
    const struct cfi_program *program;
    const struct cfi_rules *rules;
    const struct unspool_registers *before; /* the callee's */
    uint64_t cfa;
    struct expression_run run;
};

static bool is_known(const struct unspool_registers *registers, uint64_t number) {
    return number < UNSPOOL_REGISTERS && (registers->known >> number & 1);
}

/* The row of the program that holds at the lookup address. */
static bool find_row(const struct exact_input *input, struct cfi_program *program,
                     struct cfi_machine *machine, struct exact_result *result) {
    if (!table_find_program(input->table, input->lookup_address, program))
        return false;
    result->is_entered_from_plt = cfi_is_entered_from_plt(program, machine);
    if (cfi_begin(machine, program) != CFI_ROW)
        return false;
    do {
        if (cfi_next_row(machine) != CFI_ROW)
            return false;
        bool did = input->arch == UNSPOOL_AARCH64 && result->may_overwrite_itself; /* its epilogue, then */
        result->may_overwrite_itself = !(program->flags & UNSPOOL_ROW_SIGNAL) &&
                                       (did || cfi_passes_exceptions(&machine->rules, input->arch));
    } while (machine->row_end <= input->lookup_address);
    return machine->row_start <= input->lookup_address && machine->rules.cfa_defined;
}

static enum exact_status find_cfa(struct evaluator *evaluator) {
    const struct cfi_rules *rules = evaluator->rules;
    if (rules->cfa_is_expression)
        return evaluate_expression(evaluator->input, cfi_block(evaluator->program, rules->cfa_expression),
                                   evaluator->before, NULL, &evaluator->run, &evaluator->cfa);
    if (!is_known(evaluator->before, rules->cfa_register))
        return EXACT_REGISTER_UNKNOWN;
    evaluator->cfa = evaluator->before->value[rules->cfa_register] + (uint64_t)rules->cfa_offset;
    return EXACT_OK;
}

/* An epilogue has popped the register already, though its CFI does not say so yet: the slot lies below
 * sp, and the register holds the value again. With the CFA below sp, too, it is no frame but a context to
 * be restored, whose slots count. */
static bool is_popped(const struct evaluator *evaluator, uint32_t number, uint64_t slot_address) {
    const struct unspool_registers *before = evaluator->before;
    uint32_t sp = sp_register(evaluator->input->arch);
    bool is_by_sp = !evaluator->rules->cfa_is_expression && evaluator->rules->cfa_register == sp;
    return !before->pc_is_return_address && !(evaluator->program->flags & UNSPOOL_ROW_SIGNAL) &&
           is_known(before, sp) && slot_address < before->value[sp] &&
           (evaluator->cfa >= before->value[sp] || is_by_sp) && number != sp &&
           number != pc_register(evaluator->input->arch);
}

static enum exact_status load(struct evaluator *evaluator, uint32_t number, uint64_t address,
                              uint64_t *value) {
    const struct unspool_registers *before = evaluator->before;
    if (is_popped(evaluator, number, address)) {
        *value = before->value[number];
        return is_known(before, number) ? EXACT_OK : EXACT_REGISTER_UNKNOWN;
    }
    if (memory_read_u64(evaluator->input->memory, address, value))
        return EXACT_OK;
    evaluator->run.bad_address = address;
    return EXACT_UNREADABLE;
}

/* The caller's value of one register. */
static enum exact_status apply(struct evaluator *evaluator, uint32_t number, uint64_t *value) {
    const struct cfi_rules *rules = evaluator->rules;
    const struct unspool_registers *before = evaluator->before;
    int64_t operand = rules->value[number].number;
    uint64_t address;
    enum exact_status status;
    switch (rules->kind[number]) {
    case UNSPOOL_EXACT_SAME:
        *value = before->value[number];
        return is_known(before, number) ? EXACT_OK : EXACT_REGISTER_UNKNOWN;
    case UNSPOOL_EXACT_OFFSET:
        return load(evaluator, number, evaluator->cfa + (uint64_t)operand, value);
    case UNSPOOL_EXACT_VAL_OFFSET:
        *value = evaluator->cfa + (uint64_t)operand;
        return EXACT_OK;
    case UNSPOOL_EXACT_REGISTER:
        if (!is_known(before, (uint64_t)operand))
            return EXACT_REGISTER_UNKNOWN;
        *value = before->value[operand];
        return EXACT_OK;
    case UNSPOOL_EXACT_EXPRESSION:
        status = evaluate_expression(evaluator->input,
                                     cfi_block(evaluator->program, rules->value[number].expression), before,
                                     &evaluator->cfa, &evaluator->run, &address);
        return status == EXACT_OK ? load(evaluator, number, address, value) : status;
    case UNSPOOL_EXACT_VAL_EXPRESSION:
        return evaluate_expression(evaluator->input,
                                   cfi_block(evaluator->program, rules->value[number].expression), before,
                                   &evaluator->cfa, &evaluator->run, value);
    default:
        return EXACT_NO_RULE;
    }
}

/* Where CFI says nothing, the ABI's callee-saved registers keep their value and others are lost. */
static bool is_callee_saved(uint32_t arch, uint32_t number) {
    if (arch == UNSPOOL_AARCH64)
        return number >= 19 && number <= UNSPOOL_AARCH64_FP;
    return number == 3 || number == UNSPOOL_X86_64_RBP || (number >= 12 && number <= 15);
}

static enum exact_status find_return_address(struct evaluator *evaluator, uint64_t *value) {
    uint32_t number = evaluator->program->return_address_register;
    if (number >= UNSPOOL_REGISTERS)
        return EXACT_NO_RULE;
    uint8_t kind = evaluator->rules->kind[number];
    bool is_in_lr = evaluator->input->arch == UNSPOOL_AARCH64 && number == UNSPOOL_AARCH64_LR &&
                    (kind == UNSPOOL_EXACT_UNSPECIFIED || kind == UNSPOOL_EXACT_SAME);
    if (kind == UNSPOOL_EXACT_SAME && number == pc_register(evaluator->input->arch))
        return EXACT_NO_RULE; /* the caller's pc can't be this frame's own */
    if (!is_in_lr)
        return apply(evaluator, number, value);
    /* Only where it was interrupted does a function find its own return address in lr. */
    *value = evaluator->before->value[number];
    return is_known(evaluator->before, number) && !evaluator->before->pc_is_return_address ? EXACT_OK
                                                                                           : EXACT_NO_RULE;
}

/* True when the step must fail because this register can't be had; other registers are merely unknown. */
static bool is_needed(const struct evaluator *evaluator, uint32_t number, enum exact_status status) {
    uint32_t arch = evaluator->input->arch;
    if (status == EXACT_OK)
        return false;
    if (number == sp_register(arch))
        return true;
    bool may_be_found = status == EXACT_REGISTER_UNKNOWN && !evaluator->input->has_all_registers &&
                        evaluator->rules->kind[number] != UNSPOOL_EXACT_SAME;
    return number == fp_register(arch) && (may_be_found || status == EXACT_UNREADABLE);
}

/* Every register but pc. */
static enum exact_status apply_all(struct evaluator *evaluator, struct unspool_registers *after) {
    uint32_t arch = evaluator->input->arch;
    const struct unspool_registers *before = evaluator->before;
    for (uint32_t number = 0; number < tracked_registers(arch); number++) {
        uint8_t kind = evaluator->rules->kind[number];
        if (number == pc_register(arch))
            continue;
        enum exact_status status = EXACT_OK;
        uint64_t value = 0;
        if (number == sp_register(arch) && kind == UNSPOOL_EXACT_UNSPECIFIED)
            value = evaluator->cfa;
        else if (kind == UNSPOOL_EXACT_UNSPECIFIED && is_callee_saved(arch, number) &&
                 is_known(before, number))
            value = before->value[number];
        else
            status = apply(evaluator, number, &value);
        if (is_needed(evaluator, number, status))
            return status;
        after->value[number] = value;
        if (status == EXACT_OK)
            after->known |= (uint64_t)1 << number;
    }
    return EXACT_OK;
}

/* A CFA that is not the caller's sp belongs to no frame. (Where both happen to be equal, too: the buffer that
 * longjmp is given may be the first thing on the stack that it goes to.) */
static bool replaces_sp(const struct cfi_rules *rules, uint32_t arch) {
    uint32_t sp = sp_register(arch);
    bool is_cfa = rules->kind[sp] == UNSPOOL_EXACT_VAL_OFFSET && rules->value[sp].number == 0;
    return rules->kind[sp] != UNSPOOL_EXACT_UNSPECIFIED && !is_cfa;
}

/* aarch64's longjmp and setcontext describe the registers that they are given, in memory that x0 points to.
 * The CFA is that memory, not the caller's sp, for which there is no rule at all. */
static bool is_context(const struct cfi_rules *rules, uint32_t arch) {
    return arch == UNSPOOL_AARCH64 && !rules->cfa_is_expression && rules->cfa_register < 8;
}

enum exact_status exact_step(const struct exact_input *input, struct unspool_registers *registers,
                             struct exact_result *result) {
    struct cfi_program program;
    struct cfi_machine machine;
    if (!find_row(input, &program, &machine, result))
        return EXACT_NO_RULE;
    struct evaluator evaluator = {
        .input = input,
        .program = &program,
        .rules = &machine.rules,
        .before = registers,
        .run.steps_left = EXPRESSION_STEPS,
    };
    struct unspool_registers after = {.known = (uint64_t)1 << pc_register(input->arch)};
    after.pc_is_return_address = !(program.flags & UNSPOOL_ROW_SIGNAL);
    enum exact_status status = find_cfa(&evaluator);
    if (status == EXACT_OK)
        status = find_return_address(&evaluator, &after.value[pc_register(input->arch)]);
    if (status == EXACT_OK)
        status = apply_all(&evaluator, &after);
    result->bad_address = evaluator.run.bad_address;
    result->function = input->image_base + program.start;
    result->function_end = input->image_base + program.end;
    result->cfa = evaluator.cfa;
    result->return_address_register = program.return_address_register;
    result->replaces_registers =
        !(program.flags & UNSPOOL_ROW_SIGNAL) && replaces_sp(&machine.rules, input->arch);
    result->is_in_lr = program.return_address_register < UNSPOOL_REGISTERS &&
                       input->arch == UNSPOOL_AARCH64 &&
                       machine.rules.kind[program.return_address_register] == UNSPOOL_EXACT_UNSPECIFIED;
    bool elsewhere = input->arch == UNSPOOL_AARCH64 && program.return_address_register != UNSPOOL_AARCH64_LR;
    result->is_context = elsewhere || is_context(&machine.rules, input->arch);
    if (status == EXACT_OK && result->is_entered_from_plt)
        after.value[UNSPOOL_AARCH64_SP] += CFI_PLT_PUSHED;
    if (status == EXACT_OK)
        *registers = after;
    return status;
}

/* Where the frame's memory is by a recipe, offset from the CFA. */
static struct frame_value at_cfa(const struct frame_recipe *recipe, int64_t offset) {
    return (struct frame_value){recipe->sp.kind == VALUE_FP ? VALUE_AT_FP : VALUE_AT_SP,
                                recipe->sp.offset + offset};
}

/* What GNU ld says of x86_64's PLT: the CFA is sp + offset, and 8 more from a certain byte of each 16 on. */
static bool plt_cfa_offset(const struct cfi_program *program, const struct cfi_rules *rules, uint64_t pc,
                           int64_t *offset) {
    static const uint8_t before[] = {0x80, 0x00, 0x3f, 0x1a}; /* breg16 0, lit15, and */
    static const uint8_t behind[] = {0x2a, 0x33, 0x24, 0x22}; /* ge, lit3, shl, plus */
    struct cursor cursor = cfi_block(program, rules->cfa_expression);
    const uint8_t *at = cursor.at;
    enum { SIZE = 11, BREG_RSP = 0x77, LIT0 = 0x30, LIT15 = 0x3f };
    if (program->arch != UNSPOOL_X86_64 || cursor_left(&cursor) != SIZE || at[0] != BREG_RSP ||
        at[1] >= 0x40 || memcmp(at + 2, before, sizeof before) != 0 || at[6] < LIT0 || at[6] > LIT15 ||
        memcmp(at + 7, behind, sizeof behind) != 0)
        return false;
    *offset = at[1] + ((pc & 15) >= (uint64_t)(at[6] - LIT0) ? 8 : 0);
    return true;
}

bool exact_row_recipe(uint32_t arch, const struct unspool_table *table, uint64_t lookup_address, uint64_t pc,
                      struct frame_recipe *recipe) {
    const struct exact_input input = {.arch = arch, .table = table, .lookup_address = lookup_address};
    struct cfi_program program;
    struct cfi_machine machine;
    struct exact_result result = {0};
    if (!find_row(&input, &program, &machine, &result))
        return false;
    const struct cfi_rules *rules = &machine.rules;
    uint32_t ra = program.return_address_register, fp = fp_register(arch);
    uint32_t usual_ra = arch == UNSPOOL_AARCH64 ? UNSPOOL_AARCH64_LR : UNSPOOL_X86_64_PC;
    bool by_fp = !rules->cfa_is_expression && rules->cfa_register == fp;
    bool by_sp = !rules->cfa_is_expression && rules->cfa_register == sp_register(arch);
    int64_t cfa_offset = rules->cfa_offset;
    if (rules->cfa_is_expression)
        by_sp = plt_cfa_offset(&program, rules, pc, &cfa_offset);
    if ((program.flags & UNSPOOL_ROW_SIGNAL) || result.is_entered_from_plt || ra != usual_ra ||
        (!by_fp && !by_sp) || rules->kind[sp_register(arch)] != UNSPOOL_EXACT_UNSPECIFIED ||
        rules->kind[ra] != UNSPOOL_EXACT_OFFSET)
        return false;
    recipe->sp = (struct frame_value){by_fp ? VALUE_FP : VALUE_SP, cfa_offset};
    recipe->return_address = at_cfa(recipe, rules->value[ra].number);
    if (rules->kind[fp] == UNSPOOL_EXACT_OFFSET)
        recipe->fp = at_cfa(recipe, rules->value[fp].number);
    else if (rules->kind[fp] == UNSPOOL_EXACT_SAME || rules->kind[fp] == UNSPOOL_EXACT_UNSPECIFIED)
        recipe->fp.kind = VALUE_FP;
    else if (rules->kind[fp] != UNSPOOL_EXACT_UNDEFINED)
        return false;
    return true;
}
