/*
 * test_root_code.c: code that nobody called, known by its bytes (root_code.c).
 */
#include "process.h"

static struct process p;

/* A function at 0x1100 was called by the code at 0x1800, which no unwind information covers. */
static void called_by(uint32_t arch, const uint8_t *code, size_t size) {
    begin_process(&p, arch);
    if (arch == UNSPOOL_X86_64) {
        function(&p, 0x1100, 0x40, CFI(DEF_CFA_OFFSET(16)));
        put(&p, STACK_AT + 8, CODE_AT + 0x1800);
        set_register(&p, RBP, 0);
    } else {
        function(&p, 0x1100, 0x40, CFI(DEF_CFA_OFFSET(16), OFFSET(X30, 1)));
        put(&p, STACK_AT + 8, CODE_AT + 0x1800);
        set_register(&p, X29, 0);
        set_register(&p, X30, 0);
    }
    put_code(&p, 0x1800, code, size);
    interrupted_at(&p, CODE_AT + 0x1110, STACK_AT);
}

static void expect_end(uint32_t end) {
    expect_walk(&p, end, FRAMES({CODE_AT + 0x1110, INTERRUPTED}, {CODE_AT + 0x1800, BY_CFI}));
}

static void the_exit_of_a_thread(void) {
    uint8_t x86_64[] = {0x89, 0xc7, 0x31, 0xc0, 0xb0, 60, 0x0f, 0x05};
    uint8_t aarch64[] = {0xa8, 0x0b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4};
    called_by(UNSPOOL_X86_64, x86_64, sizeof x86_64);
    expect_end(UNSPOOL_END_ROOT);
    called_by(UNSPOOL_AARCH64, aarch64, sizeof aarch64);
    expect_end(UNSPOOL_END_ROOT);
    x86_64[5] = 61; /* wait4 */
    called_by(UNSPOOL_X86_64, x86_64, sizeof x86_64);
    expect_end(UNSPOOL_END_NO_UNWIND_INFO);
    aarch64[0] = 0xc8; /* exit_group */
    called_by(UNSPOOL_AARCH64, aarch64, sizeof aarch64);
    expect_end(UNSPOOL_END_NO_UNWIND_INFO);
}

int main(void) {
    RUN(the_exit_of_a_thread);
    return check_result();
}
