/*
 * test_usual_cfi.c: what is quick when tables are compiled, beside what is general: made-up programs of call
 * frame instructions yield the same rows.
 */
#include "check.h"
#include "usual_cfi.h"

enum { PROGRAMS = 20000, LONGEST = 40, FUNCTION = 0x2000 };

static uint64_t state = 88172645463325252u;

static uint32_t random_below(uint32_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % limit;
}

/* One instruction, seldom an unusual one: how many bytes. */
static uint32_t add_instruction(uint8_t *at) {
    static const uint8_t saved[] = {3, 6, 12, 13, 14, 15}, by[] = {6, 7, 7, 10};
    static const uint8_t plain[] = {0x00, 0x0a, 0x0b, 0x0b, 0x2f};
    static const uint8_t with_number[] = {0x0e, 0x0e, 0x0e, 0x2e, 0x02};
    switch (random_below(8)) {
    case 0:
        at[0] = (uint8_t)(0x80 | saved[random_below(6)]);
        at[1] = (uint8_t)random_below(20);
        return 2;
    case 1:
        at[0] = (uint8_t)(0xc0 | (random_below(30) ? saved[random_below(6)] : random_below(64)));
        return 1;
    case 2:
        at[0] = plain[random_below(random_below(9) ? 4 : 5)];
        return 1;
    case 3:
        at[0] = 0x0c;
        at[1] = by[random_below(random_below(9) ? 3 : 4)];
        at[2] = (uint8_t)random_below(256);
        at[3] = (uint8_t)random_below(128);
        return at[2] < 0x80 ? 3 : 4;
    case 4:
        at[0] = 0x0d;
        at[1] = by[random_below(random_below(9) ? 3 : 4)];
        return 2;
    case 5:
        at[0] = with_number[random_below(5)];
        at[1] = (uint8_t)random_below(128);
        return 2;
    default:
        at[0] = (uint8_t)(0x40 | random_below(64));
        return 1;
    }
}

static int64_t slot_of(const struct usual_row *row, enum usual_register which) {
    return -8 * (int64_t)(row->slots >> 8 * which & 0xff);
}

/* A row of the general machine says what a usual row says. */
static bool is_same(const struct cfi_machine *machine, const struct usual_row *row) {
    static const uint8_t numbers[USUAL_REGISTERS] = {3, 6, 12, 13, 14, 15};
    const struct cfi_rules *rules = &machine->rules;
    bool is_same = machine->row_start == FUNCTION + row->start && !rules->cfa_is_expression &&
                   rules->cfa_defined &&
                   rules->cfa_register == (row->cfa & 1 ? UNSPOOL_X86_64_RBP : UNSPOOL_X86_64_RSP) &&
                   rules->cfa_offset == (int64_t)(row->cfa >> 1) &&
                   rules->kind[UNSPOOL_X86_64_PC] == UNSPOOL_EXACT_OFFSET &&
                   rules->value[UNSPOOL_X86_64_PC].number == -8;
    uint64_t others = rules->specified & ~((uint64_t)1 << UNSPOOL_X86_64_PC);
    for (uint32_t i = 0; i < USUAL_REGISTERS; i++) {
        int64_t slot = slot_of(row, (enum usual_register)i);
        uint8_t kind = rules->kind[numbers[i]];
        is_same &= slot ? kind == UNSPOOL_EXACT_OFFSET && rules->value[numbers[i]].number == slot
                        : kind == UNSPOOL_EXACT_UNSPECIFIED;
        others &= ~((uint64_t)1 << numbers[i]);
    }
    return is_same && others == 0;
}

static struct cfi_program make_program(uint8_t *bytes) {
    static const uint8_t initial[] = {0x0c, 7, 8, 0x90, 1};
    uint32_t size = 0, count = random_below(LONGEST / 4);
    for (uint32_t i = 0; i < count; i++)
        size += add_instruction(bytes + size);
    return (struct cfi_program){.initial = initial,
                                .initial_size = sizeof initial,
                                .instructions = bytes,
                                .instructions_size = size - (size && !random_below(20)), /* cut short */
                                .start = FUNCTION,
                                .end = FUNCTION + 1 + random_below(300),
                                .code_alignment = 1,
                                .data_alignment = -8,
                                .arch = UNSPOOL_X86_64,
                                .return_address_register = UNSPOOL_X86_64_PC};
}

static void usual_rows_are_those_of_the_machine(void) {
    static struct cfi_machine machine;
    static struct usual_row rows[USUAL_ROWS];
    uint32_t usual = 0;
    for (int i = 0; i < PROGRAMS; i++) {
        uint8_t bytes[LONGEST];
        struct cfi_program program = make_program(bytes);
        CHECK(cfi_begin(&machine, &program) == CFI_ROW && usual_beginning(&program, &machine.rules));
        uint32_t count = usual_rows(bytes, program.instructions_size, (uint32_t)(program.end - program.start),
                                    rows),
                 same = 0;
        while (same < count && cfi_next_row(&machine) == CFI_ROW && is_same(&machine, &rows[same]))
            same++;
        CHECK_EQUAL(same, count);
        CHECK(count == 0 || (machine.row_end == program.end && cfi_next_row(&machine) == CFI_DONE));
        usual += count != 0;
    }
    CHECK(usual > PROGRAMS / 4);
}

static void other_beginnings_are_not_usual(void) {
    static const uint8_t other[][8] = {{0x0c, 7, 16, 0x90, 1}, {0x0c, 6, 8, 0x90, 1}, {0x0c, 7, 8, 0x90, 2}};
    static struct cfi_machine machine;
    uint8_t bytes[LONGEST];
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        struct cfi_program program = make_program(bytes);
        program.initial = other[i];
        CHECK(cfi_begin(&machine, &program) == CFI_ROW && !usual_beginning(&program, &machine.rules));
    }
    struct cfi_program signal = make_program(bytes);
    signal.flags = UNSPOOL_ROW_SIGNAL;
    CHECK(cfi_begin(&machine, &signal) == CFI_ROW && !usual_beginning(&signal, &machine.rules));
}

int main(void) {
    RUN(usual_rows_are_those_of_the_machine);
    RUN(other_beginnings_are_not_usual);
    return check_result();
}
