/*
 * test_walk.c: walking by rules (walk.c): lookup addresses, popped registers, progress, and how stacks
 * end. lr and PAC: test_walk_lr.c; signals: test_walk_signal.c; other registers: test_walk_registers.c.
 */
#include "process.h"

static struct process p;

/* main (root) at 0x1000 calls outer, with a frame pointer, at 0x1100, which calls inner at 0x1200. */
static void three_functions(void) {
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40,
             CFI(ADVANCE(1), DEF_CFA_OFFSET(16), OFFSET(RBP, 2), ADVANCE(3), DEF_CFA_REGISTER(RBP),
                 ADVANCE(0x20), DEF_CFA(RSP, 8)));
    function(&p, 0x1200, 0x40, CFI(ADVANCE(4), DEF_CFA_OFFSET(0x20)));
    interrupted_at(&p, CODE_AT + 0x1208, STACK_AT);
    set_register(&p, RBP, STACK_AT + 0x40);
    put(&p, STACK_AT + 0x18, CODE_AT + 0x1110); /* inner's return address */
    put(&p, STACK_AT + 0x40, 0xf0);             /* main's rbp, whatever it is */
    put(&p, STACK_AT + 0x48, CODE_AT + 0x1020);
}

static void rules_lead_from_frame_to_frame(void) {
    three_functions();
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}, {CODE_AT + 0x1020, BY_CFI}));
}

/* At inner's first instruction nothing has been pushed. */
static void rules_hold_for_single_instructions(void) {
    three_functions();
    interrupted_at(&p, CODE_AT + 0x1200, STACK_AT + 0x18);
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1200, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}, {CODE_AT + 0x1020, BY_CFI}));
}

/* A call that does not return may be its function's last instruction: its return address is the start
 * of the next function, whose rule it must not get. */
static void a_return_address_belongs_to_the_call_before_it(void) {
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1040, 0x40, CFI(DEF_CFA_OFFSET(0x30)));
    function(&p, 0x1080, 0x40, CFI(DEF_CFA_OFFSET(0x10)));
    interrupted_at(&p, CODE_AT + 0x1080, STACK_AT); /* the first instruction itself, interrupted */
    set_register(&p, RBP, 0);
    put(&p, STACK_AT + 8, CODE_AT + 0x1080);
    put(&p, STACK_AT + 0x38, CODE_AT + 0x1040);
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1080, INTERRUPTED}, {CODE_AT + 0x1080, BY_CFI}, {CODE_AT + 0x1040, BY_CFI}));
    p.registers.pc_is_return_address = 1;
    put(&p, STACK_AT + 0x28, CODE_AT + 0x1040);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1080, INTERRUPTED}, {CODE_AT + 0x1040, BY_CFI}));
}

/* An epilogue has popped rbp; the CFI still says "rbp at CFA - 16". */
static void a_popped_frame_pointer_is_in_its_register(void) {
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40, CFI(OFFSET(RBP, 2), ADVANCE(0x20), DEF_CFA(RBP, 16)));
    interrupted_at(&p, CODE_AT + 0x1108, STACK_AT + 0x10); /* at the ret */
    set_register(&p, RBP, STACK_AT + 0x40);                /* the caller's */
    put(&p, STACK_AT + 8, 0xbad);                          /* where rbp was */
    put(&p, STACK_AT + 0x10, CODE_AT + 0x1130);
    put(&p, STACK_AT + 0x48, CODE_AT + 0x1020);
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1108, INTERRUPTED}, {CODE_AT + 0x1130, BY_CFI}, {CODE_AT + 0x1020, BY_CFI}));
}

static void without_a_frame_pointer_there_is_no_way(void) {
    three_functions();
    p.registers.known &= ~(UINT64_C(1) << RBP);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}));
    begin_process(&p, UNSPOOL_X86_64);
    function(&p, 0x1000, 0x40, CFI(UNDEFINED(RBP)));
    function(&p, 0x1100, 0x40, CFI(DEF_CFA(RBP, 16)));
    interrupted_at(&p, CODE_AT + 0x1000, STACK_AT);
    set_register(&p, RBP, STACK_AT + 0x40); /* not the caller's any more */
    put(&p, STACK_AT, CODE_AT + 0x1110);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + 0x1000, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}));
}

/* The copy of the stack ends before a word that is needed: that is never the root. */
static void a_stack_copy_that_is_too_short(void) {
    for (uint64_t size = 0; size < 0x50; size++) {
        three_functions();
        p.memory.stack.size = size;
        uint32_t end = size ? UNSPOOL_END_STACK_BYTES_ENDED : UNSPOOL_END_UNREADABLE_MEMORY;
        if (size < 0x20)
            expect_walk(&p, end, FRAMES({CODE_AT + 0x1208, INTERRUPTED}));
        else
            expect_walk(&p, end, FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}));
    }
}

static void memory_that_is_not_there(void) {
    three_functions();
    set_register(&p, RBP, 0x900000000);
    expect_walk(&p, UNSPOOL_END_UNREADABLE_MEMORY,
                FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}));
    three_functions();
    interrupted_at(&p, CODE_AT + 0x1130, STACK_AT); /* CFA = rsp + 8 */
    set_register(&p, RSP, UINT64_MAX - 3);
    expect_stack(&p, UNSPOOL_END_UNREADABLE_MEMORY, FRAMES({CODE_AT + 0x1130, INTERRUPTED}), MOST_FRAMES);
}

static void a_frame_that_makes_no_progress_is_a_loop(void) {
    three_functions();
    set_register(&p, RBP, STACK_AT + 0x10); /* CFA = sp at outer */
    put(&p, STACK_AT + 0x10, 0);
    put(&p, STACK_AT + 0x18, CODE_AT + 0x1110);
    expect_walk(&p, UNSPOOL_END_LOOP, FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}));
    three_functions();
    interrupted_at(&p, CODE_AT + 0x1110, STACK_AT + 0x40); /* rbp leads below sp */
    p.memory.stack = (struct unspool_region){STACK_AT, STACK_END - STACK_AT, (const uint8_t *)p.stack};
    set_register(&p, RBP, STACK_AT);
    put(&p, STACK_AT + 8, CODE_AT + 0x1020);
    expect_stack(&p, UNSPOOL_END_LOOP, FRAMES({CODE_AT + 0x1110, INTERRUPTED}), MOST_FRAMES);
}

/* Frames that go on for ever end at the limit. */
static void recursion_ends_at_the_depth_limit(void) {
    three_functions();
    for (uint64_t at = 0; at < STACK_WORDS; at++)
        put(&p, STACK_AT + 8 * at, CODE_AT + 0x1138); /* CFA = rsp + 8 */
    p.registers.value[RIP] = CODE_AT + 0x1138;
    compile_process(&p);
    struct expected_frame frames[MOST_FRAMES];
    for (size_t i = 0; i < MOST_FRAMES; i++)
        frames[i] = (struct expected_frame){CODE_AT + 0x1138, i ? BY_CFI : INTERRUPTED};
    expect_stack(&p, UNSPOOL_END_DEPTH_LIMIT, frames, MOST_FRAMES, MOST_FRAMES);
}

/* What is no code is no frame: 0x4cd is what one real profiler followed. */
static void a_bad_return_address_ends_the_stack(void) {
    const uint64_t bad[] = {0,
                            1,
                            0x4cd,
                            CODE_AT, /* nothing before it can have called */
                            CODE_AT + CODE_SIZE + 1,
                            STACK_AT,
                            (uint64_t)INT64_MIN,
                            UINT64_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        three_functions();
        put(&p, STACK_AT + 0x48, bad[i]);
        expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS,
                    FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}));
    }
}

static void the_last_byte_of_a_mapping_may_be_a_call(void) {
    three_functions();
    root_function(&p, CODE_SIZE - 0x10, 0x10);
    put(&p, STACK_AT + 0x48, CODE_AT + CODE_SIZE);
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}, {CODE_AT + CODE_SIZE, BY_CFI}));
}

/* A return address of 0 has the lookup address that empty cache entries have. */
static void an_empty_cache_entry_matches_nothing(void) {
    three_functions();
    p.registers.pc_is_return_address = 1;
    p.registers.value[RIP] = 0;
    expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({0, INTERRUPTED}));
}

static void a_module_without_a_table(void) {
    three_functions();
    compile_process(&p);
    p.modules[0].table = NULL;
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1208, INTERRUPTED}));
}

/* A file with two executable mappings, and another file behind it with a table of its own. */
static void several_modules(void) {
    three_functions();
    compile_process(&p);
    p.modules[0].end = CODE_AT + 0x1100;
    p.modules[1] = p.modules[0];
    p.modules[1].start = CODE_AT + 0x1100;
    p.modules[1].end = CODE_AT + CODE_SIZE;
    p.modules[1].code = NULL;
    p.modules[2] = (struct unspool_module){
        .start = 0x900000, .end = 0x902000, .image_base = 0x900000 - 0x1000, .table = p.table};
    p.unwinder.module_count = 3;
    put(&p, STACK_AT + 0x48, 0x900000 + 0x110); /* outer again, in the other file */
    put(&p, STACK_AT + 0x40, STACK_AT + 0x80);
    put(&p, STACK_AT + 0x88, CODE_AT + 0x1020);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + 0x1208, INTERRUPTED}, {CODE_AT + 0x1110, BY_CFI}, {0x900110, BY_CFI},
                       {CODE_AT + 0x1020, BY_CFI}));
}

/* A jump through a bad pointer: the caller is at [rsp], if a call stands before it. */
static void an_unmapped_pc(void) {
    three_functions();
    interrupted_at(&p, 0x4cd, STACK_AT + 0x18);
    expect_walk(&p, UNSPOOL_END_UNMAPPED_PC, FRAMES({0x4cd, INTERRUPTED}));
    put_code(&p, 0x1110 - 2, CFI(0xff, 0xd0)); /* call *%rax */
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({0x4cd, INTERRUPTED}, {CODE_AT + 0x1110, BY_LEAF | GUESSED}, {CODE_AT + 0x1020, BY_CFI}));
    p.registers.pc_is_return_address = 1;
    expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({0x4cd, INTERRUPTED}));
}

/* That no call leads anywhere that is known is no proof that one leads to 0. */
static void a_jump_to_null(void) {
    three_functions();
    interrupted_at(&p, 0, STACK_AT + 0x18);
    put_code(&p, 0x1110 - 2, CFI(0xff, 0xd0)); /* call *%rax */
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({0, INTERRUPTED}, {CODE_AT + 0x1110, BY_LEAF | GUESSED}, {CODE_AT + 0x1020, BY_CFI}));
    set_register(&p, RAX, 0);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({0, INTERRUPTED}, {CODE_AT + 0x1110, BY_LEAF}, {CODE_AT + 0x1020, BY_CFI}));
    set_register(&p, RAX, 8);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({0, INTERRUPTED}, {CODE_AT + 0x1110, BY_LEAF | GUESSED}, {CODE_AT + 0x1020, BY_CFI}));
}

int main(void) {
    RUN(rules_lead_from_frame_to_frame);
    RUN(rules_hold_for_single_instructions);
    RUN(a_return_address_belongs_to_the_call_before_it);
    RUN(a_popped_frame_pointer_is_in_its_register);
    RUN(without_a_frame_pointer_there_is_no_way);
    RUN(a_stack_copy_that_is_too_short);
    RUN(memory_that_is_not_there);
    RUN(a_frame_that_makes_no_progress_is_a_loop);
    RUN(recursion_ends_at_the_depth_limit);
    RUN(a_bad_return_address_ends_the_stack);
    RUN(the_last_byte_of_a_mapping_may_be_a_call);
    RUN(an_empty_cache_entry_matches_nothing);
    RUN(a_module_without_a_table);
    RUN(several_modules);
    RUN(an_unmapped_pc);
    RUN(a_jump_to_null);
    end_process(&p);
    return check_result();
}
