/*
 * test_walk_registers.c: walks that need other registers than pc, sp and fp: the second walk with all of
 * them (walk.c), what a rule says of callee-saved ones, and where they get lost.
 */
#include "process.h"
#include "unwind_table.h"

static struct process p;

/* A caller at 0x1100 whose CFA is in rbx (x19), and the root at 0x1000, where it leads. */
static uint8_t begin(uint32_t arch) {
    bool is_aarch64 = arch == UNSPOOL_AARCH64;
    uint8_t saved = is_aarch64 ? X19 : RBX, ra = is_aarch64 ? X30 : RIP;
    begin_process(&p, arch);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40, CFI(DEF_CFA(saved, 16), OFFSET(ra, 1)));
    put(&p, STACK_AT + 0x88, CODE_AT + 0x1020); /* CFA = STACK_AT + 0x90 */
    return saved;
}
#define CFA_REGISTER_VALUE (STACK_AT + 0x80)

/* The interrupted function at 0x1200: CFA = sp + 0x20, its caller at CFA - 8. */
static void interrupted_function(const uint8_t *instructions, size_t size) {
    uint8_t ra = p.unwinder.arch == UNSPOOL_AARCH64 ? X30 : RIP;
    uint8_t all[32] = {DEF_CFA_OFFSET(0x20), OFFSET(ra, 1)};
    memcpy(all + 4, instructions, size);
    function(&p, 0x1200, 0x40, all, 4 + size);
    interrupted_at(&p, CODE_AT + 0x1208, STACK_AT);
    set_register(&p, fp_register(p.unwinder.arch), 0xf0);
    put(&p, STACK_AT + 0x18, CODE_AT + 0x1110);
}

static void expect_whole_stack(void) {
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}, {CODE_AT + 0x1020, EXACTLY}));
}

static void expect_no_more_than_the_caller(void) {
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}));
}

static void a_register_that_nobody_touched(void) {
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        uint8_t saved = begin(arch);
        interrupted_function(CFI(NOP));
        set_register(&p, saved, CFA_REGISTER_VALUE);
        expect_whole_stack();
        p.registers.known &= ~(UINT64_C(1) << saved);
        expect_no_more_than_the_caller();
    }
}

static void a_register_that_was_saved(void) {
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        uint8_t saved = begin(arch);
        interrupted_function(CFI(OFFSET(saved, 3)));
        set_register(&p, saved, 0xbad);
        put(&p, STACK_AT + 8, CFA_REGISTER_VALUE);
        expect_whole_stack();
        p.registers.known &= ~(UINT64_C(1) << saved); /* it is not needed in the register */
        expect_whole_stack();
    }
}

/* Its slot lies below sp: an epilogue has brought it back. */
static void a_register_that_was_popped(void) {
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        uint8_t saved = begin(arch);
        interrupted_function(CFI(OFFSET(saved, 5)));
        set_register(&p, saved, CFA_REGISTER_VALUE);
        expect_whole_stack();
    }
}

static void a_register_that_is_lost(void) {
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        uint8_t saved = begin(arch);
        interrupted_function(CFI(UNDEFINED(saved)));
        set_register(&p, saved, CFA_REGISTER_VALUE);
        expect_no_more_than_the_caller();
    }
}

static void a_register_whose_slot_is_unreadable(void) {
    uint8_t saved = begin(UNSPOOL_X86_64);
    interrupted_function(CFI(OFFSET_EXTENDED_SF(saved, -63))); /* CFA + 0x1f8 */
    set_register(&p, saved, CFA_REGISTER_VALUE);
    p.memory.stack.size = 0x200;
    expect_no_more_than_the_caller();
}

/* Two ordinary frames between the interrupted one and the one that needs r13: the first saves it, the
 * second leaves it alone. Each callee-saved register has its own place in what a rule says. */
static void every_callee_saved_register_two_frames_up(void) {
    static const uint8_t x86_64[] = {RBX, R12, R13, R14, R15};
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        bool is_aarch64 = arch == UNSPOOL_AARCH64;
        uint8_t ra = is_aarch64 ? X30 : RIP;
        for (uint8_t i = 0; i < (is_aarch64 ? 10 : 5); i++) {
            uint8_t number = is_aarch64 ? (uint8_t)(X19 + i) : x86_64[i];
            begin_process(&p, arch);
            root_function(&p, 0x1000, 0x40);
            function(&p, 0x1100, 0x40, CFI(DEF_CFA(number, 16), OFFSET(ra, 1)));
            function(&p, 0x1140, 0x40, CFI(DEF_CFA_OFFSET(0x10), OFFSET(ra, 1)));
            interrupted_function(CFI(OFFSET(number, 3)));
            put(&p, STACK_AT + 0x18, CODE_AT + 0x1150);
            put(&p, STACK_AT + 8, CFA_REGISTER_VALUE);
            put(&p, STACK_AT + 0x28, CODE_AT + 0x1110);
            put(&p, STACK_AT + 0x88, CODE_AT + 0x1020);
            expect_walk(&p, UNSPOOL_END_ROOT,
                        FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1150, BY_CFI},
                               {CODE_AT + 0x1110, BY_CFI}, {CODE_AT + 0x1020, EXACTLY}));
        }
    }
}

/* An ordinary frame between two that need one each, both saved by the interrupted one. */
static void two_registers_at_two_depths(void) {
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        bool is_aarch64 = arch == UNSPOOL_AARCH64;
        uint8_t first = begin(arch), second = is_aarch64 ? X20 : R12, ra = is_aarch64 ? X30 : RIP;
        function(&p, 0x1140, 0x40, CFI(DEF_CFA_OFFSET(0x10), OFFSET(ra, 1)));
        function(&p, 0x1180, 0x40, CFI(DEF_CFA(second, 16), OFFSET(ra, 1)));
        interrupted_function(CFI(OFFSET(first, 3), OFFSET(second, 4)));
        put(&p, STACK_AT + 8, CFA_REGISTER_VALUE);
        put(&p, STACK_AT, STACK_AT + 0x100);
        put(&p, STACK_AT + 0x88, CODE_AT + 0x1150);
        put(&p, STACK_AT + 0x98, CODE_AT + 0x1190);
        put(&p, STACK_AT + 0x108, CODE_AT + 0x1020);
        expect_walk(&p, UNSPOOL_END_ROOT,
                    FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI},
                           {CODE_AT + 0x1150, EXACTLY}, {CODE_AT + 0x1190, BY_CFI},
                           {CODE_AT + 0x1020, EXACTLY}));
    }
}

/* r10 is not preserved by calls, so it is known in the interrupted frame only. */
static void a_caller_saved_register(void) {
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40, CFI(DEF_CFA(R10, 16)));
    set_register(&p, RBP, 0);
    set_register(&p, R10, CFA_REGISTER_VALUE);
    put(&p, STACK_AT + 0x88, CODE_AT + 0x1020);
    interrupted_at(&p, CODE_AT + 0x1110, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1110, INTERRUPTED}, {CODE_AT + 0x1020, EXACTLY}));
    interrupted_function(CFI(NOP));
    compile_process(&p);
    expect_no_more_than_the_caller();
}

/* After exact frames, too, what they preserved is known further up. */
static void exact_frames_hand_registers_on(void) {
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40, CFI(DEF_CFA(R12, 16)));
    function(&p, 0x1140, 0x40, CFI(DEF_CFA(RBX, 16), OFFSET(R12, 2)));
    interrupted_function(CFI(NOP));
    set_register(&p, RBX, STACK_AT + 0x40); /* CFA = STACK_AT + 0x50 */
    put(&p, STACK_AT + 0x18, CODE_AT + 0x1150);
    put(&p, STACK_AT + 0x40, CFA_REGISTER_VALUE);
    put(&p, STACK_AT + 0x48, CODE_AT + 0x1110);
    put(&p, STACK_AT + 0x88, CODE_AT + 0x1020);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1150, BY_CFI},
                       {CODE_AT + 0x1110, EXACTLY}, {CODE_AT + 0x1020, EXACTLY}));
}

/* An exact frame on aarch64 restores x30, which is its return address: nothing for its caller, which has
 * no rule for its own. */
static void a_restored_lr_is_no_return_address(void) {
    begin_process(&p, UNSPOOL_AARCH64);
    function(&p, 0x1100, 0x40, CFI(DEF_CFA(X19, 0x20)));
    function(&p, 0x1140, 0x40, CFI(DEF_CFA(X19, 16), OFFSET(X30, 1)));
    interrupted_at(&p, CODE_AT + 0x1150, STACK_AT);
    set_register(&p, X29, 0xf0);
    set_register(&p, X30, CODE_AT + 0x1020);
    set_register(&p, X19, CFA_REGISTER_VALUE);
    put(&p, STACK_AT + 0x88, CODE_AT + 0x1110);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + 0x1150, INTERRUPTED}, {CODE_AT + 0x1110, EXACTLY}));
}

/* A signal frame restores everything, so that r10 is known again. */
static void a_signal_frame_knows_every_register(void) {
    static const uint8_t restorer[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    const uint64_t saved = STACK_AT + 0x20 + 40; /* r8 r9 r10 ... rip */
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40, CFI(DEF_CFA(R10, 16)));
    put_code(&p, 0x2000, restorer, sizeof restorer);
    interrupted_function(CFI(NOP));
    put(&p, STACK_AT + 0x18, CODE_AT + 0x2000);
    put(&p, saved + 2 * 8, STACK_AT + 0x200);
    put(&p, saved + 15 * 8, STACK_AT + 0x1c0);
    put(&p, saved + 16 * 8, CODE_AT + 0x1110);
    put(&p, STACK_AT + 0x208, CODE_AT + 0x1020);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x2000, BY_CFI},
                       {CODE_AT + 0x1110, BY_SIGNAL}, {CODE_AT + 0x1020, EXACTLY}));
}

/* What pc, sp and fp suffice for needs no second walk, and works in batches. */
static void an_exact_frame_that_needs_no_other_register(void) {
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40, /* return address = [rsp + rbp + (pc & 0xf)] */
             CFI(DEF_CFA_OFFSET(0x20), EXPRESSION(RIP, 10), OP_BREG0 + RSP, 0, OP_BREG0 + RBP, 0,
                 OP_BREG0 + RIP, 0, OP_LIT0 + 15, OP_AND, OP_PLUS, OP_PLUS));
    interrupted_at(&p, CODE_AT + 0x1108, STACK_AT);
    set_register(&p, RBP, 0x10);
    put(&p, STACK_AT + 0x18, CODE_AT + 0x1020);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1108, INTERRUPTED}, {CODE_AT + 0x1020, EXACTLY}));
}

/* Exact code may switch stacks, so sp may go down; nothing changed at all is a loop. */
static void exact_frames_may_switch_stacks(void) {
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40, CFI(DEF_CFA(RBX, 16)));
    interrupted_at(&p, CODE_AT + 0x1110, STACK_AT + 0x100);
    p.memory.stack = (struct unspool_region){STACK_AT, sizeof p.stack, (const uint8_t *)p.stack};
    set_register(&p, RBX, STACK_AT + 0x10);
    put(&p, STACK_AT + 0x18, CODE_AT + 0x1020);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1110, INTERRUPTED}, {CODE_AT + 0x1020, EXACTLY}));
    set_register(&p, RBX, STACK_AT + 0xf0); /* CFA = sp */
    put(&p, STACK_AT + 0xf8, CODE_AT + 0x1110);
    expect_walk(&p, UNSPOOL_END_LOOP, FRAMES({CODE_AT + 0x1110, INTERRUPTED}));
}

/* In a table that was not compiled here a CFA may be in rbx although the row is from CFI. */
static void a_rule_by_rbx_is_never_one_by_sp(void) {
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40, CFI(DEF_CFA_OFFSET(16), OFFSET(RIP, 1)));
    compile_process(&p);
    struct rule *rules = (struct rule *)(void *)((uint8_t *)p.table + p.table->rules);
    for (uint32_t i = 0; i < p.table->rule_count; i++)
        if (rules[i].cfa_offset == 16)
            rules[i].kind |= UNSPOOL_CFA_RBX;
    CHECK_EQUAL(unspool_table_check(p.table, unspool_table_size(p.table)), UNSPOOL_OK);
    interrupted_at(&p, CODE_AT + 0x1110, STACK_AT);
    set_register(&p, RBX, STACK_AT + 0x20);
    put(&p, STACK_AT + 0x08, CODE_AT + 0x1030); /* where sp would lead */
    put(&p, STACK_AT + 0x28, CODE_AT + 0x1020);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1110, INTERRUPTED}, {CODE_AT + 0x1020, BY_CFI}));
}

int main(void) {
    RUN(a_register_that_nobody_touched);
    RUN(a_register_that_was_saved);
    RUN(a_register_that_was_popped);
    RUN(a_register_that_is_lost);
    RUN(a_register_whose_slot_is_unreadable);
    RUN(every_callee_saved_register_two_frames_up);
    RUN(two_registers_at_two_depths);
    RUN(a_caller_saved_register);
    RUN(exact_frames_hand_registers_on);
    RUN(a_restored_lr_is_no_return_address);
    RUN(a_signal_frame_knows_every_register);
    RUN(an_exact_frame_that_needs_no_other_register);
    RUN(exact_frames_may_switch_stacks);
    RUN(a_rule_by_rbx_is_never_one_by_sp);
    end_process(&p);
    return check_result();
}
