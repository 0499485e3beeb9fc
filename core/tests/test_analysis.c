/*
 * test_analysis.c: what code analysis says about small functions, and what it must not say.
 *
 * Code is written as hexadecimal bytes, an instruction a line; a question is asked at an offset.
 */
#include "analysis.h"
#include "cfi_writer.h"
#include "decode_cases.h"

#define CODE_AT 0x401000u

static uint8_t bytes[8192];
static char text[160];

static struct code *code_over(uint32_t arch, size_t size, const struct unspool_table *table) {
    static struct unspool_module module;
    static struct unspool_memory memory;
    static struct unspool_unwinder unwinder;
    static struct code code;
    module = (struct unspool_module){.start = CODE_AT,
                                     .end = CODE_AT + size,
                                     .image_base = 0,
                                     .table = table,
                                     .code = bytes,
                                     .code_size = size};
    memset(&memory, 0, sizeof memory);
    unwinder =
        (struct unspool_unwinder){.arch = arch, .address_bits = 48, .modules = &module, .module_count = 1};
    code = (struct code){&unwinder, &memory};
    return &code;
}

static void describe_value(const char *name, struct frame_value value) {
    static const char *const before[] = {"?", "sp", "fp", "lr", "[sp", "[fp"};
    static const char *const after[] = {"", "", "", "", "]", "]"};
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, sizeof text - used, " %s=%s", name, before[value.kind]);
    if (value.kind != VALUE_UNKNOWN && value.kind != VALUE_LR)
        snprintf(text + used, sizeof text - used, "%+" PRId64 "%s", value.offset, after[value.kind]);
}

static const char *analyse(const struct code *code, uint64_t offset, bool is_interrupted) {
    static const char *const results[] = {"none", "if calls return:", "proved:"};
    struct frame_recipe recipe;
    bool lr_is_live = is_interrupted && code->unwinder->arch == UNSPOOL_AARCH64;
    enum analysis_result result = analyse_code(code, CODE_AT + offset, is_interrupted, lr_is_live, &recipe);
    snprintf(text, sizeof text, "%s", results[result]);
    if (result != CALLER_NOT_FOUND) {
        describe_value("ra", recipe.return_address);
        describe_value("sp", recipe.sp);
        describe_value("fp", recipe.fp);
    }
    return text;
}

static void expect_from(const struct code *code, uint64_t offset, bool is_interrupted, const char *expected,
                        int line) {
    const char *actual = analyse(code, offset, is_interrupted);
    if (!check_that(strcmp(actual, expected) == 0, expected, __FILE__, line))
        fprintf(stderr, "    at %d: %s\n", (int)offset, actual);
}
#define EXPECT(arch, hex, offset, expected)                                                                  \
    expect_from(code_over((arch), from_hex((hex), bytes, sizeof bytes), NULL), (offset), true, (expected),   \
                __LINE__)
#define EXPECT_CALLER(arch, hex, offset, expected)                                                           \
    expect_from(code_over((arch), from_hex((hex), bytes, sizeof bytes), NULL), (offset), false, (expected),  \
                __LINE__)

static void x86_64_every_instruction_of_a_frame(void) {
    const char *hex = "55"       /*  0 push %rbp */
                      "4889e5"   /*  1 mov %rsp,%rbp */
                      "53"       /*  4 push %rbx */
                      "4883ec18" /*  5 sub $24,%rsp */
                      "488b5df8" /*  9 mov -8(%rbp),%rbx */
                      "c9"       /* 13 leave */
                      "c3";      /* 14 ret */
    EXPECT(UNSPOOL_X86_64, hex, 0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT(UNSPOOL_X86_64, hex, 1, "proved: ra=[sp+8] sp=sp+16 fp=[sp+0]");
    EXPECT(UNSPOOL_X86_64, hex, 4, "proved: ra=[fp+8] sp=fp+16 fp=[fp+0]");
    EXPECT(UNSPOOL_X86_64, hex, 9, "proved: ra=[fp+8] sp=fp+16 fp=[fp+0]");
    EXPECT(UNSPOOL_X86_64, hex, 14, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
}

static void x86_64_pushes_and_pops_without_frame_pointer(void) {
    const char *hex = "55"       /*  0 push %rbp */
                      "53"       /*  1 push %rbx */
                      "4883ec08" /*  2 sub $8,%rsp */
                      "31ed"     /*  6 xor %ebp,%ebp */
                      "4883c408" /*  8 add $8,%rsp */
                      "5b"       /* 12 pop %rbx */
                      "5d"       /* 13 pop %rbp */
                      "c3";      /* 14 ret */
    EXPECT(UNSPOOL_X86_64, hex, 0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT(UNSPOOL_X86_64, hex, 2, "proved: ra=[sp+16] sp=sp+24 fp=[sp+8]");
    EXPECT(UNSPOOL_X86_64, hex, 8, "proved: ra=[sp+24] sp=sp+32 fp=[sp+16]");
    EXPECT(UNSPOOL_X86_64, hex, 13, "proved: ra=[sp+8] sp=sp+16 fp=[sp+0]");
}

static void a_return_that_pops_its_arguments(void) {
    EXPECT(UNSPOOL_X86_64, "50c21000" /* push %rax; ret $16 never balanced: returns to rax */, 0, "none");
    EXPECT(UNSPOOL_X86_64, "5058c21000" /* push, pop %rax; ret $16 */, 0,
           "proved: ra=[sp+0] sp=sp+24 fp=fp+0");
}

static void branches_must_agree(void) {
    const char *agree = "85ff"       /*  0 test %edi,%edi */
                        "7404"       /*  2 je 8 */
                        "90909090"   /*  4 nops */
                        "c3";        /*  8 ret */
    const char *differ = "85ff"      /*  0 test %edi,%edi */
                         "7401"      /*  2 je 5 */
                         "50"        /*  4 push %rax */
                         "58"        /*  5 pop %rax */
                         "c3";       /*  6 ret */
    const char *two_returns = "85ff" /*  0 test %edi,%edi */
                              "7402" /*  2 je 6 */
                              "58"   /*  4 pop %rax */
                              "c3"   /*  5 ret */
                              "c3";  /*  6 ret */
    EXPECT(UNSPOOL_X86_64, agree, 0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT(UNSPOOL_X86_64, differ, 0, "none");
    EXPECT(UNSPOOL_X86_64, two_returns, 0, "none");
    EXPECT(UNSPOOL_X86_64, two_returns, 4, "proved: ra=[sp+8] sp=sp+16 fp=fp+0");
}

static void loops(void) {
    const char *counts = "31ed"   /*  0 xor %ebp,%ebp */
                         "83c501" /*  2 add $1,%ebp */
                         "39fd"   /*  5 cmp %edi,%ebp */
                         "75f9"   /*  7 jne 2 */
                         "5d"     /*  9 pop %rbp */
                         "c3";    /* 10 ret */
    EXPECT(UNSPOOL_X86_64, counts, 0, "proved: ra=[sp+8] sp=sp+16 fp=[sp+0]");
    EXPECT(UNSPOOL_X86_64, counts, 5, "proved: ra=[sp+8] sp=sp+16 fp=[sp+0]");
    EXPECT(UNSPOOL_X86_64,
           "50"
           "ebfd" /* push; jmp back: the depth grows */,
           0, "none");
    EXPECT(UNSPOOL_X86_64,
           "50"
           "75fd"
           "c3" /* push; jne back; ret */,
           0, "none");
    EXPECT(UNSPOOL_X86_64, "ebfe" /* jmp . */, 0, "none");
    EXPECT(UNSPOOL_X86_64,
           "85ff"
           "7401"
           "c3"
           "ebfe" /* one way returns, one never ends */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    /* A loop that writes rbp: before it, rbp is lost or not, by path. */
    EXPECT(UNSPOOL_X86_64,
           "85c0"
           "7402"
           "ebfa"
           "c3" /* test; je 6; jmp 0; ret */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT(UNSPOOL_X86_64,
           "85c0"
           "7404"
           "31ed"
           "ebf8"
           "c3" /* test; je 8; xor ebp; jmp 0; ret */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=?");
}

static void what_leaves_a_path_open(void) {
    EXPECT(UNSPOOL_X86_64, "ffe0" /* jmp *%rax */, 0, "none");
    EXPECT(UNSPOOL_X86_64,
           "50"
           "7402"
           "ffe0"
           "58"
           "c3" /* push; je 5; jmp *%rax; pop; ret: the jump goes on with another sp than the return */,
           0, "none");
    EXPECT(UNSPOOL_X86_64,
           "7401"
           "06"
           "c3" /* je 3; no instruction; ret */,
           0, "none");
    EXPECT(UNSPOOL_X86_64,
           "7401"
           "c3"
           "90" /* je 3; ret; nop and no more code */,
           0, "none");
    EXPECT(UNSPOOL_X86_64, "90", 0, "none");
    EXPECT(UNSPOOL_X86_64, "c3", 1, "none");
    EXPECT(UNSPOOL_X86_64,
           "4829c4"
           "c3" /* sub %rax,%rsp; ret */,
           0, "none");
    EXPECT(UNSPOOL_X86_64,
           "4883e4f0"
           "c3" /* and $-16,%rsp; ret */,
           0, "none");
    EXPECT(UNSPOOL_X86_64,
           "7402"
           "0f0b"
           "c3" /* je 4; ud2; ret: a trap has no caller */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT(UNSPOOL_X86_64,
           "0f0b"
           "c3" /* ud2; ret is not reached */,
           0, "none");
}

static void code_without_end_is_given_up(void) {
    memset(bytes, 0x90, sizeof bytes);
    bytes[1000] = 0xc3;
    expect_from(code_over(UNSPOOL_X86_64, sizeof bytes, NULL), 0, true, "proved: ra=[sp+0] sp=sp+8 fp=fp+0",
                __LINE__);
    bytes[1000] = 0x90;
    bytes[1100] = 0xc3;
    expect_from(code_over(UNSPOOL_X86_64, sizeof bytes, NULL), 0, true, "none", __LINE__);
}

static void more_branches_than_are_kept_are_given_up(void) {
    for (unsigned i = 0; i < 300; i++) {
        bytes[2 * i] = 0x74; /* je over the next: a place each */
        bytes[2 * i + 1] = 0x02;
    }
    memset(bytes + 600, 0xc3, 8);
    expect_from(code_over(UNSPOOL_X86_64, 608, NULL), 0, true, "none", __LINE__);
    expect_from(code_over(UNSPOOL_X86_64, 608, NULL), 400, true, "proved: ra=[sp+0] sp=sp+8 fp=fp+0",
                __LINE__);
}

static void what_was_overwritten_is_not_read(void) {
    EXPECT(UNSPOOL_X86_64,
           "48890424"
           "c3" /* mov %rax,(%rsp); ret: a retpoline's jump */,
           0, "none");
    EXPECT(UNSPOOL_X86_64,
           "4889442408"
           "58"
           "c3" /* mov %rax,8(%rsp); pop; ret */,
           0, "none");
    EXPECT(UNSPOOL_X86_64,
           "6689442409"
           "58"
           "c3" /* mov %ax,9(%rsp): inside it */,
           0, "none");
    EXPECT(UNSPOOL_X86_64,
           "89442404"
           "58"
           "c3" /* mov %eax,4(%rsp): just below it */,
           0, "proved: ra=[sp+8] sp=sp+16 fp=fp+0");
    /* Four ranges are kept apart; the fifth joins two of them, but not over the return address. */
    EXPECT(UNSPOOL_X86_64,
           "c6042400"
           "c644240800"
           "c644241000"
           "c644241800"
           "c644242000" /* movb to 0, 8, 16, 24, 32 */
           "4883c428"
           "c3" /* add $40,%rsp; ret */,
           0, "proved: ra=[sp+40] sp=sp+48 fp=fp+0");
}

static void a_frame_pointer_comes_from_where_it_was_saved(void) {
    EXPECT(UNSPOOL_X86_64,
           "48890424"
           "5d"
           "c3" /* mov %rax,(%rsp); pop %rbp; ret */,
           0, "proved: ra=[sp+8] sp=sp+16 fp=?");
    EXPECT(UNSPOOL_X86_64,
           "55"
           "48890424"
           "5d"
           "c3" /* push %rbp; mov %rax,(%rsp); pop %rbp; ret */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=?");
    EXPECT(UNSPOOL_X86_64,
           "48896c24f8"
           "31ed"
           "488b6c24f8"
           "c3" /* rbp kept in the red zone */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT(UNSPOOL_X86_64,
           "488b6c24f8"
           "c3" /* rbp from below sp: nobody knows what that is */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=?");
}

static void a_computed_frame_pointer_is_lost(void) {
    EXPECT(UNSPOOL_X86_64,
           "4883c510"
           "c3" /* add $16,%rbp; ret */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=?");
    EXPECT(UNSPOOL_X86_64,
           "488d6c2408"
           "c3" /* lea 8(%rsp),%rbp; ret */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=?");
}

/* A jump over a call leads right behind it: that code is there even if the call never comes back. */
static void a_call_that_is_jumped_over_needs_not_return(void) {
    const char *jumped = "4883ec08"   /*  0 sub $8,%rsp */
                         "7405"       /*  4 je 11 */
                         "e8f5ff7f00" /*  6 call of nobody knows what */
                         "4883c408"   /* 11 add $8,%rsp */
                         "c3";        /* 15 ret */
    EXPECT(UNSPOOL_X86_64, jumped, 6, "proved: ra=[sp+8] sp=sp+16 fp=fp+0");
    EXPECT_CALLER(UNSPOOL_X86_64, jumped, 11, "proved: ra=[sp+8] sp=sp+16 fp=fp+0");
    const char *moved = "7409"       /*  0 je 11: sp is another there */
                        "4883ec08"   /*  2 sub $8,%rsp */
                        "e8f5ff7f00" /*  6 call */
                        "4883c408"   /* 11 add $8,%rsp */
                        "c3";        /* 15 ret */
    EXPECT_CALLER(UNSPOOL_X86_64, moved, 11, "if calls return: ra=[sp+8] sp=sp+16 fp=fp+0");
    const char *beside = "4883ec08"   /*  0 sub $8,%rsp */
                         "7406"       /*  4 je 12: into the middle of what is behind the call */
                         "e8f5ff7f00" /*  6 call */
                         "4883c408"   /* 11 add $8,%rsp */
                         "c3";        /* 15 ret */
    EXPECT_CALLER(UNSPOOL_X86_64, beside, 11, "if calls return: ra=[sp+8] sp=sp+16 fp=fp+0");
    const char *aarch64 = "fd7bbfa9"  /*  0 stp x29, x30, [sp, #-16]! */
                          "400000b4"  /*  4 cbz x0, 12 */
                          "fdffff95"  /*  8 bl of nobody knows what */
                          "fd7bc1a8"  /* 12 ldp x29, x30, [sp], #16 */
                          "c0035fd6"; /* 16 ret */
    EXPECT_CALLER(UNSPOOL_AARCH64, aarch64, 12, "proved: ra=[sp+8] sp=sp+16 fp=[sp+0]");
}

/* A function that can return only over calls of others. One that never does runs on into the next. */
static void a_callee_may_return_over_calls(void) {
    const char *hex = "e805000000" /*  0 call 10 */
                      "58"         /*  5 pop %rax */
                      "c3"         /*  6 ret */
                      "f4f4f4"     /*  7 */
                      "50"         /* 10 push %rax */
                      "e8f0ff7f00" /* 11 call of nobody knows what */
                      "59"         /* 16 pop %rcx */
                      "c3";        /* 17 ret */
    EXPECT_CALLER(UNSPOOL_X86_64, hex, 5, "proved: ra=[sp+8] sp=sp+16 fp=fp+0");
    const char *never = "e805000000" /*  0 call 10 */
                        "58"         /*  5 pop %rax */
                        "c3"         /*  6 ret */
                        "f4f4f4"     /*  7 */
                        "50"         /* 10 push %rax */
                        "e8f0ff7f00" /* 11 call that never returns */
                        "c3";        /* 16 the next function: ret */
    EXPECT_CALLER(UNSPOOL_X86_64, never, 5, "if calls return: ra=[sp+8] sp=sp+16 fp=fp+0");
}

static void calls_are_stepped_over_only_when_need_be(void) {
    const char *hex = "4883ec08"   /*  0 sub $8,%rsp */
                      "7405"       /*  4 je 11 */
                      "e8f5ff7f00" /*  6 call of nobody knows what */
                      "4883c408"   /* 11 add $8,%rsp */
                      "c3";        /* 15 ret */
    EXPECT(UNSPOOL_X86_64, hex, 0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT(UNSPOOL_X86_64, hex + 12, 0, "if calls return: ra=[sp+8] sp=sp+16 fp=fp+0");
    EXPECT(UNSPOOL_X86_64, hex, 11, "proved: ra=[sp+8] sp=sp+16 fp=fp+0");
    EXPECT_CALLER(UNSPOOL_X86_64, hex + 12, 5, "if calls return: ra=[sp+8] sp=sp+16 fp=fp+0");
    /* An own call that gets the address only is none. */
    EXPECT(UNSPOOL_X86_64,
           "e800000000"
           "58"
           "c3" /* call .+5; pop %rax; ret */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
}

/* Code behind a call is there to be reached if what is called can return. */
static void calls_of_what_can_return(void) {
    const char *hex = "4883ec08"   /*  0 sub $8,%rsp */
                      "7405"       /*  4 je 11 */
                      "e8f5ffffff" /*  6 call 0: it returns by way of 4 */
                      "4883c408"   /* 11 add $8,%rsp */
                      "c3";        /* 15 ret */
    EXPECT(UNSPOOL_X86_64, hex, 6, "proved: ra=[sp+8] sp=sp+16 fp=fp+0");
    EXPECT_CALLER(UNSPOOL_X86_64, hex, 11, "proved: ra=[sp+8] sp=sp+16 fp=fp+0");
    hex = "4883ec08"   /*  0 sub $8,%rsp */
          "e804000000" /*  4 call 13 */
          "4883c408"   /*  9 add $8,%rsp */
          "c3"         /* 13 ret with the return address on top: */
        ;
    EXPECT(UNSPOOL_X86_64, hex, 0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    hex = "4883ec08"   /*  0 sub $8,%rsp */
          "e805000000" /*  4 call 14, which makes room and does not give it back */
          "4883c408"   /*  9 add $8,%rsp */
          "c3"         /* 13 ret */
          "50"         /* 14 push %rax */
          "c3";        /* 15 ret */
    EXPECT(UNSPOOL_X86_64, hex, 0, "if calls return: ra=[sp+0] sp=sp+8 fp=fp+0");
}

static void a_call_that_never_returns(void) {
    const char *hex = "50"         /*  0 push %rax */
                      "e8f5ffffff" /*  1 call abort */
                      "90"         /*  6 nop */
                      "50"         /*  7 the next function: push %rax */
                      "58"         /*  8 pop %rax */
                      "c3";        /*  9 ret */
    EXPECT(UNSPOOL_X86_64, hex, 0, "none");
    EXPECT(UNSPOOL_X86_64, hex, 1, "none");
    EXPECT_CALLER(UNSPOOL_X86_64, hex, 6, "none");
    EXPECT(UNSPOOL_X86_64, hex, 7, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    /* aarch64: lr is lost over a call, so the next function's return leads nowhere. */
    EXPECT(UNSPOOL_AARCH64,
           "ffffff97"
           "c0035fd6" /* bl; ret */,
           0, "none");
    EXPECT_CALLER(UNSPOOL_AARCH64, "c0035fd6", 0, "none");
}

static void what_lies_below_sp_is_gone_after_a_call(void) {
    EXPECT(UNSPOOL_X86_64,
           "4883c408"
           "e800010000"
           "488b6c24f8"
           "4883c408"
           "c3" /* add $8,%rsp; call; mov -8(%rsp),%rbp */,
           0, "if calls return: ra=[sp+16] sp=sp+24 fp=?");
}

static void jumps_are_followed(void) {
    EXPECT(UNSPOOL_X86_64,
           "7402"
           "ffe0"
           "c3" /* je 4; jmp *%rax; ret: wherever the jump goes, it is with the return's sp */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT(UNSPOOL_X86_64,
           "eb01"
           "06"
           "c3" /* jmp 3; no instruction; ret */,
           0, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT(UNSPOOL_X86_64,
           "c3"
           "50"
           "58"
           "ebfb" /* ret; push; pop; jmp 0: a tail call */,
           1, "proved: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT(UNSPOOL_X86_64, "e9fbffff7f" /* jmp far out of the code */, 0, "none");
    EXPECT(UNSPOOL_X86_64,
           "4883c408"
           "eb0a"
           "90909090909090909090"
           "ff2500000000"
           "6690" /* tail call by PLT */,
           0, "proved: ra=[sp+8] sp=sp+16 fp=fp+0");
}

static void aarch64_every_instruction_of_a_frame(void) {
    const char *hex = "fd7bbea9"  /*  0 stp x29, x30, [sp, #-32]! */
                      "fd030091"  /*  4 mov x29, sp */
                      "f30b00f9"  /*  8 str x19, [sp, #16] */
                      "f30b40f9"  /* 12 ldr x19, [sp, #16] */
                      "fd7bc2a8"  /* 16 ldp x29, x30, [sp], #32 */
                      "c0035fd6"; /* 20 ret */
    EXPECT(UNSPOOL_AARCH64, hex, 0, "proved: ra=lr sp=sp+0 fp=fp+0");
    EXPECT(UNSPOOL_AARCH64, hex, 4, "proved: ra=[sp+8] sp=sp+32 fp=[sp+0]");
    EXPECT(UNSPOOL_AARCH64, hex, 12, "proved: ra=[sp+8] sp=sp+32 fp=[sp+0]");
    EXPECT(UNSPOOL_AARCH64, hex, 20, "proved: ra=lr sp=sp+0 fp=fp+0");
    EXPECT_CALLER(UNSPOOL_AARCH64, hex, 12, "if calls return: ra=[sp+8] sp=sp+32 fp=[sp+0]");
}

static void aarch64_leaves_without_frame_record(void) {
    const char *hex = "ff8300d1"  /*  0 sub sp, sp, #32 */
                      "e00f00f9"  /*  4 str x0, [sp, #24] */
                      "ff830091"  /*  8 add sp, sp, #32 */
                      "c0035fd6"; /* 12 ret */
    EXPECT(UNSPOOL_AARCH64, hex, 0, "proved: ra=lr sp=sp+0 fp=fp+0");
    EXPECT(UNSPOOL_AARCH64, hex, 4, "proved: ra=lr sp=sp+32 fp=fp+0");
    EXPECT(UNSPOOL_AARCH64, hex, 12, "proved: ra=lr sp=sp+0 fp=fp+0");
    EXPECT_CALLER(UNSPOOL_AARCH64, hex, 4, "none"); /* lr is not the caller's any more */
    EXPECT(UNSPOOL_AARCH64,
           "3f2303d5"
           "bf2303d5"
           "c0035fd6" /* paciasp; autiasp; ret */,
           0, "proved: ra=lr sp=sp+0 fp=fp+0");
    EXPECT(UNSPOOL_AARCH64,
           "e9031eaa"
           "fe0309aa"
           "c0035fd6" /* mov x9, x30; mov x30, x9; ret */,
           0, "none");
}

/* ------------------------------------------------------------------ with a table */

static struct unspool_table *table_with(const struct cie_shape *cie, uint64_t start, uint64_t size,
                                        const uint8_t *instructions, size_t instructions_size) {
    struct writer writer = {0};
    write_fde(&writer, write_cie(&writer, cie), start, size, instructions, instructions_size);
    struct unspool_section section = as_section(&writer, UNSPOOL_EH_FRAME);
    struct unspool_compile_input input = {.arch = cie->return_address_register == RIP ? UNSPOOL_X86_64
                                                                                      : UNSPOOL_AARCH64,
                                          .section_count = 1,
                                          .sections = &section};
    struct unspool_table *table = NULL;
    struct unspool_problems problems;
    CHECK_EQUAL(unspool_table_compile(&input, &table, &problems), UNSPOOL_OK);
    CHECK_EQUAL(problems.count, 0);
    writer_free(&writer);
    return table;
}

/* pop %rbx; jmp 4; at 4 code that can't be analysed, which a row covers. */
static void a_row_finishes_a_path(void) {
    struct unspool_table *table =
        table_with(&x86_64_cie, CODE_AT + 4, 2, CFI(DEF_CFA_OFFSET(16), OFFSET(RBP, 2)));
    struct code *code = code_over(UNSPOOL_X86_64, from_hex("5beb0190ffe0", bytes, sizeof bytes), table);
    expect_from(code, 0, true, "proved: ra=[sp+16] sp=sp+24 fp=[sp+8]", __LINE__);
    /* Falling into it does the same. */
    code = code_over(UNSPOOL_X86_64, from_hex("5b909090ffe0", bytes, sizeof bytes), table);
    expect_from(code, 1, true, "proved: ra=[sp+8] sp=sp+16 fp=[sp+0]", __LINE__);
    unspool_table_free(table);
    table = table_with(&x86_64_cie, CODE_AT + 4, 2, CFI(DEF_CFA(RBP, 16), OFFSET(RBP, 2)));
    code = code_over(UNSPOOL_X86_64, from_hex("5beb0190ffe0", bytes, sizeof bytes), table);
    expect_from(code, 0, true, "proved: ra=[fp+8] sp=fp+16 fp=[fp+0]", __LINE__);
    unspool_table_free(table);
}

static void a_row_that_ends_the_stack_proves_nothing(void) {
    struct unspool_table *table = table_with(&x86_64_cie, CODE_AT + 2, 1, CFI(UNDEFINED(RIP)));
    struct code *code = code_over(UNSPOOL_X86_64, from_hex("5b90c3", bytes, sizeof bytes), table);
    expect_from(code, 0, true, "none", __LINE__);
    code = code_over(UNSPOOL_X86_64, from_hex("5bc3c3", bytes, sizeof bytes), table);
    expect_from(code, 0, true, "proved: ra=[sp+8] sp=sp+16 fp=fp+0", __LINE__);
    unspool_table_free(table);
}

static void a_row_after_a_call_is_the_next_function(void) {
    struct unspool_table *table = table_with(&x86_64_cie, CODE_AT + 6, 1, NO_CFI);
    struct code *code = code_over(UNSPOOL_X86_64, from_hex("50e800010000c3", bytes, sizeof bytes), table);
    expect_from(code, 0, true, "none", __LINE__);
    expect_from(code, 6, false, "none", __LINE__);
    unspool_table_free(table);
}

static void a_tail_call_on_aarch64_keeps_lr(void) {
    struct unspool_table *table = table_with(&aarch64_cie, CODE_AT + 8, 4, NO_CFI);
    /* ldp x29, x30, [sp], #16; b 8; br x0 */
    struct code *code = code_over(UNSPOOL_AARCH64,
                                  from_hex("fd7bc1a8"
                                           "01000014"
                                           "00001fd6",
                                           bytes, sizeof bytes),
                                  table);
    expect_from(code, 0, true, "proved: ra=[sp+8] sp=sp+16 fp=[sp+0]", __LINE__);
    expect_from(code, 4, true, "proved: ra=lr sp=sp+0 fp=fp+0", __LINE__);
    unspool_table_free(table);
}

/* ------------------------------------------------------------------ code_reaches */

static void which_code_a_function_reaches(void) {
    const char *hex = "7404"       /*  0 je 6 */
                      "90"         /*  2 nop */
                      "ebfb"       /*  3 jmp 0 */
                      "06"         /*  5 no instruction */
                      "e8f5ffffff" /*  6 call 0 */
                      "c3"         /* 11 ret */
                      "90";        /* 12 not reached */
    struct code *code = code_over(UNSPOOL_X86_64, from_hex(hex, bytes, sizeof bytes), NULL);
    static const bool reached[] = {1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0};
    for (uint64_t i = 0; i < sizeof reached; i++)
        CHECK_EQUAL(code_reaches(code, CODE_AT, CODE_AT + i), reached[i]);
    CHECK(!code_reaches(code, CODE_AT + 11, CODE_AT));
    CHECK(!code_reaches(code, 0, CODE_AT));
    CHECK(!code_reaches(code, UINT64_MAX, 0));
}

/* ------------------------------------------------------------------ recipe_from_entry */

static const char *from_entry(uint32_t arch, const char *hex, uint64_t offset) {
    struct frame_recipe recipe;
    struct code *code = code_over(arch, from_hex(hex, bytes, sizeof bytes), NULL);
    bool found = recipe_from_entry(code, CODE_AT, CODE_AT + offset, &recipe);
    snprintf(text, sizeof text, "%s", found ? "at pc:" : "none");
    if (found) {
        describe_value("ra", recipe.return_address);
        describe_value("sp", recipe.sp);
        describe_value("fp", recipe.fp);
    }
    return text;
}
#define EXPECT_FROM_ENTRY(arch, hex, offset, expected)                                                       \
    do {                                                                                                     \
        if (!CHECK(strcmp(from_entry((arch), (hex), (offset)), (expected)) == 0))                            \
            fprintf(stderr, "    at %d: %s\n", (int)(offset), text);                                         \
    } while (0)

static void what_holds_on_the_way_from_an_entry(void) {
    const char *hex = "55"         /*  0 push %rbp */
                      "4889e5"     /*  1 mov %rsp,%rbp */
                      "4829c4"     /*  4 sub %rax,%rsp */
                      "e8f4ffffff" /*  7 call 0 */
                      "c9"         /* 12 leave */
                      "c3";        /* 13 ret */
    EXPECT_FROM_ENTRY(UNSPOOL_X86_64, hex, 0, "at pc: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT_FROM_ENTRY(UNSPOOL_X86_64, hex, 1, "at pc: ra=[sp+8] sp=sp+16 fp=[sp+0]");
    EXPECT_FROM_ENTRY(UNSPOOL_X86_64, hex, 4, "at pc: ra=[sp+8] sp=sp+16 fp=[sp+0]");
    EXPECT_FROM_ENTRY(UNSPOOL_X86_64, hex, 7, "at pc: ra=[fp+8] sp=fp+16 fp=[fp+0]");
    EXPECT_FROM_ENTRY(UNSPOOL_X86_64, hex, 11, "at pc: ra=[fp+8] sp=fp+16 fp=[fp+0]"); /* in the call */
    EXPECT_FROM_ENTRY(UNSPOOL_X86_64, hex, 13, "at pc: ra=[sp+0] sp=sp+8 fp=fp+0");
    EXPECT_FROM_ENTRY(UNSPOOL_X86_64, hex, 14, "none");
    EXPECT_FROM_ENTRY(UNSPOOL_X86_64,
                      "4889c4"
                      "31ed"
                      "c3" /* mov %rax,%rsp; xor %ebp,%ebp; ret */,
                      5, "at pc: ra=? sp=? fp=?");
    /* A path without calls goes before one with a call, which may never return: je 7; push; call; ret */
    EXPECT_FROM_ENTRY(UNSPOOL_X86_64,
                      "7406"
                      "50"
                      "e8f8ffffff"
                      "c3",
                      8, "at pc: ra=[sp+0] sp=sp+8 fp=fp+0");
}

static void what_holds_on_the_way_from_an_aarch64_entry(void) {
    const char *hex = "fd7bbea9"  /*  0 stp x29, x30, [sp, #-32]! */
                      "fd030091"  /*  4 mov x29, sp */
                      "feffff97"  /*  8 bl 0 */
                      "fd7bc2a8"  /* 12 ldp x29, x30, [sp], #32 */
                      "c0035fd6"; /* 16 ret */
    EXPECT_FROM_ENTRY(UNSPOOL_AARCH64, hex, 0, "at pc: ra=lr sp=sp+0 fp=fp+0");
    EXPECT_FROM_ENTRY(UNSPOOL_AARCH64, hex, 4, "at pc: ra=[sp+8] sp=sp+32 fp=[sp+0]");
    EXPECT_FROM_ENTRY(UNSPOOL_AARCH64, hex, 11, "at pc: ra=[sp+8] sp=sp+32 fp=[sp+0]");
    EXPECT_FROM_ENTRY(UNSPOOL_AARCH64, hex, 12, "at pc: ra=[sp+8] sp=sp+32 fp=[sp+0]");
    EXPECT_FROM_ENTRY(UNSPOOL_AARCH64, hex, 16, "at pc: ra=lr sp=sp+0 fp=fp+0");
    EXPECT_FROM_ENTRY(UNSPOOL_AARCH64,
                      "ffffff97"
                      "c0035fd6" /* bl; ret: lr is lost */,
                      4, "at pc: ra=? sp=sp+0 fp=fp+0");
}

int main(void) {
    RUN(x86_64_every_instruction_of_a_frame);
    RUN(x86_64_pushes_and_pops_without_frame_pointer);
    RUN(a_return_that_pops_its_arguments);
    RUN(branches_must_agree);
    RUN(loops);
    RUN(what_leaves_a_path_open);
    RUN(code_without_end_is_given_up);
    RUN(more_branches_than_are_kept_are_given_up);
    RUN(what_was_overwritten_is_not_read);
    RUN(a_frame_pointer_comes_from_where_it_was_saved);
    RUN(a_computed_frame_pointer_is_lost);
    RUN(a_call_that_is_jumped_over_needs_not_return);
    RUN(a_callee_may_return_over_calls);
    RUN(calls_are_stepped_over_only_when_need_be);
    RUN(calls_of_what_can_return);
    RUN(a_call_that_never_returns);
    RUN(what_lies_below_sp_is_gone_after_a_call);
    RUN(jumps_are_followed);
    RUN(aarch64_every_instruction_of_a_frame);
    RUN(aarch64_leaves_without_frame_record);
    RUN(a_row_finishes_a_path);
    RUN(a_row_that_ends_the_stack_proves_nothing);
    RUN(a_row_after_a_call_is_the_next_function);
    RUN(a_tail_call_on_aarch64_keeps_lr);
    RUN(which_code_a_function_reaches);
    RUN(what_holds_on_the_way_from_an_entry);
    RUN(what_holds_on_the_way_from_an_aarch64_entry);
    return check_result();
}
