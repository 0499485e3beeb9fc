/*
 * test_exact.c: one step by the exact evaluator (exact.c): where CFA, return address and each register
 * come from, what is unknown afterwards, and why a step fails.
 */
#include "cfi_program.h"
#include "cfi_writer.h"
#include "check.h"
#include "exact.h"

#define STACK_AT 0x7fff0000u
#define HEAP_AT 0x10000u

static uint64_t stack_words[32], heap_words[32];
static const struct unspool_region heap = {HEAP_AT, sizeof heap_words, (const uint8_t *)heap_words};
static struct unspool_memory memory;
static struct unspool_table *table;
static struct unspool_registers registers;
static struct exact_input input;
static struct exact_result result;
static uint32_t arch;

/* A function at 0x1000 with these instructions behind the usual initial ones, interrupted with sp at
 * STACK_AT + 0x40; the stack's words hold their own addresses, except where a test sets them. */
static void begin_with(const struct cie_shape *shape, uint32_t for_arch, const uint8_t *instructions,
                       size_t size) {
    struct writer section = {0};
    arch = for_arch;
    uint64_t cie = write_cie(&section, shape);
    write_fde(&section, cie, 0x1000, 0x100, instructions, size);
    const struct unspool_section sections[] = {as_section(&section, UNSPOOL_EH_FRAME)};
    const struct unspool_compile_input compile = {.arch = arch, .section_count = 1, .sections = sections};
    struct unspool_problems problems;
    unspool_table_free(table);
    CHECK_EQUAL(unspool_table_compile(&compile, &table, &problems), UNSPOOL_OK);
    writer_free(&section);
    for (uint64_t i = 0; i < 32; i++) {
        stack_words[i] = STACK_AT + 8 * i;
        heap_words[i] = HEAP_AT + 8 * i;
    }
    memory = (struct unspool_memory){
        .stack = {STACK_AT, sizeof stack_words, (const uint8_t *)stack_words},
        .regions = &heap,
        .region_count = 1,
    };
    input = (struct exact_input){.arch = arch, .table = table, .lookup_address = 0x1010, .memory = &memory};
    registers = (struct unspool_registers){0};
}

static void begin(const uint8_t *instructions, size_t size) {
    begin_with(&x86_64_cie, UNSPOOL_X86_64, instructions, size);
}

static void begin_aarch64(const uint8_t *instructions, size_t size) {
    begin_with(&aarch64_cie, UNSPOOL_AARCH64, instructions, size);
}

static void set(uint32_t number, uint64_t value) {
    registers.value[number] = value;
    registers.known |= (uint64_t)1 << number;
}

static void expect_step(enum exact_status status) {
    set(pc_register(arch), 0x1010);
    set(sp_register(arch), STACK_AT + 0x40);
    struct unspool_registers before = registers;
    result = (struct exact_result){0};
    CHECK_EQUAL(exact_step(&input, &registers, &result), status);
    if (status != EXACT_OK)
        CHECK_BYTES(&registers, &before, sizeof before);
}

static void expect_value(uint32_t number, uint64_t value) {
    if (CHECK_EQUAL(registers.known >> number & 1, 1))
        CHECK_EQUAL(registers.value[number], value);
}

static void expect_unknown(uint32_t number) {
    CHECK_EQUAL(registers.known >> number & 1, 0);
}

/* A realigned stack: CFA in r10, rbp at an address that rbp gives. */
static void a_cfa_in_another_register(void) {
    begin(CFI(DEF_CFA(R10, 0), EXPRESSION(RBP, 2), OP_BREG0 + RBP, 0));
    set(R10, STACK_AT + 0x80);
    set(RBP, STACK_AT + 0x50);
    set(RBX, 0xb);
    set(RAX, 0xa);
    set(R12, 0xc);
    expect_step(EXACT_OK);
    expect_value(RIP, STACK_AT + 0x78);
    expect_value(RSP, STACK_AT + 0x80);
    expect_value(RBP, STACK_AT + 0x50); /* that is what the word there holds */
    expect_value(RBX, 0xb);
    expect_value(R12, 0xc);
    expect_unknown(RAX); /* a call does not preserve it */
    expect_unknown(R10);
    expect_unknown(R13);
    CHECK_EQUAL(registers.pc_is_return_address, 1);
}

static void a_cfa_by_an_expression(void) {
    begin(CFI(DEF_CFA_EXPRESSION(3), OP_BREG0 + RBP, SLEB(-8), OP_DEREF));
    set(RBP, STACK_AT + 0x58);
    stack_words[0x50 / 8] = STACK_AT + 0xa0;
    expect_step(EXACT_OK);
    expect_value(RSP, STACK_AT + 0xa0);
    expect_value(RIP, STACK_AT + 0x98);
    expect_value(RBP, STACK_AT + 0x58);
}

static void a_return_address_in_a_register(void) {
    begin(CFI(IN_REGISTER(RIP, RDI), DEF_CFA_OFFSET(0)));
    set(RDI, 0x401234);
    expect_step(EXACT_OK);
    expect_value(RIP, 0x401234);
    expect_value(RSP, STACK_AT + 0x40);
    begin(CFI(IN_REGISTER(RIP, RDI)));
    expect_step(EXACT_REGISTER_UNKNOWN);
}

static void a_return_address_by_expression(void) {
    begin(CFI(VAL_EXPRESSION(RIP, 4), OP_BREG0 + RBX, 0x10, OP_LIT0 + 1, OP_PLUS));
    set(RBX, 0x401000);
    expect_step(EXACT_OK);
    expect_value(RIP, 0x401011);
    begin(CFI(EXPRESSION(RIP, 2), OP_LIT0 + 16, OP_MINUS)); /* CFA - 16 */
    expect_step(EXACT_OK);
    expect_value(RIP, STACK_AT + 0x38);
}

/* longjmp: everything is in registers, or in a buffer. */
static void all_registers_from_elsewhere(void) {
    begin(CFI(DEF_CFA(RDI, 0), IN_REGISTER(RIP, RDX), IN_REGISTER(RSP, R8), IN_REGISTER(RBP, R9),
              OFFSET_EXTENDED_SF(RBX, 0), OFFSET_EXTENDED_SF(R12, -2)));
    set(RDI, STACK_AT + 0xa0);
    set(RDX, 0x401234);
    set(R8, STACK_AT + 0xc0);
    set(R9, 0xf9);
    expect_step(EXACT_OK);
    expect_value(RIP, 0x401234);
    expect_value(RSP, STACK_AT + 0xc0);
    expect_value(RBP, 0xf9);
    expect_value(RBX, STACK_AT + 0xa0);
    expect_value(R12, STACK_AT + 0xb0);
}

/* setcontext and swapcontext: the CFA is a context, perhaps in memory that lies below the stack. */
static void registers_from_a_context_below_the_stack(void) {
    begin(CFI(DEF_CFA(RDX, 0), OFFSET_EXTENDED_SF(RBX, -1), OFFSET_EXTENDED_SF(RBP, -2),
              OFFSET_EXTENDED_SF(RSP, -3), OFFSET_EXTENDED_SF(RIP, -4)));
    set(RDX, HEAP_AT);
    set(RBX, 0xb);
    set(RBP, 0xf);
    heap_words[4] = 0x401234;
    expect_step(EXACT_OK);
    expect_value(RIP, 0x401234);
    expect_value(RSP, HEAP_AT + 0x18);
    expect_value(RBX, HEAP_AT + 8);
    expect_value(RBP, HEAP_AT + 0x10);
}

/* An epilogue has popped rbp and rbx already: the CFI says so only later. */
static void popped_registers_of_an_interrupted_function(void) {
    begin(CFI(OFFSET(RBP, 2), OFFSET(RBX, 3), OFFSET(R12, 1), VAL_OFFSET(RAX, 1)));
    set(RBP, 0xf);
    expect_step(EXACT_OK); /* CFA = sp + 8, so their slots lie below sp */
    expect_value(RBP, 0xf);
    expect_unknown(RBX);
    expect_value(R12, STACK_AT + 0x40);
    begin(CFI(OFFSET(RBP, 2), OFFSET(RBX, 3), VAL_OFFSET(RAX, 1)));
    set(RBP, 0xf);
    registers.pc_is_return_address = 1; /* a caller is in no epilogue */
    expect_step(EXACT_OK);
    expect_value(RBP, STACK_AT + 0x38);
    expect_value(RBX, STACK_AT + 0x30);
}

static void registers_that_are_lost(void) {
    begin(CFI(DEF_CFA(R10, 0), UNDEFINED(RBX), UNDEFINED(RBP), SAME_VALUE(RAX), IN_REGISTER(R12, R9)));
    set(R10, STACK_AT + 0x80);
    set(RBX, 1);
    set(RBP, 1);
    set(RAX, 7);
    expect_step(EXACT_OK);
    expect_unknown(RBX);
    expect_unknown(RBP);
    expect_unknown(R12);
    expect_value(RAX, 7);
}

static void what_is_needed_and_not_known(void) {
    begin(CFI(DEF_CFA(R10, 0)));
    expect_step(EXACT_REGISTER_UNKNOWN);
    begin(CFI(DEF_CFA(ULEB2(999), 0)));
    expect_step(EXACT_REGISTER_UNKNOWN);
    begin(CFI(DEF_CFA_EXPRESSION(2), OP_BREG0 + R10, 0));
    expect_step(EXACT_REGISTER_UNKNOWN);
    begin(CFI(IN_REGISTER(RSP, R8)));
    expect_step(EXACT_REGISTER_UNKNOWN);
    /* fp: worth another walk with all registers, but no reason to stop when there are no more */
    begin(CFI(IN_REGISTER(RBP, R9)));
    expect_step(EXACT_REGISTER_UNKNOWN);
    input.has_all_registers = true;
    expect_step(EXACT_OK);
    expect_unknown(RBP);
}

static void what_cannot_be_read(void) {
    begin(CFI(DEF_CFA(R10, 0)));
    set(R10, 0x900);
    expect_step(EXACT_UNREADABLE);
    CHECK_EQUAL(result.bad_address, 0x8f8);
    begin(CFI(DEF_CFA_EXPRESSION(2), OP_LIT0 + 16, OP_DEREF));
    expect_step(EXACT_UNREADABLE);
    CHECK_EQUAL(result.bad_address, 16);
    begin(CFI(EXPRESSION(RBP, 2), OP_BREG0 + RSP, 0x70 - 0x40));
    memory.stack.size = 0x70;
    expect_step(EXACT_UNREADABLE);
    CHECK_EQUAL(result.bad_address, STACK_AT + 0x70);
    begin(CFI(EXPRESSION(RBX, 2), OP_BREG0 + RSP, 0x70 - 0x40)); /* not needed: merely unknown */
    memory.stack.size = 0x70;
    expect_step(EXACT_OK);
    expect_unknown(RBX);
}

static void what_has_no_rule(void) {
    begin(CFI(SAME_VALUE(RIP)));
    expect_step(EXACT_NO_RULE); /* a caller's pc is not its callee's */
    struct cie_shape shape = x86_64_cie;
    shape.version = 3;
    shape.return_address_register = 100;
    begin_with(&shape, UNSPOOL_X86_64, CFI(DEF_CFA(RSP, 8)));
    expect_step(EXACT_NO_RULE);
    shape = x86_64_cie;
    shape.instructions_size = 3; /* the CFA alone */
    begin_with(&shape, UNSPOOL_X86_64, NO_CFI);
    expect_step(EXACT_NO_RULE);
    begin(CFI(DEF_CFA(R10, 0), ADVANCE(8), 0x3f));
    set(R10, STACK_AT + 0x80);
    expect_step(EXACT_NO_RULE); /* 0x1010 is behind the malformed instruction */
    input.lookup_address = 0x1fff;
    expect_step(EXACT_NO_RULE);
}

/* Expressions that are made to be slow share what one may take. */
static void all_expressions_of_a_step_are_bounded_together(void) {
    /* 200 times round: a constant, 4 operations a turn, and a last one */
    uint8_t instructions[16 * 14] = {DEF_CFA(R10, 0)};
    size_t size = 3;
    for (uint8_t number = 0; number < 16; number++) {
        const uint8_t rule[] = {
            VAL_EXPRESSION(number, 9), 0x08, 200, OP_LIT0 + 1, OP_MINUS, OP_DUP, 0x28, U16(-6), 0x96};
        if (number == RBP || number == RSP)
            continue;
        memcpy(instructions + size, rule, sizeof rule);
        size += sizeof rule;
    }
    begin(instructions, size);
    set(R10, STACK_AT + 0x80);
    set(RBP, 0xf);
    expect_step(EXACT_OK);
    expect_value(RIP, STACK_AT + 0x78);
    uint32_t found = 0;
    for (uint8_t number = 0; number < 16; number++)
        found += number != RBP && number != RSP && (registers.known >> number & 1);
    CHECK_EQUAL(found, 5); /* 5 * 802 operations, of 4096 */
    expect_value(RAX, 0);
    expect_unknown(R15);
}

static void a_signal_frame_leads_to_an_interrupted_frame(void) {
    struct cie_shape shape = x86_64_cie;
    shape.augmentation = "S";
    begin_with(&shape, UNSPOOL_X86_64, CFI(DEF_CFA(RDI, 0), OFFSET_EXTENDED_SF(RAX, 0), OFFSET(RBP, 2)));
    set(RDI, STACK_AT + 0x40);
    set(RBP, 0xf);
    expect_step(EXACT_OK);
    CHECK_EQUAL(registers.pc_is_return_address, 0);
    expect_value(RAX, STACK_AT + 0x40);
    expect_value(RBP, STACK_AT + 0x30); /* nothing is popped there */
}

static void lr_holds_the_return_address_where_cfi_says_nothing(void) {
    begin_aarch64(CFI(DEF_CFA(X16, 0)));
    set(X16, STACK_AT + 0x80);
    set(X30, 0x401234);
    set(X29, 0xf);
    set(X19, 0x19);
    set(X0, 1);
    expect_step(EXACT_OK);
    expect_value(UNSPOOL_AARCH64_PC, 0x401234);
    expect_value(ARM_SP, STACK_AT + 0x80);
    expect_value(X29, 0xf);
    expect_value(X19, 0x19);
    expect_unknown(X0);
    expect_unknown(X30);
}

/* A caller's lr is not its return address: the call that it made has overwritten it. */
static void a_callers_lr_is_not_its_return_address(void) {
    const uint8_t rules[][2] = {{NOP, NOP}, {SAME_VALUE(X30)}};
    for (size_t i = 0; i < 2; i++) {
        uint8_t instructions[] = {DEF_CFA(X16, 0), rules[i][0], rules[i][1]};
        begin_aarch64(instructions, sizeof instructions);
        set(X16, STACK_AT + 0x80);
        set(X30, 0x401234);
        registers.pc_is_return_address = 1;
        expect_step(EXACT_NO_RULE);
    }
}

static void signed_return_addresses(void) {
    begin_aarch64(CFI(NEGATE_RA_STATE, DEF_CFA(X16, 0), OFFSET(X30, 1), OFFSET(X29, 2)));
    set(X16, STACK_AT + 0x80);
    stack_words[0x78 / 8] = 0x002a000000401234;
    expect_step(EXACT_OK);
    expect_value(UNSPOOL_AARCH64_PC, 0x002a000000401234); /* to be stripped by the walk */
    expect_value(X29, STACK_AT + 0x70);
}

static void a_popped_lr_is_in_lr(void) {
    begin_aarch64(CFI(OFFSET(X30, 1), OFFSET(X29, 2), IN_REGISTER(X0, 1)));
    set(X30, 0x401234);
    set(X29, 0xf);
    expect_step(EXACT_OK); /* CFA = sp: both slots lie below sp */
    expect_value(UNSPOOL_AARCH64_PC, 0x401234);
    expect_value(X29, 0xf);
}

int main(void) {
    RUN(a_cfa_in_another_register);
    RUN(a_cfa_by_an_expression);
    RUN(a_return_address_in_a_register);
    RUN(a_return_address_by_expression);
    RUN(all_registers_from_elsewhere);
    RUN(registers_from_a_context_below_the_stack);
    RUN(popped_registers_of_an_interrupted_function);
    RUN(registers_that_are_lost);
    RUN(what_is_needed_and_not_known);
    RUN(what_cannot_be_read);
    RUN(what_has_no_rule);
    RUN(all_expressions_of_a_step_are_bounded_together);
    RUN(a_signal_frame_leads_to_an_interrupted_frame);
    RUN(lr_holds_the_return_address_where_cfi_says_nothing);
    RUN(a_callers_lr_is_not_its_return_address);
    RUN(signed_return_addresses);
    RUN(a_popped_lr_is_in_lr);
    unspool_table_free(table);
    return check_result();
}
