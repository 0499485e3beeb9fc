/*
 * test_fallback.c: steps where no file says anything (fallback.c): what is tried, in which order, and
 * which of it is a proof. What code analysis itself finds: test_analysis.c.
 */
#include "process.h"

static struct process p;

enum { OUTER = 0x1100, ROOT = 0x1000, UNKNOWN = 0x2000, CALL_SIZE = 5 };
#define RETURNED (CODE_AT + OUTER + 0x10)
#define SP STACK_AT

/* Code at UNKNOWN without CFI, interrupted there; outer, which has some, is at SP + 8 or at a record. */
static void begin(uint32_t arch, const uint8_t *code, size_t size) {
    const uint8_t ra = arch == UNSPOOL_AARCH64 ? X30 : RIP;
    begin_process(&p, arch);
    root_function(&p, ROOT, 0x40);
    function(&p, OUTER, 0x40, CFI(DEF_CFA_OFFSET(0x20), OFFSET(ra, 1)));
    put_code(&p, UNKNOWN, code, size);
    interrupted_at(&p, CODE_AT + UNKNOWN, SP);
    set_register(&p, fp_register(arch), 0xf0);
}

/* What stands before RETURNED: a direct call of UNKNOWN, or an indirect one. */
static void direct_call(void) {
    if (p.unwinder.arch == UNSPOOL_AARCH64)
        put_code(&p, OUTER + 0xc, CFI(U32(0x94000000 | (UNKNOWN - OUTER - 0xc) / 4)));
    else
        put_code(&p, OUTER + 0x10 - CALL_SIZE, CFI(0xe8, U32(UNKNOWN - OUTER - 0x10)));
}

static void indirect_call(void) {
    if (p.unwinder.arch == UNSPOOL_AARCH64)
        put_code(&p, OUTER + 0xc, CFI(U32(0xd63f0200))); /* blr x16 */
    else
        put_code(&p, OUTER + 0xe, CFI(0xff, 0xd0)); /* call *%rax */
}

static void expect_outer(uint32_t how) {
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + UNKNOWN, INTERRUPTED}, {RETURNED, how}, {CODE_AT + ROOT + 8, BY_CFI}));
}

static void expect_nothing(void) {
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + UNKNOWN, INTERRUPTED}));
}

/* A leaf's caller, and outer's behind it. */
static void leaf_stack(void) {
    uint64_t outer_sp = p.unwinder.arch == UNSPOOL_AARCH64 ? SP : SP + 8;
    if (p.unwinder.arch == UNSPOOL_AARCH64)
        set_register(&p, X30, RETURNED);
    else
        put(&p, SP, RETURNED);
    put(&p, outer_sp + 0x18, CODE_AT + ROOT + 8);
}

/* A frame record at SP + 0x40. */
static void record_stack(void) {
    set_register(&p, fp_register(p.unwinder.arch), SP + 0x40);
    put(&p, SP + 0x40, 0xf1);
    put(&p, SP + 0x48, RETURNED);
    put(&p, SP + 0x50 + 0x18, CODE_AT + ROOT + 8);
    if (p.unwinder.arch == UNSPOOL_AARCH64)
        set_register(&p, X30, 0xbad);
}

/* Code that nobody can follow. */
#define X86_64_JUMP CFI(0xff, 0xe0)       /* jmp *%rax */
#define AARCH64_JUMP CFI(U32(0xd61f0200)) /* br x16 */

static void code_that_can_be_followed(void) {
    begin(UNSPOOL_X86_64, CFI(0x90, 0xc3)); /* nop; ret */
    leaf_stack();
    expect_outer(BY_CODE);
    begin(UNSPOOL_AARCH64, CFI(U32(0xd503201f), U32(0xd65f03c0)));
    leaf_stack();
    expect_outer(BY_CODE);
}

static void a_plt_stub(void) {
    begin(UNSPOOL_X86_64, CFI(0xff, 0x25, U32(0x100), 0x68, U32(1), 0xe9, U32(-0x20)));
    leaf_stack();
    expect_outer(BY_PLT);
}

static void a_leaf_that_was_called_directly(void) {
    begin(UNSPOOL_X86_64, X86_64_JUMP);
    leaf_stack();
    direct_call();
    expect_outer(BY_LEAF);
    begin(UNSPOOL_AARCH64, AARCH64_JUMP);
    leaf_stack();
    direct_call();
    expect_outer(BY_LEAF);
}

/* That some call stands before a return address is no proof. */
static void a_leaf_that_was_called_somehow(void) {
    begin(UNSPOOL_X86_64, X86_64_JUMP);
    leaf_stack();
    indirect_call();
    expect_outer(BY_LEAF | GUESSED);
    begin(UNSPOOL_AARCH64, AARCH64_JUMP);
    leaf_stack();
    indirect_call();
    expect_outer(BY_LEAF | GUESSED);
}

static void what_was_not_called_has_no_caller(void) {
    begin(UNSPOOL_X86_64, X86_64_JUMP);
    leaf_stack();
    expect_nothing();
    begin(UNSPOOL_AARCH64, AARCH64_JUMP);
    leaf_stack();
    expect_nothing();
}

/* A call of another function proves nothing about this one. */
static void a_direct_call_of_another_function(void) {
    begin(UNSPOOL_X86_64, X86_64_JUMP);
    leaf_stack();
    put_code(&p, OUTER + 0x10 - CALL_SIZE, CFI(0xe8, U32(0x2800 - OUTER - 0x10)));
    put_code(&p, 0x2800, CFI(0xc3));
    expect_outer(BY_LEAF | GUESSED);
}

static void a_frame_record(void) {
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        if (arch == UNSPOOL_AARCH64)
            begin(arch, AARCH64_JUMP);
        else
            begin(arch, X86_64_JUMP);
        record_stack();
        indirect_call();
        expect_outer(BY_FRAME_POINTER | GUESSED);
        p.registers.known &= ~(UINT64_C(1) << fp_register(arch));
        expect_nothing();
    }
}

/* Interrupted in code without a file, which was entered by a jump from other such code, which outer called.
 */
static void frame_records_of_code_that_was_made_at_run_time(void) {
    static const uint8_t jumps[64] = {0xff, 0xe0, [32] = 0xff, 0xe0};
    begin(UNSPOOL_X86_64, X86_64_JUMP);
    p.modules[1] = (struct unspool_module){.start = CODE_AT + 0x10000,
                                           .end = CODE_AT + 0x10040,
                                           .image_base = CODE_AT + 0x10000,
                                           .code = jumps,
                                           .code_size = sizeof jumps};
    p.unwinder.module_count = 2;
    record_stack();
    indirect_call();
    interrupted_at(&p, CODE_AT + 0x10000, SP);
    set_register(&p, RBP, SP + 0x20);
    put(&p, SP + 0x20, SP + 0x40);
    put(&p, SP + 0x28, CODE_AT + 0x10020);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + 0x10000, INTERRUPTED}, {CODE_AT + 0x10020, BY_FRAME_POINTER | GUESSED},
                       {RETURNED, BY_FRAME_POINTER | GUESSED}, {CODE_AT + ROOT + 8, BY_CFI}));
    put_code(&p, OUTER + 0xe, CFI(0x90, 0x90)); /* what has a file is only returned to behind a call */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + 0x10000, INTERRUPTED}, {CODE_AT + 0x10020, BY_FRAME_POINTER | GUESSED}));
    put(&p, SP + 0x20, 0xf0); /* a chain that does not go on */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x10000, INTERRUPTED}));
}

static void frame_records_that_cannot_be(void) {
    begin(UNSPOOL_X86_64, X86_64_JUMP);
    record_stack(); /* no call stands before its return address */
    expect_nothing();
    begin(UNSPOOL_X86_64, X86_64_JUMP);
    record_stack();
    indirect_call();
    set_register(&p, RBP, SP + 0x41);
    memmove((uint8_t *)p.stack + 0x41, (uint8_t *)p.stack + 0x40, 16); /* not aligned */
    expect_nothing();
    begin(UNSPOOL_X86_64, X86_64_JUMP);
    record_stack();
    indirect_call();
    interrupted_at(&p, CODE_AT + UNKNOWN, SP + 0x48); /* the record lies below sp */
    p.memory.stack = (struct unspool_region){SP, sizeof p.stack, (const uint8_t *)p.stack};
    put(&p, SP + 0x48, 0);
    expect_stack(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + UNKNOWN, INTERRUPTED}), MOST_FRAMES);
    begin(UNSPOOL_X86_64, X86_64_JUMP);
    record_stack();
    indirect_call();
    p.memory.stack.size = 0x48; /* half of it is missing */
    expect_nothing();
}

/* A caller that is no leaf: only its own code can say where its return address is. */
static void a_caller_without_cfi(void) {
    begin(UNSPOOL_X86_64, CFI(0x90));
    put_code(&p, UNKNOWN, CFI(0x48, 0x83, 0xec, 0x18, 0xe8, U32(0x100), 0x48, 0x83, 0xc4, 0x18, 0xc3));
    interrupted_at(&p, CODE_AT + OUTER, SP); /* outer calls itself unknown here; CFA = rsp + 0x20 */
    put(&p, SP + 0x18, CODE_AT + UNKNOWN + 9);
    put(&p, SP + 0x20 + 0x18, RETURNED);
    put(&p, SP + 0x40 + 0x18, CODE_AT + ROOT + 8);
    direct_call();
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + OUTER, INTERRUPTED}, {CODE_AT + UNKNOWN + 9, BY_CFI}, {RETURNED, BY_CODE},
                       {CODE_AT + ROOT + 8, BY_CFI}));
}

/* What a recipe says nothing about is not known afterwards. */
static void other_registers_are_forgotten(void) {
    begin(UNSPOOL_X86_64, CFI(0x90, 0xc3));
    leaf_stack();
    set_register(&p, RBX, 1);
    compile_process(&p);
    struct unspool_registers registers = p.registers;
    uint32_t how = 0, end = 0;
    CHECK_EQUAL(unspool_step(&p.unwinder, &registers, &p.memory, &how, &end), 1);
    CHECK_EQUAL(how, UNSPOOL_HOW_CODE_ANALYSIS);
    CHECK_EQUAL(registers.known, 1u << RIP | 1u << RSP | 1u << RBP);
    CHECK_EQUAL(registers.value[RIP], RETURNED);
    CHECK_EQUAL(registers.value[RSP], SP + 8);
    CHECK_EQUAL(registers.pc_is_return_address, 1);
}

int main(void) {
    RUN(code_that_can_be_followed);
    RUN(a_plt_stub);
    RUN(a_leaf_that_was_called_directly);
    RUN(a_leaf_that_was_called_somehow);
    RUN(what_was_not_called_has_no_caller);
    RUN(a_direct_call_of_another_function);
    RUN(a_frame_record);
    RUN(frame_records_of_code_that_was_made_at_run_time);
    RUN(frame_records_that_cannot_be);
    RUN(a_caller_without_cfi);
    RUN(other_registers_are_forgotten);
    end_process(&p);
    return check_result();
}
