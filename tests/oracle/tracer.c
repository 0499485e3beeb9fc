/*
 * tracer.c: single-steps a program on x86_64 Linux and checks the product's walk at every instruction.
 *
 *   tracer OUT.json [--entry] [--threads | --born] [--steps LIMIT] [--leave STEP] -- PROGRAM ARGUMENT...
 *
 * Talks to its driver on stdin and stdout (target.h). --entry: run freely up to the program's own entry
 * point and step from there. --threads: step every thread, else the first one only. --born: step those that
 * are born while the first one, which must stand still meanwhile, runs freely. --leave: leave the
 * program alone at that step, stopped, for another tool to look at; OUT.json then holds its true stack. Exits
 * 0 when the results are in OUT.json, whatever they are.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "compare.h"
#include "instruction.h"

enum { TASKS = 256 };

/* One traced thread. */
struct task {
    pid_t tid;
    bool fresh;            /* its first stop has not been seen */
    bool moving;           /* it was let go, so that an instruction may have run */
    int signal;            /* to deliver with the next step */
    uint64_t make_context; /* ucontext that makecontext is filling, and how deep its frame is */
    size_t make_context_depth;
    enum instruction_kind kind; /* of the instruction at registers.rip */
    struct user_regs_struct registers;
    struct truth truth;
    struct waiting waiting;
};

struct tracer {
    struct target target;
    struct truth_stacks stacks;
    struct comparison comparison;
    struct task *task[TASKS];
    size_t task_count;
    uint64_t step_limit, leave_step;
    uint64_t *left; /* the true stack when the program was left */
    size_t left_count;
    bool threads, born;
    bool stale; /* modules must be asked for again */
    pid_t first;
    int status; /* of the first thread, as wait tells it */
};

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "tracer: %s: %s\n", what, strerror(errno));
    exit(3);
}

/* ------------------------------------------------------------------ truth's questions */

static bool mapping(void *context, uint64_t address, uint64_t *start, uint64_t *end) {
    const struct tracer *tracer = context;
    return target_mapping(&tracer->target, address, start, end);
}

static bool executable(void *context, uint64_t address) {
    const struct tracer *tracer = context;
    return target_module(&tracer->target, address) != NULL;
}

/* ------------------------------------------------------------------ tasks */

static struct task *find_task(struct tracer *tracer, pid_t tid) {
    for (size_t i = 0; i < tracer->task_count; i++) {
        if (tracer->task[i]->tid == tid)
            return tracer->task[i];
    }
    return NULL;
}

static struct task *add_task(struct tracer *tracer, pid_t tid) {
    struct task *task = calloc(1, sizeof *task);
    if (!task || tracer->task_count == TASKS)
        fail("too many threads");
    task->tid = tid;
    task->fresh = true;
    tracer->task[tracer->task_count++] = task;
    return task;
}

static void remove_task(struct tracer *tracer, struct task *task) {
    comparison_finish(&tracer->comparison, &task->waiting);
    truth_stop(&task->truth);
    for (size_t i = 0; i < tracer->task_count; i++) {
        if (tracer->task[i] == task)
            tracer->task[i] = tracer->task[--tracer->task_count];
    }
    free(task);
}

/* ------------------------------------------------------------------ what a step did */

static uint64_t read_word(const struct tracer *tracer, uint64_t address) {
    uint64_t word = 0;
    target_read(&tracer->target, address, &word, sizeof word);
    return word;
}

static void system_call_done(struct tracer *tracer, const struct user_regs_struct *before, uint64_t result) {
    if (result > -4096ull)
        return;
    switch (before->rax) {
    case SYS_mmap:
    case SYS_mprotect:
        tracer->stale |= (before->rdx & PROT_EXEC) != 0;
        break;
    case SYS_munmap:
    case SYS_mremap:
        for (uint64_t i = 0; i < tracer->target.module_count; i++) {
            const struct unspool_module *module = &tracer->target.modules[i];
            tracer->stale |= before->rdi < module->end && module->start < before->rdi + before->rsi;
        }
        break;
    case SYS_sigaltstack: {
        stack_t stack;
        if (!before->rdi || target_read(&tracer->target, before->rdi, &stack, sizeof stack) != sizeof stack)
            break;
        uint64_t start = (uint64_t)(uintptr_t)stack.ss_sp;
        if (!(stack.ss_flags & SS_DISABLE))
            truth_declare(&tracer->stacks, start, start + stack.ss_size);
        break;
    }
    default:
        break;
    }
}

/* makecontext has returned: its ucontext tells the new stack. */
static void context_made(struct tracer *tracer, struct task *task) {
    ucontext_t made;
    if (target_read(&tracer->target, task->make_context, &made, sizeof made) == sizeof made) {
        uint64_t start = (uint64_t)(uintptr_t)made.uc_stack.ss_sp;
        uint64_t slot = (uint64_t)made.uc_mcontext.gregs[REG_RSP];
        uint32_t region = truth_declare(&tracer->stacks, start, start + made.uc_stack.ss_size);
        truth_make_context(&task->truth, region, slot, read_word(tracer, slot));
    }
    task->make_context = 0;
}

static void instruction_done(struct tracer *tracer, struct task *task, const struct user_regs_struct *after) {
    const struct user_regs_struct *before = &task->registers;
    struct truth_step step = {TRUTH_OTHER, before->rsp, after->rip, after->rsp, 0};
    bool limbo = truth_in_limbo(&task->truth);
    if (task->kind == INSTRUCTION_CALL)
        step.event = TRUTH_CALLED;
    else if (task->kind == INSTRUCTION_RETURN)
        step.event = TRUTH_RETURNED;
    else if (task->kind == INSTRUCTION_INDIRECT_JUMP)
        step.event = TRUTH_JUMPED;
    else if (task->kind == INSTRUCTION_SYSCALL && before->rax == SYS_rt_sigreturn)
        step.event = TRUTH_SIGNAL_RETURN;
    else if (limbo && after->rsp == before->rsp - 8)
        step.event = TRUTH_PUSHED;
    if (step.event == TRUTH_CALLED || step.event == TRUTH_PUSHED)
        step.value = read_word(tracer, after->rsp);
    truth_step(&task->truth, &step);
    tracer->comparison.results.steps++;
    comparison_stepped(&tracer->comparison, &task->waiting, &task->truth);
    if (task->kind == INSTRUCTION_SYSCALL && step.event != TRUTH_SIGNAL_RETURN)
        system_call_done(tracer, before, after->rax);
    if (task->make_context && task->truth.chain.count < task->make_context_depth)
        context_made(tracer, task);
    if (after->rip == tracer->target.makecontext && after->rip) {
        task->make_context = after->rdi;
        task->make_context_depth = task->truth.chain.count;
    }
}

/* Did this step enter the handler of the signal that was delivered? The kernel's frame (x86_64
 * rt_sigframe): restorer, ucontext, siginfo; rdi, rsi, rdx are the handler's arguments. */
static bool signal_done(struct tracer *tracer, struct task *task, const struct user_regs_struct *after) {
    const struct user_regs_struct *before = &task->registers;
    uint64_t slot = after->rsp + 8;
    if (!task->signal || after->rdi != (uint64_t)task->signal || after->rdx != slot)
        return false;
    ucontext_t saved;
    size_t head = offsetof(ucontext_t, uc_sigmask);
    if (target_read(&tracer->target, slot, &saved, head) != head)
        return false;
    uint64_t pc = (uint64_t)saved.uc_mcontext.gregs[REG_RIP];
    if ((uint64_t)saved.uc_mcontext.gregs[REG_RSP] != before->rsp || before->rip - pc > 2)
        return false;
    truth_signal(&task->truth, pc, slot, read_word(tracer, after->rsp), after->rsp);
    return true;
}

/* ------------------------------------------------------------------ stops */

static void walker_registers(const struct user_regs_struct *from, struct unspool_registers *to) {
    const uint64_t values[17] = {from->rax, from->rdx, from->rcx, from->rbx, from->rsi, from->rdi,
                                 from->rbp, from->rsp, from->r8,  from->r9,  from->r10, from->r11,
                                 from->r12, from->r13, from->r14, from->r15, from->rip};
    memset(to, 0, sizeof *to);
    memcpy(to->value, values, sizeof values);
    to->known = 0x1ffff;
}

static void look(struct tracer *tracer, struct task *task) {
    if (tracer->stale || !target_module(&tracer->target, task->registers.rip)) {
        target_refresh(&tracer->target);
        comparison_modules_changed(&tracer->comparison);
        tracer->stale = false;
    }
    uint8_t buffer[15];
    size_t size;
    const uint8_t *code = target_code(&tracer->target, task->registers.rip, buffer, &size);
    task->kind = instruction_kind(code, size);
    struct unspool_registers registers;
    walker_registers(&task->registers, &registers);
    comparison_check(&tracer->comparison, &task->waiting, &task->truth, &registers);
}

/* A thread stands still. Returns the signal to let it go with. */
static int stopped(struct tracer *tracer, struct task *task, int status) {
    struct user_regs_struct now;
    struct iovec io = {&now, sizeof now};
    if (ptrace(PTRACE_GETREGSET, task->tid, (void *)1 /* NT_PRSTATUS */, &io))
        return 0; /* killed meanwhile */
    int signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    if (task->fresh) {
        task->fresh = false;
        signal = 0;
        truth_start(&task->truth, &tracer->stacks, now.rsp);
    } else if (task->moving && !signal_done(tracer, task, &now)) {
        bool moved = now.rip != task->registers.rip || now.rsp != task->registers.rsp;
        if (moved || !signal)
            instruction_done(tracer, task, &now);
    }
    task->registers = now;
    task->signal = signal;
    look(tracer, task);
    return signal;
}

static void new_thread(struct tracer *tracer, pid_t parent) {
    unsigned long tid;
    if (ptrace(PTRACE_GETEVENTMSG, parent, NULL, &tid))
        return;
    if (!find_task(tracer, (pid_t)tid))
        add_task(tracer, (pid_t)tid);
}

/* Lets go of a thread that stands still, and keeps its true stack. */
static void leave(struct tracer *tracer, struct task *task) {
    size_t depth = task->truth.chain.count;
    tracer->left = malloc((depth + 1) * sizeof *tracer->left);
    if (!tracer->left)
        fail("memory");
    tracer->left[tracer->left_count++] = task->registers.rip;
    while (tracer->left_count <= depth) {
        tracer->left[tracer->left_count] = task->truth.chain.frame[depth - tracer->left_count].address;
        tracer->left_count++;
    }
    ptrace(PTRACE_DETACH, task->tid, NULL, (void *)(intptr_t)SIGSTOP);
    remove_task(tracer, task);
}

static void handle(struct tracer *tracer, pid_t tid, int status) {
    struct task *task = find_task(tracer, tid);
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
        if (tid == tracer->first)
            tracer->status = status;
        if (task)
            remove_task(tracer, task);
        return;
    }
    if (!task)
        task = add_task(tracer, tid);
    int event = status >> 16, signal = 0;
    bool is_free = tracer->born && tid == tracer->first;
    if (event == PTRACE_EVENT_EXEC) { /* another program, from its first instruction */
        task->fresh = true;
        tracer->stale = true;
    }
    if (event == PTRACE_EVENT_CLONE) {
        new_thread(tracer, tid); /* still inside the system call */
        tracer->stale = true;
    } else if (is_free) {
        signal = event || WSTOPSIG(status) == SIGTRAP || !task->moving ? 0 : WSTOPSIG(status);
        task->moving = true;
    } else {
        signal = stopped(tracer, task, status);
        task->moving = true;
    }
    if (tracer->comparison.results.steps == tracer->leave_step) {
        leave(tracer, find_task(tracer, tid));
        return;
    }
    if (tracer->comparison.results.steps >= tracer->step_limit)
        kill(tracer->first, SIGKILL);
    ptrace(is_free ? PTRACE_CONT : PTRACE_SINGLESTEP, tid, NULL, (void *)(intptr_t)signal);
}

static void run(struct tracer *tracer) {
    handle(tracer, tracer->first, SIGSTOP << 8 | 0x7f); /* it stands at its first instruction */
    while (tracer->task_count) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno != EINTR)
            fail("wait");
        if (tid > 0)
            handle(tracer, tid, status);
    }
}

/* ------------------------------------------------------------------ start and end */

static pid_t launch(char **command) {
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid)
        return pid;
    int nothing = open("/dev/null", O_RDWR);
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0)
        _exit(126);
    personality(ADDR_NO_RANDOMIZE);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    execv(command[0], command);
    _exit(127);
}

/* Lets the program run until its own entry point. The loader and its work are not stepped. */
static void run_to(pid_t pid, uint64_t address) {
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, pid, (void *)address, NULL);
    if (errno)
        fail("entry point");
    ptrace(PTRACE_POKETEXT, pid, (void *)address, (void *)((word & ~0xffl) | 0xcc));
    ptrace(PTRACE_CONT, pid, NULL, NULL);
    int status;
    struct user_regs_struct registers;
    waitpid(pid, &status, __WALL);
    ptrace(PTRACE_GETREGS, pid, NULL, &registers);
    if (!WIFSTOPPED(status) || registers.rip != address + 1)
        fail("the program did not reach its entry point");
    registers.rip = address;
    ptrace(PTRACE_SETREGS, pid, NULL, &registers);
    ptrace(PTRACE_POKETEXT, pid, (void *)address, (void *)word);
}

/* The kernel tells the program's entry point in the auxiliary vector. */
static uint64_t program_entry(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/auxv", (int)pid);
    FILE *auxv = fopen(path, "re");
    uint64_t pair[2], entry = 0;
    while (auxv && fread(pair, sizeof pair, 1, auxv) == 1) {
        if (pair[0] == 9 /* AT_ENTRY */)
            entry = pair[1];
    }
    if (auxv)
        fclose(auxv);
    return entry;
}

static void write_results(const struct tracer *tracer, const char *path) {
    FILE *out = fopen(path, "we");
    if (!out)
        fail(path);
    int status = tracer->status;
    fprintf(out, "{\"exit_code\": %d, \"killed_by\": %d,\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    results_write(&tracer->comparison.results, out);
    results_write_truth(&tracer->stacks.counts, out);
    fprintf(out, ",\n\"left\": {\"pid\": %d, \"truth\": [", tracer->left ? (int)tracer->first : 0);
    for (size_t i = 0; i < tracer->left_count; i++)
        fprintf(out, "%s%" PRIu64, i ? ", " : "", tracer->left[i]);
    fprintf(out, "]}");
    fprintf(out, "}\n");
    if (fclose(out))
        fail(path);
}

static void start(struct tracer *tracer, char **command, bool entry) {
    /* One processor for both: each step hands over from one to the other. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    int status;
    pid_t pid = launch(command);
    if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
        fail(command[0]);
    long options = PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC | (tracer->threads ? PTRACE_O_TRACECLONE : 0);
    if (ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)options))
        fail("ptrace");
    if (entry)
        run_to(pid, program_entry(pid));
    tracer->first = tracer->target.pid = pid;
    tracer->stacks.mapping = mapping;
    tracer->stacks.executable = executable;
    tracer->stacks.context = tracer;
    target_refresh(&tracer->target);
    comparison_init(&tracer->comparison, &tracer->target, UNSPOOL_X86_64);
}

int main(int argc, char **argv) {
    static struct tracer tracer;
    tracer.step_limit = tracer.leave_step = UINT64_MAX;
    bool entry = false;
    int at = 2;
    for (; at < argc && strcmp(argv[at], "--"); at++) {
        if (!strcmp(argv[at], "--entry"))
            entry = true;
        else if (!strcmp(argv[at], "--threads"))
            tracer.threads = true;
        else if (!strcmp(argv[at], "--born"))
            tracer.threads = tracer.born = true;
        else if (!strcmp(argv[at], "--steps") && at + 1 < argc)
            tracer.step_limit = strtoull(argv[++at], NULL, 0);
        else if (!strcmp(argv[at], "--leave") && at + 1 < argc)
            tracer.leave_step = strtoull(argv[++at], NULL, 0);
        else
            break;
    }
    if (at + 1 >= argc || strcmp(argv[at], "--")) {
        fprintf(
            stderr,
            "tracer OUT.json [--entry] [--threads | --born] [--steps LIMIT] [--leave STEP] -- PROGRAM...\n");
        return 2;
    }
    start(&tracer, argv + at + 1, entry);
    run(&tracer);
    write_results(&tracer, argv[1]);
    truth_stacks_free(&tracer.stacks);
    return 0;
}
