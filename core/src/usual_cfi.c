/*
 * usual_cfi.c: running the usual call frame instructions (DWARF 5, 6.4.2), quickly. Whatever is unusual is
 * left to cfi_program.c, malformed programs too.
 */
#include "usual_cfi.h"

enum {
    DW_CFA_advance_loc = 0x40,
    DW_CFA_offset = 0x80,
    DW_CFA_restore = 0xc0,
    DW_CFA_nop = 0x00,
    DW_CFA_advance_loc1 = 0x02,
    DW_CFA_advance_loc2 = 0x03,
    DW_CFA_advance_loc4 = 0x04,
    DW_CFA_remember_state = 0x0a,
    DW_CFA_restore_state = 0x0b,
    DW_CFA_def_cfa = 0x0c,
    DW_CFA_def_cfa_register = 0x0d,
    DW_CFA_def_cfa_offset = 0x0e,
    DW_CFA_GNU_args_size = 0x2e,
};

enum { LARGEST_OFFSET = 1 << 30, LARGEST_SLOT = 255, BY_RBP = 1 };

/* One more than the position of a register's byte, in bits, by its number; 0: it has none. */
static const uint8_t position_of[64] = {
    [3] = 1 + 8 * USUAL_RBX,  [6] = 1 + 8 * USUAL_RBP,  [12] = 1 + 8 * USUAL_R12,
    [13] = 1 + 8 * USUAL_R13, [14] = 1 + 8 * USUAL_R14, [15] = 1 + 8 * USUAL_R15,
};

bool usual_beginning(const struct cfi_program *program, const struct cfi_rules *rules) {
    uint64_t pc = (uint64_t)1 << UNSPOOL_X86_64_PC;
    return program->arch == UNSPOOL_X86_64 && program->flags == 0 && program->code_alignment == 1 &&
           program->data_alignment == -8 && program->return_address_register == UNSPOOL_X86_64_PC &&
           rules->cfa_defined && !rules->cfa_is_expression && rules->cfa_register == UNSPOOL_X86_64_RSP &&
           rules->cfa_offset == 8 && rules->specified == pc &&
           rules->kind[UNSPOOL_X86_64_PC] == UNSPOOL_EXACT_OFFSET &&
           rules->value[UNSPOOL_X86_64_PC].number == -8;
}

struct state {
    uint64_t slots;
    uint32_t cfa;
};

struct machine {
    struct cursor cursor;
    struct state state;
    uint32_t remembered_count;
    struct state remembered[REMEMBERED_STATES];
};

/* CFA = register + offset. */
static inline bool define_cfa(struct machine *machine, uint64_t number, uint64_t offset) {
    machine->state.cfa = (uint32_t)offset << 1 | (number == UNSPOOL_X86_64_RBP ? BY_RBP : 0);
    return (number == UNSPOOL_X86_64_RBP || number == UNSPOOL_X86_64_RSP) && offset < LARGEST_OFFSET;
}

static inline bool set_slot(struct machine *machine, uint8_t number, uint64_t slot) {
    if (!position_of[number] || slot > LARGEST_SLOT)
        return false;
    unsigned position = position_of[number] - 1u;
    machine->state.slots = (machine->state.slots & ~((uint64_t)0xff << position)) | slot << position;
    return true;
}

/* One instruction; *advance is how far it moves. False: it is not usual. */
static inline bool run(struct machine *machine, uint64_t *advance) {
    struct cursor *cursor = &machine->cursor;
    uint8_t opcode = *cursor->at++;
    uint64_t number;
    *advance = 0;
    switch (opcode & 0xc0) {
    case DW_CFA_advance_loc:
        *advance = opcode & 0x3f;
        return true;
    case DW_CFA_offset:
        number = cursor_uleb(cursor);
        return number != 0 && set_slot(machine, opcode & 0x3f, number);
    case DW_CFA_restore:
        return set_slot(machine, opcode & 0x3f, 0);
    }
    switch (opcode) {
    case DW_CFA_nop:
        return true;
    case DW_CFA_advance_loc1:
        *advance = cursor_u8(cursor);
        return true;
    case DW_CFA_advance_loc2:
        *advance = cursor_u16(cursor);
        return true;
    case DW_CFA_advance_loc4:
        *advance = cursor_u32(cursor);
        return true;
    case DW_CFA_def_cfa:
        number = cursor_uleb(cursor);
        return define_cfa(machine, number, cursor_uleb(cursor));
    case DW_CFA_def_cfa_register:
        number = cursor_uleb(cursor);
        return define_cfa(machine, number, machine->state.cfa >> 1);
    case DW_CFA_def_cfa_offset:
        number = machine->state.cfa & BY_RBP ? UNSPOOL_X86_64_RBP : UNSPOOL_X86_64_RSP;
        return define_cfa(machine, number, cursor_uleb(cursor));
    case DW_CFA_remember_state:
        if (machine->remembered_count == REMEMBERED_STATES)
            return false;
        machine->remembered[machine->remembered_count++] = machine->state;
        return true;
    case DW_CFA_restore_state:
        if (machine->remembered_count == 0)
            return false;
        machine->state = machine->remembered[--machine->remembered_count];
        return true;
    case DW_CFA_GNU_args_size:
        cursor_uleb(cursor);
        return true;
    default:
        return false;
    }
}

uint32_t usual_rows(const struct cfi_program *program, struct usual_row rows[USUAL_ROWS]) {
    struct machine machine = {.cursor = cursor_over(program->instructions, program->instructions_size),
                              .state = {.cfa = 8 << 1}};
    uint64_t location = 0, size = program->end - program->start;
    uint32_t count = 0;
    while (location < size && cursor_left(&machine.cursor)) {
        struct state before = machine.state;
        uint64_t advance;
        if (!run(&machine, &advance) || machine.cursor.failed || count == USUAL_ROWS - 1)
            return 0;
        if (!advance)
            continue;
        rows[count++] = (struct usual_row){before.slots, before.cfa, (uint32_t)location};
        location += advance;
    }
    if (location < size)
        rows[count++] = (struct usual_row){machine.state.slots, machine.state.cfa, (uint32_t)location};
    return count;
}
