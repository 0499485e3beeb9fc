/*
 * signals.c: signals of the emulated process, with the frame that Linux writes on aarch64
 * (arch/arm64/kernel/signal.c: setup_rt_frame, get_sigframe; uapi asm/sigcontext.h).
 *
 * From low to high addresses: struct rt_sigframe (siginfo, ucontext), to 16 bytes; the frame record that
 * links to the interrupted function. sp is at the former, x29 at the latter, lr at the return code.
 */
#include "process.h"

#include <signal.h>
#include <string.h>

enum {
    INFO_SIZE = 128,
    MCONTEXT_AT = INFO_SIZE + 176, /* in the frame; the ucontext begins behind the siginfo */
    MASK_AT = INFO_SIZE + 40,
    RESERVED_AT = MCONTEXT_AT + 288,
    FRAME_SIZE = RESERVED_AT + 4096,
    VECTORS_AT = RESERVED_AT + 16, /* behind fpsimd_context's head, fpsr and fpcr */
    FLAG_SIGINFO = 4,
    FLAG_ONSTACK = 0x08000000,
    FLAG_RESTORER = 0x04000000,
    FLAG_NODEFER = 0x40000000,
};
#define FLAG_RESETHAND 0x80000000u
#define VECTORS_MAGIC 0x46508001u
#define SIGNAL_BIT(number) ((uint64_t)1 << ((number) - 1))

static void put(uint8_t *frame, size_t at, uint64_t value) {
    memcpy(frame + at, &value, sizeof value);
}

static uint64_t take(const uint8_t *frame, size_t at) {
    uint64_t value;
    memcpy(&value, frame + at, sizeof value);
    return value;
}

static void fill_frame(struct process *process, uint8_t *frame, const uint64_t *registers, int signal,
                       uint64_t fault) {
    struct machine *machine = process->machine;
    const struct task *task = process->current;
    uint32_t status[2], head[2] = {VECTORS_MAGIC, 528};
    memset(frame, 0, FRAME_SIZE);
    put(frame, 0, (uint64_t)signal);
    put(frame, 16, fault); /* si_addr, or si_pid */
    put(frame, INFO_SIZE + 16, task->stack_start);
    put(frame, INFO_SIZE + 24, task->stack_size ? 0 : 2 /* SS_DISABLE */);
    put(frame, INFO_SIZE + 32, task->stack_size);
    put(frame, MASK_AT, task->mask);
    put(frame, MCONTEXT_AT, fault);
    memcpy(frame + MCONTEXT_AT + 8, registers, MACHINE_REGISTERS * sizeof *registers);
    put(frame, MCONTEXT_AT + 8 + 8 * MACHINE_REGISTERS, machine_pstate(machine));
    machine_get_vectors(machine, frame + VECTORS_AT, status);
    memcpy(frame + RESERVED_AT, head, sizeof head);
    memcpy(frame + RESERVED_AT + 8, status, sizeof status);
}

void process_deliver(struct process *process, int signal, const struct action *action, uint64_t fault) {
    struct task *task = process->current;
    uint64_t registers[MACHINE_REGISTERS];
    machine_get(process->machine, registers);
    uint64_t interrupted = registers[MACHINE_PC], sp = registers[MACHINE_SP];
    bool on_it = sp - task->stack_start - 1 < task->stack_size;
    if ((action->flags & FLAG_ONSTACK) && task->stack_size && !on_it)
        sp = task->stack_start + task->stack_size;
    uint64_t record = (sp - 16) & ~(uint64_t)15;
    uint64_t frame = (record - FRAME_SIZE) & ~(uint64_t)15;
    if (!machine_find(process->machine, frame, NULL)) { /* the stack has overflowed */
        process_kill(process, SIGSEGV);
        return;
    }
    fill_frame(process, machine_at(process->machine, frame, FRAME_SIZE), registers, signal, fault);
    memcpy(machine_at(process->machine, record, 16), &registers[MACHINE_FP], 16);
    task->mask |= action->mask | (action->flags & FLAG_NODEFER ? 0 : SIGNAL_BIT(signal));
    registers[0] = (uint64_t)signal;
    if (action->flags & FLAG_SIGINFO) {
        registers[1] = frame;
        registers[2] = frame + INFO_SIZE;
    }
    registers[MACHINE_FP] = record;
    registers[MACHINE_LR] = action->flags & FLAG_RESTORER ? action->restorer : process->return_code;
    registers[MACHINE_SP] = frame;
    registers[MACHINE_PC] = action->handler;
    machine_set(process->machine, registers);
    process->watcher.signal_delivered(process->watcher.context, interrupted, frame, registers[MACHINE_LR]);
}

void process_signal_return(struct process *process) {
    uint64_t registers[MACHINE_REGISTERS];
    uint32_t status[2];
    machine_get(process->machine, registers);
    const uint8_t *frame = machine_at(process->machine, registers[MACHINE_SP], FRAME_SIZE);
    memcpy(registers, frame + MCONTEXT_AT + 8, sizeof registers);
    memcpy(status, frame + RESERVED_AT + 8, sizeof status);
    process->current->mask = take(frame, MASK_AT);
    machine_set_vectors(process->machine, frame + VECTORS_AT, status);
    machine_set_pstate(process->machine, take(frame, MCONTEXT_AT + 8 + 8 * MACHINE_REGISTERS));
    machine_set(process->machine, registers);
}

void process_kill(struct process *process, int signal) {
    process->exited = true;
    process->exit_code = -1;
    process->killed_by = signal;
}

static bool is_ignored(int signal, const struct action *action) {
    bool harmless = signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH || signal == SIGCONT;
    return action->handler == 1 || (action->handler == 0 && harmless);
}

/* The action of a signal, once. */
static void act(struct process *process, int signal, uint64_t fault) {
    struct action action = process->action[signal];
    if (is_ignored(signal, &action))
        return;
    if (action.handler == 0) {
        process_kill(process, signal);
        return;
    }
    if (action.flags & FLAG_RESETHAND)
        process->action[signal].handler = 0;
    process_deliver(process, signal, &action, fault);
}

void process_signals(struct process *process) {
    struct task *task = process->current;
    uint64_t ready = task->pending & ~task->mask;
    if (!ready || process->exited)
        return;
    int signal = __builtin_ctzll(ready) + 1;
    task->pending &= ~SIGNAL_BIT(signal);
    act(process, signal, (uint64_t)task->tid);
}

void process_fault(struct process *process, int signal, uint64_t address) {
    if (process->current->mask & SIGNAL_BIT(signal))
        process_kill(process, signal);
    else
        act(process, signal, address);
}

void process_raise(struct process *process, struct task *task, int signal) {
    task->pending |= SIGNAL_BIT(signal);
    if (task->state == TASK_WAITING && (task->pending & ~task->mask) &&
        !is_ignored(signal, &process->action[signal])) {
        task->state = TASK_READY;
        task->registers[0] = (uint64_t)-4; /* EINTR */
    }
}
