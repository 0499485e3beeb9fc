/*
 * test_expression.c: DWARF expressions (expression.c): every operation, and the limits.
 */
#include "cfi_program.h"
#include "cfi_writer.h"
#include "check.h"
#include "exact.h"

#define WORDS_AT 0x7000u
static const uint64_t words[] = {0x1122334455667788, 0x7008, 0xfedcba9876543210, 42};
static const struct unspool_table table = {.image_address = 0x400000};
static struct unspool_registers registers;
static struct unspool_memory memory;
static uint64_t result, bad_address;
static struct expression_run limits;

static enum exact_status run(const uint64_t *push, const uint8_t *operations, size_t size) {
    registers = (struct unspool_registers){.known = 1u << RBX | 1u << RSP | 1u << RIP};
    registers.value[RBX] = 0x1000;
    registers.value[RSP] = WORDS_AT;
    registers.value[RIP] = 0x40100b;
    memory.stack = (struct unspool_region){WORDS_AT, sizeof words, (const uint8_t *)words};
    const struct exact_input input = {
        .arch = UNSPOOL_X86_64, .table = &table, .image_base = 0x555000000000, .memory = &memory};
    uint8_t *copy = malloc(size ? size : 1); /* of exactly its size, for ASan */
    if (size)
        memcpy(copy, operations, size);
    result = 0xbad;
    limits = (struct expression_run){EXPRESSION_STEPS, 0xbad};
    enum exact_status status =
        evaluate_expression(&input, cursor_over(copy, size), &registers, push, &limits, &result);
    bad_address = limits.bad_address;
    free(copy);
    return status;
}

static void expect(uint64_t value, const uint8_t *operations, size_t size) {
    CHECK_EQUAL(run(NULL, operations, size), EXACT_OK);
    CHECK_EQUAL(result, value);
}

static void expect_failure(enum exact_status status, const uint8_t *operations, size_t size) {
    CHECK_EQUAL(run(NULL, operations, size), status);
    CHECK_EQUAL(result, 0xbad);
}

#define LIT(n) (0x30 + (n))
#define CONST8(n) 0x0e, U64(n)

static void constants(void) {
    for (uint8_t n = 0; n < 32; n++)
        expect(n, CFI(LIT(n)));
    expect(0x88, CFI(0x08, 0x88));
    expect((uint64_t)-0x78, CFI(0x09, 0x88));
    expect(0x8877, CFI(0x0a, 0x77, 0x88));
    expect((uint64_t)(int16_t)0x8877, CFI(0x0b, 0x77, 0x88));
    expect(0x88776655, CFI(0x0c, U32(0x88776655)));
    expect(0xffffffff88776655, CFI(0x0d, U32(0x88776655)));
    expect(0x8877665544332211, CFI(0x0e, U64(0x8877665544332211)));
    expect(0x8877665544332211, CFI(0x0f, U64(0x8877665544332211)));
    expect(624485, CFI(0x10, 0xe5, 0x8e, 0x26));
    expect((uint64_t)-123456, CFI(0x11, 0xc0, 0xbb, 0x78));
    expect(0x555000001234, CFI(0x03, U64(0x401234))); /* an address of the file, in the process */
}

static void registers_and_memory(void) {
    expect(0x1000, CFI(0x70 + RBX, 0));
    expect(0x1000 - 8, CFI(0x70 + RBX, SLEB(-8)));
    expect(0x1000 + 5, CFI(0x92, RBX, 5));
    expect(0x1122334455667788, CFI(0x70 + RSP, 0, 0x06));
    expect(0xfedcba9876543210, CFI(0x70 + RSP, 16, 0x06));
    expect(0xfedcba9876543210, CFI(0x70 + RSP, 8, 0x06, 0x23, 8, 0x06));
    expect(0x88, CFI(0x70 + RSP, 0, 0x94, 1));
    expect(0x7788, CFI(0x70 + RSP, 0, 0x94, 2));
    expect(0x66778811, CFI(0x0e, U64(0x66778811), 0x96)); /* nop */
    expect(0x55667788, CFI(0x70 + RSP, 0, 0x94, 4));
    expect(0x445566, CFI(0x70 + RSP, 2, 0x94, 3));
    expect(0x1122334455667788, CFI(0x70 + RSP, 0, 0x94, 8));
}

static void unknown_registers_and_unreadable_memory(void) {
    expect_failure(EXACT_REGISTER_UNKNOWN, CFI(0x70 + RAX, 0));
    expect_failure(EXACT_REGISTER_UNKNOWN, CFI(0x92, R10, 0));
    expect_failure(EXACT_NO_RULE, CFI(0x92, UNSPOOL_REGISTERS, 0));
    expect_failure(EXACT_NO_RULE, CFI(0x92, 0xff, 0xff, 0xff, 0xff, 0x7f, 0));
    CHECK_EQUAL(bad_address, 0xbad);
    expect_failure(EXACT_UNREADABLE, CFI(LIT(8), 0x06));
    CHECK_EQUAL(bad_address, 8);
    expect_failure(EXACT_UNREADABLE, CFI(0x70 + RSP, 25, 0x06)); /* the last byte is missing */
    CHECK_EQUAL(bad_address, WORDS_AT + 25);
    expect(0, CFI(0x70 + RSP, 25, 0x94, 7));
    expect_failure(EXACT_UNREADABLE, CFI(CONST8(UINT64_MAX - 3), 0x06));
    expect_failure(EXACT_NO_RULE, CFI(0x70 + RSP, 0, 0x94, 0));
    expect_failure(EXACT_NO_RULE, CFI(0x70 + RSP, 0, 0x94, 9));
}

/* What is left of 1 2 3 after an operation, top first: the top is the result, so drop what is above. */
static void stack_operations(void) {
    expect(3, CFI(LIT(1), LIT(2), LIT(3), 0x12));       /* dup */
    expect(3, CFI(LIT(1), LIT(2), LIT(3), 0x12, 0x13)); /* drop */
    expect(2, CFI(LIT(1), LIT(2), LIT(3), 0x13));
    expect(2, CFI(LIT(1), LIT(2), LIT(3), 0x14)); /* over */
    expect(3, CFI(LIT(1), LIT(2), LIT(3), 0x14, 0x13));
    expect(3, CFI(LIT(1), LIT(2), LIT(3), 0x15, 0)); /* pick */
    expect(1, CFI(LIT(1), LIT(2), LIT(3), 0x15, 2));
    expect(2, CFI(LIT(1), LIT(2), LIT(3), 0x16)); /* swap */
    expect(3, CFI(LIT(1), LIT(2), LIT(3), 0x16, 0x13));
    expect(1, CFI(LIT(1), LIT(2), LIT(3), 0x16, 0x13, 0x13));
    expect(2, CFI(LIT(1), LIT(2), LIT(3), 0x17)); /* rot: 3 1 2 */
    expect(1, CFI(LIT(1), LIT(2), LIT(3), 0x17, 0x13));
    expect(3, CFI(LIT(1), LIT(2), LIT(3), 0x17, 0x13, 0x13));
}

static void expect_binary(uint8_t operation, uint64_t a, uint64_t b, uint64_t value) {
    expect(value, CFI(CONST8(a), CONST8(b), operation));
}

static void arithmetic(void) {
    const uint64_t minus_7 = (uint64_t)-7, least = (uint64_t)INT64_MIN;
    expect(7, CFI(CONST8(minus_7), 0x19)); /* abs */
    expect(7, CFI(LIT(7), 0x19));
    expect(least, CFI(CONST8(least), 0x19));
    expect(minus_7, CFI(LIT(7), 0x1f));                      /* neg */
    expect(~(uint64_t)7, CFI(LIT(7), 0x20));                 /* not */
    expect(7 + 624485, CFI(LIT(7), 0x23, 0xe5, 0x8e, 0x26)); /* plus_uconst */
    expect_binary(0x1a, 0xff00, 0x0ff0, 0x0f00);             /* and */
    expect_binary(0x21, 0xff00, 0x0ff0, 0xfff0);             /* or */
    expect_binary(0x27, 0xff00, 0x0ff0, 0xf0f0);             /* xor */
    expect_binary(0x22, UINT64_MAX, 2, 1);                   /* plus */
    expect_binary(0x1c, 1, 2, UINT64_MAX);                   /* minus: the second minus the top */
    expect_binary(0x1e, minus_7, 3, (uint64_t)-21);
    expect_binary(0x1b, minus_7, 2, (uint64_t)-3); /* div, signed */
    expect_binary(0x1b, 7, (uint64_t)-1, minus_7);
    expect_binary(0x1b, least, (uint64_t)-1, least);
    expect_binary(0x1d, 7, 4, 3); /* mod */
    expect_failure(EXACT_NO_RULE, CFI(LIT(7), LIT(0), 0x1b));
    expect_failure(EXACT_NO_RULE, CFI(LIT(7), LIT(0), 0x1d));
}

static void shifts(void) {
    const uint64_t least = (uint64_t)INT64_MIN;
    expect_binary(0x24, 1, 63, least);
    expect_binary(0x24, 1, 64, 0);
    expect_binary(0x24, 1, UINT64_MAX, 0);
    expect_binary(0x25, least, 63, 1);
    expect_binary(0x25, least, 64, 0);
    expect_binary(0x26, least, 63, UINT64_MAX);
    expect_binary(0x26, least, 64, UINT64_MAX);
    expect_binary(0x26, 0x100, 4, 0x10);
}

/* eq, ge, gt, le, lt, ne are signed and compare the second with the top. */
static void comparisons(void) {
    const uint64_t minus_1 = UINT64_MAX;
    const struct {
        uint8_t operation;
        bool less, equal, greater;
    } cases[] = {{0x29, 0, 1, 0}, {0x2a, 0, 1, 1}, {0x2b, 0, 0, 1},
                 {0x2c, 1, 1, 0}, {0x2d, 1, 0, 0}, {0x2e, 1, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_binary(cases[i].operation, minus_1, 0, cases[i].less);
        expect_binary(cases[i].operation, 5, 5, cases[i].equal);
        expect_binary(cases[i].operation, 0, minus_1, cases[i].greater);
    }
}

static void jumps(void) {
    expect(2, CFI(LIT(2), 0x2f, U16(1), LIT(1)));              /* skip over one */
    expect(7, CFI(LIT(7), LIT(0), 0x28, U16(1), 0x96));        /* bra, not taken */
    expect(7, CFI(LIT(7), LIT(1), 0x28, U16(1), LIT(9)));      /* bra, taken */
    expect(0, CFI(LIT(5), LIT(1), 0x1c, 0x12, 0x28, U16(-6))); /* backwards: 5, 4 .. 0 */
    expect(7, CFI(LIT(7), 0x2f, U16(0)));                      /* to the very end */
    expect_failure(EXACT_NO_RULE, CFI(LIT(7), 0x2f, U16(1)));  /* one further */
    expect_failure(EXACT_NO_RULE, CFI(LIT(7), 0x2f, U16(-5))); /* before the start */
    expect_failure(EXACT_NO_RULE, CFI(LIT(7), 0x2f, 0));       /* cut off */
    expect_failure(EXACT_NO_RULE, CFI(LIT(7), LIT(1), 0x28, U16(-0x8000)));
}

static void endless_loops_end(void) {
    expect_failure(EXACT_NO_RULE, CFI(0x2f, U16(-3)));
    expect_failure(EXACT_NO_RULE, CFI(LIT(1), 0x12, 0x28, U16(-4)));
}

static void a_long_but_straight_expression(void) {
    uint8_t operations[4097];
    memset(operations, 0x96, sizeof operations);
    operations[0] = LIT(9);
    expect(9, operations, 4096);
    expect_failure(EXACT_NO_RULE, operations, 4097);
}

static void the_stack_is_bounded(void) {
    uint8_t operations[65];
    memset(operations, LIT(1), sizeof operations);
    expect(1, operations, 64);
    expect_failure(EXACT_NO_RULE, operations, 65);
    const uint64_t cfa = 0x7100;
    CHECK_EQUAL(run(&cfa, operations, 63), EXACT_OK);
    CHECK_EQUAL(run(&cfa, operations, 64), EXACT_NO_RULE);
}

/* Every operation with too little on the stack. */
static void underflow(void) {
    const uint8_t one[] = {0x06, 0x12, 0x13, 0x19, 0x1f, 0x20};
    const uint8_t two[] = {0x14, 0x16, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x21, 0x22, 0x24,
                           0x25, 0x26, 0x27, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e};
    for (size_t i = 0; i < sizeof one; i++)
        expect_failure(EXACT_NO_RULE, &one[i], 1);
    for (size_t i = 0; i < sizeof two; i++) {
        expect_failure(EXACT_NO_RULE, &two[i], 1);
        expect_failure(EXACT_NO_RULE, CFI(LIT(1), two[i]));
    }
    expect_failure(EXACT_NO_RULE, CFI(LIT(1), LIT(2), 0x17));
    expect_failure(EXACT_NO_RULE, CFI(LIT(1), 0x15, 1));
    expect_failure(EXACT_NO_RULE, CFI(0x23, 1));
    expect_failure(EXACT_NO_RULE, CFI(0x94, 8));
    expect_failure(EXACT_NO_RULE, CFI(0x28, U16(0)));
    expect_failure(EXACT_NO_RULE, NO_CFI); /* nothing is no value */
    expect_failure(EXACT_NO_RULE, CFI(LIT(1), 0x13));
}

static void truncated_operands(void) {
    const uint8_t operations[][3] = {{0x03, 1, 2}, {0x08},    {0x09},       {0x0a, 1}, {0x0b, 1},
                                     {0x0c, 1, 2}, {0x0d, 1}, {0x0e, 1, 2}, {0x0f},    {0x10, 0x80},
                                     {0x11},       {0x70},    {0x92, RBX},  {0x15}};
    const uint8_t sizes[] = {3, 1, 1, 2, 2, 3, 2, 3, 1, 2, 1, 1, 2, 1};
    for (size_t i = 0; i < sizeof sizes; i++)
        CHECK(run(NULL, operations[i], sizes[i]) != EXACT_OK);
}

static void operations_that_call_frame_information_does_not_have(void) {
    const uint8_t operations[] = {0x00, 0x01, 0x18, 0x50, 0x90, 0x91, 0x93, 0x95, 0x97, 0x98, 0x99,
                                  0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f, 0xa0, 0xa3, 0xe0, 0xf0, 0xff};
    for (size_t i = 0; i < sizeof operations; i++)
        expect_failure(EXACT_NO_RULE, CFI(LIT(1), LIT(2), LIT(3), operations[i]));
}

static void the_expression_of_a_plt(void) {
    const uint8_t plt[] = {0x70 + RSP, 8, 0x70 + RIP, 0, LIT(15), 0x1a, LIT(11), 0x2a, LIT(3), 0x24, 0x22};
    expect(WORDS_AT + 16, plt, sizeof plt); /* pc is at 0x..b: the index has been pushed */
}

static void what_is_pushed_first(void) {
    const uint64_t cfa = 0x7010;
    CHECK_EQUAL(run(&cfa, CFI(LIT(8), 0x22, 0x06)), EXACT_OK);
    CHECK_EQUAL(result, 42);
    CHECK_EQUAL(run(&cfa, NO_CFI), EXACT_OK);
    CHECK_EQUAL(result, 0x7010);
}

int main(void) {
    RUN(constants);
    RUN(registers_and_memory);
    RUN(unknown_registers_and_unreadable_memory);
    RUN(stack_operations);
    RUN(arithmetic);
    RUN(shifts);
    RUN(comparisons);
    RUN(jumps);
    RUN(endless_loops_end);
    RUN(a_long_but_straight_expression);
    RUN(the_stack_is_bounded);
    RUN(underflow);
    RUN(truncated_operands);
    RUN(operations_that_call_frame_information_does_not_have);
    RUN(the_expression_of_a_plt);
    RUN(what_is_pushed_first);
    return check_result();
}
