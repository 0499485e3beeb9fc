/*
 * test_walk_proofs.c: frames where no file says anything: when the call before the return address
 * proves them, and when they stay guesses.
 *
 * root (0x1000) has unwind information and calls f (0x1100) and g (0x1200), which have none.
 */
#include "process.h"

static const uint8_t root_code[] = {
    0xe8, 0xfb, 0x00, 0x00, 0x00, /* 0x1000 call f */
    0xe8, 0xf6, 0x00, 0x00, 0x00, /* 0x1005 call f */
    0xe8, 0xf1, 0x01, 0x00, 0x00, /* 0x100a call g */
    0xff, 0xd0,                   /* 0x100f call *%rax */
    0xe8, 0xea, 0x03, 0x00, 0x00, /* 0x1011 call throw */
};
static const uint8_t f_code[] = {
    0x55,             /* 0x1100 push %rbp */
    0x48, 0x89, 0xe5, /* 0x1101 mov %rsp,%rbp */
    0x50,             /* 0x1104 push %rax */
    0xff, 0xe0,       /* 0x1105 jmp *%rax: its way to the return can't be followed */
};
static const uint8_t g_code[] = {
    0x50,                         /* 0x1200 push %rax */
    0xe8, 0xfa, 0x00, 0x00, 0x00, /* 0x1201 call h */
    0x58,                         /* 0x1206 pop %rax */
    0xc3,                         /* 0x1207 ret */
};

static void begin(struct process *p) {
    begin_process(p, UNSPOOL_X86_64);
    root_function(p, 0x1000, 0x20);
    function(p, 0x1300, 0x10, NO_CFI); /* h */
    put_code(p, 0x1000, root_code, sizeof root_code);
    put_code(p, 0x1100, f_code, sizeof f_code);
    put_code(p, 0x1200, g_code, sizeof g_code);
}

static void a_direct_call_proves_a_leaf(void) {
    struct process p = {0};
    begin(&p);
    interrupted_at(&p, CODE_AT + 0x1100, STACK_AT);
    put(&p, STACK_AT, CODE_AT + 0x1005);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1100, INTERRUPTED}, {CODE_AT + 0x1005, BY_LEAF}));
    put(&p, STACK_AT, CODE_AT + 0x100f); /* from the call of g */
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + 0x1100, INTERRUPTED}, {CODE_AT + 0x100f, BY_LEAF | GUESSED}));
    end_process(&p);
}

/* An old return address lies at sp, from a call of the same function; its frame record is right. */
static void a_stale_return_address_proves_nothing(void) {
    struct process p = {0};
    begin(&p);
    interrupted_at(&p, CODE_AT + 0x1105, STACK_AT);
    set_register(&p, UNSPOOL_X86_64_RBP, STACK_AT + 8);
    put(&p, STACK_AT, CODE_AT + 0x100a);
    put(&p, STACK_AT + 8, 0);
    put(&p, STACK_AT + 16, CODE_AT + 0x1005);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + 0x1105, INTERRUPTED}, {CODE_AT + 0x1005, BY_FRAME_POINTER}));
    set_register(&p, UNSPOOL_X86_64_RBP, 0);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + 0x1105, INTERRUPTED}, {CODE_AT + 0x100a, BY_LEAF | GUESSED}));
    end_process(&p);
}

static void a_caller_found_by_its_code_is_proved_by_a_direct_call(void) {
    struct process p = {0};
    begin(&p);
    interrupted_at(&p, CODE_AT + 0x1300, STACK_AT);
    put(&p, STACK_AT, CODE_AT + 0x1206);
    put(&p, STACK_AT + 16, CODE_AT + 0x100f);
    expect_walk(
        &p, UNSPOOL_END_ROOT,
        FRAMES({CODE_AT + 0x1300, INTERRUPTED}, {CODE_AT + 0x1206, BY_CFI}, {CODE_AT + 0x100f, BY_CODE}));
    put(&p, STACK_AT + 16, CODE_AT + 0x1011); /* from the indirect call */
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + 0x1300, INTERRUPTED}, {CODE_AT + 0x1206, BY_CFI},
                       {CODE_AT + 0x1011, BY_CODE | GUESSED}));
    end_process(&p);
}

/* A function that passes an exception to its handler writes the handler's frame over its own. Where the
 * return address is no longer that of a call of this function, it is the handler's. */
static void an_overwritten_frame_has_no_caller(void) {
    struct process p = {0};
    begin(&p);
    function(&p, 0x1400, 0x10, CFI(DEF_CFA_OFFSET(24), OFFSET(0, 2), OFFSET(1, 3))); /* throw */
    interrupted_at(&p, CODE_AT + 0x1404, STACK_AT);
    put(&p, STACK_AT + 16, CODE_AT + 0x1016);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1404, INTERRUPTED}, {CODE_AT + 0x1016, EXACTLY}));
    put(&p, STACK_AT + 16, CODE_AT + 0x1011); /* from the indirect call */
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + 0x1404, INTERRUPTED}, {CODE_AT + 0x1011, EXACTLY | GUESSED}));
    put(&p, STACK_AT + 16, CODE_AT + 0x1005); /* from a call of f */
    expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({CODE_AT + 0x1404, INTERRUPTED}));
    put(&p, STACK_AT + 16, CODE_AT + 0x1003); /* a landing pad follows no call */
    expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({CODE_AT + 0x1404, INTERRUPTED}));
    end_process(&p);
}

int main(void) {
    RUN(a_direct_call_proves_a_leaf);
    RUN(a_stale_return_address_proves_nothing);
    RUN(a_caller_found_by_its_code_is_proved_by_a_direct_call);
    RUN(an_overwritten_frame_has_no_caller);
    return check_result();
}
