/*
 * test_decode.c: the instruction decoders, by hand-written expectations. That lengths are right over
 * millions of instructions is what tests/unit/test_decode_differential.py shows.
 */
#include "decode_cases.h"

static void x86_64_pushes_and_pops(void) {
    static const struct decode_case cases[] = {
        {"55", "push %rbp", "1 next [sp-8]8=fp sp=sp-8"},
        {"54", "push %rsp", "1 next [sp-8]8=sp sp=sp-8"},
        {"4155", "push %r13", "2 next [sp-8]8=other sp=sp-8"},
        {"6a01", "push $1", "2 next [sp-8]8=other sp=sp-8"},
        {"6800000100", "push $65536", "5 next [sp-8]8=other sp=sp-8"},
        {"ff742408", "push 8(%rsp)", "4 next [sp-8]8=other sp=sp-8"},
        {"9c", "pushf", "1 next [sp-8]8=other sp=sp-8"},
        {"6650", "push %ax", "2 next [sp-2]2=other sp=sp-2"},
        {"0fa0", "push %fs", "2 next [sp-8]8=other sp=sp-8"},
        {"5d", "pop %rbp", "1 next fp=[sp+0] sp=sp+8"},
        {"5c", "pop %rsp", "1 next sp=[sp+0]"},
        {"415d", "pop %r13", "2 next sp=sp+8"},
        {"665d", "pop %bp", "2 next sp=sp+2 fp=?"},
        {"8f442408", "pop 8(%rsp)", "4 next sp=sp+8 [sp+8]8=other"},
        {"9d", "popf", "1 next sp=sp+8"},
        {"c8200000", "enter $32,$0", "4 next [sp-8]8=fp sp=sp-8 fp=sp+0 sp=sp-32"},
        {"c8200001", "enter $32,$1", "4 next [sp-8]8=fp sp=sp-8 sp=? fp=?"},
        {"c9", "leave", "1 next sp=fp+0 fp=[sp+0] sp=sp+8"},
    };
    CHECK_CASES(x86_64_decode, cases);
}

static void x86_64_arithmetic_on_sp_and_fp(void) {
    static const struct decode_case cases[] = {
        {"4883ec18", "sub $0x18,%rsp", "4 next sp=sp-24"},
        {"4881ec00010000", "sub $0x100,%rsp", "7 next sp=sp-256"},
        {"4883ec80", "sub $-128,%rsp", "4 next sp=sp+128"},
        {"4883c418", "add $0x18,%rsp", "4 next sp=sp+24"},
        {"4983c418", "add $0x18,%r12", "4 next"},
        {"83c418", "add $0x18,%esp", "3 next sp=?"},
        {"4883fd00", "cmp $0,%rbp", "4 next"},
        {"4080fd00", "cmp $0,%bpl", "4 next"},
        {"4880c401", "rex.W add $1,%spl", "4 next sp=?"},
        {"4883e4f0", "and $-16,%rsp", "4 next sp=?"},
        {"4829c4", "sub %rax,%rsp", "3 next sp=?"},
        {"4889e5", "mov %rsp,%rbp", "3 next fp=sp+0"},
        {"488bec", "mov %rsp,%rbp", "3 next fp=sp+0"},
        {"4889ec", "mov %rbp,%rsp", "3 next sp=fp+0"},
        {"4889c4", "mov %rax,%rsp", "3 next sp=?"},
        {"89e5", "mov %esp,%ebp", "2 next fp=?"},
        {"488d6c2410", "lea 16(%rsp),%rbp", "5 next fp=sp+16"},
        {"488d65e0", "lea -32(%rbp),%rsp", "4 next sp=fp-32"},
        {"488d6c0410", "lea 16(%rsp,%rax),%rbp", "5 next fp=?"},
        {"8d6c2410", "lea 16(%rsp),%ebp", "4 next fp=?"},
        {"488d2d00000000", "lea 0(%rip),%rbp", "7 next fp=?"},
        {"498d6c2410", "lea 16(%r12),%rbp", "5 next fp=?"},
        {"31ed", "xor %ebp,%ebp", "2 next fp=?"},
        {"4894", "xchg %rax,%rsp", "2 next sp=?"},
        {"4887ec", "xchg %rbp,%rsp", "3 next fp=? sp=?"},
        {"bd01000000", "mov $1,%ebp", "5 next fp=?"},
        {"48bd0102030405060708", "movabs $0x807060504030201,%rbp", "10 next fp=?"},
        {"b501", "mov $1,%ch", "2 next"},
        {"40b501", "mov $1,%bpl", "3 next fp=?"},
        {"00e5", "add %ah,%ch", "2 next"},
        {"4000e5", "add %spl,%bpl", "3 next fp=?"},
        {"48f7dd", "neg %rbp", "3 next fp=?"},
        {"48f7e5", "mul %rbp", "3 next"},
        {"f7c501000000", "test $1,%ebp", "6 next"},
        {"0fcd", "bswap %ebp", "2 next fp=?"},
    };
    CHECK_CASES(x86_64_decode, cases);
}

static void x86_64_memory(void) {
    static const struct decode_case cases[] = {
        {"48896c2408", "mov %rbp,8(%rsp)", "5 next [sp+8]8=fp"},
        {"488965f8", "mov %rsp,-8(%rbp)", "4 next [fp-8]8=sp"},
        {"488b6c2408", "mov 8(%rsp),%rbp", "5 next fp=[sp+8]"},
        {"488b6500", "mov 0(%rbp),%rsp", "4 next sp=[fp+0]"},
        {"8b6c2408", "mov 8(%rsp),%ebp", "4 next fp=?"},
        {"488b28", "mov (%rax),%rbp", "3 next fp=?"},
        {"64488b6c2408", "mov %fs:8(%rsp),%rbp", "6 next fp=?"},
        {"4889442408", "mov %rax,8(%rsp)", "5 next [sp+8]8=other"},
        {"89442408", "mov %eax,8(%rsp)", "4 next [sp+8]4=other"},
        {"6689442408", "mov %ax,8(%rsp)", "5 next [sp+8]2=other"},
        {"88442408", "mov %al,8(%rsp)", "4 next [sp+8]1=other"},
        {"48894c04f8", "mov %rcx,-8(%rsp,%rax)", "5 next"},
        {"49896c2408", "mov %rbp,8(%r12)", "5 next"},
        {"c7042401000000", "movl $1,(%rsp)", "7 next [sp+0]4=other"},
        {"8345fc01", "addl $1,-4(%rbp)", "4 next [fp-4]4=other"},
        {"837dfc01", "cmpl $1,-4(%rbp)", "4 next"},
        {"0f29442410", "movaps %xmm0,16(%rsp)", "5 next [sp+16]16=other"},
        {"0f28442410", "movaps 16(%rsp),%xmm0", "5 next"},
        {"f30f114424fc", "movss %xmm0,-4(%rsp)", "6 next [sp-4]4=other"},
        {"c5fd7f442420", "vmovdqa %ymm0,32(%rsp)", "6 next [sp+32]32=other"},
        {"62f17c4829442401", "vmovaps %zmm0,64(%rsp)", "8 next [sp+64]64=other"},
        {"62f17c48298424", "vmovaps, cut off", "0 invalid"},
        {"0fae442440", "fxsave 64(%rsp)", "5 next [sp+64]512=other"},
        {"db7c2410", "fstpt 16(%rsp)", "4 next [sp+16]10=other"},
        {"dd5c2410", "fstpl 16(%rsp)", "4 next [sp+16]8=other"},
        {"d95c2410", "fstps 16(%rsp)", "4 next [sp+16]4=other"},
        {"0f94442407", "sete 7(%rsp)", "5 next [sp+7]1=other"},
        {"f0480fc16c2408", "lock xadd %rbp,8(%rsp)", "7 next fp=? [sp+8]8=other"},
    };
    CHECK_CASES(x86_64_decode, cases);
}

static void x86_64_other_writes_of_fp(void) {
    static const struct decode_case cases[] = {
        {"480f44e8", "cmove %rax,%rbp", "4 next fp=?"},
        {"0fb6e8", "movzx %al,%ebp", "3 next fp=?"},
        {"4863ed", "movslq %ebp,%rbp", "3 next fp=?"},
        {"480faf6c2408", "imul 8(%rsp),%rbp", "6 next fp=?"},
        {"6bed03", "imul $3,%ebp,%ebp", "3 next fp=?"},
        {"400f94c5", "sete %bpl", "4 next fp=?"},
        {"0f94c5", "sete %ch", "3 next"},
        {"f3480fb8e8", "popcnt %rax,%rbp", "5 next fp=?"},
        {"480fb1cd", "cmpxchg %rcx,%rbp", "4 next fp=?"},
        {"480fbaed03", "bts $3,%rbp", "5 next fp=?"},
        {"480fbae503", "bt $3,%rbp", "5 next"},
        {"f2480f2ce8", "cvttsd2si %xmm0,%rbp", "5 next fp=?"},
        {"0f2ce8", "cvttps2pi %xmm0,%mm5", "3 next"},
        {"66480f7ec5", "movq %xmm0,%rbp", "5 next fp=?"},
        {"66480f6ec5", "movq %rbp,%xmm0", "5 next"},
        {"660fd7e8", "pmovmskb %xmm0,%ebp", "4 next fp=?"},
        {"660f3a16c501", "pextrd $1,%xmm0,%ebp", "6 next fp=?"},
        {"f20f38f0e8", "crc32 %al,%ebp", "5 next fp=?"},
        {"c4e2f8f2e9", "andn %rcx,%rax,%rbp", "5 next fp=?"},
        {"c4e2d0f3c8", "blsr %rax,%rbp", "5 next fp=?"},
        {"c4e2d3f6c1", "mulx %rcx,%rbp,%rax", "5 next fp=?"},
        {"c4e2f9f7e9", "shlx %rax,%rcx,%rbp", "5 next fp=?"},
        {"c5fb93e9", "kmovd %k1,%ebp", "4 next fp=?"},
        {"c5f9d7e8", "vpmovmskb %xmm0,%ebp", "4 next fp=?"},
        {"8fe95001c8", "blcfill %eax,%ebp", "5 next fp=?"},
        {"f30f1ecd", "rdsspd %ebp", "4 next fp=?"},
        {"f30faec5", "rdfsbase %ebp", "4 next fp=?"},
        {"0fc7f5", "rdrand %ebp", "3 next fp=?"},
    };
    CHECK_CASES(x86_64_decode, cases);
}

static void x86_64_flow(void) {
    static const struct decode_case cases[] = {
        {"e800010000", "call .+261", "5 call->261"},
        {"e800000000", "call .+5", "5 next [sp-8]8=other sp=sp-8"},
        {"666648e800010000", "data16 data16 rex.W call", "8 call->264"},
        {"66e80001", "callw", "0 invalid"},
        {"ffd0", "call *%rax", "2 call"},
        {"ff142408", "call *(%rsp)", "3 call"},
        {"ff1c24", "lcall *(%rsp)", "0 invalid"},
        {"c3", "ret", "1 return pops 8"},
        {"f3c3", "rep ret", "2 return pops 8"},
        {"f2c3", "bnd ret", "2 return pops 8"},
        {"c21000", "ret $16", "3 return pops 24"},
        {"c2ffff", "ret $65535", "3 return pops 65543"},
        {"eb10", "jmp .+18", "2 jump->18"},
        {"ebfe", "jmp .", "2 jump->0"},
        {"e9fbffffff", "jmp .", "5 jump->0"},
        {"3e75f0", "jne,pt .-13", "3 branch->-13"},
        {"0f84faffffff", "je .", "6 branch->0"},
        {"e3fe", "jrcxz .", "2 branch->0"},
        {"ffe0", "jmp *%rax", "2 indirect"},
        {"3effe0", "notrack jmp *%rax", "3 indirect"},
        {"ff25fa0f0000", "jmp *0xffa(%rip)", "6 indirect"},
        {"c7f8faffffff", "xbegin .", "6 branch->0"},
        {"0f05", "syscall", "2 next"},
        {"cd80", "int $0x80", "2 next"},
        {"cd29", "int $0x29", "2 stop"},
        {"cc", "int3", "1 stop"},
        {"f4", "hlt", "1 stop"},
        {"0f0b", "ud2", "2 stop"},
        {"67660fb9485d", "ud1l 0x5d(%eax),%cx", "6 stop"},
        {"48cf", "iretq", "0 invalid"},
        {"cb", "lret", "0 invalid"},
    };
    CHECK_CASES(x86_64_decode, cases);
}

static void x86_64_lengths(void) {
    static const struct decode_case cases[] = {
        {"f30f1efa", "endbr64", "4 next"},
        {"66662e0f1f840000000000", "nopw %cs:0(%rax,%rax)", "11 next"},
        {"f390", "pause", "2 next"},
        {"48a10102030405060708", "movabs 0x807060504030201,%rax", "10 next"},
        {"67a101020304", "mov 0x4030201,%eax", "6 next"},
        {"66c70424aaaa", "movw $0xaaaa,(%rsp)", "6 next [sp+0]2=other"},
        {"f6042401", "testb $1,(%rsp)", "4 next"},
        {"f61424", "notb (%rsp)", "3 next [sp+0]1=other"},
        {"660f3a0fc108", "palignr $8,%xmm1,%xmm0", "6 next"},
        {"c4e3fd00c04e", "vpermq $0x4e,%ymm0,%ymm0", "6 next"},
        {"62f3fd4800c04e", "vpermq $0x4e,%zmm0,%zmm0", "7 next"},
        {"c5f877", "vzeroupper", "3 next"},
        {"8fe878c2ec0e", "vprotd $0xe,%xmm4,%xmm5", "6 next"},
        {"486689442408", "REX before a prefix does not count", "6 next [sp+8]2=other"},
        {"66c5f877", "a prefix before VEX", "0 invalid"},
        {"48c5f877", "REX before VEX", "0 invalid"},
        {"06", "push %es is none here", "0 invalid"},
        {"d500", "REX2", "0 invalid"},
        {"8fc8", "pop with another group", "0 invalid"},
        {"8dc0", "lea of a register", "0 invalid"},
        {"", "nothing", "0 invalid"},
        {"48", "cut after REX", "0 invalid"},
        {"e8000000", "cut in the target", "0 invalid"},
        {"48898424000000", "cut in the displacement", "0 invalid"},
        {"66666666666666666666666666666690", "16 bytes are too long", "0 invalid"},
        {"666666666666666666666666666690", "15 bytes", "15 next"},
    };
    CHECK_CASES(x86_64_decode, cases);
}

/* aarch64 instructions as memory holds them: the lowest byte first. */
static void aarch64_frames(void) {
    static const struct decode_case cases[] = {
        {"fd7bbfa9", "stp x29, x30, [sp, #-16]!", "4 next sp=sp-16 [sp+0]8=fp [sp+8]8=lr"},
        {"fd7b02a9", "stp x29, x30, [sp, #32]", "4 next [sp+32]8=fp [sp+40]8=lr"},
        {"fd7bc1a8", "ldp x29, x30, [sp], #16", "4 next fp=[sp+0] lr=[sp+8] sp=sp+16"},
        {"fd7b42a9", "ldp x29, x30, [sp, #32]", "4 next fp=[sp+32] lr=[sp+40]"},
        {"bd7b40a9", "ldp x29, x30, [x29]", "4 next lr=[fp+8] fp=[fp+0]"},
        {"f30b00f9", "str x19, [sp, #16]", "4 next [sp+16]8=other"},
        {"fe0f1ff8", "str x30, [sp, #-16]!", "4 next sp=sp-16 [sp+0]8=lr"},
        {"fe0741f8", "ldr x30, [sp], #16", "4 next lr=[sp+0] sp=sp+16"},
        {"fe0b40f9", "ldr x30, [sp, #16]", "4 next lr=[sp+16]"},
        {"fe831ff8", "stur x30, [sp, #-8]", "4 next [sp-8]8=lr"},
        {"fd0340b9", "ldr w29, [sp]", "4 next fp=?"},
        {"1d0040f9", "ldr x29, [x0]", "4 next fp=?"},
        {"fd6b60f8", "ldr x29, [sp, x0]", "4 next fp=?"},
        {"e9236d6d", "ldp d9, d8, [sp, #-304]", "4 next"},
        {"e923be6d", "stp d9, d8, [sp, #-32]!", "4 next sp=sp-32 [sp+0]16=other"},
        {"e00780ad", "stp q0, q1, [sp, #0]!", "4 next sp=sp+0 [sp+0]32=other"},
        {"e0031fb8", "stur w0, [sp, #-16]", "4 next [sp-16]4=other"},
        {"fd030091", "mov x29, sp", "4 next fp=sp+0"},
        {"bf030091", "mov sp, x29", "4 next sp=fp+0"},
        {"fd430091", "add x29, sp, #16", "4 next fp=sp+16"},
        {"ff8300d1", "sub sp, sp, #32", "4 next sp=sp-32"},
        {"ff0740d1", "sub sp, sp, #1, lsl #12", "4 next sp=sp-4096"},
        {"ff6330cb", "sub sp, sp, x16", "4 next sp=?"},
        {"1fec7c92", "and sp, x0, #-16", "4 next sp=?"},
        {"1f0000f1", "cmp x0, #0", "4 next"},
        {"9f0300f1", "cmp x28, #0", "4 next"},
        {"fe0309aa", "mov x30, x9", "4 next lr=?"},
        {"e9031eaa", "mov x9, x30", "4 next"},
        {"fd031eaa", "mov x29, x30", "4 next fp=lr+0"},
        {"1e008052", "mov w30, #0", "4 next lr=?"},
        {"1d000090", "adrp x29, .", "4 next fp=?"},
        {"3d000058", "ldr x29, .+4", "4 next fp=?"},
    };
    CHECK_CASES(aarch64_decode, cases);
}

static void aarch64_flow(void) {
    static const struct decode_case cases[] = {
        {"00000094", "bl .", "4 call->0"},
        {"ffffff97", "bl .-4", "4 call->-4"},
        {"02000014", "b .+8", "4 jump->8"},
        {"41ffff54", "b.ne .-24", "4 branch->-24"},
        {"400000b4", "cbz x0, .+8", "4 branch->8"},
        {"40001837", "tbnz w0, #3, .+8", "4 branch->8"},
        {"e0ffff36", "tbz w0, #31, .-4", "4 branch->-4"},
        {"00023fd6", "blr x16", "4 call"},
        {"1f083fd6", "blraaz x0", "4 call"},
        {"1f0a3fd7", "blraa x16, sp", "4 call"},
        {"20021fd6", "br x17", "4 indirect"},
        {"c0031fd6", "br x30", "4 return"},
        {"1f0a1fd7", "braa x16, sp", "4 indirect"},
        {"c0035fd6", "ret", "4 return"},
        {"00005fd6", "ret x0", "4 indirect"},
        {"ff0b5fd6", "retaa", "4 return"},
        {"ff0f5fd6", "retab", "4 return"},
        {"e0039fd6", "eret", "0 invalid"},
        {"010000d4", "svc #0", "4 next"},
        {"020000d4", "hvc #0", "0 invalid"},
        {"000020d4", "brk #0", "4 stop"},
        {"000040d4", "hlt #0", "4 stop"},
        {"00000000", "udf #0", "4 stop"},
        {"5f2403d5", "bti c", "4 next"},
        {"3f2303d5", "paciasp", "4 next"},
        {"bf2303d5", "autiasp", "4 next"},
        {"fe03c1da", "pacia x30, sp", "4 next"},
        {"1e4238d5", "mrs x30, spsel", "4 next lr=?"},
        {"1ed03bd5", "mrs x30, s3_3_c13_c0_0", "4 next lr=?"},
        {"000001", "cut off", "0 invalid"},
    };
    CHECK_CASES(aarch64_decode, cases);
}

static void aarch64_other_writes(void) {
    static const struct decode_case cases[] = {
        {"1e7c5fc8", "ldxr x30, [x0]", "4 next lr=?"},
        {"017c1ec8", "stxr w30, x1, [x0]", "4 next lr=?"},
        {"1e003ef8", "ldadd x30, x30, [x0]", "4 next lr=?"},
        {"017cfec8", "casa x30, x1, [x0]", "4 next lr=?"},
        {"027c3c48", "casp x28, x29, x2, x3, [x0]", "4 next fp=?"},
        {"1ec0bff8", "ldapr x30, [x0]", "4 next lr=?"},
        {"1d00669e", "fmov x29, d0", "4 next fp=?"},
        {"1d00679e", "fmov d29, x0", "4 next"},
        {"1d00789e", "fcvtzs x29, d0", "4 next fp=?"},
        {"1d00629e", "scvtf d29, x0", "4 next"},
        {"1d3c084e", "umov x29, v0.d[0]", "4 next fp=?"},
        {"1d2c044e", "smov x29, v0.s[0]", "4 next fp=?"},
        {"1d0c044e", "dup v29.4s, w0", "4 next"},
        {"1dd4214e", "fadd v29.4s, v0.4s, v1.4s", "4 next"},
        {"3d0480da", "csneg x29, x1, x0, eq", "4 next fp=?"},
        {"1d7c019b", "mul x29, x0, x1", "4 next fp=?"},
        {"1f0001eb", "cmp x0, x1", "4 next"},
        {"a00340fa", "ccmp x29, x0, #0, eq", "4 next"},
        {"e0039fda", "csinv x0, xzr, xzr, eq", "4 next"},
        {"e0039f4c", "st4 {v0.16b-v3.16b}, [sp], #64", "4 next [sp+0]64=other sp=sp+64"},
        {"e0039f0c", "st4 {v0.8b-v3.8b}, [sp], #32", "4 next [sp+0]32=other sp=sp+32"},
        {"e07bdf4c", "ld1 {v0.4s}, [sp], #16", "4 next sp=sp+16"},
        {"ff503f04", "addvl sp, sp, #7", "4 next sp=?"},
        {"ff038191", "addg sp, sp, #16, #0", "4 next sp=?"},
    };
    CHECK_CASES(aarch64_decode, cases);
}

int main(void) {
    RUN(x86_64_pushes_and_pops);
    RUN(x86_64_arithmetic_on_sp_and_fp);
    RUN(x86_64_memory);
    RUN(x86_64_other_writes_of_fp);
    RUN(x86_64_flow);
    RUN(x86_64_lengths);
    RUN(aarch64_frames);
    RUN(aarch64_flow);
    RUN(aarch64_other_writes);
    return check_result();
}
