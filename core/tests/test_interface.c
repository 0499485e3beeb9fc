/*
 * test_interface.c: the public functions together, on the smallest input that has a meaning: one function
 * of four rows, compiled, checked, looked up and walked through.
 */
#include <stdlib.h>

#include "check.h"
#include "unspool.h"

/* CIE: version 1, code alignment 1, data alignment -8, return address in 16; CFA = rsp+8, rip at
 * CFA-8. FDE: [0x1000, 0x1010); push rbp at 0, mov rsp,rbp at 1, pop rbp at 0xe, ret at 0xf. */
static const uint8_t EH_FRAME[] = {
    0x14, 0,    0,    0,                       /* CIE: length */
    0,    0,    0,    0,                       /* is a CIE */
    1,    'z',  'R',  0,    1, 0x78, 16,       /* version, augmentation, alignments, ra */
    1,    0,                                   /* pointers are absolute, 8 bytes */
    0x0c, 7,    8,    0x90, 1, 0,    0,        /* def_cfa rsp+8; offset rip, 1; nop */
    0x28, 0,    0,    0,                       /* FDE: length */
    0x1c, 0,    0,    0,                       /* its CIE is so far back */
    0,    0x10, 0,    0,    0, 0,    0,  0,    /* from 0x1000 */
    0x10, 0,    0,    0,    0, 0,    0,  0,    /* 16 bytes */
    0,                                         /* no augmentation data */
    0x41, 0x0e, 16,   0x86, 2,                 /* +1: def_cfa_offset 16; offset rbp, 2 */
    0x43, 0x0d, 6,                             /* +3: def_cfa_register rbp */
    0x4b, 0xc6, 0x0c, 7,    8, 0,    0,  0, 0, /* +11: restore rbp; def_cfa rsp+8 */
    0,    0,
};

static struct unspool_table *compile_example(struct unspool_problems *problems) {
    const struct unspool_section section = {
        .bytes = EH_FRAME, .size = sizeof EH_FRAME, .address = 0x2000, .kind = UNSPOOL_EH_FRAME};
    const struct unspool_compile_input input = {
        .arch = UNSPOOL_X86_64, .section_count = 1, .sections = &section};
    struct unspool_table *table = NULL;
    CHECK_EQUAL(unspool_table_compile(&input, &table, problems), UNSPOOL_OK);
    return table;
}

static void check_row(const struct unspool_table *table, uint64_t address, uint64_t start, uint64_t end,
                      uint8_t base, int32_t offset, uint8_t fp) {
    struct unspool_row row;
    if (!CHECK_EQUAL(unspool_table_lookup(table, address, &row), UNSPOOL_OK))
        return;
    CHECK_EQUAL(row.start, start);
    CHECK_EQUAL(row.end, end);
    CHECK_EQUAL(row.cfa_base, base);
    CHECK_EQUAL(row.cfa_offset, offset);
    CHECK_EQUAL(row.ra, UNSPOOL_SAVED_AT_CFA);
    CHECK_EQUAL(row.ra_offset, -8);
    CHECK_EQUAL(row.fp, fp);
    CHECK_EQUAL(row.flags, 0);
}

/* No row, or one that says that nothing is known. */
static bool says_nothing(const struct unspool_table *table, uint64_t address) {
    struct unspool_row row;
    return unspool_table_lookup(table, address, &row) == UNSPOOL_NOT_FOUND || row.flags == UNSPOOL_ROW_NONE;
}

static void rows_are_found(void) {
    struct unspool_problems problems;
    struct unspool_table *table = compile_example(&problems);
    CHECK_EQUAL(problems.count, 0);
    check_row(table, 0x1000, 0x1000, 0x1001, UNSPOOL_CFA_SP, 8, UNSPOOL_SAVED_SAME);
    check_row(table, 0x1003, 0x1001, 0x1004, UNSPOOL_CFA_SP, 16, UNSPOOL_SAVED_AT_CFA);
    check_row(table, 0x1004, 0x1004, 0x100f, UNSPOOL_CFA_FP, 16, UNSPOOL_SAVED_AT_CFA);
    check_row(table, 0x100f, 0x100f, 0x1010, UNSPOOL_CFA_SP, 8, UNSPOOL_SAVED_SAME);
    CHECK(says_nothing(table, 0xfff));
    CHECK(says_nothing(table, 0x1010));
    unspool_table_free(table);
}

static void a_copy_is_checked(void) {
    struct unspool_problems problems;
    struct unspool_table *table = compile_example(&problems);
    uint64_t size = unspool_table_size(table);
    uint64_t *copy = calloc(1, size + 8);
    memcpy(copy, table, size);
    CHECK_EQUAL(unspool_table_check(copy, size), UNSPOOL_OK);
    for (uint64_t shorter = 0; shorter < size; shorter++)
        CHECK_EQUAL(unspool_table_check(copy, shorter), UNSPOOL_BAD_TABLE);
    free(copy);
    unspool_table_free(table);
}

static void nothing_makes_an_empty_table(void) {
    const struct unspool_compile_input input = {.arch = UNSPOOL_AARCH64};
    struct unspool_problems problems;
    struct unspool_table *table = NULL;
    CHECK_EQUAL(unspool_table_compile(&input, &table, &problems), UNSPOOL_OK);
    CHECK_EQUAL(unspool_table_row_count(table), 0);
    CHECK_EQUAL(unspool_table_check(table, unspool_table_size(table)), UNSPOOL_OK);
    unspool_table_free(table);
}

/* The function at 0x7000'1000 calls itself once; its caller's caller is nowhere. */
static void a_stack_is_walked(void) {
    struct unspool_problems problems;
    struct unspool_table *table = compile_example(&problems);
    const struct unspool_module module = {
        .start = 0x70001000, .end = 0x70001010, .image_base = 0x70000000, .table = table};
    const struct unspool_unwinder unwinder = {
        .arch = UNSPOOL_X86_64, .address_bits = 47, .modules = &module, .module_count = 1};
    const uint64_t words[] = {0x9020, 0x70001008, 0, 0, 0x9040, 0x4cd, 0, 0};
    struct unspool_memory memory = {
        .stack = {.address = 0x9000, .size = sizeof words, .bytes = (const uint8_t *)words}};
    struct unspool_registers registers = {.known = 1u << UNSPOOL_X86_64_RSP | 1u << UNSPOOL_X86_64_PC |
                                                   1u << UNSPOOL_X86_64_RBP};
    registers.value[UNSPOOL_X86_64_PC] = 0x70001005;
    registers.value[UNSPOOL_X86_64_RSP] = registers.value[UNSPOOL_X86_64_RBP] = 0x9000;
    uint64_t addresses[8];
    uint8_t how[8];
    struct unspool_stack stack = {.addresses = addresses, .how = how, .capacity = 8};
    unspool_walk(&unwinder, &registers, &memory, &stack);
    CHECK_EQUAL(stack.count, 2);
    CHECK_EQUAL(stack.end, UNSPOOL_END_BAD_RETURN_ADDRESS);
    CHECK_EQUAL(addresses[0], 0x70001005);
    CHECK_EQUAL(addresses[1], 0x70001008);
    CHECK_EQUAL(how[0], UNSPOOL_HOW_INTERRUPTED);
    CHECK_EQUAL(how[1], UNSPOOL_HOW_CFI);

    uint32_t step_how = 0, end = 0;
    CHECK_EQUAL(unspool_step(&unwinder, &registers, &memory, &step_how, &end), 1);
    CHECK_EQUAL(registers.value[UNSPOOL_X86_64_PC], 0x70001008);
    CHECK_EQUAL(registers.value[UNSPOOL_X86_64_RSP], 0x9010);
    CHECK_EQUAL(registers.value[UNSPOOL_X86_64_RBP], 0x9020);
    CHECK_EQUAL(registers.pc_is_return_address, 1);
    unspool_table_free(table);
}

int main(void) {
    RUN(rows_are_found);
    RUN(a_copy_is_checked);
    RUN(nothing_makes_an_empty_table);
    RUN(a_stack_is_walked);
    return check_result();
}
