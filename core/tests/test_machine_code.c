/*
 * test_machine_code.c: PLT stubs at each of their instructions, what a call gets to, and the code that
 * returns from a signal handler.
 */
#include "analysis.h"
#include "decode_cases.h"

#define CODE_AT 0x401000u
#define DATA_AT 0x403000u

static uint8_t bytes[512];
static uint64_t slots[4];

static struct code *code_over(uint32_t arch, const char *hex) {
    static struct unspool_region region = {DATA_AT, sizeof slots, (const uint8_t *)slots};
    static struct unspool_module module;
    static struct unspool_memory memory;
    static struct unspool_unwinder unwinder;
    static struct code code;
    uint64_t size = from_hex(hex, bytes, sizeof bytes);
    module =
        (struct unspool_module){.start = CODE_AT, .end = CODE_AT + size, .code = bytes, .code_size = size};
    memset(&memory, 0, sizeof memory);
    memory.regions = &region;
    memory.region_count = 1;
    unwinder =
        (struct unspool_unwinder){.arch = arch, .address_bits = 48, .modules = &module, .module_count = 1};
    code = (struct code){&unwinder, &memory};
    return &code;
}

/* At each offset: bytes between sp and the return address, or -1 for none. */
static void expect_stub(const struct code *code, uint64_t stub, const int *depths, size_t count) {
    for (size_t offset = 0; offset < count; offset++) {
        struct frame_recipe recipe;
        bool found = plt_recipe(code, stub + offset, &recipe);
        if (!CHECK_EQUAL(found, depths[offset] >= 0)) {
            fprintf(stderr, "    at offset %zu\n", offset);
            continue;
        }
        if (!found)
            continue;
        CHECK_EQUAL(recipe.sp.kind, VALUE_SP);
        CHECK_EQUAL(recipe.fp.kind, VALUE_FP);
        CHECK_EQUAL(recipe.fp.offset, 0);
        if (code->unwinder->arch == UNSPOOL_AARCH64) {
            CHECK_EQUAL(recipe.return_address.kind, VALUE_LR);
            CHECK_EQUAL(recipe.sp.offset, depths[offset]);
        } else {
            CHECK_EQUAL(recipe.return_address.kind, VALUE_AT_SP);
            CHECK_EQUAL(recipe.return_address.offset, depths[offset]);
            CHECK_EQUAL(recipe.sp.offset, depths[offset] + 8);
        }
    }
}
#define EXPECT_STUB(code, stub, ...)                                                                         \
    expect_stub((code), (stub), (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

static void x86_64_stubs(void) {
    struct code *code = code_over(UNSPOOL_X86_64, "ff3502200000"   /* PLT0: push GOT+8 */
                                                  "ff2504200000"   /*  6 jmp *GOT+16 */
                                                  "0f1f4000"       /* 12 nop */
                                                  "ff2502200000"   /*  0 jmp *slot */
                                                  "6800000000"     /*  6 push index */
                                                  "e9e0ffffff"     /* 11 jmp PLT0 */
                                                  "f30f1efa"       /*  0 endbr64 */
                                                  "6800000000"     /*  4 push index */
                                                  "f2e9d0ffffff"   /*  9 bnd jmp PLT0 */
                                                  "90"             /* 15 nop */
                                                  "f30f1efa"       /*  0 endbr64 */
                                                  "f2ff25c01f0000" /*  4 bnd jmp *slot */
                                                  "0f1f440000"     /* 11 nop */
                                                  "f30f1efa"       /*  0 endbr64 */
                                                  "ff25c01f0000"   /*  4 jmp *slot */
                                                  "660f1f440000"   /* 10 nop */
                                                  "ff25c01f0000"   /*  0 jmp *slot */
                                                  "6690"           /*  6 nop */
                                                  "f2ff25c01f0000" /*  0 bnd jmp *slot */
                                                  "90");           /*  7 nop */
    const int none = -1;
    EXPECT_STUB(code, CODE_AT, 8, none, none, none, none, none, 16, none, none, none, none, none, none);
    EXPECT_STUB(code, CODE_AT + 16, 0, none, none, none, none, none, 0, none, none, none, none, 8, none,
                none);
    EXPECT_STUB(code, CODE_AT + 32, 0, none, none, none, 0, none, none, none, none, 8, none, none, none);
    EXPECT_STUB(code, CODE_AT + 48, 0, none, none, none, 0, none, none, none, none, none, none, none);
    EXPECT_STUB(code, CODE_AT + 64, 0, none, none, none, 0, none, none, none, none, none, none, none);
    EXPECT_STUB(code, CODE_AT + 80, 0, none, none, none, none, none, none, none);
    EXPECT_STUB(code, CODE_AT + 88, 0, none, none, none, none, none, none, none);
    EXPECT_STUB(code, CODE_AT + 96, none, none);
}

static void x86_64_code_that_only_resembles_a_stub(void) {
    struct code *code = code_over(UNSPOOL_X86_64, "ff2502200000"
                                                  "6690"
                                                  "ff2502200000"
                                                  "90c3");
    EXPECT_STUB(code, CODE_AT, 0);
    EXPECT_STUB(code, CODE_AT + 8, -1);
    code = code_over(UNSPOOL_X86_64, "90ff2502200000"
                                     "6690"); /* not aligned */
    EXPECT_STUB(code, CODE_AT + 1, -1);
    code = code_over(UNSPOOL_X86_64, "ff2502200000"
                                     "66"); /* cut off */
    EXPECT_STUB(code, CODE_AT, -1);
}

static void aarch64_stubs(void) {
    const int none = -1;
    struct code *code = code_over(UNSPOOL_AARCH64, "5f2403d5"   /*  0 bti c */
                                                   "f07bbfa9"   /*  4 stp x16, x30, [sp, #-16]! */
                                                   "10000090"   /*  8 adrp x16 */
                                                   "110a40f9"   /* 12 ldr x17, [x16, #16] */
                                                   "10420091"   /* 16 add x16, x16, #16 */
                                                   "20021fd6"   /* 20 br x17 */
                                                   "1f2003d5"   /* 24 nop */
                                                   "10000090"   /* 28 adrp x16 */
                                                   "110e40f9"   /* 32 ldr x17, [x16, #24] */
                                                   "10620091"   /* 36 add x16, x16, #24 */
                                                   "20021fd6"   /* 40 br x17 */
                                                   "5f2403d5"   /* 44 bti c */
                                                   "10000090"   /* 48 adrp x16 */
                                                   "111240f9"   /* 52 ldr x17, [x16, #32] */
                                                   "10820091"   /* 56 add x16, x16, #32 */
                                                   "9f2103d5"   /* 60 autia1716 */
                                                   "20021fd6"   /* 64 br x17 */
                                                   "10000090"   /* 68 adrp x16 */
                                                   "111240f9"   /* 72 ldr x17, [x16, #32] */
                                                   "10a20091"   /* 76 add x16, x16, #40: another slot */
                                                   "20021fd6"); /* 80 br x17 */
    static const int depths[] = {0, 0, 16, 16, 16, 16, none, 0,    0,    0,   0,
                                 0, 0, 0,  0,  0,  0,  none, none, none, none};
    for (uint64_t i = 0; i < sizeof depths / sizeof *depths; i++)
        EXPECT_STUB(code, CODE_AT + 4 * i, depths[i], none, none, none);
}

static void what_an_x86_64_call_gets_to(void) {
    slots[0] = 0x7f1234567890;
    struct code *code = code_over(UNSPOOL_X86_64, "e80c000000" /*  0 call 17 */
                                                  "e816000000" /*  5 call 32 */
                                                  "ffd0"       /* 10 call *%rax */
                                                  "e800000000" /* 12 call 17: the next one */
                                                  "909090909090"
                                                  "909090"       /* 17 a function */
                                                  "909090909090" /* 26 */
                                                  "f30f1efa"
                                                  "ebf9"         /* 32 endbr64; jmp 31 */
                                                  "e8f4ffffff"   /* 38 call 31 */
                                                  "e8ff0f0000"); /* 43 call out of the code */
    CHECK_EQUAL(called_function(code, CODE_AT + 5), CODE_AT + 17);
    CHECK_EQUAL(called_function(code, CODE_AT + 10), CODE_AT + 31); /* through a jump */
    CHECK_EQUAL(called_function(code, CODE_AT + 12), 0);
    CHECK_EQUAL(called_function(code, CODE_AT + 17), 0); /* pushes its address: no call */
    CHECK_EQUAL(called_function(code, CODE_AT + 43), CODE_AT + 31);
    CHECK_EQUAL(called_function(code, CODE_AT + 48), CODE_AT + 48 + 0xfff);
    CHECK_EQUAL(called_function(code, CODE_AT), 0);
    CHECK_EQUAL(called_function(code, 0), 0);
    CHECK_EQUAL(called_function(code, DATA_AT), 0);
    code = code_over(UNSPOOL_X86_64, "e803000000"
                                     "909090" /* 0 call 8 */
                                     "ff25f21f0000"
                                     "6690" /* 8 jmp *slots[0] */
                                     "e803000000"
                                     "909090" /* 16 call 24 */
                                     "f30f1efa"
                                     "f2ff25dd1f0000"); /* 24 endbr64; bnd jmp *slots[0] */
    CHECK_EQUAL(called_function(code, CODE_AT + 5), slots[0]);
    CHECK_EQUAL(called_function(code, CODE_AT + 21), slots[0]);
    code = code_over(UNSPOOL_X86_64, "ff15fa1f0000"   /* 0 call *slots[0] */
                                     "ff15faff0000"); /* 6 call *, from where nothing can be read */
    CHECK_EQUAL(called_function(code, CODE_AT + 6), slots[0]);
    CHECK_EQUAL(called_function(code, CODE_AT + 12), 0);
    code = code_over(UNSPOOL_X86_64, "e803000000"
                                     "909090"
                                     "ff25f2ff0000"); /* the slot can't be read */
    CHECK_EQUAL(called_function(code, CODE_AT + 5), CODE_AT + 8);
}

static void jumps_in_a_ring_end(void) {
    struct code *code = code_over(UNSPOOL_X86_64, "e801000000"
                                                  "90"
                                                  "ebfe");
    CHECK_EQUAL(called_function(code, CODE_AT + 5), CODE_AT + 6);
    code = code_over(UNSPOOL_AARCH64, "02000094"
                                      "1f2003d5"
                                      "00000014");
    CHECK_EQUAL(called_function(code, CODE_AT + 4), CODE_AT + 8);
}

static void what_an_aarch64_call_gets_to(void) {
    slots[2] = 0xffff12345678;
    struct code *code = code_over(UNSPOOL_AARCH64, "02000094"   /*  0 bl 8 */
                                                   "03000094"   /*  4 bl 16 */
                                                   "e0031faa"   /*  8 mov x0, xzr: a function */
                                                   "05000094"   /* 12 bl 32 */
                                                   "10000090"   /* 16 adrp x16, 0x401000 */
                                                   "10220091"   /* 20 add x16, x16, #8 */
                                                   "00021fd6"   /* 24 br x16: a veneer */
                                                   "04000094"   /* 28 bl 44 */
                                                   "10000090"   /* 32 adrp x16, 0x401000 + 0x2000 by slot */
                                                   "110a40f9"   /* 36 ldr x17, [x16, #16] */
                                                   "10420091"   /* 40 add x16, x16, #16 */
                                                   "5f2403d5"   /* 44 bti c */
                                                   "f6ffff17"   /* 48 b 8 */
                                                   "e0033fd6"); /* 52 blr */
    CHECK_EQUAL(called_function(code, CODE_AT + 4), CODE_AT + 8);
    CHECK_EQUAL(called_function(code, CODE_AT + 8), CODE_AT + 8);
    CHECK_EQUAL(called_function(code, CODE_AT + 16), CODE_AT + 32); /* not a whole stub */
    CHECK_EQUAL(called_function(code, CODE_AT + 32), CODE_AT + 8);
    CHECK_EQUAL(called_function(code, CODE_AT + 12), 0);
    CHECK_EQUAL(called_function(code, CODE_AT + 56), 0);
    code = code_over(UNSPOOL_AARCH64, "01000094"   /*  0 bl 4 */
                                      "100000d0"   /*  4 adrp x16, 0x403000 */
                                      "110a40f9"   /*  8 ldr x17, [x16, #16] */
                                      "10420091"   /* 12 add x16, x16, #16 */
                                      "20021fd6"); /* 16 br x17 */
    CHECK_EQUAL(called_function(code, CODE_AT + 4), slots[2]);
}

static void signal_returns(void) {
    struct code *code = code_over(UNSPOOL_X86_64, "90"
                                                  "48c7c00f000000"
                                                  "0f05" /* 1, 8 */
                                                  "90"
                                                  "b80f000000"
                                                  "0f05" /* 11, 16 */
                                                  "90"
                                                  "48c7c00f000001"
                                                  "0f05" /* 19 */
                                                  "b80f000000"
                                                  "0f05" /* 28, 33: at the end */);
    for (uint64_t i = 0; i < 36; i++) {
        bool first = i == 1 || i == 11 || i == 28, second = i == 8 || i == 16 || i == 33;
        CHECK_EQUAL(is_signal_return(code, CODE_AT + i, false), first);
        CHECK_EQUAL(is_signal_return(code, CODE_AT + i, true), first || second);
    }
    code = code_over(UNSPOOL_AARCH64, "1f2003d5"
                                      "681180d2"
                                      "010000d4"
                                      "681180d2"
                                      "210000d4");
    for (uint64_t i = 0; i < 20; i += 4) {
        CHECK_EQUAL(is_signal_return(code, CODE_AT + i, false), i == 4);
        CHECK_EQUAL(is_signal_return(code, CODE_AT + i, true), i == 4 || i == 8);
    }
}

int main(void) {
    RUN(x86_64_stubs);
    RUN(x86_64_code_that_only_resembles_a_stub);
    RUN(aarch64_stubs);
    RUN(what_an_x86_64_call_gets_to);
    RUN(jumps_in_a_ring_end);
    RUN(what_an_aarch64_call_gets_to);
    RUN(signal_returns);
    return check_result();
}
