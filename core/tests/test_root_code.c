/*
 * test_root_code.c: where a stack ends though no file says so (root_code.c): at the code that the first
 * thread starts with, and where a thread's first function returns to.
 */
#include "process.h"

static struct process p;

enum { START = 0x2000, FUNCTION = 0x1100 };

static const uint8_t x86_64_exit[] = {0x41, 0xff, 0xd1,       /* call *%r9 */
                                      0x89, 0xc7, 0x31, 0xc0, /* mov %eax,%edi; xor %eax,%eax */
                                      0xb0, 0x3c, 0x0f, 0x05, 0xf4,
                                      /* mov $60,%al; syscall; hlt */};
static const uint8_t aarch64_exit[] = {U32(0xd63f0020), /* blr x1 */
                                       U32(0xd2800ba8), /* mov x8, #93 */
                                       U32(0xd4000001) /* svc #0 */};

/* A function that was called by code at START, which has no CFI. */
static void called_from(uint32_t arch, const uint8_t *code, size_t size, uint64_t return_address) {
    bool is_aarch64 = arch == UNSPOOL_AARCH64;
    begin_process(&p, arch);
    function(&p, FUNCTION, 0x40, CFI(DEF_CFA_OFFSET(0x20), OFFSET(is_aarch64 ? X30 : RIP, 1)));
    put_code(&p, START, code, size);
    interrupted_at(&p, CODE_AT + FUNCTION, STACK_AT);
    set_register(&p, fp_register(arch), 0);
    if (is_aarch64)
        set_register(&p, X30, 0xbad);
    put(&p, STACK_AT + 0x18, CODE_AT + START + return_address);
}

static void expect_end(uint32_t end, uint64_t return_address) {
    expect_walk(&p, end,
                FRAMES({CODE_AT + FUNCTION, INTERRUPTED}, {CODE_AT + START + return_address, BY_CFI}));
}

static void where_a_thread_returns_to(void) {
    called_from(UNSPOOL_X86_64, x86_64_exit, sizeof x86_64_exit, 3);
    expect_end(UNSPOOL_END_ROOT, 3);
    called_from(UNSPOOL_AARCH64, aarch64_exit, sizeof aarch64_exit, 4);
    expect_end(UNSPOOL_END_ROOT, 4);
}

static void another_system_call_is_no_exit(void) {
    called_from(UNSPOOL_X86_64, x86_64_exit, sizeof x86_64_exit, 3);
    p.code[START + 8] = 61; /* wait4 */
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 3);
    called_from(UNSPOOL_AARCH64, aarch64_exit, sizeof aarch64_exit, 4);
    p.code[START + 4] = 0xc8; /* exit_group */
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 4);
}

/* A function that ends its thread after an ordinary call has a caller like any other. */
static void an_exit_after_a_direct_call_is_no_root(void) {
    const uint8_t x86_64[] = {0xe8, U32(0x100), 0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05, 0xf4};
    const uint8_t aarch64[] = {U32(0x94000040), U32(0xd2800ba8), U32(0xd4000001)};
    called_from(UNSPOOL_X86_64, x86_64, sizeof x86_64, 5);
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 5);
    called_from(UNSPOOL_AARCH64, aarch64, sizeof aarch64, 4);
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 4);
}

static void an_exit_that_is_cut_off_is_no_root(void) {
    called_from(UNSPOOL_X86_64, x86_64_exit, sizeof x86_64_exit, 3);
    p.modules[0].code_size = START + sizeof x86_64_exit - 2;
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 3);
    called_from(UNSPOOL_AARCH64, aarch64_exit, sizeof aarch64_exit, 4);
    p.modules[0].code_size = START + sizeof aarch64_exit - 1;
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 4);
}

/* Compiles the process's table with an entry point, which is an address of the file. */
static void compile_with_entry(uint64_t entry) {
    const struct unspool_section section = as_section(&p.eh_frame, UNSPOOL_EH_FRAME);
    const struct unspool_compile_input input = {
        .arch = p.unwinder.arch, .section_count = 1, .sections = &section, .entry_address = entry};
    struct unspool_problems problems;
    unspool_table_free(p.table);
    CHECK_EQUAL(unspool_table_compile(&input, &p.table, &problems), UNSPOOL_OK);
    p.modules[0].table = p.table;
}

/* The kernel's gift to a new program: argc, argv. */
static void put_arguments(uint64_t sp) {
    put(&p, sp, 1);
    put(&p, sp + 8, sp + 0x100);
    put(&p, sp + 16, 0);
}

/* _start without CFI: nops, then a call of the libc's start code, at which a return address is found. */
static void the_entry_point_without_cfi(void) {
    const uint8_t x86_64[] = {0x90, 0x90, 0xe8, U32(0x100), 0xf4};
    const uint8_t aarch64[] = {U32(0xd503201f), U32(0x94000040), U32(0)};
    called_from(UNSPOOL_X86_64, x86_64, sizeof x86_64, 7);
    compile_with_entry(START);
    put_arguments(STACK_AT + 0x20);
    expect_end(UNSPOOL_END_ROOT, 7);
    put(&p, STACK_AT + 0x30, 1); /* no null behind the arguments */
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 7);
    called_from(UNSPOOL_AARCH64, aarch64, sizeof aarch64, 8);
    compile_with_entry(START);
    expect_end(UNSPOOL_END_ROOT, 8);
    interrupted_at(&p, CODE_AT + START, STACK_AT); /* its very first instruction */
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + START, INTERRUPTED}));
}

/* ld.so calls a function, then aligns sp, which is aligned, and goes on to the next. */
static void the_entry_point_of_a_loader(void) {
    const uint8_t code[] = {
        0xe8, U32(0x100), /* 0x2000 call 0x2105 */
        0x48, 0x83,
        0xe4, 0xf0,            /* 0x2005 and $-16,%rsp */
        0xe8, U32(0xfffff0f2), /* 0x2009 call of the function */
        0xff, 0xe0,            /* 0x200e jmp *%rax */
    };
    called_from(UNSPOOL_X86_64, code, sizeof code, 0xe);
    compile_with_entry(START);
    put(&p, STACK_AT + 0x60, CODE_AT + START + 5); /* not the only one */
    put_arguments(STACK_AT + 0x20);
    expect_end(UNSPOOL_END_ROOT, 0xe);
    put(&p, STACK_AT + 0x30, 1);
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 0xe);
}

/* What stands behind a program's exit may be a function that it has called. */
static void a_function_behind_the_entry_code_is_not_its(void) {
    const uint8_t code[] = {
        0xe8, U32(5), /* 0x2000 call 0x200a */
        0xb0, 0x3c,
        0x0f, 0x05,
        0x90, /* 0x2005 mov $60,%al; syscall; nop */
        0x8f, 0x43,
        0x10, /* 0x200a pop 16(%rbx) */
        0xe8, U32(0xfffff0ee),
        0xf4, /* 0x200d call of the function */
    };
    called_from(UNSPOOL_X86_64, code, sizeof code, 0x12);
    compile_with_entry(START);
    put_arguments(STACK_AT + 0x40);
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 0x12);
}

/* Code near the entry point that can't be reached from it is another function's. */
static void code_behind_the_entry_point_is_not_its(void) {
    const uint8_t x86_64[] = {0xf4, 0x90, 0xe8, U32(0x100), 0xf4};
    called_from(UNSPOOL_X86_64, x86_64, sizeof x86_64, 7);
    compile_with_entry(START);
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 7);
    compile_with_entry(START - 0x1000); /* nor is what is far away */
    expect_end(UNSPOOL_END_NO_UNWIND_INFO, 7);
}

int main(void) {
    RUN(where_a_thread_returns_to);
    RUN(another_system_call_is_no_exit);
    RUN(an_exit_after_a_direct_call_is_no_root);
    RUN(an_exit_that_is_cut_off_is_no_root);
    RUN(the_entry_point_without_cfi);
    RUN(the_entry_point_of_a_loader);
    RUN(a_function_behind_the_entry_code_is_not_its);
    RUN(code_behind_the_entry_point_is_not_its);
    end_process(&p);
    return check_result();
}
