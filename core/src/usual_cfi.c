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
static inline bool define_cfa(struct state *state, uint64_t number, uint64_t offset) {
    state->cfa = (uint32_t)offset << 1 | (number == UNSPOOL_X86_64_RBP ? BY_RBP : 0);
    return (number == UNSPOOL_X86_64_RBP || number == UNSPOOL_X86_64_RSP) && offset < LARGEST_OFFSET;
}

static inline bool set_slot(struct state *state, uint8_t number, uint64_t slot) {
    if (!position_of[number] || slot > LARGEST_SLOT)
        return false;
    unsigned position = position_of[number] - 1u;
    state->slots = (state->slots & ~((uint64_t)0xff << position)) | slot << position;
    return true;
}

/* Any instruction but advance_loc and advance_loc1; *advance is how far one moves. False: it is not usual. */
static bool run(struct machine *machine, uint8_t opcode, uint64_t *advance) {
    struct cursor *cursor = &machine->cursor;
    uint64_t number;
    if ((opcode & 0xc0) == DW_CFA_restore)
        return set_slot(&machine->state, opcode & 0x3f, 0);
    if ((opcode & 0xc0) == DW_CFA_offset) {
        number = cursor_uleb(cursor);
        return number != 0 && set_slot(&machine->state, opcode & 0x3f, number);
    }
    switch (opcode) {
    case DW_CFA_nop:
        return true;
    case DW_CFA_advance_loc2:
        *advance = cursor_u16(cursor);
        return true;
    case DW_CFA_advance_loc4:
        *advance = cursor_u32(cursor);
        return true;
    case DW_CFA_def_cfa:
        number = cursor_uleb(cursor);
        return define_cfa(&machine->state, number, cursor_uleb(cursor));
    case DW_CFA_def_cfa_register:
        number = cursor_uleb(cursor);
        return define_cfa(&machine->state, number, machine->state.cfa >> 1);
    case DW_CFA_def_cfa_offset:
        number = machine->state.cfa & BY_RBP ? UNSPOOL_X86_64_RBP : UNSPOOL_X86_64_RSP;
        return define_cfa(&machine->state, number, cursor_uleb(cursor));
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

uint32_t usual_rows(const uint8_t *instructions, uint32_t instructions_size, uint32_t size,
                    struct usual_row rows[USUAL_ROWS]) {
    struct machine machine; /* what is remembered needs no first value */
    struct state state = {.cfa = 8 << 1};
    const uint8_t *at = instructions, *end = instructions + instructions_size;
    uint64_t location = 0;
    uint32_t count = 0;
    machine.remembered_count = 0;
    while (location < size && at < end) {
        uint8_t opcode = *at++;
        bool is_short = at < end && *at < 0x80; /* the operand, if it has one */
        uint64_t advance = 0;
        if ((opcode & 0xc0) == DW_CFA_advance_loc) {
            advance = opcode & 0x3f;
        } else if (opcode == DW_CFA_def_cfa_offset && is_short) {
            state.cfa = (uint32_t)*at++ << 1 | (state.cfa & BY_RBP);
        } else if ((opcode & 0xc0) == DW_CFA_offset && is_short && *at) {
            if (!set_slot(&state, opcode & 0x3f, *at++))
                return 0;
        } else if (opcode == DW_CFA_advance_loc1 && at < end) {
            advance = *at++;
        } else {
            machine.cursor = cursor_over(at, (size_t)(end - at));
            machine.state = state;
            if (!run(&machine, opcode, &advance) || machine.cursor.failed)
                return 0;
            at = machine.cursor.at;
            state = machine.state;
        }
        if (count == USUAL_ROWS - 1)
            return 0;
        rows[count] = (struct usual_row){state.slots, state.cfa, (uint32_t)location};
        count += advance != 0;
        location += advance;
    }
    if (location < size)
        rows[count++] = (struct usual_row){state.slots, state.cfa, (uint32_t)location};
    return count;
}
