/*
 * test_walk_signal.c: through signal frames (walk.c, signal_frame.c), on both architectures: by the code
 * that returns from a handler, by CFI, across stacks, nested, cut off, and damaged.
 *
 * Layout of what the kernel saves: struct rt_sigframe in Linux, arch/x86/include/asm/sigframe.h and
 * arch/arm64/kernel/signal.c. At the signal-return code sp points at ucontext (x86_64) or at the whole
 * (aarch64: siginfo, then ucontext).
 */
#include "process.h"

static struct process p;
static uint32_t arch;

enum { ROOT = 0x1000, OUTER = 0x1100, LEAF = 0x1200, HANDLER = 0x1300, RESTORER = 0x2000 };

static const uint8_t x86_64_restorer[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
static const uint8_t x86_64_musl_restorer[] = {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};
static const uint8_t aarch64_restorer[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4};

/* Order of the registers in the saved context, by DWARF number; x86_64's ends with rip. */
static const uint8_t x86_64_order[] = {R8,  R9,  R10, R11, R12, R13, R14, R15, RDI,
                                       RSI, RBP, RBX, RDX, RAX, RCX, RSP, RIP};
static bool is_aarch64(void) {
    return arch == UNSPOOL_AARCH64;
}

static uint64_t saved_registers_at(void) {
    return is_aarch64() ? 312 : 40;
}

/* The place of a register in a signal frame at sp. */
static uint64_t saved_at(uint64_t sp, uint32_t number) {
    if (is_aarch64())
        return sp + saved_registers_at() + 8 * number;
    uint32_t i = 0;
    while (i + 1 < sizeof x86_64_order && x86_64_order[i] != number)
        i++;
    return sp + saved_registers_at() + 8 * i;
}

/* What the kernel saves when it interrupts pc, with sp, fp and lr. */
static void put_signal_frame(uint64_t at, uint64_t pc, uint64_t sp, uint64_t fp, uint64_t lr) {
    if (is_aarch64())
        put(&p, saved_at(at, X30), lr);
    put(&p, saved_at(at, fp_register(arch)), fp);
    put(&p, saved_at(at, sp_register(arch)), sp);
    put(&p, saved_at(at, pc_register(arch)), pc);
}

/* The restorer has no CFI, unless a test adds some. */
static void begin(void) {
    begin_process(&p, arch);
    root_function(&p, ROOT, 0x40);
    const uint8_t push = is_aarch64() ? X30 : RIP;
    function(&p, OUTER, 0x40, CFI(DEF_CFA_OFFSET(0x20), OFFSET(push, 1)));
    function(&p, LEAF, 0x40, NO_CFI);
    function(&p, HANDLER, 0x40, CFI(DEF_CFA_OFFSET(0x10), OFFSET(push, 1)));
    if (is_aarch64())
        put_code(&p, RESTORER, aarch64_restorer, sizeof aarch64_restorer);
    else
        put_code(&p, RESTORER, x86_64_restorer, sizeof x86_64_restorer);
}

/* A handler interrupted at sp STACK_AT, called by the kernel with a signal frame right above it. */
static void in_a_handler(void) {
    interrupted_at(&p, CODE_AT + HANDLER + 8, STACK_AT);
    set_register(&p, fp_register(arch), 0xf0);
    if (is_aarch64())
        set_register(&p, X30, 0xbad);
    put(&p, STACK_AT + 8, CODE_AT + RESTORER);
}
#define SIGNAL_SP (STACK_AT + 0x10)

/* The stack that a signal found: leaf, outer, root. */
#define LEAF_SP (STACK_AT + 0x600)
static void in_the_leaf(uint64_t signal_sp) {
    uint64_t outer_sp = is_aarch64() ? LEAF_SP : LEAF_SP + 8;
    put_signal_frame(signal_sp, CODE_AT + LEAF, LEAF_SP, 0xf1, CODE_AT + OUTER + 8);
    if (!is_aarch64())
        put(&p, LEAF_SP, CODE_AT + OUTER + 8);
    put(&p, outer_sp + 0x18, CODE_AT + ROOT + 8);
}
#define THE_LEAF                                                                                             \
    {CODE_AT + LEAF, BY_SIGNAL}, {CODE_AT + OUTER + 8, BY_CFI}, {                                            \
        CODE_AT + ROOT + 8, BY_CFI                                                                           \
    }

/* The leaf was hit at its first instruction: on aarch64 its caller is in the saved lr. */
static void a_handler_without_cfi_for_its_return(void) {
    begin();
    in_a_handler();
    in_the_leaf(SIGNAL_SP);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}, THE_LEAF));
}

static void the_restorer_of_musl(void) {
    begin();
    put_code(&p, RESTORER, x86_64_musl_restorer, sizeof x86_64_musl_restorer);
    in_a_handler();
    in_the_leaf(SIGNAL_SP);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}, THE_LEAF));
}

/* Code that only resembles a restorer is none. */
static void code_that_resembles_a_restorer(void) {
    begin();
    in_a_handler();
    in_the_leaf(SIGNAL_SP);
    p.code[RESTORER + (is_aarch64() ? 1 : 3)] ^= 0x20; /* another system call */
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}));
}

/* The restorer itself is interrupted, before or at its system call. */
static void interrupted_in_the_restorer(void) {
    begin();
    const uint64_t second = is_aarch64() ? 4 : 7;
    for (uint64_t offset = 0; offset <= second; offset += second) {
        begin();
        interrupted_at(&p, CODE_AT + RESTORER + offset, SIGNAL_SP);
        set_register(&p, fp_register(arch), 0xf0);
        if (is_aarch64())
            set_register(&p, X30, 0xbad);
        in_the_leaf(SIGNAL_SP);
        expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + RESTORER + offset, INTERRUPTED}, THE_LEAF));
    }
}

/* The last byte before a restorer without CFI may belong to a function that has some. */
static void a_restorer_right_behind_another_function(void) {
    begin();
    const uint8_t push = is_aarch64() ? X30 : RIP;
    function(&p, RESTORER - 0x40, 0x40, CFI(DEF_CFA_OFFSET(0x10), OFFSET(push, 1)));
    in_a_handler();
    in_the_leaf(SIGNAL_SP);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}, THE_LEAF));
}

/* Or to no mapping at all: the restorer begins one. */
static void a_restorer_at_the_start_of_a_mapping(void) {
    begin();
    in_a_handler();
    in_the_leaf(SIGNAL_SP);
    compile_process(&p);
    p.modules[1] = p.modules[0];
    p.modules[0].end = CODE_AT + RESTORER - 0x20;
    p.modules[1].start = CODE_AT + RESTORER;
    p.modules[1].code = p.code + RESTORER;
    p.modules[1].code_size = 0x100;
    p.unwinder.module_count = 2;
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}, THE_LEAF));
}

/* The byte before the restorer is a function's last instruction, which was interrupted before: what the
 * cache then knows about it must not be taken for the restorer's rule. */
static void the_cache_tells_a_restorer_from_what_is_before_it(void) {
    static struct unspool_cache cache;
    begin();
    const uint8_t push = is_aarch64() ? X30 : RIP;
    function(&p, RESTORER - 0x40, 0x40, CFI(DEF_CFA_OFFSET(0x10), OFFSET(push, 1)));
    unspool_cache_clear(&cache);
    p.unwinder.cache = &cache;
    interrupted_at(&p, CODE_AT + RESTORER - 1, STACK_AT);
    put(&p, STACK_AT + 8, CODE_AT + ROOT + 8);
    for (int i = 0; i < 2; i++) {
        expect_stack(&p, UNSPOOL_END_ROOT,
                     FRAMES({CODE_AT + RESTORER - 1, INTERRUPTED}, {CODE_AT + ROOT + 8, BY_CFI}),
                     MOST_FRAMES);
        in_a_handler();
        in_the_leaf(SIGNAL_SP);
        expect_stack(&p, UNSPOOL_END_ROOT,
                     FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}, THE_LEAF),
                     MOST_FRAMES);
        interrupted_at(&p, CODE_AT + RESTORER - 1, STACK_AT);
        put(&p, STACK_AT + 8, CODE_AT + ROOT + 8);
    }
}

/* CFI that describes a signal frame, with 'S', for code that no bytes tell. */
static void write_signal_fde(const uint8_t *instructions, size_t size) {
    struct cie_shape shape = is_aarch64() ? aarch64_cie : x86_64_cie;
    shape.augmentation = "S";
    uint64_t cie = write_cie(&p.eh_frame, &shape);
    memset(p.code + RESTORER, 0, 16);
    write_fde(&p.eh_frame, cie, RESTORER - 1, 0x10, instructions, size);
}

static void a_signal_frame_by_expressions(void) {
    begin();
    write_signal_fde(CFI(DEF_CFA_EXPRESSION(4), OP_BREG0 + RSP, ULEB2(40 + 15 * 8), OP_DEREF,
                         EXPRESSION(RIP, 3), OP_BREG0 + RSP, ULEB2(40 + 16 * 8), EXPRESSION(RBP, 3),
                         OP_BREG0 + RSP, ULEB2(40 + 10 * 8), EXPRESSION(RSP, 3), OP_BREG0 + RSP,
                         ULEB2(40 + 15 * 8)));
    in_a_handler();
    in_the_leaf(SIGNAL_SP);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}, THE_LEAF));
}

/* By offsets alone, so that a rule can say it. Such CFI knows no lr: a leaf's caller is lost then. */
static void a_signal_frame_by_a_rule(void) {
    begin();
    const uint8_t push = is_aarch64() ? X30 : RIP;
    write_signal_fde(CFI(DEF_CFA_OFFSET(0x40), OFFSET(push, 1)));
    in_a_handler();
    put(&p, SIGNAL_SP + 0x38, CODE_AT + OUTER); /* interrupted at its first instruction */
    put(&p, SIGNAL_SP + 0x40 + 0x18, CODE_AT + ROOT + 8);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI},
                       {CODE_AT + OUTER, BY_SIGNAL}, {CODE_AT + ROOT + 8, BY_CFI}));
    put(&p, SIGNAL_SP + 0x38, CODE_AT + LEAF);
    put(&p, SIGNAL_SP + 0x40, CODE_AT + OUTER + 8); /* where x86_64 has the leaf's return address */
    put(&p, SIGNAL_SP + 0x48 + 0x18, CODE_AT + ROOT + 8);
    if (is_aarch64())
        expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                    FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI},
                           {CODE_AT + LEAF, BY_SIGNAL}));
    else
        expect_walk(&p, UNSPOOL_END_ROOT,
                    FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}, THE_LEAF));
}

/* A handler on an alternate stack, which lies below or above the other. */
static void across_stacks(void) {
    static uint64_t other[256];
    begin();
    for (int above = 0; above < 2; above++) {
        begin();
        const uint64_t other_at = above ? STACK_END + 0x10000 : 0x10000;
        in_a_handler();
        in_the_leaf(SIGNAL_SP); /* made on the main stack, then moved with the handler's frame */
        memcpy(other, p.stack, 0x400);
        memset(p.stack, 0, 0x400);
        p.regions[0] = (struct unspool_region){STACK_AT, sizeof p.stack, (const uint8_t *)p.stack};
        p.memory.region_count = 1;
        set_register(&p, sp_register(arch), other_at);
        p.memory.stack = (struct unspool_region){other_at, sizeof other, (const uint8_t *)other};
        expect_walk(&p, UNSPOOL_END_ROOT,
                    FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}, THE_LEAF));
        p.memory.region_count = 0; /* only the alternate stack was copied */
        expect_walk(&p, is_aarch64() ? UNSPOOL_END_UNREADABLE_MEMORY : UNSPOOL_END_UNREADABLE_MEMORY,
                    is_aarch64() ? (const struct expected_frame[]){{CODE_AT + HANDLER + 8, INTERRUPTED},
                                                                   {CODE_AT + RESTORER, BY_CFI},
                                                                   {CODE_AT + LEAF, BY_SIGNAL},
                                                                   {CODE_AT + OUTER + 8, BY_CFI}}
                                 : (const struct expected_frame[]){{CODE_AT + HANDLER + 8, INTERRUPTED},
                                                                   {CODE_AT + RESTORER, BY_CFI},
                                                                   {CODE_AT + LEAF, BY_SIGNAL}},
                    is_aarch64() ? 4 : 3);
    }
}

/* A handler interrupted at its first instruction by a second signal. */
static void nested_signals(void) {
    begin();
    const uint64_t second_sp = STACK_AT + 0x300; /* of the first signal's frame */
    in_a_handler();
    function(&p, 0x1400, 0x40, NO_CFI); /* the first handler: nothing pushed yet */
    put_signal_frame(SIGNAL_SP, CODE_AT + 0x1400, is_aarch64() ? second_sp : second_sp - 8, 0xf2,
                     CODE_AT + RESTORER);
    if (!is_aarch64())
        put(&p, second_sp - 8, CODE_AT + RESTORER);
    put_signal_frame(second_sp, CODE_AT + OUTER, LEAF_SP, 0xf1, 0xbad);
    put(&p, LEAF_SP + 0x18, CODE_AT + ROOT + 8);
    p.memory.stack.size = STACK_END - STACK_AT;
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI},
                       {CODE_AT + 0x1400, BY_SIGNAL}, {CODE_AT + RESTORER, BY_CFI},
                       {CODE_AT + OUTER, BY_SIGNAL}, {CODE_AT + ROOT + 8, BY_CFI}));
}

/* The signal hit a jump through a bad pointer: pc is nowhere, the caller where a leaf's is. */
static void a_bad_pc_below_a_signal(void) {
    begin();
    in_a_handler();
    in_the_leaf(SIGNAL_SP);
    put(&p, saved_at(SIGNAL_SP, pc_register(arch)), 0x4cd);
    expect_walk(
        &p, UNSPOOL_END_UNMAPPED_PC,
        FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}, {0x4cd, BY_SIGNAL}));
    if (is_aarch64())
        put_code(&p, OUTER + 4, CFI(U32(0xd63f0200))); /* blr x16 */
    else
        put_code(&p, OUTER + 6, CFI(0xff, 0xd0)); /* call *%rax */
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}, {0x4cd, BY_SIGNAL},
                       {CODE_AT + OUTER + 8, BY_LEAF | GUESSED}, {CODE_AT + ROOT + 8, BY_CFI}));
}

static void a_signal_frame_that_is_cut_off(void) {
    begin();
    uint64_t needed = SIGNAL_SP - STACK_AT + saved_registers_at() + (is_aarch64() ? 33u : 17u) * 8;
    for (uint64_t size = 0x10; size <= needed; size += 4) {
        in_a_handler();
        in_the_leaf(SIGNAL_SP);
        p.memory.stack.size = size;
        uint32_t frames = size == needed ? 3 : 2;
        if (frames == 3 && is_aarch64())
            continue; /* goes on through lr: see a_handler_without_cfi_for_its_return */
        expect_walk(&p, UNSPOOL_END_STACK_BYTES_ENDED,
                    (const struct expected_frame[]){{CODE_AT + HANDLER + 8, INTERRUPTED},
                                                    {CODE_AT + RESTORER, BY_CFI},
                                                    {CODE_AT + LEAF, BY_SIGNAL}},
                    frames);
    }
}

static void signal_frames_in_a_circle(void) {
    begin();
    in_a_handler();
    put_signal_frame(SIGNAL_SP, CODE_AT + RESTORER, SIGNAL_SP, 0, 0);
    expect_walk(&p, UNSPOOL_END_LOOP,
                FRAMES({CODE_AT + HANDLER + 8, INTERRUPTED}, {CODE_AT + RESTORER, BY_CFI}));
}

int main(void) {
    for (arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        RUN(a_handler_without_cfi_for_its_return);
        RUN(code_that_resembles_a_restorer);
        RUN(interrupted_in_the_restorer);
        RUN(a_restorer_right_behind_another_function);
        RUN(a_restorer_at_the_start_of_a_mapping);
        RUN(the_cache_tells_a_restorer_from_what_is_before_it);
        RUN(a_signal_frame_by_a_rule);
        RUN(across_stacks);
        RUN(nested_signals);
        RUN(a_bad_pc_below_a_signal);
        RUN(a_signal_frame_that_is_cut_off);
        RUN(signal_frames_in_a_circle);
    }
    arch = UNSPOOL_X86_64;
    RUN(the_restorer_of_musl);
    RUN(a_signal_frame_by_expressions);
    end_process(&p);
    return check_result();
}
