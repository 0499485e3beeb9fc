/*
 * test_walk_scan.c: return addresses that are found on the stack, in code that no file describes and whose
 * returns can't be followed, and what proves them.
 *
 * root (0x1000) has unwind information; what it calls has none.
 */
#include "process.h"

static struct process p;

static void begin(const uint8_t *root_code, size_t size) {
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x20);
    put_code(&p, 0x1000, root_code, size);
    memset(p.code + 0x1100, 0xf4, 0x400); /* hlt */
}

/* A function that never returns: no path from it shows the caller, but the path from its entry does. */
static void a_function_that_never_returns(void) {
    static const uint8_t root_code[] = {0xe8, 0xfb, 0, 0, 0}; /* 0x1000 call 0x1100 */
    static const uint8_t code[] = {
        0x53,                      /* 0x1100 push %rbx */
        0x48, 0x83, 0xec, 0x40,    /* 0x1101 sub $64,%rsp */
        0x90,                      /* 0x1105 nop */
        0xe8, 0xf5, 0x01, 0,    0, /* 0x1106 call 0x1300, which stops */
    };
    begin(root_code, sizeof root_code);
    put_code(&p, 0x1100, code, sizeof code);
    put(&p, STACK_AT + 0x20, CODE_AT + 0x1005); /* stale: not where the function keeps it */
    put(&p, STACK_AT + 0x48, CODE_AT + 0x1005);
    interrupted_at(&p, CODE_AT + 0x1105, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1105, INTERRUPTED}, {CODE_AT + 0x1005, BY_CODE}));
    put(&p, STACK_AT + 0x48, CODE_AT + 0x1004); /* follows no call */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1105, INTERRUPTED}));
}

/* musl's start code goes on to a function whose address it has loaded, lest it be inlined. */
static void a_function_that_is_jumped_to_through_a_register(void) {
    static const uint8_t root_code[] = {0xe8, 0xfb, 0, 0, 0}; /* 0x1000 call 0x1100 */
    static const uint8_t first[] = {
        0x55,                            /* 0x1100 push %rbp */
        0x48, 0x8d, 0x05, 0xf8, 0, 0, 0, /* 0x1101 lea 0x1200(%rip),%rax */
        0x5d,                            /* 0x1108 pop %rbp */
        0xff, 0xe0,                      /* 0x1109 jmp *%rax */
    };
    static const uint8_t second[] = {
        0x53, /* 0x1200 push %rbx */
        0x90, /* 0x1201 nop; hlt */
    };
    begin(root_code, sizeof root_code);
    put_code(&p, 0x1100, first, sizeof first);
    put_code(&p, 0x1200, second, sizeof second);
    put(&p, STACK_AT + 8, CODE_AT + 0x1005);
    interrupted_at(&p, CODE_AT + 0x1201, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1201, INTERRUPTED}, {CODE_AT + 0x1005, BY_CODE}));
    put_code(&p, 0x1108, (const uint8_t[]){0x58}, 1); /* pop %rax: another address */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1201, INTERRUPTED}));
}

/* A case of a switch, to which only a table leads; from there the code comes to a return that agrees. */
static void a_case_of_a_switch(void) {
    static const uint8_t root_code[] = {0xe8, 0xfb, 0, 0, 0}; /* 0x1000 call 0x1100 */
    static const uint8_t code[] = {
        0x48, 0x83, 0xec, 0x18, /* 0x1100 sub $24,%rsp */
        0xff, 0xe0,             /* 0x1104 jmp *%rax */
        0xeb, 0x03,             /* 0x1106 a case: jmp 0x110b */
        0x85, 0xc0,             /* 0x1108 another: test %eax,%eax */
        0x90,                   /* 0x110a nop */
        0x74, 0xfb,             /* 0x110b je 0x1108 */
        0x83, 0xf8, 0x07,       /* 0x110d cmp $7,%eax */
        0x74, 0x05,             /* 0x1110 je 0x1117 */
        0x48, 0x83, 0xc4, 0x18, /* 0x1112 add $24,%rsp */
        0xc3,                   /* 0x1116 ret */
        0xff, 0xe1,             /* 0x1117 jmp *%rcx: another table */
    };
    begin(root_code, sizeof root_code);
    put_code(&p, 0x1100, code, sizeof code);
    put(&p, STACK_AT + 0x18, CODE_AT + 0x1005);
    interrupted_at(&p, CODE_AT + 0x1108, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1108, INTERRUPTED}, {CODE_AT + 0x1005, BY_CODE}));
    put(&p, STACK_AT + 0x18, 0);
    put(&p, STACK_AT + 0x10, CODE_AT + 0x1005); /* where the return does not take it from */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1108, INTERRUPTED}));
}

/* The first function of a musl thread, called through a register. Nothing else on the stack can be a return
 * address. */
static void what_only_start_code_can_have_called(void) {
    static const uint8_t clone[] = {0xff, 0xd0, 0x89, 0xc7, 0x31, 0xc0, 0xb0, 60, 0x0f, 0x05};
    begin(clone, 0);
    put_code(&p, 0x1080, clone, sizeof clone);
    put_code(&p, 0x1100, (const uint8_t[]){0x90}, 1); /* nop; hlt */
    put(&p, STACK_AT + 0x18, CODE_AT + 0x1082);
    interrupted_at(&p, CODE_AT + 0x1100, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1100, INTERRUPTED}, {CODE_AT + 0x1082, BY_CODE}));
    put_code(&p, 0x1000, (const uint8_t[]){0xff, 0xd0}, 2);
    put(&p, STACK_AT + 0x40, CODE_AT + 0x1002); /* posix_spawn had such a stack within its own */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1100, INTERRUPTED}));
    put(&p, STACK_AT + 0x40, 0);
    put(&p, STACK_AT + 0x10, CODE_AT + 0x1002);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1100, INTERRUPTED}));
}

/* A call through memory on the stack, where the function's address still is. */
static void a_call_through_the_stack(void) {
    static const uint8_t root_code[] = {0xff, 0x54, 0x24, 0x10}; /* 0x1000 call *16(%rsp) */
    begin(root_code, sizeof root_code);
    put_code(&p, 0x1100, (const uint8_t[]){0x53, 0x90}, 2); /* push %rbx; nop; hlt */
    put(&p, STACK_AT + 8, CODE_AT + 0x1004);
    put(&p, STACK_AT + 16 + 16, CODE_AT + 0x1100);
    interrupted_at(&p, CODE_AT + 0x1101, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1101, INTERRUPTED}, {CODE_AT + 0x1004, BY_CODE}));
    put(&p, STACK_AT + 16 + 16, CODE_AT + 0x1140);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + 0x1101, INTERRUPTED}));
}

/* Where a register points to, a call through it has led: to no code at all, or to a function's first
 * instructions. */
static void a_call_through_a_register(void) {
    static const uint8_t root_code[] = {
        0xff, 0xd3,                   /* 0x1000 call *%rbx */
        0x41, 0xff, 0x54, 0xc4, 0x08, /* 0x1002 call *8(%r12,%rax,8) */
    };
    begin(root_code, sizeof root_code);
    interrupted_at(&p, 0x10, STACK_AT);
    set_register(&p, RBX, 0x10);
    put(&p, STACK_AT, CODE_AT + 0x1002);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({0x10, INTERRUPTED}, {CODE_AT + 0x1002, BY_LEAF}));
    set_register(&p, RBX, 0x18);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({0x10, INTERRUPTED}, {CODE_AT + 0x1002, BY_LEAF | GUESSED}));
    set_register(&p, 12, STACK_AT + 0x40);
    set_register(&p, 0, 2);
    put(&p, STACK_AT, CODE_AT + 0x1007);
    put(&p, STACK_AT + 0x40 + 8 + 16, 0x10);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({0x10, INTERRUPTED}, {CODE_AT + 0x1007, BY_LEAF}));
    put_code(&p, 0x1100, (const uint8_t[]){0x90, 0x90}, 2);
    put(&p, STACK_AT + 0x40 + 8 + 16, CODE_AT + 0x1100);
    interrupted_at(&p, CODE_AT + 0x1101, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1101, INTERRUPTED}, {CODE_AT + 0x1007, BY_LEAF}));
}

/* Between the system call that makes a thread and the first row of its code: rax is 0 in the thread alone. */
static void a_new_thread_before_its_first_row(void) {
    static const uint8_t code[] = {
        0x0f, 0x05,       /* 0x1100 syscall */
        0x48, 0x85, 0xc0, /* 0x1102 test %rax,%rax */
        0x7c, 0xf7,       /* 0x1105 jl 0x10fe */
        0x74, 0x05,       /* 0x1107 je 0x110e */
        0xc3,             /* 0x1109 ret */
    };
    for (uint64_t pc = 0x1102; pc < 0x1109; pc += pc == 0x1102 ? 3 : 2) {
        begin(code, 0);
        put_code(&p, 0x1100, code, sizeof code);
        root_function(&p, 0x110e, 0x10);
        interrupted_at(&p, CODE_AT + pc, STACK_AT);
        set_register(&p, 0, 0);
        expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + pc, INTERRUPTED}));
        set_register(&p, 0, 1234);
        expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + pc, INTERRUPTED}));
        p.registers.known &= ~(uint64_t)1;
        expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + pc, INTERRUPTED}));
    }
}

/* musl's way: straight on to the call of the thread's first function, which ends the thread. */
static void a_new_thread_before_its_first_call(void) {
    static const uint8_t code[] = {
        0x0f, 0x05,             /* 0x1100 syscall */
        0x85, 0xc0,             /* 0x1102 test %eax,%eax */
        0x75, 0x12,             /* 0x1104 jne 0x1118 */
        0x31, 0xed,             /* 0x1106 xor %ebp,%ebp */
        0x5f,                   /* 0x1108 pop %rdi */
        0x41, 0xff, 0xd1,       /* 0x1109 call *%r9 */
        0x89, 0xc7,             /* 0x110c mov %eax,%edi */
        0x31, 0xc0, 0xb0, 0x3c, /* 0x110e xor %eax,%eax; mov $60,%al */
        0x0f, 0x05,             /* 0x1112 syscall */
    };
    static const uint64_t places[] = {0x1102, 0x1104, 0x1106, 0x1108, 0x1109};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        begin(code, 0);
        put_code(&p, 0x1100, code, sizeof code);
        interrupted_at(&p, CODE_AT + places[i], STACK_AT);
        set_register(&p, 0, 0);
        expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + places[i], INTERRUPTED}));
    }
}

int main(void) {
    RUN(a_function_that_never_returns);
    RUN(a_function_that_is_jumped_to_through_a_register);
    RUN(a_case_of_a_switch);
    RUN(what_only_start_code_can_have_called);
    RUN(a_call_through_the_stack);
    RUN(a_call_through_a_register);
    RUN(a_new_thread_before_its_first_row);
    RUN(a_new_thread_before_its_first_call);
    end_process(&p);
    return check_result();
}
