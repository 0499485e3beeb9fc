/*
 * test_code_rows.c: rows for code without unwind information that keeps its frame by rbx, and code for which
 * there must be none.
 *
 * root (0x1000) has unwind information and calls f (0x1100), which has none.
 */
#include <stdlib.h>

#include "code_rows.h"
#include "process.h"

enum { F = 0x1100, RETURN = 0x1005, SP_AT_START = 0x100 };

static struct process p;

/* As OpenBLAS's kernels do. */
static const uint8_t kernel[] = {
    0x55,                   /*  0 push %rbp */
    0x48, 0x83, 0xec, 0x10, /*  1 sub $16, %rsp */
    0x48, 0x89, 0x1c, 0x24, /*  5 mov %rbx, (%rsp) */
    0x48, 0x89, 0xe3,       /*  9 mov %rsp, %rbx */
    0x48, 0x83, 0xec, 0x40, /* 12 sub $64, %rsp */
    0x48, 0x83, 0xe4, 0xe0, /* 16 and $-32, %rsp */
    0x48, 0x85, 0xff,       /* 20 test %rdi, %rdi */
    0x74, 0x0a,             /* 23 je 35 */
    0x48, 0x89, 0xfd,       /* 25 mov %rdi, %rbp */
    0x48, 0xff, 0xcd,       /* 28 dec %rbp */
    0x75, 0xf8,             /* 31 jne 25 */
    0xf3, 0x90,             /* 33 pause */
    0x48, 0x89, 0xdc,       /* 35 mov %rbx, %rsp */
    0x48, 0x8b, 0x1c, 0x24, /* 38 mov (%rsp), %rbx */
    0x48, 0x83, 0xc4, 0x10, /* 42 add $16, %rsp */
    0x5d,                   /* 46 pop %rbp */
    0xc3,                   /* 47 ret */
};
enum { ALIGNED = 20, LOOP = 28, RESTORED = 38, POPPED = 47, KERNEL = sizeof kernel };

static void begin(const uint8_t *code, size_t size) {
    static const uint8_t call[] = {0xe8, 0xfb, 0, 0, 0}; /* 0x1000 call 0x1100 */
    begin_process(&p, UNSPOOL_X86_64);
    root_function(&p, 0x1000, 0x20);
    put_code(&p, 0x1000, call, sizeof call);
    memset(p.code + 0x1020, 0x90, 0x400);
    put_code(&p, F, code, size);
    memset(p.stack, 0, sizeof p.stack);
    put(&p, STACK_AT + SP_AT_START, CODE_AT + RETURN);
}

/* In the kernel at an offset, its frame set up: rbx as it is then, sp anywhere below. */
static void inside(uint32_t offset) {
    set_register(&p, RBX, STACK_AT + SP_AT_START - 24);
    interrupted_at(&p, CODE_AT + F + offset, STACK_AT + 0x20);
}

static void expect_caller(uint32_t offset) {
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + F + offset, INTERRUPTED}, {CODE_AT + RETURN, BY_CODE}));
}

static struct unspool_row row_at(uint32_t offset) {
    struct unspool_row row = {.flags = UNSPOOL_ROW_NONE}; /* as behind the last row */
    compile_process(&p);
    unspool_table_lookup(p.table, F + offset, &row);
    return row;
}

static void a_frame_is_found_by_rbx(void) {
    begin(kernel, sizeof kernel);
    inside(ALIGNED);
    expect_caller(ALIGNED);
    inside(LOOP);
    expect_caller(LOOP);
    inside(35);
    expect_caller(35);
    p.registers.known &= ~(UINT64_C(1) << RBX);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO, FRAMES({CODE_AT + F + 35, INTERRUPTED}));
}

static void elsewhere_it_is_found_by_sp(void) {
    static const struct {
        uint32_t offset, below;
    } places[] = {{0, 0}, {1, 8}, {5, 24}, {9, 24}, {12, 24}, {16, 88}, {38, 24}, {42, 24}, {46, 8}, {47, 0}};
    begin(kernel, sizeof kernel);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        interrupted_at(&p, CODE_AT + F + places[i].offset, STACK_AT + SP_AT_START - places[i].below);
        expect_caller(places[i].offset);
    }
}

static void rows_say_where_registers_are(void) {
    begin(kernel, sizeof kernel);
    struct unspool_row row = row_at(ALIGNED);
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_CODE);
    CHECK_EQUAL(row.cfa_base, UNSPOOL_CFA_RBX);
    CHECK_EQUAL(row.cfa_offset, 32);
    CHECK_EQUAL(row.ra_offset, -8);
    CHECK_EQUAL(row.fp, UNSPOOL_SAVED_SAME);
    row = row_at(LOOP); /* rbp is a counter here, and at 25 perhaps */
    CHECK_EQUAL(row.cfa_base, UNSPOOL_CFA_RBX);
    CHECK_EQUAL(row.fp, UNSPOOL_SAVED_AT_CFA);
    CHECK_EQUAL(row.fp_offset, -16);
    CHECK_EQUAL(row_at(25).fp, UNSPOOL_SAVED_AT_CFA);
    row = row_at(RESTORED);
    CHECK_EQUAL(row.cfa_base, UNSPOOL_CFA_SP);
    CHECK_EQUAL(row.cfa_offset, 32);
    row = row_at(POPPED);
    CHECK_EQUAL(row.cfa_offset, 8);
    CHECK_EQUAL(row.fp, UNSPOOL_SAVED_SAME);
    CHECK_EQUAL(row_at(KERNEL).flags, UNSPOOL_ROW_NONE);
}

/* The caller's rbx is where the function saved it: a caller that keeps its own frame there is found, too. */
static void the_callers_rbx_is_restored(void) {
    static const uint8_t call_kernel[] = {0xe8, 0x80 - LOOP - 5, 0, 0, 0};
    uint8_t caller[0x80 + sizeof kernel];
    memset(caller, 0x90, sizeof caller);
    memcpy(caller, kernel, sizeof kernel);
    memcpy(caller + 25, call_kernel, sizeof call_kernel); /* instead of the loop */
    memset(caller + 30, 0x90, 5);
    memcpy(caller + 0x80, kernel, sizeof kernel);
    caller[26] = 0x80 - 30;
    begin(caller, sizeof caller);
    uint64_t callers_rbx = STACK_AT + SP_AT_START - 24, own = STACK_AT + 0x40;
    put(&p, own, callers_rbx);
    put(&p, own + 24, CODE_AT + F + 30);
    set_register(&p, RBX, own);
    interrupted_at(&p, CODE_AT + F + 0x80 + ALIGNED, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + F + 0x80 + ALIGNED, INTERRUPTED}, {CODE_AT + F + 30, BY_CODE},
                       {CODE_AT + RETURN, BY_CODE}));
}

/* The kernel with a few bytes changed has no rows at all. */
static void expect_no_rows(uint32_t offset, const uint8_t *bytes, size_t size) {
    begin(kernel, sizeof kernel);
    put_code(&p, F + offset, bytes, size);
    CHECK_EQUAL(row_at(0).flags, UNSPOOL_ROW_NONE);
    CHECK_EQUAL(row_at(ALIGNED).flags, UNSPOOL_ROW_NONE);
}
#define NO_ROWS(offset, ...)                                                                                 \
    expect_no_rows(offset, (const uint8_t[]){__VA_ARGS__}, sizeof(uint8_t[]){__VA_ARGS__})

static void what_does_not_hold_on_every_way_is_no_row(void) {
    NO_ROWS(25, 0x48, 0x89, 0xfb);       /* mov %rdi, %rbx: the frame is lost */
    NO_ROWS(42, 0x48, 0x83, 0xc4, 0x18); /* add $24, %rsp: the return is not to the caller */
    NO_ROWS(46, 0x58);                   /* pop %rax: rbp is not the caller's */
    NO_ROWS(23, 0x74, 0x02);             /* je 27: into the middle of an instruction */
    NO_ROWS(47, 0xc2, 0x08, 0x00);       /* ret $8 */
    NO_ROWS(33, 0xff, 0xe0);             /* jmp *%rax: anywhere */
    NO_ROWS(33, 0x06, 0x06);             /* no instructions */
    NO_ROWS(25, 0x48, 0x89, 0x43, 0x18); /* mov %rax, 24(%rbx): over the return address */
    NO_ROWS(23, 0x74, 0x16);             /* je 47: to the return with the frame on the stack */
    NO_ROWS(5, 0x90, 0x90, 0x90, 0x90);  /* rbx is not saved */
}

/* A loop that is entered at its end: only a jump back leads to its body. */
static void a_body_that_is_jumped_back_to_is_followed(void) {
    uint8_t code[sizeof kernel];
    memcpy(code, kernel, sizeof kernel);
    code[23] = 0xeb;
    code[24] = 0x06; /* jmp 31; 25 to 30 is the body */
    begin(code, sizeof code);
    struct unspool_row row = row_at(LOOP);
    CHECK_EQUAL(row.flags, UNSPOOL_ROW_CODE);
    CHECK_EQUAL(row.cfa_base, UNSPOOL_CFA_RBX);
    CHECK_EQUAL(row.fp, UNSPOOL_SAVED_AT_CFA);
    CHECK_EQUAL(row_at(25).cfa_base, UNSPOOL_CFA_RBX);
    code[27] = 0xfb; /* mov %rdi, %rbx */
    begin(code, sizeof code);
    CHECK_EQUAL(row_at(ALIGNED).flags, UNSPOOL_ROW_NONE);
}

/* What comes behind it is followed by itself. */
static void one_that_can_not_be_followed_is_passed_over(void) {
    uint8_t both[0x40 + sizeof kernel];
    memset(both, 0x90, sizeof both);
    memcpy(both, kernel, sizeof kernel);
    memcpy(both + 0x40, kernel, sizeof kernel);
    both[33] = 0xff;
    both[34] = 0xe0; /* jmp *%rax */
    begin(both, sizeof both);
    CHECK_EQUAL(row_at(ALIGNED).flags, UNSPOOL_ROW_NONE);
    CHECK_EQUAL(row_at(0x40 + ALIGNED).flags, UNSPOOL_ROW_CODE);
}

/* Between a return and the next place that a jump leads to is nothing that the function says. */
static void what_nothing_leads_to_is_no_row(void) {
    uint8_t code[sizeof kernel + 0x10 + 13];
    memset(code, 0x90, sizeof code);
    memcpy(code, kernel, sizeof kernel);
    memcpy(code + sizeof kernel + 0x10, kernel + 35, 13);
    code[24] = sizeof kernel + 0x10 - 25; /* je behind the return */
    begin(code, sizeof code);
    CHECK_EQUAL(row_at(ALIGNED).flags, UNSPOOL_ROW_CODE);
    CHECK_EQUAL(row_at(sizeof kernel).flags, UNSPOOL_ROW_NONE);
    CHECK_EQUAL(row_at(sizeof kernel + 0x10).cfa_base, UNSPOOL_CFA_RBX);
    CHECK_EQUAL(row_at(sizeof kernel + 0x10 + 12).cfa_offset, 8);
}

/* The sections of a damaged file may come in any order and lie over each other. */
static void rows_ascend_whatever_the_order_of_sections(void) {
    uint8_t bytes[64];
    memset(bytes, 0x90, sizeof bytes);
    memcpy(bytes, kernel, sizeof kernel);
    const struct unspool_section code[] = {{.bytes = bytes, .size = sizeof bytes, .address = 0x8000000},
                                           {.bytes = bytes, .size = sizeof bytes, .address = 0x2000},
                                           {.bytes = bytes, .size = sizeof bytes, .address = 0x8000000},
                                           {.bytes = bytes, .size = sizeof bytes, .address = 0x9000000}};
    const struct unspool_compile_input input = {.arch = UNSPOOL_X86_64, .code = code, .code_count = 4};
    struct followed_code *kept = NULL;
    struct vector rows = {0};
    CHECK(code_rows(&input, 0x1000, 0x10000000, &kept, &rows));
    const struct code_row *row = rows.items;
    CHECK(rows.count > 10);
    for (size_t i = 1; i < rows.count; i++)
        CHECK(row[i].start > row[i - 1].start);
    free(rows.items);
    free_followed_code(kept);
}

/* Each of these functions jumps on to the next, thousands of times, and the last one shows that all are
 * wrong. The work must not grow with the square of their number, which would take minutes. */
static void code_made_to_be_slow_is_given_up(void) {
    enum { SIZE = 8 << 20, EACH = 16, MANY = 0x1f000 };
    static uint8_t bytes[SIZE];
    static const uint8_t goes_on[EACH] = {0x48, 0x89, 0xe3, 0xeb, 0x0b}; /* mov %rsp, %rbx; jmp behind it */
    static const uint8_t returns[EACH] = {0xc3};                         /* rbx is not the caller's */
    for (size_t i = 0; i < SIZE; i += EACH)
        memcpy(bytes + i, i % MANY ? goes_on : returns, EACH);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = bytes[i] ? bytes[i] : 0x90;
    const struct unspool_section code = {.bytes = bytes, .size = SIZE, .address = 0};
    const struct unspool_compile_input input = {.arch = UNSPOOL_X86_64, .code = &code, .code_count = 1};
    struct followed_code *kept = NULL;
    struct vector rows = {0};
    CHECK(code_rows(&input, 0, SIZE, &kept, &rows));
    CHECK_EQUAL(rows.count, 0);
    free(rows.items);
    free_followed_code(kept);
}

static void where_cfi_is_code_is_not_asked(void) {
    begin(kernel, sizeof kernel);
    function(&p, F, sizeof kernel, CFI(ADVANCE(1), DEF_CFA_OFFSET(16)));
    CHECK_EQUAL(row_at(ALIGNED).flags & UNSPOOL_ROW_CODE, 0);
}

int main(void) {
    RUN(a_frame_is_found_by_rbx);
    RUN(elsewhere_it_is_found_by_sp);
    RUN(rows_say_where_registers_are);
    RUN(the_callers_rbx_is_restored);
    RUN(what_does_not_hold_on_every_way_is_no_row);
    RUN(a_body_that_is_jumped_back_to_is_followed);
    RUN(one_that_can_not_be_followed_is_passed_over);
    RUN(what_nothing_leads_to_is_no_row);
    RUN(rows_ascend_whatever_the_order_of_sections);
    RUN(code_made_to_be_slow_is_given_up);
    RUN(where_cfi_is_code_is_not_asked);
    end_process(&p);
    return check_result();
}
