/*
 * cfi_program.c: the machine that runs call frame instructions.
 *
 * Instruction numbers and meaning: DWARF 5, 6.4.2 and 7.24; GNU extensions: LSB Core, 10.6.1.3;
 * 0x2d on aarch64: "DWARF for the Arm 64-bit Architecture", 4.4.
 */
#include "cfi_program.h"

enum {
    DW_CFA_advance_loc = 0x40, /* high two bits; the operand is in the low six */
    DW_CFA_offset = 0x80,
    DW_CFA_restore = 0xc0,
    DW_CFA_nop = 0x00,
    DW_CFA_set_loc = 0x01,
    DW_CFA_advance_loc1 = 0x02,
    DW_CFA_advance_loc2 = 0x03,
    DW_CFA_advance_loc4 = 0x04,
    DW_CFA_offset_extended = 0x05,
    DW_CFA_restore_extended = 0x06,
    DW_CFA_undefined = 0x07,
    DW_CFA_same_value = 0x08,
    DW_CFA_register = 0x09,
    DW_CFA_remember_state = 0x0a,
    DW_CFA_restore_state = 0x0b,
    DW_CFA_def_cfa = 0x0c,
    DW_CFA_def_cfa_register = 0x0d,
    DW_CFA_def_cfa_offset = 0x0e,
    DW_CFA_def_cfa_expression = 0x0f,
    DW_CFA_expression = 0x10,
    DW_CFA_offset_extended_sf = 0x11,
    DW_CFA_def_cfa_sf = 0x12,
    DW_CFA_def_cfa_offset_sf = 0x13,
    DW_CFA_val_offset = 0x14,
    DW_CFA_val_offset_sf = 0x15,
    DW_CFA_val_expression = 0x16,
    DW_CFA_AARCH64_negate_ra_state_with_pc = 0x2c,
    DW_CFA_AARCH64_negate_ra_state = 0x2d, /* DW_CFA_GNU_window_save elsewhere */
    DW_CFA_GNU_args_size = 0x2e,
    DW_CFA_GNU_negative_offset_extended = 0x2f,
};

uint64_t read_encoded(struct cursor *cursor, uint8_t encoding) {
    switch (encoding & 0x0f) {
    case POINTER_ABSOLUTE:
    case POINTER_SIGNED:
    case POINTER_UDATA8:
    case POINTER_SDATA8:
        return cursor_u64(cursor);
    case POINTER_ULEB128:
        return cursor_uleb(cursor);
    case POINTER_SLEB128:
        return (uint64_t)cursor_sleb(cursor);
    case POINTER_UDATA2:
        return cursor_u16(cursor);
    case POINTER_SDATA2:
        return (uint64_t)(int64_t)(int16_t)cursor_u16(cursor);
    case POINTER_UDATA4:
        return cursor_u32(cursor);
    case POINTER_SDATA4:
        return (uint64_t)(int64_t)(int32_t)cursor_u32(cursor);
    default:
        cursor->failed = true;
        return 0;
    }
}

/* Offsets wrap instead of overflowing: a wrapped one is merely a wrong number from a wrong file. */
static int64_t factored(const struct cfi_machine *machine, uint64_t value) {
    return (int64_t)(value * (uint64_t)machine->program->data_alignment);
}

static void set_rule(struct cfi_machine *machine, uint64_t number, enum unspool_exact_kind kind,
                     int64_t value) {
    if (number >= tracked_registers(machine->program->arch))
        return;
    machine->rules.kind[number] = (uint8_t)kind;
    machine->rules.specified |= (uint64_t)1 << number;
    machine->rules.value[number].number = value;
    machine->changed |= (uint64_t)1 << number;
}

static void set_expression(struct cfi_machine *machine, uint64_t number, enum unspool_exact_kind kind,
                           const uint8_t *block) {
    if (number >= tracked_registers(machine->program->arch))
        return;
    machine->rules.kind[number] = (uint8_t)kind;
    machine->rules.specified |= (uint64_t)1 << number;
    machine->rules.value[number].expression = block;
    machine->changed |= (uint64_t)1 << number;
}

static void restore_rule(struct cfi_machine *machine, uint64_t number) {
    if (number >= tracked_registers(machine->program->arch))
        return;
    uint64_t bit = (uint64_t)1 << number;
    machine->rules.specified = (machine->rules.specified & ~bit) | (machine->initial.specified & bit);
    machine->rules.kind[number] = machine->initial.kind[number];
    machine->rules.value[number] = machine->initial.value[number];
    machine->changed |= bit;
}

/* Steps over a block (ULEB128 size, then as many bytes); returns where it starts. */
static const uint8_t *take_block(struct cursor *cursor, uint64_t *size) {
    const uint8_t *block = cursor->at;
    *size = cursor_uleb(cursor);
    cursor_take(cursor, *size);
    return block;
}

static void define_cfa(struct cfi_rules *rules, uint64_t number, int64_t offset) {
    rules->cfa_register = number < UNSPOOL_REGISTERS ? (uint32_t)number : UNSPOOL_REGISTERS;
    rules->cfa_offset = offset;
    rules->cfa_is_expression = false;
    rules->cfa_defined = true;
}

static bool remember(struct cfi_machine *machine) {
    if (machine->remembered_count == REMEMBERED_STATES)
        return false;
    machine->remembered[machine->remembered_count++] = machine->rules;
    return true;
}

static bool restore(struct cfi_machine *machine) {
    if (!machine->remembered_count)
        return false;
    machine->rules = machine->remembered[--machine->remembered_count];
    machine->changed = CFI_ALL_CHANGED;
    return true;
}

/* Instructions about the CFA. False: not one of them, or one that yields no CFA. */
static bool run_cfa_instruction(struct cfi_machine *machine, uint8_t opcode) {
    struct cursor *cursor = &machine->cursor;
    struct cfi_rules *rules = &machine->rules;
    bool was_offset = rules->cfa_defined && !rules->cfa_is_expression;
    uint64_t number, size;
    switch (opcode) {
    case DW_CFA_def_cfa:
        number = cursor_uleb(cursor);
        define_cfa(rules, number, (int64_t)cursor_uleb(cursor));
        return true;
    case DW_CFA_def_cfa_sf:
        number = cursor_uleb(cursor);
        define_cfa(rules, number, factored(machine, (uint64_t)cursor_sleb(cursor)));
        return true;
    case DW_CFA_def_cfa_register:
        define_cfa(rules, cursor_uleb(cursor), rules->cfa_offset);
        return was_offset;
    case DW_CFA_def_cfa_offset:
        rules->cfa_offset = (int64_t)cursor_uleb(cursor);
        return was_offset;
    case DW_CFA_def_cfa_offset_sf:
        rules->cfa_offset = factored(machine, (uint64_t)cursor_sleb(cursor));
        return was_offset;
    case DW_CFA_def_cfa_expression:
        rules->cfa_expression = take_block(cursor, &size);
        rules->cfa_is_expression = true;
        rules->cfa_defined = true;
        return size != 0; /* an empty one yields nothing */
    default:
        return false;
    }
}

/* Instructions about one register, and the rest that takes no location. */
static bool run_register_instruction(struct cfi_machine *machine, uint8_t opcode) {
    struct cursor *cursor = &machine->cursor;
    uint64_t number, size;
    switch (opcode) {
    case DW_CFA_nop:
        return true;
    case DW_CFA_offset_extended:
        number = cursor_uleb(cursor);
        set_rule(machine, number, UNSPOOL_EXACT_OFFSET, factored(machine, cursor_uleb(cursor)));
        return true;
    case DW_CFA_offset_extended_sf:
        number = cursor_uleb(cursor);
        set_rule(machine, number, UNSPOOL_EXACT_OFFSET, factored(machine, (uint64_t)cursor_sleb(cursor)));
        return true;
    case DW_CFA_GNU_negative_offset_extended:
        number = cursor_uleb(cursor);
        set_rule(machine, number, UNSPOOL_EXACT_OFFSET, factored(machine, -cursor_uleb(cursor)));
        return true;
    case DW_CFA_val_offset:
        number = cursor_uleb(cursor);
        set_rule(machine, number, UNSPOOL_EXACT_VAL_OFFSET, factored(machine, cursor_uleb(cursor)));
        return true;
    case DW_CFA_val_offset_sf:
        number = cursor_uleb(cursor);
        set_rule(machine, number, UNSPOOL_EXACT_VAL_OFFSET, factored(machine, (uint64_t)cursor_sleb(cursor)));
        return true;
    case DW_CFA_restore_extended:
        restore_rule(machine, cursor_uleb(cursor));
        return true;
    case DW_CFA_undefined:
        set_rule(machine, cursor_uleb(cursor), UNSPOOL_EXACT_UNDEFINED, 0);
        return true;
    case DW_CFA_same_value:
        set_rule(machine, cursor_uleb(cursor), UNSPOOL_EXACT_SAME, 0);
        return true;
    case DW_CFA_register:
        number = cursor_uleb(cursor);
        set_rule(machine, number, UNSPOOL_EXACT_REGISTER, (int64_t)cursor_uleb(cursor));
        return true;
    case DW_CFA_expression:
        number = cursor_uleb(cursor);
        set_expression(machine, number, UNSPOOL_EXACT_EXPRESSION, take_block(cursor, &size));
        return true;
    case DW_CFA_val_expression:
        number = cursor_uleb(cursor);
        set_expression(machine, number, UNSPOOL_EXACT_VAL_EXPRESSION, take_block(cursor, &size));
        return true;
    case DW_CFA_remember_state:
        return remember(machine);
    case DW_CFA_restore_state:
        return restore(machine);
    case DW_CFA_GNU_args_size: /* concerns landing pads only: CFA offsets say the rest */
        cursor_uleb(cursor);
        return true;
    case DW_CFA_AARCH64_negate_ra_state:
    case DW_CFA_AARCH64_negate_ra_state_with_pc:
        if (machine->program->arch != UNSPOOL_AARCH64)
            return false;
        machine->rules.ra_signed = !machine->rules.ra_signed;
        machine->changed = CFI_ALL_CHANGED;
        return true;
    default:
        return false;
    }
}

/* Anything but an advance. */
static bool run_instruction(struct cfi_machine *machine, uint8_t opcode) {
    switch (opcode & 0xc0) {
    case DW_CFA_offset:
        set_rule(machine, opcode & 0x3f, UNSPOOL_EXACT_OFFSET,
                 factored(machine, cursor_uleb(&machine->cursor)));
        return true;
    case DW_CFA_restore:
        restore_rule(machine, opcode & 0x3f);
        return true;
    default:
        return run_cfa_instruction(machine, opcode) || run_register_instruction(machine, opcode);
    }
}

/* True when opcode moves the location; *location becomes where to. */
static bool read_advance(struct cfi_machine *machine, uint8_t opcode, uint64_t *location) {
    const struct cfi_program *program = machine->program;
    struct cursor *cursor = &machine->cursor;
    uint64_t delta;
    if ((opcode & 0xc0) == DW_CFA_advance_loc) {
        delta = opcode & 0x3f;
    } else if (opcode == DW_CFA_advance_loc1) {
        delta = cursor_u8(cursor);
    } else if (opcode == DW_CFA_advance_loc2) {
        delta = cursor_u16(cursor);
    } else if (opcode == DW_CFA_advance_loc4) {
        delta = cursor_u32(cursor);
    } else if (opcode == DW_CFA_set_loc) {
        uint64_t operand_address =
            program->instructions_address + (uint64_t)(cursor->at - program->instructions);
        uint64_t value = read_encoded(cursor, program->pointer_encoding);
        uint8_t base = program->pointer_encoding & 0xf0;
        if (base != 0 && base != POINTER_PC_RELATIVE)
            cursor->failed = true; /* text-, data- and function-relative operands occur nowhere */
        uint64_t address = base ? value + operand_address + program->image_address : value;
        if (address < program->image_address)
            cursor->failed = true; /* before the image, that is backwards */
        *location = address - program->image_address;
        return true;
    } else {
        return false;
    }
    *location = machine->location + delta * program->code_alignment;
    return true;
}

enum cfi_status cfi_begin(struct cfi_machine *machine, const struct cfi_program *program) {
    machine->program = program;
    machine->cursor = cursor_over(program->initial, program->initial_size);
    memset(machine->rules.kind, UNSPOOL_EXACT_UNSPECIFIED, sizeof machine->rules.kind);
    machine->rules.specified = 0;
    machine->rules.cfa_is_expression = false;
    machine->rules.cfa_defined = false;
    machine->rules.ra_signed = false;
    machine->rules.cfa_register = UNSPOOL_REGISTERS;
    machine->rules.cfa_offset = 0;
    machine->remembered_count = 0;
    machine->changed = CFI_ALL_CHANGED;
    machine->done = false;
    machine->location = program->start;
    machine->row_end = program->start;
    while (cursor_left(&machine->cursor)) {
        uint8_t opcode = cursor_u8(&machine->cursor);
        uint64_t location;
        bool is_restore = (opcode & 0xc0) == DW_CFA_restore || opcode == DW_CFA_restore_extended;
        if (is_restore || read_advance(machine, opcode, &location) || !run_instruction(machine, opcode) ||
            machine->cursor.failed)
            return CFI_MALFORMED;
    }
    machine->initial = machine->rules;
    machine->remembered_count = 0;
    machine->cursor = cursor_over(program->instructions, program->instructions_size);
    return CFI_ROW;
}

enum cfi_status cfi_next_row(struct cfi_machine *machine) {
    uint64_t end = machine->program->end;
    machine->row_start = machine->location;
    while (!machine->done) {
        uint64_t location = machine->location;
        if (!cursor_left(&machine->cursor)) {
            machine->done = true;
            location = end;
        } else {
            uint8_t opcode = cursor_u8(&machine->cursor);
            bool is_short_advance = (opcode & 0xc0) == DW_CFA_advance_loc; /* most instructions are */
            if (is_short_advance)
                location += (opcode & 0x3f) * machine->program->code_alignment;
            else if (!run_instruction(machine, opcode) && !read_advance(machine, opcode, &location))
                return CFI_MALFORMED;
            if (machine->cursor.failed || location < machine->location)
                return CFI_MALFORMED;
        }
        if (location >= end) { /* what lies beyond belongs to no one */
            machine->done = true;
            location = end;
        }
        if (location > machine->location) {
            machine->row_end = location;
            machine->location = location;
            return CFI_ROW;
        }
    }
    return CFI_DONE;
}

bool cfi_passes_exceptions(const struct cfi_rules *rules, uint32_t arch) {
    return rules->kind[0] == UNSPOOL_EXACT_OFFSET && rules->kind[1] == UNSPOOL_EXACT_OFFSET &&
           !(arch == UNSPOOL_AARCH64 && rules->kind[4] == UNSPOOL_EXACT_OFFSET);
}

bool cfi_is_one_row(const uint8_t *instructions, uint32_t size) {
    for (uint32_t i = 0; i < size; i++)
        if (instructions[i] != DW_CFA_nop)
            return false;
    return true;
}

/* One instruction, if it is one of those that clang then writes. */
static bool is_of_prologue(struct cursor *cursor, uint8_t opcode) {
    uint64_t number, offset = 1;
    switch (opcode & 0xc0 ? opcode & 0xc0 : opcode) {
    case DW_CFA_def_cfa:
        number = cursor_uleb(cursor);
        offset = cursor_uleb(cursor) | (number != UNSPOOL_AARCH64_SP);
        break;
    case DW_CFA_def_cfa_offset:
        offset = cursor_uleb(cursor);
        break;
    case DW_CFA_offset:
    case DW_CFA_offset_extended:
    case DW_CFA_def_cfa_register:
    case DW_CFA_GNU_args_size:
        cursor_uleb(cursor);
        if (opcode == DW_CFA_offset_extended)
            cursor_uleb(cursor);
        break;
    case DW_CFA_advance_loc1:
    case DW_CFA_advance_loc2:
    case DW_CFA_advance_loc4:
        cursor_take(cursor, opcode == DW_CFA_advance_loc4 ? 4 : opcode - 1u);
        break;
    case DW_CFA_advance_loc:
    case DW_CFA_nop:
    case DW_CFA_AARCH64_negate_ra_state:
        break;
    default:
        return false;
    }
    return offset != 0 && !cursor->failed; /* back to what it was at the start */
}

bool cfi_tells_no_epilogue(const struct cfi_program *program, uint64_t *first_row_end) {
    struct cursor cursor = cursor_over(program->instructions, program->instructions_size);
    if (program->arch != UNSPOOL_AARCH64)
        return false;
    *first_row_end = program->start;
    if (program->instructions_size && (program->instructions[0] & 0xc0) == DW_CFA_advance_loc)
        *first_row_end += (program->instructions[0] & 0x3f) * program->code_alignment;
    while (cursor_left(&cursor))
        if (!is_of_prologue(&cursor, cursor_u8(&cursor)))
            return false;
    return true;
}

bool cfi_is_entered_from_plt(const struct cfi_program *program, struct cfi_machine *scratch) {
    bool says_so = false;
    for (uint32_t i = 0; program->arch == UNSPOOL_AARCH64 && i + 1 < program->instructions_size; i++)
        says_so |=
            program->instructions[i] == DW_CFA_offset_extended_sf &&
            program->instructions[i + 1] == UNSPOOL_AARCH64_LR; /* perhaps an operand: then no row has it */
    if (!says_so || cfi_begin(scratch, program) != CFI_ROW)
        return false;
    const struct cfi_rules *rules = &scratch->rules;
    while (cfi_next_row(scratch) == CFI_ROW)
        if (rules->kind[UNSPOOL_AARCH64_LR] == UNSPOOL_EXACT_OFFSET &&
            rules->value[UNSPOOL_AARCH64_LR].number == 8)
            return true;
    return false;
}
