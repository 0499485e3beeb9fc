/*
 * test_walk_leaps.c: aarch64 code that goes elsewhere than to its caller, or has none: longjmp, new threads,
 * a program's start, exceptions; and a return address in a register of its own.
 *
 * root (0x1000) has no caller; at 0x1010 it calls f (0x1100), at 0x1014 through x3.
 */
#include "process.h"

enum { ROOT = 0x1000, CALLED = 0x1014, BY_REGISTER = 0x1018, F = 0x1100, G = 0x1200, X0_ = 0, X3 = 3 };

static const uint8_t calls[] = {U32(0x9400003c), U32(0xd63f0060)}; /* bl 0x1100; blr x3 */
static struct process p;

static void begin(const uint8_t *code, size_t size) {
    begin_process(&p, UNSPOOL_AARCH64);
    root_function(&p, ROOT, 0x40);
    put_code(&p, CALLED - 4, calls, sizeof calls);
    put_code(&p, F, code, size);
    set_register(&p, X29, 0);
    set_register(&p, X30, CODE_AT + CALLED);
}

static void expect_caller(uint32_t offset, uint64_t sp, uint32_t how) {
    interrupted_at(&p, CODE_AT + F + offset, sp);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + F + offset, INTERRUPTED}, {CODE_AT + CALLED, how}));
}

static void expect_caller_is(uint32_t offset, uint32_t caller, uint32_t how) {
    interrupted_at(&p, CODE_AT + F + offset, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + F + offset, INTERRUPTED}, {CODE_AT + caller, how}));
}

static void expect_none(uint32_t offset, uint64_t sp, uint32_t end) {
    interrupted_at(&p, CODE_AT + F + offset, sp);
    expect_walk(&p, end, FRAMES({CODE_AT + F + offset, INTERRUPTED}));
}

/* musl's longjmp has no CFI. The frame record at x29 is the destination's, or nobody's; where sp is the
 * destination's, too, nothing tells it from a caller. */
static void what_longjmp_leaves_is_no_frame(void) {
    static const uint8_t code[] = {
        U32(0xa940507d), /* 0x1100 ldp x29, x20, [x3] */
        U32(0xf940087e), /* 0x1104 ldr x30, [x3, #16] */
        U32(0xf9400c62), /* 0x1108 ldr x2, [x3, #24] */
        U32(0x9100005f), /* 0x110c mov sp, x2 */
        U32(0xd61f03c0), /* 0x1110 br x30 */
    };
    begin(code, sizeof code);
    put(&p, STACK_AT + 0x80, STACK_AT + 0x100); /* a frame record */
    put(&p, STACK_AT + 0x88, CODE_AT + BY_REGISTER);
    set_register(&p, X29, STACK_AT + 0x80);
    expect_caller(0, STACK_AT, BY_LEAF);
    expect_caller(4, STACK_AT, BY_LEAF); /* x29 is the destination's */
    set_register(&p, X30, CODE_AT + BY_REGISTER);
    expect_none(8, STACK_AT, UNSPOOL_END_NO_UNWIND_INFO);
    expect_none(12, STACK_AT, UNSPOOL_END_NO_UNWIND_INFO);
    expect_caller_is(16, BY_REGISTER, BY_CODE | GUESSED); /* here all is as at the destination */
    begin(code, sizeof code);
    function(&p, F, sizeof code, NO_CFI);
    set_register(&p, X30, CODE_AT + BY_REGISTER);
    expect_caller_is(16, BY_REGISTER, BY_CFI | GUESSED);
}

/* Behind the system call both threads run the same code, with the same lr. x0 tells them apart. */
static void expect_two_threads(uint32_t offset, uint32_t how) {
    set_register(&p, X0_, 0);
    expect_none(offset, STACK_AT, UNSPOOL_END_ROOT);
    set_register(&p, X0_, 1234);
    expect_caller(offset, STACK_AT, how);
    p.registers.known &= ~UINT64_C(1);
    expect_none(offset, STACK_AT, UNSPOOL_END_NO_UNWIND_INFO);
}

static void a_new_thread_of_glibc_has_no_caller(void) {
    static const uint8_t code[] = {
        U32(0xd4000001), /* 0x1100 svc #0 */
        U32(0xf100001f), /* 0x1104 cmp x0, #0 */
        U32(0x54000040), /* 0x1108 b.eq 0x1110 */
        U32(0xd65f03c0), /* 0x110c ret */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code, NO_CFI);
    root_function(&p, F + 16, 0x10);
    expect_caller(0, STACK_AT, BY_CFI);
    expect_two_threads(4, BY_CFI);
    expect_two_threads(8, BY_CFI);
    set_register(&p, X0_, 0);
    expect_caller(12, STACK_AT, BY_CFI);
}

static void a_new_thread_of_musl_has_no_caller(void) {
    static const uint8_t code[] = {
        U32(0xd4000001), /* 0x1100 svc #0 */
        U32(0xb4000040), /* 0x1104 cbz x0, 0x110c */
        U32(0xd65f03c0), /* 0x1108 ret */
        U32(0xd280001d), /* 0x110c mov x29, #0 */
        U32(0xa8c103e1), /* 0x1110 ldp x1, x0, [sp], #16 */
        U32(0xd63f0020), /* 0x1114 blr x1 */
        U32(0xd2800ba8), /* 0x1118 mov x8, #93 */
        U32(0xd4000001), /* 0x111c svc #0 */
    };
    begin(code, sizeof code);
    expect_two_threads(4, BY_CODE);
    for (uint32_t offset = 12; offset <= 20; offset += 4)
        expect_none(offset, STACK_AT, UNSPOOL_END_ROOT);
    p.code[F + 0x18] = 0x88; /* mov x8, #92: it goes on */
    expect_caller(12, STACK_AT, BY_LEAF);
}

/* musl's start code jumps on with an lr of 0: the outermost function's CFA is where the kernel put argc. */
static void a_program_begins_above_its_arguments(void) {
    static const uint64_t arguments[] = {2, STACK_AT + 0x180, STACK_AT + 0x190, 0};
    for (int wrong = 0; wrong < 4; wrong++) {
        begin(calls, 0);
        function(&p, F, 0x20, CFI(DEF_CFA_OFFSET(0x40), OFFSET(X30, 2)));
        put(&p, STACK_AT + 0x30, 0);
        for (uint64_t i = 0; i < 4; i++)
            put(&p, STACK_AT + 0x40 + 8 * i, arguments[i]);
        if (wrong)
            put(&p,
                STACK_AT + 0x40 +
                    (wrong == 1   ? 0
                     : wrong == 2 ? 8
                                  : 24),
                wrong == 1 ? UINT64_C(1) << 40 : 8);
        expect_none(8, STACK_AT, wrong ? UNSPOOL_END_BAD_RETURN_ADDRESS : UNSPOOL_END_ROOT);
    }
}

/* A function that never returns is called by the last instruction before it. */
static void a_call_of_what_follows_it_is_no_loop(void) {
    static const uint8_t code[] = {U32(0x94000001)}; /* 0x1100 bl 0x1104 */
    begin(code, sizeof code);
    function(&p, F, 4, CFI(DEF_CFA_OFFSET(16), OFFSET(X30, 2)));
    function(&p, F + 4, 0x20, NO_CFI);
    put(&p, STACK_AT, CODE_AT + CALLED);
    set_register(&p, X30, CODE_AT + F + 4);
    interrupted_at(&p, CODE_AT + F + 4, STACK_AT);
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + F + 4, INTERRUPTED}, {CODE_AT + F + 4, BY_CFI}, {CODE_AT + CALLED, BY_CFI}));
    set_register(&p, X30, CODE_AT + F + 8);
    expect_none(8, STACK_AT, UNSPOOL_END_LOOP); /* no call is before it */
}

/* A call through a register leads to pc, if the register still says so. */
static void a_jump_to_nowhere_is_proved_by_its_register(void) {
    begin(calls, 0);
    set_register(&p, X30, CODE_AT + BY_REGISTER);
    set_register(&p, X3, 0x10);
    interrupted_at(&p, 0x10, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({0x10, INTERRUPTED}, {CODE_AT + BY_REGISTER, BY_LEAF}));
    set_register(&p, X3, 0x20);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({0x10, INTERRUPTED}, {CODE_AT + BY_REGISTER, BY_LEAF | GUESSED}));
}

/* glibc's rawmemchr: x15 holds the return address while it calls strlen, by its CIE from the start. */
static void a_return_address_in_another_register(void) {
    static const uint8_t code[] = {
        U32(0xaa1e03ef), /* 0x1100 mov x15, x30 */
        U32(0x9400003f), /* 0x1104 bl 0x1200 */
        U32(0xd65f01e0), /* 0x1108 ret x15 */
    };
    struct cie_shape by_x15;
    by_x15 = aarch64_cie;
    by_x15.return_address_register = 15;
    begin(code, sizeof code);
    write_fde(&p.eh_frame, write_cie(&p.eh_frame, &by_x15), F, sizeof code, NO_CFI);
    function(&p, G, 0x40, NO_CFI);
    set_register(&p, 15, 0xbad);
    expect_caller(0, STACK_AT, BY_LEAF);
    expect_caller(4, STACK_AT, BY_LEAF);
    set_register(&p, 15, CODE_AT + CALLED);
    set_register(&p, X30, CODE_AT + F + 8);
    expect_caller(8, STACK_AT, EXACTLY);
    interrupted_at(&p, CODE_AT + G, STACK_AT);
    /* A walk remembers x15; who steps has lost it. */
    expect_stack(&p, UNSPOOL_END_ROOT,
                 FRAMES({CODE_AT + G, INTERRUPTED}, {CODE_AT + F + 8, BY_CFI}, {CODE_AT + CALLED, EXACTLY}),
                 MOST_FRAMES);
    set_register(&p, 15, CODE_AT + BY_REGISTER); /* not of a call of f, by what can be seen */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + G, INTERRUPTED}, {CODE_AT + F + 8, BY_CFI}));
}

/* An unwinder with two calls to come before it leaves has not touched its frame, whoever called it. */
static void an_unwinder_that_has_written_nothing_is_as_good_as_any(void) {
    static const uint8_t code[] = {
        U32(0xa9be7bfd), /* 0x1100 stp x29, x30, [sp, #-32]! */
        U32(0xa90103e0), /* 0x1104 stp x0, x0, [sp, #16] */
        U32(0x9400003e), /* 0x1108 bl 0x1200 */
        U32(0x9400003d), /* 0x110c bl 0x1200 */
        U32(0x910083ff), /* 0x1110 add sp, sp, #32 */
        U32(0x8b2463ff), /* 0x1114 add sp, sp, x4 */
        U32(0xd65f03c0), /* 0x1118 ret */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code,
             CFI(ADVANCE(1), DEF_CFA_OFFSET(32), OFFSET(X29, 4), OFFSET(X30, 3), ADVANCE(1), OFFSET(0, 2),
                 OFFSET(1, 1), ADVANCE(3), DEF_CFA_OFFSET(0), RESTORE(X29), RESTORE(X30), RESTORE(0),
                 RESTORE(1)));
    put(&p, STACK_AT + 8, CODE_AT + BY_REGISTER); /* of a call that may lead anywhere */
    interrupted_at(&p, CODE_AT + F + 8, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + F + 8, INTERRUPTED}, {CODE_AT + BY_REGISTER, EXACTLY}));
    expect_none(12, STACK_AT, UNSPOOL_END_BAD_RETURN_ADDRESS); /* it may be the handler's */
    put(&p, STACK_AT + 8, CODE_AT + CALLED);
    expect_caller(12, STACK_AT, EXACTLY | GUESSED);
    expect_none(16, STACK_AT, UNSPOOL_END_BAD_RETURN_ADDRESS);
    set_register(&p, X30, CODE_AT + BY_REGISTER);
    expect_caller_is(24, BY_REGISTER, EXACTLY | GUESSED); /* the handler, or the caller: x4 may have been 0 */
}

/* Code that goes on on another stack for a while has its own return address on its own. */
static void a_function_that_comes_back_to_its_stack_returns(void) {
    static const uint8_t code[] = {
        U32(0xa9be4ffe), /* 0x1100 stp x30, x19, [sp, #-32]! */
        U32(0x910003f3), /* 0x1104 mov x19, sp */
        U32(0x9100003f), /* 0x1108 mov sp, x1 */
        U32(0xd63f0040), /* 0x110c blr x2 */
        U32(0x9100027f), /* 0x1110 mov sp, x19 */
        U32(0xa8c24ffe), /* 0x1114 ldp x30, x19, [sp], #32 */
        U32(0xd65f03c0), /* 0x1118 ret */
    };
    begin(code, sizeof code);
    set_register(&p, X30, CODE_AT + BY_REGISTER);
    expect_caller_is(24, BY_REGISTER, BY_CODE);
}

int main(void) {
    RUN(what_longjmp_leaves_is_no_frame);
    RUN(a_new_thread_of_glibc_has_no_caller);
    RUN(a_new_thread_of_musl_has_no_caller);
    RUN(a_program_begins_above_its_arguments);
    RUN(a_call_of_what_follows_it_is_no_loop);
    RUN(a_jump_to_nowhere_is_proved_by_its_register);
    RUN(a_return_address_in_another_register);
    RUN(an_unwinder_that_has_written_nothing_is_as_good_as_any);
    RUN(a_function_that_comes_back_to_its_stack_returns);
    end_process(&p);
    return check_result();
}
