/*
 * test_walk_lr.c: what is special about aarch64 (walk.c): lr is live only where a function was
 * interrupted; "no rule" and "undefined" are two things; return addresses may be signed.
 */
#include "process.h"

static struct process p;

/* main (root) at 0x1000; outer with a frame record at 0x1100; a leaf without one at 0x1200. */
static void begin(void) {
    begin_process(&p, UNSPOOL_AARCH64);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40,
             CFI(ADVANCE(1), DEF_CFA_OFFSET(32), OFFSET(X29, 4), OFFSET(X30, 3), ADVANCE(12), RESTORE(X29),
                 RESTORE(X30), DEF_CFA_OFFSET(0)));
    function(&p, 0x1200, 0x40, CFI(ADVANCE(1), DEF_CFA_OFFSET(48), ADVANCE(10), DEF_CFA_OFFSET(0)));
    put(&p, STACK_AT + 0x40, STACK_AT + 0x100); /* outer's frame record */
    put(&p, STACK_AT + 0x48, CODE_AT + 0x1020);
    set_register(&p, X29, STACK_AT + 0x40);
    set_register(&p, X30, CODE_AT + 0x1110);
}

static void a_leaf_without_a_frame_record(void) {
    begin();
    interrupted_at(&p, CODE_AT + 0x1210, STACK_AT + 0x10); /* CFA = sp + 48 */
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1210, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}, {CODE_AT + 0x1020, BY_CFI}));
    interrupted_at(&p, CODE_AT + 0x1200, STACK_AT + 0x40); /* nothing done yet: CFA = sp */
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1200, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}, {CODE_AT + 0x1020, BY_CFI}));
}

/* In outer's prologue and epilogue its caller is in lr; in between in the frame record. */
static void every_instruction_of_a_function_with_a_frame_record(void) {
    for (uint64_t offset = 0; offset < 0x40; offset += 4) {
        bool has_frame = offset >= 4 && offset < 0x34;
        begin();
        set_register(&p, X30, has_frame ? 0xbad : CODE_AT + 0x1020);
        interrupted_at(&p, CODE_AT + 0x1100 + offset, has_frame ? STACK_AT + 0x40 : STACK_AT + 0x60);
        expect_walk(&p, UNSPOOL_END_ROOT,
                    FRAMES({CODE_AT + 0x1100 + offset, INTERRUPTED}, {CODE_AT + 0x1020, BY_CFI}));
    }
}

/* By its return address, the leaf has called something: then lr holds that call's return address. */
static void lr_says_nothing_about_a_caller(void) {
    begin();
    interrupted_at(&p, CODE_AT + 0x1134, STACK_AT + 0x60);
    set_register(&p, X30, CODE_AT + 0x1210); /* the "leaf" as a caller: no rule for x30 */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + 0x1134, INTERRUPTED}, {CODE_AT + 0x1210, BY_CFI}));
    p.registers.pc_is_return_address = 1;
    p.registers.value[UNSPOOL_AARCH64_PC] = CODE_AT + 0x1210;
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1210, INTERRUPTED}));
}

static void without_lr_a_leaf_has_no_caller(void) {
    begin();
    interrupted_at(&p, CODE_AT + 0x1210, STACK_AT + 0x10);
    p.registers.known &= ~(UINT64_C(1) << X30);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1210, INTERRUPTED}));
}

/* Explicitly undefined is the end, though lr holds something. */
static void an_undefined_return_address_is_the_root(void) {
    begin();
    interrupted_at(&p, CODE_AT + 0x1010, STACK_AT + 0x10);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1010, INTERRUPTED}));
}

/* CFI that lags behind the epilogue: the frame record lies below sp already. */
static void a_popped_frame_record_is_in_its_registers(void) {
    begin();
    function(&p, 0x1300, 0x40, CFI(DEF_CFA_OFFSET(0), OFFSET(X29, 4), OFFSET(X30, 3)));
    interrupted_at(&p, CODE_AT + 0x1308, STACK_AT + 0x40);
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1308, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}, {CODE_AT + 0x1020, BY_CFI}));
}

/* Of an interrupted leaf the caller may have the same sp, but then another pc. */
static void a_leaf_that_leads_to_itself_is_a_loop(void) {
    begin();
    interrupted_at(&p, CODE_AT + 0x1200, STACK_AT + 0x40);
    set_register(&p, X30, CODE_AT + 0x1200);
    expect_walk(&p, UNSPOOL_END_LOOP, FRAMES({CODE_AT + 0x1200, INTERRUPTED}));
}

/* Signed return addresses in lr and in memory are stripped for any size of addresses, whether or not
 * the CFI says that they are signed. */
static void signed_return_addresses_are_stripped(void) {
    const uint32_t address_bits[] = {39, 42, 48, 52};
    for (size_t i = 0; i < 4; i++)
        for (int is_told = 0; is_told < 2; is_told++) {
            uint64_t pac = UINT64_MAX << address_bits[i] & 0xaa55aa55aa55aa55;
            begin();
            const uint8_t first = is_told ? NEGATE_RA_STATE : NOP;
            function(&p, 0x1300, 0x40, CFI(first, DEF_CFA_OFFSET(32), OFFSET(X29, 4), OFFSET(X30, 3)));
            function(&p, 0x1400, 0x40, CFI(first, DEF_CFA_OFFSET(0x40)));
            p.unwinder.address_bits = address_bits[i];
            interrupted_at(&p, CODE_AT + 0x1404, STACK_AT);
            set_register(&p, X30, pac | (CODE_AT + 0x1310));
            put(&p, STACK_AT + 0x48, pac | (CODE_AT + 0x1020));
            expect_walk(&p, UNSPOOL_END_ROOT,
                        FRAMES({CODE_AT + 0x1404, INTERRUPTED}, {CODE_AT + 0x1310, BY_CFI},
                               {CODE_AT + 0x1020, BY_CFI}));
        }
}

static void bits_of_an_address_are_no_pac(void) {
    begin();
    p.unwinder.address_bits = 39;
    interrupted_at(&p, CODE_AT + 0x1210, STACK_AT + 0x10);
    set_register(&p, X30, 0x4000000000 | (CODE_AT + 0x1110)); /* bit 38 */
    expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({CODE_AT + 0x1210, INTERRUPTED}));
    begin();
    p.unwinder.address_bits = 64; /* nothing is left for a PAC */
    interrupted_at(&p, CODE_AT + 0x1210, STACK_AT + 0x10);
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1210, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}, {CODE_AT + 0x1020, BY_CFI}));
    set_register(&p, X30, UINT64_C(0x8000000000000000) | (CODE_AT + 0x1110));
    expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({CODE_AT + 0x1210, INTERRUPTED}));
}

/* The same for what the exact evaluator finds. */
static void exact_return_addresses_are_stripped(void) {
    begin();
    function(&p, 0x1300, 0x40, CFI(NEGATE_RA_STATE, DEF_CFA(X16, 0)));
    interrupted_at(&p, CODE_AT + 0x1304, STACK_AT);
    set_register(&p, X16, STACK_AT + 0x40);
    set_register(&p, X30, 0xaa55000000000000 | (CODE_AT + 0x1110));
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1304, INTERRUPTED}, {CODE_AT + 0x1110, EXACTLY}, {CODE_AT + 0x1020, BY_CFI}));
}

/* A big frame: sub sp, sp, #imm, lsl #12 and then the rest, with a CFA that follows each. */
static void a_frame_of_more_than_4_kib(void) {
    begin();
    function(&p, 0x1300, 0x40,
             CFI(ADVANCE(1), DEF_CFA_OFFSET(ULEB2(0x200)), ADVANCE(1), DEF_CFA_OFFSET(ULEB2(0x210)),
                 OFFSET(X29, ULEB2(0x210 / 8)), OFFSET(X30, ULEB2(0x208 / 8))));
    const uint64_t cfa = STACK_AT + 0x240;
    put(&p, cfa - 0x210, 0xf0);
    put(&p, cfa - 0x208, CODE_AT + 0x1020);
    set_register(&p, X30, CODE_AT + 0x1020);
    interrupted_at(&p, CODE_AT + 0x1300, cfa);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1300, INTERRUPTED}, {CODE_AT + 0x1020, BY_CFI}));
    interrupted_at(&p, CODE_AT + 0x1304, cfa - 0x200);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1304, INTERRUPTED}, {CODE_AT + 0x1020, BY_CFI}));
    set_register(&p, X30, 0xbad);
    interrupted_at(&p, CODE_AT + 0x1308, cfa - 0x210);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1308, INTERRUPTED}, {CODE_AT + 0x1020, BY_CFI}));
}

int main(void) {
    RUN(a_leaf_without_a_frame_record);
    RUN(every_instruction_of_a_function_with_a_frame_record);
    RUN(lr_says_nothing_about_a_caller);
    RUN(without_lr_a_leaf_has_no_caller);
    RUN(an_undefined_return_address_is_the_root);
    RUN(a_popped_frame_record_is_in_its_registers);
    RUN(a_leaf_that_leads_to_itself_is_a_loop);
    RUN(signed_return_addresses_are_stripped);
    RUN(bits_of_an_address_are_no_pac);
    RUN(exact_return_addresses_are_stripped);
    RUN(a_frame_of_more_than_4_kib);
    end_process(&p);
    return check_result();
}
