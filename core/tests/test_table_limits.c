/*
 * test_table_limits.c: files made to be slow or large: more rules than have numbers, pieces that run
 * one program again and again. What can't be kept is said more slowly or told, never wrongly.
 */
#include "cfi_writer.h"
#include "check.h"
#include "unspool.h"

static struct writer section, instructions;
static struct unspool_problems problems;
static struct unspool_table *table;
static struct unspool_row row;
static uint64_t cie;

static void begin(void) {
    writer_free(&section);
    writer_free(&instructions);
    cie = write_cie(&section, &x86_64_cie);
}

static void compile(void) {
    const struct unspool_section sections[] = {as_section(&section, UNSPOOL_EH_FRAME)};
    const struct unspool_compile_input input = {
        .arch = UNSPOOL_X86_64, .section_count = 1, .sections = sections};
    unspool_table_free(table);
    CHECK_EQUAL(unspool_table_compile(&input, &table, &problems), UNSPOOL_OK);
    CHECK_EQUAL(unspool_table_check(table, unspool_table_size(table)), UNSPOOL_OK);
}

static void write_cfa_offset(uint64_t offset) {
    write_u8(&instructions, 0x0e);
    write_uleb(&instructions, offset);
}

/* More distinct rules than 16 bits can number: the rest is exact, and says the same. Functions of 1,000
 * rows each; the last row of each ends the stack. */
static void more_rules_than_numbers(void) {
    enum { FUNCTIONS = 70, ROWS = 1000 };
    begin();
    for (uint64_t function = 0; function < FUNCTIONS; function++) {
        instructions.size = 0;
        for (uint64_t i = 0; i < ROWS; i++) {
            write_cfa_offset(8 + function * ROWS + i);
            write_u8(&instructions, ADVANCE(1));
        }
        write_bytes(&instructions, CFI(UNDEFINED(RIP)));
        write_fde(&section, cie, 0x1000 + 2 * ROWS * function, ROWS + 0x10, instructions.bytes,
                  instructions.size);
    }
    compile();
    CHECK_EQUAL(problems.count, 0);
    for (uint64_t i = 0; i < FUNCTIONS * ROWS; i += 97) {
        uint64_t address = 0x1000 + i / ROWS * 2 * ROWS + i % ROWS;
        CHECK_EQUAL(unspool_table_lookup(table, address, &row), UNSPOOL_OK);
        if (!(row.flags & UNSPOOL_ROW_EXACT)) {
            CHECK_EQUAL(row.cfa_offset, 8 + i);
            continue;
        }
        struct unspool_exact_row exact;
        CHECK(i > 60000);
        CHECK_EQUAL(unspool_table_exact(table, address, &exact), UNSPOOL_OK);
        CHECK_EQUAL(exact.cfa_register, RSP);
        CHECK_EQUAL(exact.cfa_offset, 8 + i);
    }
    uint64_t last = 0x1000 + (FUNCTIONS - 1) * 2 * ROWS;
    CHECK_EQUAL(unspool_table_lookup(table, last + ROWS - 1, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_EXACT);
    CHECK_EQUAL(unspool_table_lookup(table, last + ROWS + 8, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_EXACT | UNSPOOL_ROW_END); /* an end stays an end */
}

/* One long program, cut into many pieces by functions nested in it, would be run for each of them. */
static void many_pieces_of_a_long_program(void) {
    enum { NESTED = 5000, SIZE = 100000 };
    begin();
    for (uint64_t i = 0; i < SIZE; i++)
        write_u8(&instructions, NOP);
    write_fde(&section, cie, 0x1000, 16 * NESTED, instructions.bytes, instructions.size);
    for (uint64_t i = 0; i < NESTED; i++)
        write_fde(&section, cie, 0x1008 + 16 * i, 4, CFI(DEF_CFA_OFFSET(16)));
    compile();
    CHECK_EQUAL(unspool_table_lookup(table, 0x1000, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.flags, 0);
    CHECK_EQUAL(row.cfa_offset, 8);
    CHECK_EQUAL(unspool_table_lookup(table, 0x1008, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.cfa_offset, 16);
    uint64_t last_piece = 0x1000 + 16 * NESTED - 2;
    CHECK_EQUAL(unspool_table_lookup(table, last_piece, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_NONE); /* given up, and told */
    CHECK(problems.count > NESTED);
    CHECK(unspool_table_size(table) < 40 * section.size);
}

/* The same where each piece would keep the program for the exact evaluator. */
static void many_exact_pieces_of_a_long_program(void) {
    enum { NESTED = 2000, SIZE = 50000 };
    begin();
    write_bytes(&instructions, CFI(DEF_CFA(R10, 0)));
    for (uint64_t i = 0; i < SIZE; i++)
        write_u8(&instructions, NOP);
    write_fde(&section, cie, 0x1000, 16 * NESTED, instructions.bytes, instructions.size);
    for (uint64_t i = 0; i < NESTED; i++)
        write_fde(&section, cie, 0x1008 + 16 * i, 4, CFI(DEF_CFA_OFFSET(16)));
    compile();
    CHECK_EQUAL(unspool_table_lookup(table, 0x1000, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_EXACT);
    CHECK(unspool_table_size(table) < 40 * section.size);
}

/* The exact evaluator runs a function's program anew for every frame: one that is longer than any real one
 * is not kept for it. */
static void an_exact_program_of_absurd_length(void) {
    enum { SIZE = 1 << 17 };
    for (uint64_t extra = 0; extra < 2; extra++) {
        begin();
        write_bytes(&instructions, CFI(ADVANCE(4), DEF_CFA(R10, 0)));
        while (instructions.size < SIZE - sizeof x86_64_initial + extra)
            write_u8(&instructions, NOP);
        write_fde(&section, cie, 0x1000, 0x20, instructions.bytes, instructions.size);
        compile();
        CHECK_EQUAL(problems.count, extra);
        if (extra)
            CHECK_EQUAL(problems.first[0].kind, UNSPOOL_PROBLEM_INSTRUCTION);
        CHECK_EQUAL(unspool_table_lookup(table, 0x1000, &row), UNSPOOL_OK);
        CHECK_EQUAL(row.flags, 0); /* what a rule can say holds */
        CHECK_EQUAL(unspool_table_lookup(table, 0x1004, &row), UNSPOOL_OK);
        CHECK_EQUAL(row.flags, extra ? UNSPOOL_ROW_NONE : UNSPOOL_ROW_EXACT);
    }
}

/* Two far functions: pages must not be made for the gap between them. */
static void functions_far_apart(void) {
    begin();
    write_fde(&section, cie, 0x100, 0x20, NO_CFI);
    write_fde(&section, cie, 0xffffff00, 0x20, CFI(DEF_CFA_OFFSET(16)));
    compile();
    CHECK(unspool_table_size(table) < 4096);
    CHECK_EQUAL(unspool_table_lookup(table, 0x110, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.cfa_offset, 8);
    CHECK_EQUAL(unspool_table_lookup(table, 0xffffff10, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.cfa_offset, 16);
    CHECK_EQUAL(unspool_table_lookup(table, 0x80000000, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_NONE);
}

int main(void) {
    RUN(more_rules_than_numbers);
    RUN(many_pieces_of_a_long_program);
    RUN(many_exact_pieces_of_a_long_program);
    RUN(an_exact_program_of_absurd_length);
    RUN(functions_far_apart);
    unspool_table_free(table);
    writer_free(&section);
    writer_free(&instructions);
    return check_result();
}
