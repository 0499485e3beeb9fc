/*
 * test_table.c: compiling sections into a table and looking up in it (table_build.c,
 * unwind_table.c): what a row says, where rows begin and end, which rows need the exact evaluator.
 */
#include "cfi_writer.h"
#include "check.h"
#include "unspool.h"

static struct writer eh_frame, debug_frame;
static struct unspool_compile_input input;
static struct unspool_problems problems;
static struct unspool_table *table;
static struct unspool_row row;
static struct unspool_exact_row exact;
static uint64_t cie;

static void begin(uint32_t arch) {
    writer_free(&eh_frame);
    writer_free(&debug_frame);
    input = (struct unspool_compile_input){.arch = arch};
    cie = write_cie(&eh_frame, arch == UNSPOOL_AARCH64 ? &aarch64_cie : &x86_64_cie);
}

static void compile(void) {
    const struct unspool_section sections[] = {as_section(&eh_frame, UNSPOOL_EH_FRAME),
                                               as_section(&debug_frame, UNSPOOL_DEBUG_FRAME)};
    input.sections = sections;
    input.section_count = debug_frame.size ? 2 : 1;
    unspool_table_free(table);
    CHECK_EQUAL(unspool_table_compile(&input, &table, &problems), UNSPOOL_OK);
    CHECK_EQUAL(unspool_table_check(table, unspool_table_size(table)), UNSPOOL_OK);
}

static void function(uint64_t start, uint64_t size, const uint8_t *instructions, size_t instructions_size) {
    write_fde(&eh_frame, cie, start, size, instructions, instructions_size);
}

/* One function 0x1000..0x1020 with these instructions; row becomes its first. */
static void compile_one(uint32_t arch, const uint8_t *instructions, size_t size) {
    begin(arch);
    function(0x1000, 0x20, instructions, size);
    compile();
    CHECK_EQUAL(unspool_table_lookup(table, 0x1000, &row), UNSPOOL_OK);
}

static void expect_row(uint64_t address, uint64_t start, uint64_t end, uint8_t flags) {
    CHECK_EQUAL(unspool_table_lookup(table, address, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.start, start);
    CHECK_EQUAL(row.end, end);
    CHECK_EQUAL(row.flags, flags);
}

static void expect_cfa(uint8_t base, int32_t offset) {
    CHECK_EQUAL(row.cfa_base, base);
    CHECK_EQUAL(row.cfa_offset, offset);
}

static void expect_saved(uint8_t ra, int32_t ra_offset, uint8_t fp, int32_t fp_offset) {
    CHECK_EQUAL(row.ra, ra);
    CHECK_EQUAL(row.ra_offset, ra_offset);
    CHECK_EQUAL(row.fp, fp);
    CHECK_EQUAL(row.fp_offset, fp_offset);
}

static void a_function_that_pushes_rbp(void) {
    begin(UNSPOOL_X86_64);
    function(0x1000, 0x20,
             CFI(ADVANCE(1), DEF_CFA_OFFSET(16), OFFSET(RBP, 2), ADVANCE(3), DEF_CFA_REGISTER(RBP),
                 ADVANCE(0x1b), DEF_CFA(RSP, 8)));
    compile();
    expect_row(0x1000, 0x1000, 0x1001, 0);
    expect_cfa(UNSPOOL_CFA_SP, 8);
    expect_saved(UNSPOOL_SAVED_AT_CFA, -8, UNSPOOL_SAVED_SAME, 0);
    expect_row(0x1003, 0x1001, 0x1004, 0);
    expect_cfa(UNSPOOL_CFA_SP, 16);
    expect_saved(UNSPOOL_SAVED_AT_CFA, -8, UNSPOOL_SAVED_AT_CFA, -16);
    expect_row(0x1004, 0x1004, 0x101f, 0);
    expect_cfa(UNSPOOL_CFA_FP, 16);
    expect_row(0x101f, 0x101f, 0x1020, 0);
    expect_cfa(UNSPOOL_CFA_SP, 8);
}

static void a_signed_function_with_a_frame_record(void) {
    begin(UNSPOOL_AARCH64);
    function(0x1000, 0x20,
             CFI(ADVANCE(1), NEGATE_RA_STATE, ADVANCE(1), DEF_CFA_OFFSET(32), OFFSET(X29, 4), OFFSET(X30, 3),
                 ADVANCE(4), RESTORE(X29), RESTORE(X30), DEF_CFA_OFFSET(0), ADVANCE(1), NEGATE_RA_STATE));
    compile();
    expect_row(0x1000, 0x1000, 0x1004, 0);
    expect_cfa(UNSPOOL_CFA_SP, 0);
    expect_saved(UNSPOOL_SAVED_SAME, 0, UNSPOOL_SAVED_SAME, 0);
    expect_row(0x1004, 0x1004, 0x1008, UNSPOOL_ROW_SIGNED);
    expect_saved(UNSPOOL_SAVED_SAME, 0, UNSPOOL_SAVED_SAME, 0);
    expect_row(0x1008, 0x1008, 0x1018, UNSPOOL_ROW_SIGNED);
    expect_cfa(UNSPOOL_CFA_SP, 32);
    expect_saved(UNSPOOL_SAVED_AT_CFA, -24, UNSPOOL_SAVED_AT_CFA, -32);
    expect_row(0x1018, 0x1018, 0x101c, UNSPOOL_ROW_SIGNED);
    expect_cfa(UNSPOOL_CFA_SP, 0);
    expect_row(0x101c, 0x101c, 0x1020, 0);
}

static void outside_of_functions_nothing_is_known(void) {
    begin(UNSPOOL_X86_64);
    function(0x1010, 0x10, NO_CFI);
    function(0x1030, 0x10, CFI(DEF_CFA_OFFSET(16)));
    compile();
    CHECK_EQUAL(unspool_table_lookup(table, 0xfff, &row), UNSPOOL_NOT_FOUND);
    CHECK_EQUAL(unspool_table_lookup(table, 0, &row), UNSPOOL_NOT_FOUND);
    CHECK_EQUAL(unspool_table_lookup(table, UINT64_MAX, &row), UNSPOOL_NOT_FOUND);
    CHECK_EQUAL(unspool_table_lookup(table, 0x100f, &row), UNSPOOL_NOT_FOUND);
    expect_row(0x1010, 0x1010, 0x1020, 0);
    expect_row(0x1020, 0x1020, 0x1030, UNSPOOL_ROW_NONE);
    expect_row(0x103f, 0x1030, 0x1040, 0);
    CHECK_EQUAL(unspool_table_lookup(table, 0x1040, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_NONE);
    CHECK_EQUAL(unspool_table_lookup(table, 0x2000, &row), UNSPOOL_NOT_FOUND);
    CHECK_EQUAL(unspool_table_lookup(table, (uint64_t)1 << 32 | 0x1010, &row), UNSPOOL_NOT_FOUND);
    CHECK_EQUAL(unspool_table_exact(table, 0x1010, &exact), UNSPOOL_NOT_FOUND);
}

static void gaps_are_told_by_their_size(void) {
    struct unspool_row gaps[2] = {{0}};
    begin(UNSPOOL_X86_64);
    function(0x1000, 0x10, NO_CFI);
    function(0x1020, 0x20, CFI(ADVANCE(8), DEF_CFA_OFFSET(16)));
    function(0x1060, 0xa0, NO_CFI);
    compile();
    CHECK_EQUAL(unspool_table_gaps(table, 0x101, gaps, 2), 0);
    CHECK_EQUAL(gaps[0].end, 0);
    CHECK_EQUAL(unspool_table_gaps(table, 0x21, gaps, 2), 1); /* behind the last function */
    CHECK_EQUAL(gaps[0].start, 0x1100);
    CHECK_EQUAL(unspool_table_gaps(table, 0x20, gaps, 2), 2);
    CHECK_EQUAL(gaps[0].start, 0x1040);
    CHECK_EQUAL(gaps[0].end, 0x1060);
    CHECK_EQUAL(gaps[0].flags, UNSPOOL_ROW_NONE);
    CHECK_EQUAL(unspool_table_gaps(table, 0x10, gaps, 1), 3);
    CHECK_EQUAL(gaps[0].start, 0x1010);
    CHECK_EQUAL(unspool_table_gaps(table, 0x10, NULL, 0), 3);
}

static void rows_that_say_the_same_are_one(void) {
    begin(UNSPOOL_X86_64);
    function(0x1000, 0x20, CFI(ADVANCE(4), DEF_CFA_OFFSET(8), ADVANCE(4), OFFSET(R8 + 9, 3)));
    compile();
    expect_row(0x1000, 0x1000, 0x1020, 0);
    CHECK_EQUAL(unspool_table_row_count(table), 2);
    struct unspool_row rows[4];
    CHECK_EQUAL(unspool_table_rows(table, 0, rows, 4), 2);
    CHECK_EQUAL(rows[1].start, 0x1020);
    CHECK_EQUAL(rows[1].flags, UNSPOOL_ROW_NONE);
    CHECK_EQUAL(unspool_table_rows(table, 1, rows, 4), 1);
    CHECK_EQUAL(rows[0].start, 0x1020);
    CHECK_EQUAL(unspool_table_rows(table, 0, rows, 1), 1);
    CHECK_EQUAL(unspool_table_rows(table, 2, rows, 4), 0);
    CHECK_EQUAL(unspool_table_rows(table, UINT64_MAX, rows, 4), 0);
}

/* Functions of all sizes and gaps, near and far: each address near a border finds its own row. */
static void lookups_in_a_large_table(void) {
    enum { COUNT = 3000 };
    static uint64_t starts[COUNT], ends[COUNT];
    uint64_t state = 1, at = 0x1234;
    begin(UNSPOOL_X86_64);
    for (uint32_t i = 0; i < COUNT; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        at += state >> 60 ? state >> 33 & 0x7f : state >> 33 & 0xfffff;
        starts[i] = at;
        at += 1 + (state >> 40 & 0xff);
        ends[i] = at;
        function(starts[i], ends[i] - starts[i], CFI(DEF_CFA_OFFSET(ULEB2(8 + i))));
    }
    compile();
    for (uint32_t i = 0; i < COUNT; i++) {
        expect_row(starts[i], starts[i], ends[i], 0);
        expect_cfa(UNSPOOL_CFA_SP, (int32_t)(8 + i));
        expect_row(ends[i] - 1, starts[i], ends[i], 0);
        if (i + 1 < COUNT && starts[i + 1] > ends[i]) {
            expect_row(ends[i], ends[i], starts[i + 1], UNSPOOL_ROW_NONE);
            expect_row(starts[i + 1] - 1, ends[i], starts[i + 1], UNSPOOL_ROW_NONE);
        }
    }
    CHECK_EQUAL(problems.count, 0);
}

static void what_no_rule_can_say_is_exact(void) {
    const struct {
        uint8_t size;
        uint8_t instructions[15];
    } cases[] = {
        {3, {DEF_CFA(R10, 0)}},                                /* CFA in another register */
        {4, {DEF_CFA_EXPRESSION(2), OP_BREG0 + RBP, 0}},       /* CFA by an expression */
        {3, {IN_REGISTER(RIP, RDI)}},                          /* return address in a register */
        {4, {EXPRESSION(RIP, 1), OP_LIT0}},                    /* by an expression */
        {4, {VAL_EXPRESSION(RIP, 1), OP_LIT0}},                /* by its value */
        {2, {SAME_VALUE(RIP)}},                                /* which no register holds */
        {3, {IN_REGISTER(RBP, RBX)}},                          /* fp in a register */
        {4, {EXPRESSION(RBP, 1), OP_LIT0}},                    /* fp by an expression */
        {4, {EXPRESSION(R12, 1), OP_LIT0}},                    /* another callee-saved register, too */
        {3, {OFFSET(R8, 3), NOP}},                             /* a register that a call may change */
        {3, {VAL_OFFSET(RSP, 2)}},                             /* sp is not the CFA */
        {7, {OFFSET(RBP, 0xff), 0xff, 0xff, 0xff, 0x7f, NOP}}, /* a slot that is too far away */
        {6, {DEF_CFA_OFFSET(0x80), 0x80, 0x80, 0x80, 0x08}},   /* CFA = rsp + 2 GiB */
        {2, {OFFSET(RBX, 0)}},                                 /* a slot at the CFA itself */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        compile_one(UNSPOOL_X86_64, cases[i].instructions, cases[i].size);
        CHECK_EQUAL(row.flags, UNSPOOL_ROW_EXACT);
        CHECK_EQUAL(unspool_table_exact(table, 0x1000, &exact), UNSPOOL_OK);
        CHECK_EQUAL(exact.start, 0x1000);
        CHECK_EQUAL(exact.end, 0x1020);
    }
    compile_one(UNSPOOL_AARCH64, CFI(OFFSET(X16, 3)));
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_EXACT);
    compile_one(UNSPOOL_AARCH64, CFI(IN_REGISTER(X30, X16)));
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_EXACT);
}

static void an_offset_that_is_no_multiple_of_8_is_exact(void) {
    begin(UNSPOOL_X86_64);
    struct cie_shape shape = x86_64_cie;
    shape.data_alignment = -4;
    cie = write_cie(&eh_frame, &shape);
    function(0x1000, 0x20, CFI(OFFSET(RIP, 2), OFFSET(RBP, 3)));
    compile();
    expect_row(0x1000, 0x1000, 0x1020, UNSPOOL_ROW_EXACT);
}

/* Slots are kept in 16 bits, of which the lowest number says "unknown". */
static void slots_up_to_the_limit(void) {
    compile_one(UNSPOOL_X86_64, CFI(0x11, RBP, 0x81, 0x80, 0x7e)); /* -32767 * -8 */
    CHECK_EQUAL(row.flags, 0);
    CHECK_EQUAL(row.fp_offset, 32767 * 8);
    compile_one(UNSPOOL_X86_64, CFI(0x11, RBP, 0x80, 0x80, 0x7e));
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_EXACT);
    compile_one(UNSPOOL_X86_64, CFI(OFFSET(RBP, ULEB3(32767))));
    CHECK_EQUAL(row.flags, 0);
    CHECK_EQUAL(row.fp_offset, -32767 * 8);
    compile_one(UNSPOOL_X86_64, CFI(OFFSET(RBP, ULEB3(32768))));
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_EXACT);
}

static void what_a_rule_can_say_is_not_exact(void) {
    compile_one(UNSPOOL_X86_64, CFI(UNDEFINED(RAX), UNDEFINED(R8), OFFSET(RBX, 3), OFFSET(R15, 4),
                                    SAME_VALUE(R12), UNDEFINED(R13), OFFSET(17, 5), DEF_CFA_OFFSET(12)));
    CHECK_EQUAL(row.flags, 0);
    expect_cfa(UNSPOOL_CFA_SP, 12);
    compile_one(UNSPOOL_X86_64, CFI(UNDEFINED(RBP)));
    CHECK_EQUAL(row.flags, 0);
    expect_saved(UNSPOOL_SAVED_AT_CFA, -8, UNSPOOL_SAVED_UNKNOWN, 0);
    compile_one(UNSPOOL_AARCH64, CFI(OFFSET(X19, 2), OFFSET(X28, 1), SAME_VALUE(X30), DEF_CFA_OFFSET(16)));
    CHECK_EQUAL(row.flags, 0);
    expect_saved(UNSPOOL_SAVED_SAME, 0, UNSPOOL_SAVED_SAME, 0);
}

static void exact_rows_are_spelled_out(void) {
    begin(UNSPOOL_X86_64);
    function(0x1000, 0x20,
             CFI(ADVANCE(4), DEF_CFA(R10, 0), IN_REGISTER(RIP, RDX), VAL_OFFSET(RSP, 1), ADVANCE(4),
                 DEF_CFA_EXPRESSION(3), OP_BREG0 + RBP, SLEB(-8), OP_DEREF, EXPRESSION(RBP, 2),
                 OP_BREG0 + RBP, 0));
    compile();
    expect_row(0x1000, 0x1000, 0x1004, 0);
    expect_row(0x1004, 0x1004, 0x1020, UNSPOOL_ROW_EXACT);
    CHECK_EQUAL(unspool_table_exact(table, 0x1007, &exact), UNSPOOL_OK);
    CHECK_EQUAL(exact.start, 0x1004);
    CHECK_EQUAL(exact.end, 0x1008);
    CHECK_EQUAL(exact.cfa_register, R10);
    CHECK_EQUAL(exact.cfa_offset, 0);
    CHECK_EQUAL(exact.cfa_expression_size, 0);
    CHECK_EQUAL(exact.return_address_register, RIP);
    CHECK_EQUAL(exact.rules[RIP].kind, UNSPOOL_EXACT_REGISTER);
    CHECK_EQUAL(exact.rules[RIP].value, RDX);
    CHECK_EQUAL(exact.rules[RSP].kind, UNSPOOL_EXACT_VAL_OFFSET);
    CHECK_EQUAL(exact.rules[RSP].value, -8);
    CHECK_EQUAL(exact.rules[RBX].kind, UNSPOOL_EXACT_UNSPECIFIED);
    CHECK_EQUAL(unspool_table_exact(table, 0x101f, &exact), UNSPOOL_OK);
    CHECK_EQUAL(exact.cfa_expression_size, 3);
    CHECK_EQUAL(exact.cfa_expression[2], OP_DEREF);
    CHECK_EQUAL(exact.rules[RBP].kind, UNSPOOL_EXACT_EXPRESSION);
    CHECK_EQUAL(exact.rules[RBP].expression_size, 2);
    CHECK_EQUAL(exact.rules[RBP].expression[0], OP_BREG0 + RBP);
    CHECK_EQUAL(unspool_table_exact(table, 0x1020, &exact), UNSPOOL_NOT_FOUND);
    CHECK_EQUAL(unspool_table_exact(table, 0xfff, &exact), UNSPOOL_NOT_FOUND);
}

static void an_undefined_return_address_ends_the_stack(void) {
    compile_one(UNSPOOL_X86_64, CFI(UNDEFINED(RIP)));
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_END);
    compile_one(UNSPOOL_AARCH64, CFI(UNDEFINED(X30)));
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_END);
    compile_one(UNSPOOL_X86_64, CFI(UNDEFINED(RIP), DEF_CFA(R10, 0)));
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_END | UNSPOOL_ROW_EXACT);
}

static void the_entry_points_first_byte_ends_the_stack(void) {
    begin(UNSPOOL_X86_64);
    input.image_address = 0x400000;
    input.entry_address = 0x401000;
    function(0x400ff0, 0x40, NO_CFI);
    compile();
    expect_row(0xfff, 0xff0, 0x1000, 0);
    expect_row(0x1000, 0x1000, 0x1001, UNSPOOL_ROW_END);
    expect_row(0x1001, 0x1001, 0x1030, 0);
    input.entry_address = 0x40102f; /* the last byte */
    compile();
    expect_row(0x102f, 0x102f, 0x1030, UNSPOOL_ROW_END);
    expect_row(0x1030, 0x1030, 0x1100, UNSPOOL_ROW_NONE);
    input.entry_address = 0x401030; /* behind it */
    compile();
    expect_row(0x102f, 0xff0, 0x1030, 0);
    expect_row(0x1030, 0x1030, 0x1100, UNSPOOL_ROW_NONE);
    input.entry_address = 0x400100; /* no row is there */
    compile();
    expect_row(0xff0, 0xff0, 0x1030, 0);
}

static void flags_say_where_a_row_comes_from(void) {
    struct cie_shape signal = x86_64_cie;
    signal.augmentation = "S";
    begin(UNSPOOL_X86_64);
    uint64_t signal_cie = write_cie(&eh_frame, &signal);
    write_fde(&eh_frame, signal_cie, 0x1000, 0x20, NO_CFI);
    function(0x1040, 0x20, NO_CFI);
    signal.kind = UNSPOOL_DEBUG_FRAME;
    uint64_t debug_cie = write_cie(&debug_frame, &signal);
    write_debug_fde(&debug_frame, debug_cie, 0x1010, 0x60, CFI(DEF_CFA_OFFSET(32)));
    compile();
    expect_row(0x101f, 0x1000, 0x1020, UNSPOOL_ROW_SIGNAL);
    expect_row(0x1020, 0x1020, 0x1040, UNSPOOL_ROW_DEBUG_FRAME | UNSPOOL_ROW_SIGNAL);
    expect_cfa(UNSPOOL_CFA_SP, 32);
    expect_row(0x1040, 0x1040, 0x1060, 0);
    expect_row(0x1060, 0x1060, 0x1070, UNSPOOL_ROW_DEBUG_FRAME | UNSPOOL_ROW_SIGNAL);
    CHECK_EQUAL(problems.count, 0);
}

static void no_cfa_no_row(void) {
    begin(UNSPOOL_X86_64);
    struct cie_shape empty = x86_64_cie;
    empty.instructions_size = 0;
    cie = write_cie(&eh_frame, &empty);
    function(0x1000, 0x20, CFI(ADVANCE(8), DEF_CFA(RSP, 8), OFFSET(RIP, 1)));
    compile();
    expect_row(0x1000, 0x1000, 0x1008, UNSPOOL_ROW_NONE);
    expect_row(0x1008, 0x1008, 0x1020, 0);
}

static void behind_a_malformed_instruction_nothing_is_known(void) {
    begin(UNSPOOL_X86_64);
    function(0x1000, 0x20, CFI(ADVANCE(4), DEF_CFA_OFFSET(16), ADVANCE(4), 0x3f));
    function(0x1020, 0x20, NO_CFI);
    compile();
    CHECK_EQUAL(problems.count, 1);
    CHECK_EQUAL(problems.first[0].kind, UNSPOOL_PROBLEM_INSTRUCTION);
    expect_row(0x1004, 0x1004, 0x1008, 0);
    expect_row(0x1008, 0x1008, 0x1020, UNSPOOL_ROW_NONE);
    expect_row(0x1020, 0x1020, 0x1040, 0);
}

static void what_lies_4_gib_away_is_left_out(void) {
    begin(UNSPOOL_X86_64);
    input.image_address = 0x10000;
    function(0x10000 + UINT64_C(0xffffff00), 0xff, NO_CFI);
    function(0x10000 + UINT64_C(0xffffffff), 1, NO_CFI);
    function(0x8000, 0x20, NO_CFI); /* below the image */
    function(0x11000, 0x20, NO_CFI);
    compile();
    CHECK_EQUAL(problems.count, 2);
    CHECK_EQUAL(problems.first[0].kind, UNSPOOL_PROBLEM_RANGE);
    expect_row(0x1000, 0x1000, 0x1020, 0);
    expect_row(0xfffffffe, 0xffffff00, 0xffffffff, 0);
}

static void nothing_makes_an_empty_table(void) {
    input = (struct unspool_compile_input){.arch = UNSPOOL_AARCH64};
    unspool_table_free(table);
    CHECK_EQUAL(unspool_table_compile(&input, &table, &problems), UNSPOOL_OK);
    CHECK_EQUAL(unspool_table_check(table, unspool_table_size(table)), UNSPOOL_OK);
    CHECK_EQUAL(unspool_table_row_count(table), 0);
    CHECK_EQUAL(unspool_table_lookup(table, 0, &row), UNSPOOL_NOT_FOUND);
    CHECK_EQUAL(unspool_table_exact(table, 0, &exact), UNSPOOL_NOT_FOUND);
    unspool_table_free(table);
    input.arch = 3;
    CHECK_EQUAL(unspool_table_compile(&input, &table, &problems), UNSPOOL_BAD_ARGUMENT);
    CHECK(table == NULL);
    unspool_table_free(NULL);
}

static void a_table_may_be_moved(void) {
    begin(UNSPOOL_X86_64);
    function(0x1000, 0x20, CFI(ADVANCE(1), DEF_CFA(R10, 8)));
    compile();
    struct unspool_table *moved = malloc(unspool_table_size(table));
    memcpy(moved, table, unspool_table_size(table));
    memset(table, 0xff, unspool_table_size(table));
    unspool_table_free(table);
    table = moved;
    expect_row(0x1000, 0x1000, 0x1001, 0);
    expect_row(0x1001, 0x1001, 0x1020, UNSPOOL_ROW_EXACT);
    CHECK_EQUAL(unspool_table_exact(table, 0x1001, &exact), UNSPOOL_OK);
    CHECK_EQUAL(exact.cfa_register, R10);
}

int main(void) {
    RUN(a_function_that_pushes_rbp);
    RUN(a_signed_function_with_a_frame_record);
    RUN(outside_of_functions_nothing_is_known);
    RUN(gaps_are_told_by_their_size);
    RUN(rows_that_say_the_same_are_one);
    RUN(lookups_in_a_large_table);
    RUN(what_no_rule_can_say_is_exact);
    RUN(an_offset_that_is_no_multiple_of_8_is_exact);
    RUN(slots_up_to_the_limit);
    RUN(what_a_rule_can_say_is_not_exact);
    RUN(exact_rows_are_spelled_out);
    RUN(an_undefined_return_address_ends_the_stack);
    RUN(the_entry_points_first_byte_ends_the_stack);
    RUN(flags_say_where_a_row_comes_from);
    RUN(no_cfa_no_row);
    RUN(behind_a_malformed_instruction_nothing_is_known);
    RUN(what_lies_4_gib_away_is_left_out);
    RUN(nothing_makes_an_empty_table);
    RUN(a_table_may_be_moved);
    unspool_table_free(table);
    writer_free(&eh_frame);
    writer_free(&debug_frame);
    return check_result();
}
