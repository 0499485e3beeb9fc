/*
 * test_walk_late.c: aarch64 functions whose CFI lags behind their code. clang writes it so where it optimizes
 * for size (-Oz): one row for the prologue, one for all the rest, and none for the epilogue.
 *
 * root (0x1000) has no caller; at 0x1010 it calls f (0x1100), or calls through a register.
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
    set_register(&p, X29, STACK_AT + 0x200);
    set_register(&p, X30, CODE_AT + CALLED);
}

/* f + offset, called by root; f has moved sp down by so many bytes. */
static void expect_caller(uint32_t offset, uint32_t moved, uint32_t how) {
    interrupted_at(&p, CODE_AT + F + offset, STACK_AT + 0x100 - moved);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + F + offset, INTERRUPTED}, {CODE_AT + CALLED, how}));
}

/* The frame record at the end of f's frame of so many bytes. */
static void put_record(uint32_t below_cfa) {
    put(&p, STACK_AT + 0x100 - below_cfa, STACK_AT + 0x200);
    put(&p, STACK_AT + 0x108 - below_cfa, CODE_AT + CALLED);
}

/* One row for the prologue, which says that nothing has happened yet, and one by x29 up to the end. */
static void every_instruction_of_a_function_optimized_for_size(void) {
    static const uint8_t code[] = {
        U32(0xd503233f), /* 0x1100 paciasp */
        U32(0xd10083ff), /* 0x1104 sub sp, sp, #32 */
        U32(0xa9017bfd), /* 0x1108 stp x29, x30, [sp, #16] */
        U32(0x910043fd), /* 0x110c add x29, sp, #16 */
        U32(0xd503201f), /* 0x1110 nop */
        U32(0xa9417bfd), /* 0x1114 ldp x29, x30, [sp, #16] */
        U32(0x0b000000), /* 0x1118 add w0, w0, w0 */
        U32(0x910083ff), /* 0x111c add sp, sp, #32 */
        U32(0xd50323bf), /* 0x1120 autiasp */
        U32(0xd65f03c0), /* 0x1124 ret; or b 0x1200 */
    };
    static const struct {
        uint32_t moved, how;
        bool in_lr, has_record; /* the return address is in lr; x29 points to the frame record */
    } at[] = {
        {0, BY_CFI, true, false},    {0, BY_CFI, true, false},   {32, BY_CODE, true, false},
        {32, BY_CODE, false, false}, {32, BY_CFI, false, true},  {32, BY_CFI, false, true},
        {32, BY_CODE, true, false},  {32, BY_CODE, true, false}, {0, BY_CODE, true, false},
        {0, BY_CODE, true, false},
    };
    for (uint32_t i = 0; i < 2 * sizeof at / sizeof *at; i++) {
        bool is_tail_call = i % 2;
        begin(code, sizeof code);
        if (is_tail_call)
            put_code(&p, F + 0x24, (const uint8_t[]){U32(0x14000037)}, 4);
        function(&p, F, sizeof code,
                 CFI(ADVANCE(4), NEGATE_RA_STATE, DEF_CFA(X29, 16), OFFSET(X30, 1), OFFSET(X29, 2)));
        function(&p, G, 0x40, NO_CFI);
        put_record(16);
        set_register(&p, X29, at[i / 2].has_record ? STACK_AT + 0xf0 : STACK_AT + 0x200);
        set_register(&p, X30, at[i / 2].in_lr ? CODE_AT + CALLED : 0xbad);
        expect_caller(4 * (i / 2), at[i / 2].moved, at[i / 2].how);
    }
}

/* Without a frame pointer; and the rest of the epilogue is outlined: another function, by its FDE. */
static void an_outlined_epilogue_is_followed(void) {
    static const uint8_t code[] = {
        U32(0xf81f0ffe), /* 0x1100 str x30, [sp, #-16]! */
        U32(0xd503201f), /* 0x1104 nop */
        U32(0xf94003fe), /* 0x1108 ldr x30, [sp] */
        U32(0x1400003d), /* 0x110c b 0x1200 */
    };
    static const uint8_t rest[] = {U32(0x910043ff), U32(0xd65f03c0)}; /* add sp, sp, #16; ret */
    for (int is_rest = 0; is_rest < 2; is_rest++) {
        begin(code, sizeof code);
        function(&p, F, sizeof code, CFI(ADVANCE(1), DEF_CFA_OFFSET(16), OFFSET(X30, 2)));
        function(&p, G, 0x40, NO_CFI);
        if (is_rest)
            put_code(&p, G, rest, sizeof rest);
        put(&p, STACK_AT + 0xf0, CODE_AT + CALLED);
        set_register(&p, X30, 0xbad);
        expect_caller(4, 16, BY_CFI);
        expect_caller(8, 16, BY_CFI);
        set_register(&p, X30, CODE_AT + CALLED);
        expect_caller(12, 16, is_rest ? BY_CODE : BY_CFI); /* the slot is as it was, too */
        if (!is_rest)
            continue;
        interrupted_at(&p, CODE_AT + G, STACK_AT + 0xf0); /* though its row says that it was called */
        expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + G, INTERRUPTED}, {CODE_AT + CALLED, BY_CODE}));
    }
}

/* A leaf: lr is never lost, but sp is back before the return. */
static void a_leaf_optimized_for_size(void) {
    static const uint8_t code[] = {
        U32(0xd10083ff), /* 0x1100 sub sp, sp, #32 */
        U32(0xf94003e0), /* 0x1104 ldr x0, [sp] */
        U32(0x910083ff), /* 0x1108 add sp, sp, #32 */
        U32(0xd65f03c0), /* 0x110c ret */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code, CFI(ADVANCE(1), DEF_CFA_OFFSET(32)));
    function(&p, G, 0x40, CFI(DEF_CFA_OFFSET(16), OFFSET(X30, 2))); /* its caller shows where its frame is */
    put(&p, STACK_AT + 0x100, CODE_AT + CALLED);
    set_register(&p, X30, CODE_AT + G + 8);
    for (uint32_t offset = 0; offset < sizeof code; offset += 4) {
        bool is_moved = offset == 4 || offset == 8;
        interrupted_at(&p, CODE_AT + F + offset, STACK_AT + 0x100 - (is_moved ? 32 : 0));
        expect_walk(&p, UNSPOOL_END_ROOT,
                    FRAMES({CODE_AT + F + offset, INTERRUPTED},
                           {CODE_AT + G + 8, offset == 12 ? BY_CODE : BY_CFI}, {CODE_AT + CALLED, BY_CFI}));
    }
}

/* clang -O2: of a load and the addition to sp it makes one instruction; its row comes later. */
static void a_leaf_whose_last_load_moves_sp(void) {
    static const uint8_t code[] = {
        U32(0xd10083ff), /* 0x1100 sub sp, sp, #32 */
        U32(0xa8c227e8), /* 0x1104 ldp x8, x9, [sp], #32 */
        U32(0x8b080120), /* 0x1108 add x0, x9, x8 */
        U32(0xd65f03c0), /* 0x110c ret */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code, CFI(ADVANCE(1), DEF_CFA_OFFSET(32), ADVANCE(2), DEF_CFA_OFFSET(0)));
    function(&p, G, 0x40, CFI(DEF_CFA_OFFSET(16), OFFSET(X30, 2)));
    put(&p, STACK_AT + 0x100, CODE_AT + CALLED);
    set_register(&p, X30, CODE_AT + G + 8);
    for (uint32_t offset = 0; offset < sizeof code; offset += 4) {
        interrupted_at(&p, CODE_AT + F + offset, STACK_AT + 0x100 - (offset == 4 ? 32 : 0));
        expect_walk(&p, UNSPOOL_END_ROOT,
                    FRAMES({CODE_AT + F + offset, INTERRUPTED},
                           {CODE_AT + G + 8, offset == 8 ? BY_CODE : BY_CFI}, {CODE_AT + CALLED, BY_CFI}));
    }
}

/* A signal handler, or a context's first function, returns to code that nothing called. */
static void an_epilogue_leads_to_code_that_nothing_called(void) {
    static const uint8_t code[] = {
        U32(0xa9bf7bfd), /* 0x1100 stp x29, x30, [sp, #-16]! */
        U32(0x910003fd), /* 0x1104 mov x29, sp */
        U32(0xa8c17bfd), /* 0x1108 ldp x29, x30, [sp], #16 */
        U32(0xd65f03c0), /* 0x110c ret */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code, CFI(ADVANCE(2), DEF_CFA(X29, 16), OFFSET(X30, 1), OFFSET(X29, 2)));
    root_function(&p, G, 0x40);
    set_register(&p, X30, CODE_AT + G);
    set_register(&p, X29, 0);
    interrupted_at(&p, CODE_AT + F + 12, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + F + 12, INTERRUPTED}, {CODE_AT + G, BY_CODE}));
}

/* clang -Os merges the store of x30 with a later one, but leaves its row where the former was. */
static void a_row_that_comes_before_its_store(void) {
    static const uint8_t code[] = {
        U32(0xd10083ff), /* 0x1100 sub sp, sp, #32 */
        U32(0x910003e8), /* 0x1104 mov x8, sp */
        U32(0xa90123fe), /* 0x1108 stp x30, x8, [sp, #16] */
        U32(0xd503201f), /* 0x110c nop */
        U32(0xf9400bfe), /* 0x1110 ldr x30, [sp, #16] */
        U32(0x910083ff), /* 0x1114 add sp, sp, #32 */
        U32(0xd65f03c0), /* 0x1118 ret */
    };
    begin(code, sizeof code);
    function(
        &p, F, sizeof code,
        CFI(ADVANCE(1), DEF_CFA_OFFSET(32), OFFSET(X30, 2), ADVANCE(5), DEF_CFA_OFFSET(0), RESTORE(X30)));
    put(&p, STACK_AT + 0xf0, 0xbad);
    expect_caller(0, 0, BY_CFI);
    expect_caller(4, 32, BY_CODE);
    expect_caller(8, 32, BY_CODE);
    put(&p, STACK_AT + 0xf0, CODE_AT + CALLED);
    set_register(&p, X30, 0xbad);
    expect_caller(12, 32, BY_CFI);
    expect_caller(16, 32, BY_CFI);
    set_register(&p, X30, CODE_AT + CALLED);
    expect_caller(20, 32, BY_CODE);
    expect_caller(24, 0, BY_CFI);
}

/* A frame that one way through the function makes: behind it, the row goes on. */
static void a_frame_of_one_way_only(void) {
    static const uint8_t code[] = {
        U32(0xb40000a0), /* 0x1100 cbz x0, 0x1114 */
        U32(0xd10043ff), /* 0x1104 sub sp, sp, #16 */
        U32(0xf90003e0), /* 0x1108 str x0, [sp] */
        U32(0x910043ff), /* 0x110c add sp, sp, #16 */
        U32(0xd65f03c0), /* 0x1110 ret */
        U32(0xb4ffffe0), /* 0x1114 cbz x0, 0x1110 */
        U32(0x17fffffe), /* 0x1118 b 0x1110 */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code, CFI(ADVANCE(2), DEF_CFA_OFFSET(16)));
    function(&p, G, 0x40, CFI(DEF_CFA_OFFSET(16), OFFSET(X30, 2))); /* its caller shows where its frame is */
    put(&p, STACK_AT + 0x108, 0xbad);
    put(&p, STACK_AT + 0x100, CODE_AT + CALLED);
    set_register(&p, X30, CODE_AT + G + 8);
    for (uint32_t offset = 0; offset < sizeof code; offset += 4) {
        bool is_moved = offset == 8 || offset == 12;
        interrupted_at(&p, CODE_AT + F + offset, STACK_AT + 0x100 - (is_moved ? 16 : 0));
        expect_walk(&p, UNSPOOL_END_ROOT,
                    FRAMES({CODE_AT + F + offset, INTERRUPTED},
                           {CODE_AT + G + 8, offset < 16 ? BY_CFI : BY_CODE}, {CODE_AT + CALLED, BY_CFI}));
    }
}

/* Rows that tell an epilogue are true; no code is asked. */
static void rows_that_tell_an_epilogue_are_believed(void) {
    static const uint8_t code[] = {
        U32(0xa9bf7bfd), /* 0x1100 stp x29, x30, [sp, #-16]! */
        U32(0xa8c17bfd), /* 0x1104 ldp x29, x30, [sp], #16 */
        U32(0xd65f03c0), /* 0x1108 ret */
    };
    begin(code, sizeof code);
    function(&p, F, sizeof code,
             CFI(ADVANCE(1), DEF_CFA_OFFSET(16), OFFSET(X30, 1), OFFSET(X29, 2), ADVANCE(1), RESTORE(X30),
                 RESTORE(X29), DEF_CFA_OFFSET(0)));
    put_record(16);
    expect_caller(0, 0, BY_CFI);
    expect_caller(4, 16, BY_CFI);
    expect_caller(8, 0, BY_CFI);
}

int main(void) {
    RUN(every_instruction_of_a_function_optimized_for_size);
    RUN(an_outlined_epilogue_is_followed);
    RUN(a_leaf_optimized_for_size);
    RUN(a_leaf_whose_last_load_moves_sp);
    RUN(an_epilogue_leads_to_code_that_nothing_called);
    RUN(a_row_that_comes_before_its_store);
    RUN(a_frame_of_one_way_only);
    RUN(rows_that_tell_an_epilogue_are_believed);
    end_process(&p);
    return check_result();
}
