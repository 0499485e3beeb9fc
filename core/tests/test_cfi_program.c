/*
 * test_cfi_program.c: the machine that runs call frame instructions (cfi_program.c): what each
 * instruction does, where rows begin and end, and how malformed programs end.
 */
#include "cfi_program.h"
#include "cfi_writer.h"
#include "check.h"

enum { PC_RELATIVE_4 = 0x1b, DATA_RELATIVE_4 = 0x3b };

static struct cfi_machine machine;
static struct cfi_program program;

/* Begins a program for 0x1000..0x1100 behind x86_64's usual initial instructions. */
static void begin(const uint8_t *instructions, size_t size) {
    program = (struct cfi_program){
        .initial = x86_64_initial,
        .initial_size = sizeof x86_64_initial,
        .instructions = instructions,
        .instructions_size = (uint32_t)size,
        .start = 0x1000,
        .end = 0x1100,
        .code_alignment = 1,
        .data_alignment = -8,
        .arch = UNSPOOL_X86_64,
        .return_address_register = RIP,
    };
    CHECK_EQUAL(cfi_begin(&machine, &program), CFI_ROW);
}

static void expect_row(uint64_t start, uint64_t end) {
    CHECK_EQUAL(cfi_next_row(&machine), CFI_ROW);
    CHECK_EQUAL(machine.row_start, start);
    CHECK_EQUAL(machine.row_end, end);
}

static void expect_cfa(uint32_t number, int64_t offset) {
    CHECK(machine.rules.cfa_defined && !machine.rules.cfa_is_expression);
    CHECK_EQUAL(machine.rules.cfa_register, number);
    CHECK_EQUAL(machine.rules.cfa_offset, offset);
}

static void expect_rule(uint32_t number, enum unspool_exact_kind kind, int64_t value) {
    CHECK_EQUAL(machine.rules.kind[number], kind);
    CHECK_EQUAL(machine.rules.specified >> number & 1, kind != UNSPOOL_EXACT_UNSPECIFIED);
    if (kind != UNSPOOL_EXACT_UNSPECIFIED)
        CHECK_EQUAL(machine.rules.value[number].number, value);
}

/* Runs one instruction sequence and stands at its only row. */
static void run(const uint8_t *instructions, size_t size) {
    begin(instructions, size);
    expect_row(0x1000, 0x1100);
}

static void the_initial_instructions_make_the_first_row(void) {
    run(NO_CFI);
    expect_cfa(RSP, 8);
    expect_rule(RIP, UNSPOOL_EXACT_OFFSET, -8);
    expect_rule(RBP, UNSPOOL_EXACT_UNSPECIFIED, 0);
    CHECK_EQUAL(cfi_next_row(&machine), CFI_DONE);
    CHECK_EQUAL(cfi_next_row(&machine), CFI_DONE);
}

static void rows_end_where_an_advance_leads(void) {
    begin(CFI(ADVANCE(1), DEF_CFA_OFFSET(16), ADVANCE1(3), DEF_CFA_OFFSET(24), ADVANCE2(0x20), NOP,
              ADVANCE4(0x40), DEF_CFA_OFFSET(8)));
    expect_row(0x1000, 0x1001);
    expect_cfa(RSP, 8);
    expect_row(0x1001, 0x1004);
    expect_cfa(RSP, 16);
    expect_row(0x1004, 0x1024);
    expect_cfa(RSP, 24);
    expect_row(0x1024, 0x1064);
    expect_cfa(RSP, 24);
    expect_row(0x1064, 0x1100);
    expect_cfa(RSP, 8);
    CHECK_EQUAL(cfi_next_row(&machine), CFI_DONE);
}

static void advances_are_counted_in_code_alignment_units(void) {
    begin(CFI(ADVANCE(2), DEF_CFA_OFFSET(16)));
    program.code_alignment = 4;
    expect_row(0x1000, 0x1008);
    expect_row(0x1008, 0x1100);
}

static void an_advance_of_nothing_makes_no_row(void) {
    begin(CFI(ADVANCE(0), DEF_CFA_OFFSET(16), ADVANCE1(0), DEF_CFA_OFFSET(24)));
    expect_row(0x1000, 0x1100);
    expect_cfa(RSP, 24);
}

static void what_lies_beyond_the_function_is_left_out(void) {
    begin(CFI(ADVANCE1(0xff), DEF_CFA_OFFSET(16), ADVANCE1(0xff), DEF_CFA_OFFSET(24)));
    expect_row(0x1000, 0x10ff);
    expect_row(0x10ff, 0x1100);
    expect_cfa(RSP, 16);
    CHECK_EQUAL(cfi_next_row(&machine), CFI_DONE);
}

static void set_loc_takes_an_address(void) {
    begin(CFI(SET_LOC(0x401010), DEF_CFA_OFFSET(16)));
    program.image_address = 0x400000;
    expect_row(0x1000, 0x1010);
    expect_row(0x1010, 0x1100);

    /* pc-relative, four bytes, counted from the operand's own address */
    begin(CFI(NOP, 0x01, U32(0x1010 - 0x9002), DEF_CFA_OFFSET(16)));
    program.pointer_encoding = PC_RELATIVE_4;
    program.instructions_address = 0x9000;
    expect_row(0x1000, 0x1010);

    begin(CFI(0x01, U32(0x10)));
    program.pointer_encoding = DATA_RELATIVE_4;
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
}

static void a_location_never_goes_back(void) {
    begin(CFI(SET_LOC(0x1010), SET_LOC(0x1008), NOP));
    expect_row(0x1000, 0x1010);
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
    begin(CFI(ADVANCE(1), ADVANCE4(0xffffffff), NOP)); /* wraps */
    program.code_alignment = UINT64_MAX;
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
}

static void cfa_instructions(void) {
    run(CFI(DEF_CFA(RBP, 16)));
    expect_cfa(RBP, 16);
    run(CFI(DEF_CFA_SF(RBP, -2)));
    expect_cfa(RBP, 16);
    run(CFI(DEF_CFA_REGISTER(RBP)));
    expect_cfa(RBP, 8);
    run(CFI(DEF_CFA_OFFSET(ULEB2(1040))));
    expect_cfa(RSP, 1040);
    run(CFI(DEF_CFA_OFFSET_SF(-3)));
    expect_cfa(RSP, 24);
    run(CFI(DEF_CFA(ULEB2(1000), 16))); /* a vector register, say: known to nobody */
    expect_cfa(UNSPOOL_REGISTERS, 16);
}

static void a_cfa_expression_lasts_until_the_next_definition(void) {
    begin(CFI(DEF_CFA_EXPRESSION(2), OP_BREG0 + R10, 0, ADVANCE(4), DEF_CFA(RSP, 8)));
    expect_row(0x1000, 0x1004);
    CHECK(machine.rules.cfa_is_expression && machine.rules.cfa_defined);
    CHECK(machine.rules.cfa_expression == program.instructions + 1);
    expect_row(0x1004, 0x1100);
    expect_cfa(RSP, 8);
}

static void half_a_cfa_changes_only_what_was_register_and_offset(void) {
    begin(CFI(DEF_CFA_EXPRESSION(1), OP_LIT0, DEF_CFA_REGISTER(RSP)));
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
    begin(CFI(DEF_CFA_EXPRESSION(1), OP_LIT0, DEF_CFA_OFFSET(8)));
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
    begin(CFI(DEF_CFA_EXPRESSION(1), OP_LIT0, DEF_CFA_OFFSET_SF(-1)));
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
    begin(CFI(DEF_CFA_OFFSET(8)));
    program.initial_size = 0;
    CHECK_EQUAL(cfi_begin(&machine, &program), CFI_ROW);
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
}

static void register_instructions(void) {
    run(CFI(OFFSET(RBX, 2)));
    expect_rule(RBX, UNSPOOL_EXACT_OFFSET, -16);
    run(CFI(OFFSET_EXTENDED(R12, 3)));
    expect_rule(R12, UNSPOOL_EXACT_OFFSET, -24);
    run(CFI(OFFSET_EXTENDED_SF(R12, -3)));
    expect_rule(R12, UNSPOOL_EXACT_OFFSET, 24);
    run(CFI(NEGATIVE_OFFSET(R12, 3)));
    expect_rule(R12, UNSPOOL_EXACT_OFFSET, 24);
    run(CFI(VAL_OFFSET(RSP, 2)));
    expect_rule(RSP, UNSPOOL_EXACT_VAL_OFFSET, -16);
    run(CFI(VAL_OFFSET_SF(RSP, -2)));
    expect_rule(RSP, UNSPOOL_EXACT_VAL_OFFSET, 16);
    run(CFI(UNDEFINED(RIP)));
    expect_rule(RIP, UNSPOOL_EXACT_UNDEFINED, 0);
    run(CFI(SAME_VALUE(RBX)));
    expect_rule(RBX, UNSPOOL_EXACT_SAME, 0);
    run(CFI(IN_REGISTER(RIP, RDI)));
    expect_rule(RIP, UNSPOOL_EXACT_REGISTER, RDI);
    run(CFI(GNU_ARGS_SIZE(ULEB2(300)), OFFSET(RBX, 2)));
    expect_rule(RBX, UNSPOOL_EXACT_OFFSET, -16);
    expect_cfa(RSP, 8);
}

static void expressions_are_kept_as_blocks(void) {
    run(CFI(EXPRESSION(RBP, 2), OP_BREG0 + RBP, 0, VAL_EXPRESSION(RIP, 1), OP_LIT0));
    CHECK_EQUAL(machine.rules.kind[RBP], UNSPOOL_EXACT_EXPRESSION);
    CHECK(machine.rules.value[RBP].expression == program.instructions + 2);
    CHECK_EQUAL(machine.rules.kind[RIP], UNSPOOL_EXACT_VAL_EXPRESSION);
    CHECK(machine.rules.value[RIP].expression == program.instructions + 7);
    struct cursor operations = cfi_block(&program, machine.rules.value[RBP].expression);
    CHECK_EQUAL(cursor_left(&operations), 2);
    CHECK(operations.at == program.instructions + 3);
}

static void restore_goes_back_to_the_initial_rule(void) {
    run(CFI(OFFSET(RIP, 5), RESTORE(RIP), OFFSET(RBX, 2), RESTORE_EXTENDED(RBX)));
    expect_rule(RIP, UNSPOOL_EXACT_OFFSET, -8);
    expect_rule(RBX, UNSPOOL_EXACT_UNSPECIFIED, 0);
}

static void remembered_states_hold_the_cfa_too_and_nest(void) {
    begin(CFI(REMEMBER, DEF_CFA(RBP, 16), OFFSET(RBX, 3), REMEMBER, UNDEFINED(RBX), ADVANCE(1), RESTORE_STATE,
              ADVANCE(1), RESTORE_STATE));
    expect_row(0x1000, 0x1001);
    expect_rule(RBX, UNSPOOL_EXACT_UNDEFINED, 0);
    expect_row(0x1001, 0x1002);
    expect_cfa(RBP, 16);
    expect_rule(RBX, UNSPOOL_EXACT_OFFSET, -24);
    expect_row(0x1002, 0x1100);
    expect_cfa(RSP, 8);
    expect_rule(RBX, UNSPOOL_EXACT_UNSPECIFIED, 0);
}

static void remembering_is_bounded(void) {
    uint8_t instructions[REMEMBERED_STATES + 1];
    memset(instructions, REMEMBER, sizeof instructions);
    run(instructions, REMEMBERED_STATES);
    begin(instructions, REMEMBERED_STATES + 1);
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
    begin(CFI(RESTORE_STATE));
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
}

static void a_state_remembered_by_the_cie_is_not_the_fdes(void) {
    const uint8_t initial[] = {DEF_CFA(RSP, 8), REMEMBER};
    begin(CFI(RESTORE_STATE));
    program.initial = initial;
    program.initial_size = sizeof initial;
    CHECK_EQUAL(cfi_begin(&machine, &program), CFI_ROW);
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
}

static void negate_ra_state_toggles_on_aarch64_only(void) {
    begin(CFI(NEGATE_RA_STATE, ADVANCE(1), REMEMBER, NEGATE_RA_STATE, ADVANCE(1), RESTORE_STATE));
    program.arch = UNSPOOL_AARCH64;
    expect_row(0x1000, 0x1001);
    CHECK(machine.rules.ra_signed);
    expect_row(0x1001, 0x1002);
    CHECK(!machine.rules.ra_signed);
    expect_row(0x1002, 0x1100);
    CHECK(machine.rules.ra_signed);
    begin(CFI(NEGATE_RA_STATE));
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
}

static void untracked_registers_are_parsed_and_dropped(void) {
    run(CFI(OFFSET(17, 2), OFFSET_EXTENDED(ULEB2(300), 2), UNDEFINED(ULEB2(300)), EXPRESSION(40, 1), OP_LIT0,
            RESTORE(20), IN_REGISTER(33, 1), OFFSET(RBX, 2)));
    expect_rule(RBX, UNSPOOL_EXACT_OFFSET, -16);
    CHECK_EQUAL(machine.rules.specified, (uint64_t)1 << RBX | (uint64_t)1 << RIP);
}

static void truncated_and_unknown_instructions_are_malformed(void) {
    static const uint8_t programs[][12] = {
        {2, 0x0c, RSP},             /* size, then def_cfa without its offset */
        {1, 0x0e},                  /* def_cfa_offset */
        {1, 0x80 | RBX},            /* offset */
        {2, 0x04, 1},               /* advance_loc4 */
        {1, 0x02},                  /* advance_loc1 */
        {3, 0x0f, 2, OP_LIT0},      /* def_cfa_expression with a block that is cut off */
        {4, 0x10, RBP, 0xff, 0x7f}, /* expression */
        {3, 0x01, 1, 2},            /* set_loc */
        {1, 0x3f},                  /* DW_CFA_hi_user */
        {1, 0x17},                  /* not assigned */
        {3, 0x0c, 0x80, 0x80},      /* a LEB128 that does not end */
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        begin(programs[i] + 1, programs[i][0]);
        CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
    }
}

static void rows_before_the_malformed_part_hold(void) {
    begin(CFI(ADVANCE(4), DEF_CFA_OFFSET(16), ADVANCE(4), 0x3f));
    expect_row(0x1000, 0x1004);
    expect_row(0x1004, 0x1008);
    expect_cfa(RSP, 16);
    CHECK_EQUAL(cfi_next_row(&machine), CFI_MALFORMED);
}

static void expect_malformed_initial(const uint8_t *initial, size_t size) {
    begin(NO_CFI);
    program.initial = initial;
    program.initial_size = (uint32_t)size;
    CHECK_EQUAL(cfi_begin(&machine, &program), CFI_MALFORMED);
}

static void initial_instructions_may_not_advance_nor_restore(void) {
    expect_malformed_initial(CFI(DEF_CFA(RSP, 8), ADVANCE(1)));
    expect_malformed_initial(CFI(DEF_CFA(RSP, 8), SET_LOC(0x1000)));
    expect_malformed_initial(CFI(DEF_CFA(RSP, 8), RESTORE(RBX)));
    expect_malformed_initial(CFI(DEF_CFA(RSP, 8), RESTORE_EXTENDED(RBX)));
    expect_malformed_initial(CFI(RESTORE_STATE));
    expect_malformed_initial(CFI(0x0c, RSP));
}

static void without_initial_instructions_there_is_no_cfa(void) {
    begin(CFI(ADVANCE(4), DEF_CFA(RSP, 8)));
    program.initial_size = 0;
    CHECK_EQUAL(cfi_begin(&machine, &program), CFI_ROW);
    expect_row(0x1000, 0x1004);
    CHECK(!machine.rules.cfa_defined);
    expect_row(0x1004, 0x1100);
    CHECK(machine.rules.cfa_defined);
}

static void changes_of_registers_are_told(void) {
    begin(CFI(ADVANCE(1), DEF_CFA_OFFSET(16), ADVANCE(1), OFFSET(RBX, 2), ADVANCE(1), RESTORE(RBX)));
    expect_row(0x1000, 0x1001);
    CHECK_EQUAL(machine.changed, CFI_ALL_CHANGED);
    for (uint64_t start = 0x1001; start < 0x1004; start++) {
        machine.changed = 0;
        expect_row(start, start < 0x1003 ? start + 1 : 0x1100);
        CHECK_EQUAL(machine.changed, start > 0x1001 ? UINT64_C(1) << RBX : 0);
    }
}

static void encoded_pointers(void) {
    const uint8_t bytes[] = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
    const struct {
        uint8_t encoding;
        uint64_t value;
        size_t size;
    } cases[] = {
        {POINTER_ABSOLUTE, 0x7ffffffffffffffe, 8},
        {POINTER_UDATA8, 0x7ffffffffffffffe, 8},
        {POINTER_SDATA8, 0x7ffffffffffffffe, 8},
        {POINTER_SIGNED, 0x7ffffffffffffffe, 8},
        {POINTER_UDATA4, 0xfffffffe, 4},
        {POINTER_SDATA4, (uint64_t)-2, 4},
        {POINTER_UDATA2, 0xfffe, 2},
        {POINTER_SDATA2, (uint64_t)-2, 2},
        {POINTER_ULEB128, 0xfffffffffffffe, 8},
        {POINTER_SLEB128, (uint64_t)-2, 8},
        {0x10 | POINTER_UDATA2, 0xfffe, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cursor cursor = cursor_over(bytes, sizeof bytes);
        CHECK_EQUAL(read_encoded(&cursor, cases[i].encoding), cases[i].value);
        CHECK_EQUAL(sizeof bytes - cursor_left(&cursor), cases[i].size);
        CHECK(!cursor.failed);
    }
    for (uint8_t encoding = 5; encoding < 8; encoding++) {
        struct cursor cursor = cursor_over(bytes, sizeof bytes);
        read_encoded(&cursor, encoding);
        CHECK(cursor.failed);
    }
}

int main(void) {
    RUN(the_initial_instructions_make_the_first_row);
    RUN(rows_end_where_an_advance_leads);
    RUN(advances_are_counted_in_code_alignment_units);
    RUN(an_advance_of_nothing_makes_no_row);
    RUN(what_lies_beyond_the_function_is_left_out);
    RUN(set_loc_takes_an_address);
    RUN(a_location_never_goes_back);
    RUN(cfa_instructions);
    RUN(a_cfa_expression_lasts_until_the_next_definition);
    RUN(half_a_cfa_changes_only_what_was_register_and_offset);
    RUN(register_instructions);
    RUN(expressions_are_kept_as_blocks);
    RUN(restore_goes_back_to_the_initial_rule);
    RUN(remembered_states_hold_the_cfa_too_and_nest);
    RUN(remembering_is_bounded);
    RUN(a_state_remembered_by_the_cie_is_not_the_fdes);
    RUN(negate_ra_state_toggles_on_aarch64_only);
    RUN(untracked_registers_are_parsed_and_dropped);
    RUN(truncated_and_unknown_instructions_are_malformed);
    RUN(rows_before_the_malformed_part_hold);
    RUN(initial_instructions_may_not_advance_nor_restore);
    RUN(without_initial_instructions_there_is_no_cfa);
    RUN(changes_of_registers_are_told);
    RUN(encoded_pointers);
    return check_result();
}
