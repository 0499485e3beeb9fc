/*
 * test_last_walk.c: a walk that compares with the last one (ordinary_walk.c) says what a walk without a cache
 * says, whatever has happened to the stack meanwhile; and it does compare.
 */
#include "process.h"

enum { WORDS = 1024, DEEPEST = 150, ROUNDS = 50000 };

#define TOP (STACK_AT + 8 * WORDS)

static struct process p;
static struct unspool_cache cache;
static uint64_t words[WORDS];
static uint64_t random_state;

static uint32_t choose(uint32_t count) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % count;
}

/* What functions do, from 0x1100 on, 0x100 bytes each. */
enum kind { SMALL, SAVES_FP, BY_FP, OTHER_SLOT, OTHER_RA, POPPED, KINDS };

static uint64_t pc_in(uint32_t kind) {
    return CODE_AT + 0x1104 + 0x100 * kind + 4 * choose(8);
}

static void begin(uint32_t arch) {
    bool is_aarch64 = arch == UNSPOOL_AARCH64;
    const uint8_t ra = is_aarch64 ? X30 : RIP, fp = is_aarch64 ? X29 : RBP;
    begin_process(&p, arch);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40, CFI(DEF_CFA_OFFSET(16), OFFSET(ra, 1)));
    function(&p, 0x1200, 0x40, CFI(DEF_CFA_OFFSET(32), OFFSET(ra, 1), OFFSET(fp, 2)));
    function(&p, 0x1300, 0x40, CFI(DEF_CFA(fp, 16), OFFSET(ra, 1), OFFSET(fp, 2)));
    function(&p, 0x1400, 0x40, CFI(DEF_CFA_OFFSET(48), OFFSET(ra, 1), OFFSET(fp, 4)));
    function(&p, 0x1500, 0x40, CFI(DEF_CFA_OFFSET(24), OFFSET(ra, 2)));
    function(&p, 0x1600, 0x40, CFI(DEF_CFA_OFFSET(8), OFFSET(ra, 1), OFFSET(fp, 2)));
    compile_process(&p);
    unspool_cache_clear(&cache);
}

static uint64_t *word_at(uint64_t address) {
    return &words[(address - STACK_AT) / 8];
}

/* Where each frame of the stack begins, outermost first, and where it is in its code. */
static struct {
    uint64_t pc, sp, fp;
} made[DEEPEST];
static uint32_t depth;

/* The frame that made[depth] calls; words of its own are left as they are. */
static void push(uint32_t kind) {
    static const uint8_t size[KINDS] = {2, 4, 2, 6, 3, 1}, ra_slot[KINDS] = {1, 1, 1, 1, 2, 1},
                         fp_slot[KINDS] = {0, 2, 2, 4, 0, 0};
    uint64_t cfa = made[depth - 1].sp, fp = made[depth - 1].fp;
    *word_at(cfa - 8u * ra_slot[kind]) = made[depth - 1].pc;
    if (fp_slot[kind])
        *word_at(cfa - 8u * fp_slot[kind]) = fp;
    made[depth].pc = pc_in(kind);
    made[depth].sp = cfa - 8u * size[kind] - (kind == BY_FP ? 8 * choose(4) : 0);
    made[depth].fp = kind == BY_FP ? cfa - 16 : fp_slot[kind] && choose(2) ? choose(1000) : fp;
    depth++;
}

/* Calls and returns: `kept` of the outermost frames stay, others come on top of them. */
static void change_stack(uint32_t kept, uint32_t count) {
    if (!kept) {
        made[0].pc = CODE_AT + 0x1010;
        made[0].sp = TOP - 16;
        made[0].fp = 0xf0;
        kept = 1;
    }
    if (kept == depth && kept > 1)
        kept--; /* perhaps it calls nothing */
    for (depth = kept; depth < count && made[depth - 1].sp > STACK_AT + 128;)
        push(choose(POPPED));
    if (choose(4) == 0 && depth < DEEPEST)
        push(POPPED); /* and would call nothing */
}

static void write_anywhere(void) {
    const uint64_t values[] = {0, pc_in(choose(KINDS)), STACK_AT + 8 * choose(WORDS), CODE_AT + 0x1010,
                               choose(UINT32_MAX)};
    words[choose(WORDS)] = values[choose(5)];
}

struct result {
    uint64_t addresses[2 * WORDS];
    uint8_t how[2 * WORDS];
};

static struct unspool_stack walk_into(struct result *result, uint64_t capacity) {
    struct unspool_stack stack = {.addresses = result->addresses, .how = result->how, .capacity = capacity};
    unspool_memory_reset(&p.memory);
    unspool_walk(&p.unwinder, &p.registers, &p.memory, &stack);
    return stack;
}

static bool expect_same_walk(uint64_t capacity) {
    static struct result plain, again;
    p.unwinder.cache = NULL;
    struct unspool_stack expected = walk_into(&plain, capacity);
    p.unwinder.cache = &cache;
    struct unspool_stack got = walk_into(&again, capacity);
    return CHECK_EQUAL(got.count, expected.count) && CHECK_EQUAL(got.end, expected.end) &&
           CHECK_BYTES(again.addresses, plain.addresses, expected.count * 8) &&
           CHECK_BYTES(again.how, plain.how, expected.count);
}

/* In frame `number`, at its sp, or as far from there as the stack's copy may begin or end. */
static void interrupt(uint32_t number, uint64_t missing) {
    uint32_t arch = p.unwinder.arch;
    p.registers = (struct unspool_registers){0};
    set_register(&p, pc_register(arch), made[number].pc);
    set_register(&p, sp_register(arch), made[number].sp);
    set_register(&p, fp_register(arch), made[number].fp);
    if (arch == UNSPOOL_AARCH64)
        set_register(&p, X30, made[number ? number - 1 : 0].pc);
    p.registers.pc_is_return_address = choose(8) == 0;
    p.memory.stack = (struct unspool_region){made[number].sp, TOP - made[number].sp - missing,
                                             (const uint8_t *)word_at(made[number].sp)};
}

static void whatever_the_stack_holds(void) {
    uint32_t taken = 0;
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        begin(arch);
        random_state = 88172645463325252u;
        change_stack(0, 40);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            switch (choose(16)) {
            case 0:
                memset(words, 0, sizeof words);
                change_stack(0, choose(DEEPEST));
                break;
            case 1:
                write_anywhere();
                break;
            case 2:
                made[depth - 1].fp ^= 8;
                break;
            case 3: /* nothing */
                break;
            default:
                change_stack(choose(depth + 1), 1 + choose(DEEPEST));
            }
            bool has_kept = cache.last.count > 8;
            interrupt(choose(4) ? depth - 1 : choose(depth), choose(16) ? 0 : 8 * choose(6));
            if (!expect_same_walk(choose(8) ? 2 * WORDS : 1 + choose(DEEPEST)))
                return;
            taken += has_kept && cache.last.in_vain == 0;
        }
    }
    CHECK(taken > ROUNDS / 4); /* else nothing was tested */
}

static void an_unchanged_stack_is_compared(void) {
    begin(UNSPOOL_X86_64);
    change_stack(0, 1);
    while (depth < 40)
        push(depth % 2 ? SMALL : BY_FP);
    interrupt(depth - 1, 0);
    p.registers.pc_is_return_address = 0;
    expect_same_walk(WORDS); /* its rules are cached now */
    expect_same_walk(WORDS);
    CHECK_EQUAL(cache.last.count, 39); /* the interrupted one is not kept */
    CHECK_EQUAL(cache.last.frame[0].pc, made[0].pc);
    expect_same_walk(WORDS);
    CHECK_EQUAL(cache.last.in_vain, 0);
    cache.last.frame[20].pc++; /* what is no longer so is not taken over: */
    expect_same_walk(WORDS);
    CHECK_EQUAL(cache.last.frame[20].pc, made[20].pc);
    *word_at(made[20].sp - 8) = made[20].pc + 4; /* frame 21 has called from elsewhere */
    expect_same_walk(WORDS);
    expect_same_walk(WORDS);
    CHECK_EQUAL(cache.last.frame[20].pc, made[20].pc + 4);
    CHECK_EQUAL(cache.last.count, 39);
    unspool_cache_clear(&cache);
    CHECK_EQUAL(cache.last.count, 0);
}

/* Deeper stacks than can be kept: the outermost frames are. */
static void outermost_frames_are_kept(void) {
    begin(UNSPOOL_X86_64);
    change_stack(0, 1);
    while (depth < DEEPEST)
        push(SMALL);
    for (uint32_t number = DEEPEST; number-- > UNSPOOL_KEPT_FRAMES; number -= 7) {
        interrupt(number, 0);
        expect_same_walk(WORDS);
        if (number == DEEPEST - 1)
            expect_same_walk(WORDS);
        CHECK_EQUAL(cache.last.count, UNSPOOL_KEPT_FRAMES);
        for (uint32_t i = 0; i < UNSPOOL_KEPT_FRAMES; i++)
            CHECK_EQUAL(cache.last.frame[i].sp, made[i].sp);
    }
}

/* Two stacks in turn that have nothing in common: soon nothing is kept, and later it is tried again. */
static void what_does_not_pay_is_left(void) {
    uint32_t left = 0, tried = 0;
    begin(UNSPOOL_X86_64);
    for (uint32_t round = 0; round < 300; round++) {
        memset(words, 0, sizeof words);
        change_stack(0, 1);
        made[0].sp -= round % 2 * 64;
        while (depth < 30)
            push(SMALL);
        interrupt(depth - 1, 0);
        struct unspool_last_walk before = cache.last;
        expect_same_walk(WORDS);
        bool is_left = !memcmp(before.frame, cache.last.frame, sizeof before.frame);
        left += is_left;
        tried += !is_left;
    }
    CHECK(tried >= 5 && tried <= 16);
    CHECK(left > 280);
    for (uint32_t round = 0; round < 80; round++) /* now it pays */
        expect_same_walk(WORDS);
    CHECK_EQUAL(cache.last.in_vain, 0);
}

int main(void) {
    RUN(whatever_the_stack_holds);
    RUN(an_unchanged_stack_is_compared);
    RUN(outermost_frames_are_kept);
    RUN(what_does_not_pay_is_left);
    end_process(&p);
    return check_result();
}
