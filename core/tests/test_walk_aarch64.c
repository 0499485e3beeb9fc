/*
 * test_walk_aarch64.c: code of aarch64 systems whose unwind information says less than is true, or another
 * thing: glibc's start code, resolver, contexts and longjmp, gcc's unwinder and trampolines.
 *
 * root (0x1000) has no caller; at 0x1010 it calls f (0x1100).
 */
#include "process.h"

enum { ROOT = 0x1000, CALLED = 0x1014, F = 0x1100, G = 0x1200 };

static const uint8_t call_f[] = {U32(0x9400003c)}; /* bl 0x1100, at 0x1010 */
static struct process p;

static void begin(const uint8_t *code, size_t size) {
    begin_process(&p, UNSPOOL_AARCH64);
    root_function(&p, ROOT, 0x40);
    put_code(&p, CALLED - 4, call_f, sizeof call_f);
    put_code(&p, F, code, size);
    set_register(&p, X29, 0);
    set_register(&p, X30, CODE_AT + CALLED);
}

/* f + offset, called by root. */
static void expect_caller(uint32_t offset, uint32_t how) {
    interrupted_at(&p, CODE_AT + F + offset, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + F + offset, INTERRUPTED}, {CODE_AT + CALLED, how}));
}

static void expect_none(uint32_t offset, uint32_t end) {
    interrupted_at(&p, CODE_AT + F + offset, STACK_AT);
    expect_walk(&p, end, FRAMES({CODE_AT + F + offset, INTERRUPTED}));
}

/* _dl_runtime_resolve: the PLT's header has pushed x16 and x30, and the CFA leaves these 16 bytes out. */
static void what_a_plt_pushed_lies_behind_the_cfa(void) {
    begin(call_f, 0);
    function(&p, F, 0x20,
             CFI(ADVANCE(1), OFFSET_EXTENDED_SF(X30, -1), ADVANCE(1), DEF_CFA_OFFSET(32), OFFSET(8, 4),
                 ADVANCE(4), DEF_CFA_OFFSET(0), ADVANCE(1), DEF_CFA_OFFSET_SF(2)));
    function(&p, G, 0x40,
             CFI(DEF_CFA_OFFSET(16), OFFSET(X30, 1))); /* whose CFA shows where its callee's was */
    static const struct {
        uint32_t offset, pushed;
    } at[] = {{0, 16}, {4, 16}, {8, 48}, {20, 48}, {24, 16}, {28, 0}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        uint64_t sp = STACK_AT + 64 - at[i].pushed;
        bool in_lr = at[i].offset == 0 || at[i].offset == 28;
        interrupted_at(&p, CODE_AT + F + at[i].offset, sp);
        set_register(&p, X30, in_lr ? CODE_AT + G + 8 : 0xbad);
        put(&p, STACK_AT + 56, CODE_AT + G + 8);
        put(&p, STACK_AT + 72, CODE_AT + CALLED);
        expect_walk(&p, UNSPOOL_END_ROOT,
                    FRAMES({CODE_AT + F + at[i].offset, INTERRUPTED}, {CODE_AT + G + 8, EXACTLY},
                           {CODE_AT + CALLED, BY_CFI}));
    }
}

/* longjmp: its CFI describes the registers in the buffer at x0, which are no frame. */
static void a_context_in_memory_is_no_frame(void) {
    static const uint8_t code[] = {
        U32(0xa9400013), /* 0x1100 ldp x19, x0, [x0] */
        U32(0xaa0403fe), /* 0x1104 mov x30, x4 */
        U32(0x910000bf), /* 0x1108 mov sp, x5 */
        U32(0xd2800020), /* 0x110c mov x0, #1 */
        U32(0xd61f03c0), /* 0x1110 br x30 */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code, CFI(DEF_CFA(X0, 0), OFFSET_EXTENDED_SF(X30, 0)));
    set_register(&p, X0, STACK_AT + 0x80);
    put(&p, STACK_AT + 0x80, CODE_AT + G);
    expect_caller(0, BY_LEAF);
    expect_caller(4, BY_LEAF); /* lr is still f's own */
    expect_none(8, UNSPOOL_END_NO_UNWIND_INFO);
    expect_none(12, UNSPOOL_END_NO_UNWIND_INFO);
    expect_none(16, UNSPOOL_END_NO_UNWIND_INFO);
}

/* swapcontext has no CFI: once lr holds another address, nobody knows the caller. */
static void a_changed_lr_is_no_return_address(void) {
    static const uint8_t code[] = {
        U32(0xf9000000), /* 0x1100 str x0, [x0] */
        U32(0x1000007e), /* 0x1104 adr x30, 0x1110 */
        U32(0xd4000001), /* 0x1108 svc #0 */
        U32(0xd65f03c0), /* 0x110c ret */
        U32(0xd503201f), /* 0x1110 nop */
        U32(0xaa0103fe), /* 0x1114 mov x30, x1 */
        U32(0xd65f03c0), /* 0x1118 ret */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code, NO_CFI);
    expect_caller(0, BY_CFI);
    expect_caller(4, BY_CFI);
    set_register(&p, X30, CODE_AT + F + 16);
    expect_none(8, UNSPOOL_END_NO_UNWIND_INFO);
    expect_none(20, UNSPOOL_END_NO_UNWIND_INFO); /* here no path from the start leads */
    set_register(&p, X30, CODE_AT + CALLED);
    expect_caller(24, BY_CFI); /* but the return goes there */
}

/* What a context of makecontext returns to: __startcontext, with a hint before it or not. */
static void a_context_ends_at_its_code(void) {
    for (uint32_t hint = 0; hint < 2; hint++) {
        static const uint8_t code[] = {U32(0xd503201f), U32(0xaa1303e0), /* nop; mov x0, x19 */
                                       U32(0xb5000100), U32(0x1400003c)};
        begin(code + 4 * (1 - hint), sizeof code - 4 * (1 - hint));
        function(&p, F, sizeof code - 4 * (1 - hint), NO_CFI);
        function(&p, G, 0x40, NO_CFI);
        set_register(&p, X30, CODE_AT + F);
        interrupted_at(&p, CODE_AT + G, STACK_AT);
        expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + G, INTERRUPTED}, {CODE_AT + F, BY_CFI}));
        expect_none(4, UNSPOOL_END_ROOT);
    }
    static const uint8_t other[] = {U32(0xaa1403e0), U32(0xb5000100), U32(0x1400003c)}; /* mov x0, x20 */
    begin(other, sizeof other);
    function(&p, F, sizeof other, NO_CFI);
    expect_caller(4, BY_CFI);
}

/* __builtin_eh_return's epilogue: sp is moved to the handler's frame after everything else. */
static void an_unwinder_that_leaves_its_frame_has_no_caller(void) {
    static const uint8_t code[] = {
        U32(0xa9bf03e0), /* 0x1100 stp x0, x0, [sp, #-16]! */
        U32(0x910043ff), /* 0x1104 add sp, sp, #16 */
        U32(0x8b2463ff), /* 0x1108 add sp, sp, x4 */
        U32(0xd65f03c0), /* 0x110c ret */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code,
             CFI(ADVANCE(1), DEF_CFA_OFFSET(16), OFFSET(0, 2), OFFSET(1, 1), ADVANCE(1), RESTORE(0),
                 RESTORE(1), DEF_CFA_OFFSET(0)));
    expect_caller(0, BY_CFI);
    expect_none(8, UNSPOOL_END_BAD_RETURN_ADDRESS);
    expect_caller(12,
                  EXACTLY | GUESSED); /* sp is right, but lr may be the handler's, which a call may precede */
}

/* A function that passes exceptions on and does not return: its handler's fp may be in the frame already. */
static void an_unwinder_that_can_not_return_has_a_guessed_caller(void) {
    static const uint8_t code[] = {
        U32(0xa9be7bfd), /* 0x1100 stp x29, x30, [sp, #-32]! */
        U32(0xa90103e0), /* 0x1104 stp x0, x0, [sp, #16] */
        U32(0xb4000060), /* 0x1108 cbz x0, 0x1114 */
        U32(0x9400003d), /* 0x110c bl 0x1200 */
        U32(0x9400003c), /* 0x1110 bl 0x1200 */
        U32(0x9400003b), /* 0x1114 bl 0x1200 */
        U32(0x910083ff), /* 0x1118 add sp, sp, #32 */
        U32(0x8b2463ff), /* 0x111c add sp, sp, x4 */
        U32(0xd65f03c0), /* 0x1120 ret */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code,
             CFI(ADVANCE(1), DEF_CFA_OFFSET(32), OFFSET(X29, 4), OFFSET(X30, 3), ADVANCE(1), OFFSET(0, 2),
                 OFFSET(1, 1)));
    put(&p, STACK_AT + 8, CODE_AT + CALLED);
    expect_caller(8, EXACTLY | GUESSED); /* one more call, by one way */
    expect_caller(12, EXACTLY);
    expect_caller(16, EXACTLY);
    expect_caller(20, EXACTLY | GUESSED);
    expect_none(24,
                UNSPOOL_END_BAD_RETURN_ADDRESS); /* behind the last call, the handler's address is there */
    put_code(&p, F + 0x18, (const uint8_t[]){U32(0xd2800004)}, 4); /* mov x4, #0: an ordinary return */
    expect_caller(20, EXACTLY);
    expect_caller(24, EXACTLY);
}

/* __wrap_main, which stands in the FDE of _start, goes on to main. */
static void a_tail_jump_out_of_the_start_code_has_a_caller(void) {
    static const uint8_t code[] = {U32(0xd503201f), U32(0x1400003f)}; /* nop; b 0x1200 */
    static const uint8_t indirect[] = {U32(0xd63f0060)};              /* blr x3 */
    begin(code, sizeof code);
    root_function(&p, F, sizeof code);
    function(&p, G, 0x40, NO_CFI);
    put_code(&p, CALLED - 4, indirect, sizeof indirect);
    expect_caller(0, BY_CODE);
    expect_caller(4, BY_CODE);
    set_register(&p, X30, CODE_AT + CALLED + 4); /* no call is before it */
    expect_none(0, UNSPOOL_END_ROOT);
    set_register(&p, X30, CODE_AT + CALLED);
    put_code(&p, CALLED - 4, (const uint8_t[]){U32(0x9400007c)}, 4); /* bl 0x1200: f was not called */
    expect_none(0, UNSPOOL_END_ROOT);
}

/* gcc's trampolines for nested functions, and the same words otherwise. */
static void a_trampoline_leaves_lr_and_the_stack(void) {
    static const uint8_t code[] = {
        U32(0xd503245f), /* 0x1100 bti c */
        U32(0x58000091), /* 0x1104 ldr x17, #16 */
        U32(0x580000b2), /* 0x1108 ldr x18, #20 */
        U32(0xd61f0220), /* 0x110c br x17 */
    };
    begin(code, sizeof code);
    for (uint32_t offset = 0; offset < sizeof code; offset += 4)
        expect_caller(offset, BY_PLT);
    p.code[F + 8] = 0xb3;       /* ldr x19: not a trampoline */
    expect_caller(12, BY_LEAF); /* proved by the call before lr */
}

int main(void) {
    RUN(what_a_plt_pushed_lies_behind_the_cfa);
    RUN(a_context_in_memory_is_no_frame);
    RUN(a_changed_lr_is_no_return_address);
    RUN(a_context_ends_at_its_code);
    RUN(an_unwinder_that_leaves_its_frame_has_no_caller);
    RUN(an_unwinder_that_can_not_return_has_a_guessed_caller);
    RUN(a_tail_jump_out_of_the_start_code_has_a_caller);
    RUN(a_trampoline_leaves_lr_and_the_stack);
    end_process(&p);
    return check_result();
}
