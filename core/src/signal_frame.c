/*
 * signal_frame.c: the registers that the kernel saved when it called a signal handler.
 *
 * When the handler returns to the signal-return code, sp points at struct rt_sigframe (aarch64) or,
 * its first word popped, just behind its start (x86_64): Linux, arch/ARCH/kernel/signal*.c and
 * uapi/asm/{sigcontext,ucontext}.h. Read with one copy; async-signal-safe.
 */
#include "cfi_program.h"
#include "walk.h"

/* x86_64: sp is at struct ucontext; uc_mcontext.gregs begin 40 bytes in, in this order. */
#define X86_64_REGISTERS_AT 40
static const uint8_t x86_64_order[] = {8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16};

/* aarch64: sp is at struct siginfo (128 bytes); then ucontext, whose mcontext is 176 bytes in and
 * begins with fault_address; x0..x30, sp, pc follow in DWARF order. */
#define AARCH64_REGISTERS_AT (128 + 176 + 8)

enum step_result step_signal_frame(const struct code *code, struct frame *frame, struct step *step) {
    uint32_t arch = code->unwinder->arch;
    bool is_aarch64 = arch == UNSPOOL_AARCH64;
    uint64_t saved[UNSPOOL_REGISTERS];
    size_t count = is_aarch64 ? UNSPOOL_REGISTERS : sizeof x86_64_order;
    uint64_t address = frame->sp + (is_aarch64 ? AARCH64_REGISTERS_AT : X86_64_REGISTERS_AT);
    size_t size = count * sizeof *saved;
    if (memory_read(code->memory, address, saved, size) != size)
        return end_stack(step, memory_end(code->memory, address + size - sizeof *saved));
    struct unspool_registers registers = {.known = ((uint64_t)1 << count) - 1};
    for (size_t i = 0; i < count; i++)
        registers.value[is_aarch64 ? i : x86_64_order[i]] = saved[i];
    uint64_t pc = registers.value[pc_register(arch)];
    uint64_t sp = registers.value[sp_register(arch)];
    if (pc == frame->pc && sp == frame->sp)
        return end_stack(step, UNSPOOL_END_LOOP);
    frame->pc = pc;
    frame->sp = sp;
    frame->fp = registers.value[fp_register(arch)];
    frame->lr = registers.value[UNSPOOL_AARCH64_LR];
    frame->fp_is_known = true;
    frame->lr_is_live = is_aarch64;
    frame->is_interrupted = true;
    if (frame->all)
        *frame->all = registers;
    step->how = UNSPOOL_HOW_SIGNAL_FRAME;
    return STEP_CALLER;
}
