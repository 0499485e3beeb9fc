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
    set_register(&p, UNSPOOL_X86_64_RBP, 0); /* the code of f still says where its return address is */
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1105, INTERRUPTED}, {CODE_AT + 0x1005, BY_CODE}));
    put(&p, STACK_AT + 16, 0);
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

/* A function that passes an exception to its handler writes the handler's frame over its own: after its last
 * call but one. Before, its frame is as good as any, whatever called it. */
static void an_unwinder_with_two_calls_to_come_is_untouched(void) {
    static const uint8_t code[] = {
        0xe8, 0,    0,    0, 0x01, /* 0x1400 call: of what never returns; phase 2 */
        0xe8, 0,    0,    0, 0x01, /* 0x1405 call: the handler's registers are written */
        0xe8, 0,    0,    0, 0x01, /* 0x140a call: for debuggers */
        0x48, 0x89, 0xcc,          /* 0x140f mov %rcx,%rsp */
        0x59,                      /* 0x1412 pop %rcx */
        0xff, 0xe1,                /* 0x1413 jmp *%rcx */
    };
    struct process p = {0};
    begin(&p);
    put_code(&p, 0x1400, code, sizeof code);
    function(&p, 0x1400, 0x20, CFI(DEF_CFA_OFFSET(24), OFFSET(0, 2), OFFSET(1, 3)));
    put(&p, STACK_AT + 16, CODE_AT + 0x1011); /* from an indirect call: it may be of anything */
    interrupted_at(&p, CODE_AT + 0x1405, STACK_AT);
    expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1405, INTERRUPTED}, {CODE_AT + 0x1011, EXACTLY}));
    static const uint64_t late[] = {0x140a, 0x140f, 0x1412, 0x1413};
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        interrupted_at(&p, CODE_AT + late[i], STACK_AT);
        expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({CODE_AT + late[i], INTERRUPTED}));
    }
    end_process(&p);
}

/* Where its frame may have been overwritten, a call of this very function still speaks for the return
 * address, but nothing for the registers that it saved: no stack is complete, and no frame is found by rbp.
 */
static void an_overwritten_frame_is_never_proved(void) {
    struct process p = {0};
    begin(&p);
    function(&p, 0x1400, 0x10, CFI(DEF_CFA_OFFSET(24), OFFSET(0, 2), OFFSET(1, 3))); /* throw */
    interrupted_at(&p, CODE_AT + 0x1404, STACK_AT);
    set_register(&p, RBP, STACK_AT + 32);
    put(&p, STACK_AT + 16, CODE_AT + 0x1016);
    expect_walk(&p, UNSPOOL_END_ROOT,
                FRAMES({CODE_AT + 0x1404, INTERRUPTED}, {CODE_AT + 0x1016, EXACTLY | GUESSED}));
    put(&p, STACK_AT + 16, CODE_AT + 0x1011); /* from the indirect call */
    expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({CODE_AT + 0x1404, INTERRUPTED}));
    put(&p, STACK_AT + 16, CODE_AT + 0x1005); /* from a call of f */
    expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({CODE_AT + 0x1404, INTERRUPTED}));
    put(&p, STACK_AT + 16, CODE_AT + 0x1003); /* a landing pad follows no call */
    expect_walk(&p, UNSPOOL_END_BAD_RETURN_ADDRESS, FRAMES({CODE_AT + 0x1404, INTERRUPTED}));
    end_process(&p);
}

/* What an earlier step from the same place has shown holds for another stack only as far as it must. */

static void expect_caller_or_end(struct process *p, uint64_t pc, uint64_t caller, uint32_t how,
                                 uint32_t end) {
    interrupted_at(p, pc, STACK_AT);
    const struct expected_frame frames[] = {{pc, INTERRUPTED}, {caller, how}};
    expect_stack(p, end, frames, caller ? 2 : 1, MOST_FRAMES);
}

static void an_overwritten_frame_is_asked_for_its_call_each_time(void) {
    static struct unspool_cache cache;
    struct process p = {0};
    begin(&p);
    function(&p, 0x1400, 0x10, CFI(DEF_CFA_OFFSET(24), OFFSET(0, 2), OFFSET(1, 3))); /* throw */
    set_register(&p, RBP, STACK_AT + 32);
    unspool_cache_clear(&cache);
    p.unwinder.cache = &cache;
    for (int again = 0; again < 3; again++) {
        put(&p, STACK_AT + 16, CODE_AT + 0x1016);
        expect_caller_or_end(&p, CODE_AT + 0x1404, CODE_AT + 0x1016, EXACTLY | GUESSED, UNSPOOL_END_ROOT);
        put(&p, STACK_AT + 16, CODE_AT + 0x1011); /* from an indirect call */
        expect_caller_or_end(&p, CODE_AT + 0x1404, 0, 0, UNSPOOL_END_BAD_RETURN_ADDRESS);
    }
    end_process(&p);
}

static void each_byte_of_a_plt_entry_has_its_own_step(void) {
    enum { PLT = 0x1500, LIT11 = 0x3b, EXPRESSION_SIZE = 11 };
    static struct unspool_cache cache;
    struct process p = {0};
    begin(&p);
    function(&p, PLT, 0x40,
             CFI(DEF_CFA_EXPRESSION(EXPRESSION_SIZE), 0x77, 8, 0x80, 0, 0x3f, 0x1a, LIT11, 0x2a, 0x33, 0x24,
                 0x22));
    unspool_cache_clear(&cache);
    p.unwinder.cache = &cache;
    for (uint64_t round = 0; round < 2; round++)
        for (uint64_t at = 0; at < 0x40; at++) {
            bool is_pushed = at % 16 >= 11;
            put(&p, STACK_AT, is_pushed ? 5 : CODE_AT + 0x1011);
            put(&p, STACK_AT + 8, is_pushed ? CODE_AT + 0x1011 : 5);
            expect_caller_or_end(&p, CODE_AT + PLT + at, CODE_AT + 0x1011, EXACTLY, UNSPOOL_END_ROOT);
        }
    end_process(&p);
}

/* DW_CFA_register makes the row EXACT. Where rbp is below sp, an epilogue has popped it already. */
static void an_epilogue_by_rbp_depends_on_the_stack(void) {
    static struct unspool_cache cache;
    const uint64_t sp = STACK_AT + 8;
    struct process p = {0};
    begin(&p);
    function(&p, 0x1500, 0x20, CFI(DEF_CFA(RBP, 16), OFFSET(RBP, 2), 0x09, 12, 13));
    function(&p, 0x1540, 0x20, CFI(DEF_CFA(RBP, 16)));
    unspool_cache_clear(&cache);
    p.unwinder.cache = &cache;
    for (uint64_t round = 0; round < 6; round++) {
        bool is_popped = round % 2;
        uint64_t rbp = is_popped ? sp - 8 : sp;
        put(&p, rbp, STACK_AT + 24);
        put(&p, rbp + 8, CODE_AT + 0x1545);
        put(&p, STACK_AT + 32, CODE_AT + 0x1011);
        set_register(&p, RBP, rbp);
        interrupted_at(&p, CODE_AT + 0x1510, sp);
        p.memory.stack = (struct unspool_region){STACK_AT, sizeof p.stack, (const uint8_t *)p.stack};
        expect_stack(
            &p, is_popped ? UNSPOOL_END_LOOP : UNSPOOL_END_ROOT,
            FRAMES({CODE_AT + 0x1510, INTERRUPTED}, {CODE_AT + 0x1545, EXACTLY}, {CODE_AT + 0x1011, BY_CFI}) -
                is_popped,
            MOST_FRAMES);
    }
    end_process(&p);
}

/* The caller of such a frame keeps its own by rbp, which has perhaps been overwritten. */
static void an_overwritten_rbp_is_not_used(void) {
    static const uint8_t call[] = {0xe8, 0x9b, 0x02, 0, 0}; /* 0x1160 call 0x1400 */
    struct process p = {0};
    begin(&p);
    put_code(&p, 0x1160, call, sizeof call);
    function(&p, 0x1150, 0x20, CFI(DEF_CFA(RBP, 16), OFFSET(RBP, 2)));
    function(&p, 0x1400, 0x10, CFI(DEF_CFA_OFFSET(32), OFFSET(RBP, 2), OFFSET(0, 3), OFFSET(1, 4)));
    interrupted_at(&p, CODE_AT + 0x1404, STACK_AT);
    set_register(&p, RBP, STACK_AT + 64);
    put(&p, STACK_AT + 16, STACK_AT + 64);
    put(&p, STACK_AT + 24, CODE_AT + 0x1165);
    put(&p, STACK_AT + 72, CODE_AT + 0x1016);
    expect_walk(&p, UNSPOOL_END_NO_UNWIND_INFO,
                FRAMES({CODE_AT + 0x1404, INTERRUPTED}, {CODE_AT + 0x1165, EXACTLY | GUESSED}));
    end_process(&p);
}

int main(void) {
    RUN(a_direct_call_proves_a_leaf);
    RUN(a_stale_return_address_proves_nothing);
    RUN(a_caller_found_by_its_code_is_proved_by_a_direct_call);
    RUN(an_unwinder_with_two_calls_to_come_is_untouched);
    RUN(an_overwritten_frame_is_never_proved);
    RUN(an_overwritten_frame_is_asked_for_its_call_each_time);
    RUN(each_byte_of_a_plt_entry_has_its_own_step);
    RUN(an_epilogue_by_rbp_depends_on_the_stack);
    RUN(an_overwritten_rbp_is_not_used);
    return check_result();
}
