/*
 * test_walk_doubted.c: where a file's unwind information is not true, and where registers are being
 * replaced by those of another context.
 *
 * root (0x1000) has no caller; it calls f (0x1100).
 */
#include "process.h"

static const uint8_t root_code[] = {
    0x90,                         /* 0x1000 nop */
    0xe8, 0xfa, 0x00, 0x00, 0x00, /* 0x1001 call f */
    0xf4,                         /* 0x1006 hlt */
};

static void begin(struct process *p, const uint8_t *code, size_t size) {
    begin_process(p, UNSPOOL_X86_64);
    root_function(p, 0x1000, 0x20);
    put_code(p, 0x1000, root_code, sizeof root_code);
    put_code(p, 0x1100, code, size);
}

/* glibc's __mpn_addmul_1: it saves registers, its CFI says nothing of it. */
static void pushes_that_no_row_tells_are_found_in_the_code(void) {
    static const uint8_t code[] = {
        0x31, 0xc0,       /* 0x1100 xor %eax,%eax */
        0x53,             /* 0x1102 push %rbx */
        0x55,             /* 0x1103 push %rbp */
        0x48, 0x89, 0xcd, /* 0x1104 mov %rcx,%rbp */
        0x5d,             /* 0x1107 pop %rbp */
        0x5b,             /* 0x1108 pop %rbx */
        0xc3,             /* 0x1109 ret */
    };
    static const struct {
        uint32_t pc, pushed, how;
    } at[] = {{0x1102, 0, BY_CFI},   {0x1103, 8, BY_CODE}, {0x1104, 16, BY_CODE},
              {0x1107, 16, BY_CODE}, {0x1108, 8, BY_CODE}, {0x1109, 0, BY_CFI}};
    struct process p = {0};
    begin(&p, code, sizeof code);
    function(&p, 0x1100, sizeof code, NO_CFI);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        put(&p, STACK_AT, CODE_AT + 0x1006); /* right at once only where nothing is pushed */
        put(&p, STACK_AT + at[i].pushed, CODE_AT + 0x1006);
        interrupted_at(&p, CODE_AT + at[i].pc, STACK_AT);
        set_register(&p, UNSPOOL_X86_64_RBP, 0);
        expect_walk(&p, UNSPOOL_END_ROOT,
                    FRAMES({CODE_AT + at[i].pc, INTERRUPTED}, {CODE_AT + 0x1006, at[i].how}));
    }
    end_process(&p);
}

/* glibc's swapcontext: once sp is the other context's, [sp] is no return address, whatever it looks like. */
static void behind_a_switch_of_stacks_there_is_no_caller(void) {
    static const uint8_t code[] = {
        0x48, 0x8b, 0x4f, 0x08, /* 0x1100 mov 8(%rdi),%rcx */
        0x48, 0x8b, 0x27,       /* 0x1104 mov (%rdi),%rsp */
        0x48, 0x8b, 0x6f, 0x10, /* 0x1107 mov 16(%rdi),%rbp */
        0x51,                   /* 0x110b push %rcx */
        0x31, 0xc0,             /* 0x110c xor %eax,%eax */
        0xc3,                   /* 0x110e ret */
    };
    struct process p = {0};
    begin(&p, code, sizeof code);
    function(&p, 0x1100, sizeof code, NO_CFI);
    put(&p, STACK_AT, CODE_AT + 0x1006);
    interrupted_at(&p, CODE_AT + 0x1104, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1104, INTERRUPTED}, {CODE_AT + 0x1006, BY_CFI}));
    interrupted_at(&p, CODE_AT + 0x1107, STACK_AT);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1107, INTERRUPTED}));
    interrupted_at(&p, CODE_AT + 0x110c, STACK_AT);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x110c, INTERRUPTED}));
    end_process(&p);
}

/* Below a context's first function lies the first byte of a function without a caller. */
static void a_function_without_a_caller_begins_a_stack(void) {
    static const uint8_t code[] = {0x90, 0xc3}, call[] = {0xe8, 0xfb, 0xfe, 0xff, 0xff};
    struct process p = {0};
    begin(&p, code, sizeof code);
    function(&p, 0x1100, sizeof code, NO_CFI);
    root_function(&p, 0x1200, 0x20);
    put(&p, STACK_AT, CODE_AT + 0x1200);
    interrupted_at(&p, CODE_AT + 0x1100, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1100, INTERRUPTED}, {CODE_AT + 0x1200, BY_CFI}));
    /* Had a call of f been the last instruction of another function, it would say nothing. */
    put_code(&p, 0x1200 - sizeof call, call, sizeof call);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + 0x1100, INTERRUPTED}, {CODE_AT + 0x1200, BY_CFI}));
    end_process(&p);
}

/* glibc's __start_context: its unwind information is that of a function, but it leaves its stack for another
 * and never returns. */
static void a_context_ends_where_its_first_function_returns_to(void) {
    static const uint8_t code[] = {0x90, 0xc3};
    static const uint8_t last[] = {
        0x48, 0x89, 0xdc,             /* 0x1200 mov %rbx,%rsp */
        0xe8, 0xf8, 0x00, 0x00, 0x00, /* 0x1203 call 0x1300 */
        0xf4,                         /* 0x1208 hlt */
    };
    struct process p = {0};
    begin(&p, code, sizeof code);
    put_code(&p, 0x1200, last, sizeof last);
    function(&p, 0x1100, sizeof code, NO_CFI);
    function(&p, 0x1200, sizeof last, NO_CFI);
    put(&p, STACK_AT, CODE_AT + 0x1200);
    interrupted_at(&p, CODE_AT + 0x1100, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1100, INTERRUPTED}, {CODE_AT + 0x1200, BY_CFI}));
    interrupted_at(&p, CODE_AT + 0x1203, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1203, INTERRUPTED}));
    put_code(&p, 0x1208, (const uint8_t[]){0xc3}, 1); /* ret */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1203, INTERRUPTED}));
    interrupted_at(&p, CODE_AT + 0x1100, STACK_AT);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + 0x1100, INTERRUPTED}, {CODE_AT + 0x1200, BY_CFI}));
    end_process(&p);
}

/* longjmp's CFI says where it goes, not who called it. */
static void where_registers_are_replaced_a_stack_is_never_complete(void) {
    static const uint8_t code[] = {0xff, 0xe2}; /* jmp *%rdx */
    struct process p = {0};
    begin(&p, code, sizeof code);
    function(&p, 0x1100, sizeof code, CFI(DEF_CFA(RDI, 0), IN_REGISTER(RSP, 8), IN_REGISTER(RIP, 1)));
    interrupted_at(&p, CODE_AT + 0x1100, STACK_AT);
    set_register(&p, 5, STACK_AT + 64);
    set_register(&p, 1, CODE_AT + 0x1006);
    for (uint64_t offset = 32; offset <= 64; offset += 32) {
        set_register(&p, 8, STACK_AT + offset);
        expect_walk(&p, UNSPOOL_END_ROOT,
                    FRAMES({CODE_AT + 0x1100, INTERRUPTED}, {CODE_AT + 0x1006, EXACTLY | GUESSED}));
    }
    end_process(&p);
}

/* While a function that passes exceptions on can still return as others do, nothing has been written
 * over its frame, whoever called it. */
static void what_can_still_return_is_not_overwritten(void) {
    static const uint8_t code[] = {
        0x50, 0x50,       /* 0x1100 push %rax; push %rax */
        0x85, 0xc0,       /* 0x1102 test %eax,%eax */
        0x74, 0x03,       /* 0x1104 je 0x1109 */
        0x48, 0x89, 0xcc, /* 0x1106 mov %rcx,%rsp */
        0xc3,             /* 0x1109 ret, or, from 0x1104: */
    };
    static const uint8_t end[] = {0x58, 0x58, 0xc3}; /* 0x110a pop %rax; pop %rax; ret */
    struct process p = {0};
    begin(&p, code, sizeof code);
    put_code(&p, 0x110a, end, sizeof end);
    put_code(&p, 0x1105, (const uint8_t[]){0x04}, 1); /* je 0x110a */
    function(&p, 0x1100, 0x10, CFI(DEF_CFA_OFFSET(24), OFFSET(0, 2), OFFSET(1, 3)));
    put(&p, STACK_AT + 16, CODE_AT + 0x1001); /* from no call at all: only the code says that it is right */
    interrupted_at(&p, CODE_AT + 0x1102, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1102, INTERRUPTED}, {CODE_AT + 0x1001, EXACTLY}));
    interrupted_at(&p, CODE_AT + 0x1106, STACK_AT);
    expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({CODE_AT + 0x1106, INTERRUPTED}));
    end_process(&p);
}

/* crt code that ends in a jump through a register to another function. */
static void a_jump_away_agrees_with_a_return(void) {
    static const uint8_t code[] = {
        0x55,       /* 0x1200 push %rbp */
        0x85, 0xc0, /* 0x1201 test %eax,%eax */
        0x5d,       /* 0x1203 pop %rbp */
        0x74, 0x02, /* 0x1204 je 0x1208 */
        0xff, 0xe0, /* 0x1206 jmp *%rax */
        0xc3,       /* 0x1208 ret */
    };
    struct process p = {0};
    begin(&p, code, sizeof code);
    put_code(&p, 0x1200, code, sizeof code);
    interrupted_at(&p, CODE_AT + 0x1201, STACK_AT);
    set_register(&p, UNSPOOL_X86_64_RBP, 0);
    put(&p, STACK_AT + 8, CODE_AT + 0x1006);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1201, INTERRUPTED}, {CODE_AT + 0x1006, BY_CODE}));
    put_code(&p, 0x1208, (const uint8_t[]){0xf4},
             1); /* the jump alone, perhaps through a table, is no proof */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1201, INTERRUPTED}));
    end_process(&p);
}

int main(void) {
    RUN(pushes_that_no_row_tells_are_found_in_the_code);
    RUN(behind_a_switch_of_stacks_there_is_no_caller);
    RUN(a_function_without_a_caller_begins_a_stack);
    RUN(a_context_ends_where_its_first_function_returns_to);
    RUN(where_registers_are_replaced_a_stack_is_never_complete);
    RUN(what_can_still_return_is_not_overwritten);
    RUN(a_jump_away_agrees_with_a_return);
    return check_result();
}
