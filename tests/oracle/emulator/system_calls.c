/*
 * system_calls.c: the system calls that the oracle's programs make, by their aarch64 numbers
 * (asm-generic/unistd.h). One that is not here returns ENOSYS and is counted.
 */
#define _GNU_SOURCE
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    CALL_ioctl = 29,
    CALL_faccessat = 48,
    CALL_openat = 56,
    CALL_close = 57,
    CALL_lseek = 62,
    CALL_read = 63,
    CALL_write = 64,
    CALL_writev = 66,
    CALL_pread64 = 67,
    CALL_ppoll = 73,
    CALL_readlinkat = 78,
    CALL_newfstatat = 79,
    CALL_fstat = 80,
    CALL_exit = 93,
    CALL_exit_group = 94,
    CALL_set_tid_address = 96,
    CALL_futex = 98,
    CALL_set_robust_list = 99,
    CALL_nanosleep = 101,
    CALL_setitimer = 103,
    CALL_clock_gettime = 113,
    CALL_clock_nanosleep = 115,
    CALL_sched_yield = 124,
    CALL_kill = 129,
    CALL_tkill = 130,
    CALL_tgkill = 131,
    CALL_sigaltstack = 132,
    CALL_rt_sigsuspend = 133,
    CALL_rt_sigaction = 134,
    CALL_rt_sigprocmask = 135,
    CALL_rt_sigreturn = 139,
    CALL_uname = 160,
    CALL_getpid = 172,
    CALL_gettid = 178,
    CALL_brk = 214,
    CALL_munmap = 215,
    CALL_clone = 220,
    CALL_mmap = 222,
    CALL_mprotect = 226,
    CALL_madvise = 233,
    CALL_wait4 = 260,
    CALL_prlimit64 = 261,
    CALL_getrandom = 278,
    CALL_rseq = 293,
};
#define FAILED(error) ((uint64_t)-(int64_t)(error))

static uint64_t page_up(uint64_t address) {
    return (address + MACHINE_PAGE - 1) & ~(MACHINE_PAGE - 1);
}

static void put(struct process *process, uint64_t address, const void *bytes, size_t size) {
    memcpy(machine_at(process->machine, address, size), bytes, size);
}

static void get(struct process *process, uint64_t address, void *bytes, size_t size) {
    memcpy(bytes, machine_at(process->machine, address, size), size);
}

/* ------------------------------------------------------------------ files */

static bool copy_path(struct process *process, uint64_t address, char path[512]) {
    char given[256] = {0};
    machine_read(process->machine, address, given, sizeof given - 1);
    if (given[0] != '/' || strstr(given, ".."))
        return false;
    snprintf(path, 512, "%s%s", process->root, given);
    return true;
}

static uint64_t open_file(struct process *process, const uint64_t *x) {
    char path[512];
    if (!copy_path(process, x[1], path) || (x[2] & O_ACCMODE) != O_RDONLY)
        return FAILED(ENOENT);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return FAILED(errno);
    if (fd >= FILES) {
        close(fd);
        return FAILED(EMFILE);
    }
    free(process->path[fd]);
    process->path[fd] = strdup(path);
    return (uint64_t)fd;
}

static bool is_open(const struct process *process, uint64_t fd) {
    return fd < FILES && process->path[fd];
}

static uint64_t close_file(struct process *process, uint64_t fd) {
    if (!is_open(process, fd))
        return FAILED(EBADF);
    free(process->path[fd]);
    process->path[fd] = NULL;
    close((int)fd);
    return 0;
}

/* struct stat of aarch64, as far as anyone here looks. */
static void put_stat(struct process *process, uint64_t address, const struct stat *from) {
    uint8_t to[128] = {0};
    uint32_t mode = from->st_mode, links = (uint32_t)from->st_nlink, block = 4096;
    memcpy(to, &from->st_dev, 8);
    memcpy(to + 8, &from->st_ino, 8);
    memcpy(to + 16, &mode, 4);
    memcpy(to + 20, &links, 4);
    memcpy(to + 32, &from->st_rdev, 8);
    memcpy(to + 48, &from->st_size, 8);
    memcpy(to + 56, &block, 4);
    put(process, address, to, sizeof to);
}

static uint64_t stat_file(struct process *process, uint64_t fd, uint64_t path_address, uint64_t to) {
    struct stat status = {.st_mode = S_IFCHR | 0620, .st_nlink = 1, .st_rdev = 0x103};
    char path[512];
    bool by_path = path_address && copy_path(process, path_address, path);
    if (by_path && stat(path, &status))
        return FAILED(errno);
    if (!by_path && is_open(process, fd) && fstat((int)fd, &status))
        return FAILED(errno);
    put_stat(process, to, &status);
    return 0;
}

static uint64_t read_file(struct process *process, const uint64_t *x, bool positioned) {
    if (x[0] == 0)
        return 0;
    if (!is_open(process, x[0]))
        return FAILED(EBADF);
    void *to = machine_at(process->machine, x[1], x[2]);
    ssize_t got = positioned ? pread((int)x[0], to, x[2], (off_t)x[3]) : read((int)x[0], to, x[2]);
    return got < 0 ? FAILED(errno) : (uint64_t)got;
}

static uint64_t write_vector(struct process *process, const uint64_t *x) {
    uint64_t total = 0, pair[2];
    for (uint64_t i = 0; i < x[2]; i++) {
        get(process, x[1] + 16 * i, pair, sizeof pair);
        total += pair[1];
    }
    return total;
}

/* ------------------------------------------------------------------ memory */

static uint32_t protection(uint64_t bits) {
    return (bits & 1 ? UC_PROT_READ : 0) | (bits & 2 ? UC_PROT_WRITE : 0) | (bits & 4 ? UC_PROT_EXEC : 0);
}

static uint64_t map(struct process *process, const uint64_t *x) {
    enum { FIXED = 0x10, ANONYMOUS = 0x20, EXECUTABLE = 4 };
    uint64_t size = page_up(x[1]), start = x[0];
    bool of_file = !(x[3] & ANONYMOUS);
    if (of_file && !is_open(process, x[4]))
        return FAILED(EBADF);
    if (!(x[3] & FIXED)) {
        process->mmap_end -= size + 16 * MACHINE_PAGE;
        start = process->mmap_end & ~(uint64_t)0xffff;
        process->mmap_end = start;
    }
    if (!machine_map(process->machine, start, size, protection(x[2])))
        return FAILED(ENOMEM);
    if (of_file && pread((int)x[4], machine_at(process->machine, start, size), size, (off_t)x[5]) < 0)
        return FAILED(errno);
    if ((x[2] & EXECUTABLE) && of_file)
        process->watcher.file_mapped(process->watcher.context, process->path[x[4]], start, start + size,
                                     x[5]);
    else if (x[2] & EXECUTABLE)
        process->watcher.code_mapped(process->watcher.context, start, start + size);
    return start;
}

static uint64_t set_break(struct process *process, uint64_t wanted) {
    uint64_t from = page_up(process->break_end), to = page_up(wanted);
    if (wanted < process->break_start)
        return process->break_end;
    if (to > from && !machine_map(process->machine, from, to - from, UC_PROT_READ | UC_PROT_WRITE))
        return process->break_end;
    if (to < from)
        machine_unmap(process->machine, to, from - to);
    process->break_end = wanted;
    return wanted;
}

/* ------------------------------------------------------------------ signals */

static uint64_t set_action(struct process *process, const uint64_t *x) {
    if (x[0] == 0 || x[0] >= SIGNALS)
        return FAILED(EINVAL);
    struct action old = process->action[x[0]];
    if (x[1])
        get(process, x[1], &process->action[x[0]], sizeof old);
    if (x[2])
        put(process, x[2], &old, sizeof old);
    return 0;
}

static uint64_t set_mask(struct process *process, const uint64_t *x) {
    uint64_t *mask = &process->current->mask, old = *mask, set;
    if (x[1]) {
        get(process, x[1], &set, sizeof set);
        *mask = x[0] == 0 ? old | set : x[0] == 1 ? old & ~set : set;
        *mask &= ~((uint64_t)1 << (SIGKILL - 1) | (uint64_t)1 << (SIGSTOP - 1));
    }
    if (x[2])
        put(process, x[2], &old, sizeof old);
    return 0;
}

static uint64_t set_stack(struct process *process, const uint64_t *x) {
    struct task *task = process->current;
    uint64_t old[3] = {task->stack_start, task->stack_size ? 0 : 2, task->stack_size}, given[3];
    if (x[0]) {
        get(process, x[0], given, sizeof given);
        bool disabled = given[1] & 2;
        task->stack_start = disabled ? 0 : given[0];
        task->stack_size = disabled ? 0 : given[2];
        if (!disabled)
            process->watcher.stack_declared(process->watcher.context, given[0], given[0] + given[2]);
    }
    if (x[1])
        put(process, x[1], old, sizeof old);
    return 0;
}

static uint64_t send(struct process *process, uint64_t tid, uint64_t signal) {
    for (size_t i = 0; i < TASKS; i++) {
        struct task *task = &process->task[i];
        if (task->state == TASK_FREE || (uint64_t)task->tid != tid || signal >= SIGNALS)
            continue;
        if (signal)
            process_raise(process, task, (int)signal);
        return 0;
    }
    return FAILED(ESRCH);
}

/* A timer of real time here counts instructions, one a nanosecond. */
static uint64_t set_timer(struct process *process, const uint64_t *x) {
    uint64_t value[4];
    if (x[0] != 0)
        return FAILED(EINVAL);
    get(process, x[1], value, sizeof value);
    process->timer_period = value[2] * 1000000000 + value[3] * 1000;
    return 0;
}

/* ------------------------------------------------------------------ tasks */

static void wait_here(struct process *process, uint64_t futex) {
    process->current->state = TASK_WAITING;
    process->current->futex = futex;
}

static uint64_t wake(struct process *process, uint64_t futex, uint64_t count) {
    uint64_t woken = 0;
    for (size_t i = 0; i < TASKS && woken < count; i++) {
        struct task *task = &process->task[i];
        if (task->state != TASK_WAITING || task->futex != futex)
            continue;
        task->state = TASK_READY;
        task->registers[0] = 0;
        woken++;
    }
    return woken;
}

static uint64_t futex(struct process *process, const uint64_t *x) {
    enum { WAIT = 0, WAKE = 1, REQUEUE = 3, CMP_REQUEUE = 4, WAIT_BITSET = 9, WAKE_BITSET = 10 };
    uint32_t value;
    switch (x[1] & 0x7f) {
    case WAIT:
    case WAIT_BITSET:
        get(process, x[0], &value, sizeof value);
        if (value != (uint32_t)x[2])
            return FAILED(EAGAIN);
        wait_here(process, x[0]);
        return 0;
    case WAKE:
    case WAKE_BITSET:
        return wake(process, x[0], (uint32_t)x[2]);
    case REQUEUE:
    case CMP_REQUEUE:
        return wake(process, x[0], UINT32_MAX);
    default:
        return FAILED(ENOSYS);
    }
}

/* clone(flags, stack, parent_tid, tls, child_tid): a thread; or vfork, whose child runs in its parent's
 * place until it ends. */
static uint64_t clone_task(struct process *process, const uint64_t *x, const uint64_t *registers) {
    enum { VM = 0x100, VFORK = 0x4000, THREAD = 0x10000, TLS = 0x80000, PARENT_TID = 0x100000 };
    enum { CHILD_CLEAR = 0x200000, CHILD_SET = 0x1000000 };
    struct task *child = process->task, *parent = process->current;
    int tid = process->next_tid++;
    if ((x[0] & (VM | VFORK)) == (VM | VFORK) && !parent->is_vfork_child) {
        memcpy(parent->parent, registers, sizeof parent->parent);
        parent->parent[0] = (uint64_t)tid;
        parent->is_vfork_child = true;
        process->watcher.vfork(process->watcher.context, true);
        return 0;
    }
    while (child < process->task + TASKS && child->state != TASK_FREE)
        child++;
    if (!(x[0] & THREAD) || child == process->task + TASKS)
        return FAILED(ENOSYS);
    *child = *parent;
    *child = (struct task){.state = TASK_READY, .tid = tid, .mask = parent->mask, .fresh = true};
    memcpy(child->registers, registers, sizeof child->registers);
    machine_get_vectors(process->machine, child->vectors, child->vector_status);
    child->registers[0] = 0;
    child->registers[MACHINE_SP] = x[1];
    child->thread_pointer = x[0] & TLS ? x[3] : 0;
    child->clear_tid = x[0] & CHILD_CLEAR ? x[4] : 0;
    if (x[0] & PARENT_TID)
        put(process, x[2], &tid, sizeof tid);
    if (x[0] & CHILD_SET)
        put(process, x[4], &tid, sizeof tid);
    return (uint64_t)tid;
}

void process_end_task(struct process *process) {
    struct task *task = process->current;
    uint32_t zero = 0;
    if (task->clear_tid) {
        put(process, task->clear_tid, &zero, sizeof zero);
        wake(process, task->clear_tid, 1);
    }
    task->state = TASK_FREE;
}

static void save_task(struct process *process) {
    struct task *task = process->current;
    machine_get(process->machine, task->registers);
    task->pstate = machine_pstate(process->machine);
    machine_get_vectors(process->machine, task->vectors, task->vector_status);
    uc_reg_read(process->machine->uc, UC_ARM64_REG_TPIDR_EL0, &task->thread_pointer);
}

bool process_switch(struct process *process) {
    size_t from = (size_t)(process->current - process->task);
    if (process->current->state == TASK_READY)
        save_task(process);
    for (size_t i = 1; i <= TASKS; i++) {
        struct task *task = &process->task[(from + i) % TASKS];
        if (task->state != TASK_READY)
            continue;
        process->current = task;
        machine_set(process->machine, task->registers);
        machine_set_pstate(process->machine, task->pstate);
        machine_set_vectors(process->machine, task->vectors, task->vector_status);
        uc_reg_write(process->machine->uc, UC_ARM64_REG_TPIDR_EL0, &task->thread_pointer);
        return true;
    }
    return false;
}

static void exit_call(struct process *process, int code, bool group) {
    struct task *task = process->current;
    if (task->is_vfork_child) { /* its parent goes on */
        task->is_vfork_child = false;
        process->child_status = code << 8;
        machine_set(process->machine, task->parent);
        process->watcher.vfork(process->watcher.context, false);
        return;
    }
    bool last = true;
    for (size_t i = 0; i < TASKS; i++)
        last = last && (&process->task[i] == task || process->task[i].state == TASK_FREE);
    if (group || last) {
        process->exited = true;
        process->exit_code = code;
    }
    process_end_task(process);
}

/* ------------------------------------------------------------------ dispatch */

static uint64_t small_call(struct process *process, const uint64_t *x) {
    uint64_t limit[2] = {8 << 20, UINT64_MAX},
             now[2] = {1700000000 + process->clock / 1000000000, process->clock % 1000000000};
    char name[6][65] = {"Linux", "oracle", "6.1.0", "#1", "aarch64", ""};
    switch (x[8]) {
    case CALL_set_tid_address:
        process->current->clear_tid = x[0];
        return (uint64_t)process->current->tid;
    case CALL_gettid:
        return (uint64_t)process->current->tid;
    case CALL_getpid:
        return (uint64_t)process->task[0].tid;
    case CALL_prlimit64:
        if (x[3])
            put(process, x[3], limit, sizeof limit);
        return 0;
    case CALL_clock_gettime:
        put(process, x[1], now, sizeof now);
        return 0;
    case CALL_uname:
        put(process, x[0], name, sizeof name);
        return 0;
    case CALL_getrandom:
        memset(machine_at(process->machine, x[0], x[1]), 0x5a, x[1]);
        return x[1];
    case CALL_wait4:
        if (x[1])
            put(process, x[1], &process->child_status, sizeof(int));
        return x[0];
    case CALL_set_robust_list:
    case CALL_madvise:
    case CALL_nanosleep:
    case CALL_clock_nanosleep:
    case CALL_sched_yield:
        return 0;
    case CALL_ioctl:
        return FAILED(ENOTTY);
    case CALL_readlinkat:
    case CALL_faccessat:
        return FAILED(ENOENT);
    case CALL_rseq:
        return FAILED(ENOSYS);
    default:
        process->unknown_calls++;
        return FAILED(ENOSYS);
    }
}

static uint64_t call(struct process *process, const uint64_t *x) {
    switch (x[8]) {
    case CALL_openat:
        return open_file(process, x);
    case CALL_close:
        return close_file(process, x[0]);
    case CALL_read:
    case CALL_pread64:
        return read_file(process, x, x[8] == CALL_pread64);
    case CALL_lseek:
        return is_open(process, x[0]) ? (uint64_t)lseek((int)x[0], (off_t)x[1], (int)x[2]) : FAILED(ESPIPE);
    case CALL_write:
        return x[2];
    case CALL_writev:
        return write_vector(process, x);
    case CALL_fstat:
        return stat_file(process, x[0], 0, x[1]);
    case CALL_newfstatat:
        return stat_file(process, x[0], x[1], x[2]);
    case CALL_mmap:
        return map(process, x);
    case CALL_munmap:
        machine_unmap(process->machine, x[0], page_up(x[1]));
        return 0;
    case CALL_mprotect:
        machine_protect(process->machine, x[0], page_up(x[1]), protection(x[2]));
        return 0;
    case CALL_brk:
        return set_break(process, x[0]);
    case CALL_rt_sigaction:
        return set_action(process, x);
    case CALL_rt_sigprocmask:
        return set_mask(process, x);
    case CALL_sigaltstack:
        return set_stack(process, x);
    case CALL_kill:
    case CALL_tkill:
        return send(process, x[0], x[1]);
    case CALL_tgkill:
        return send(process, x[1], x[2]);
    case CALL_setitimer:
        return set_timer(process, x);
    case CALL_futex:
        return futex(process, x);
    case CALL_ppoll:
    case CALL_rt_sigsuspend:
        wait_here(process, 0);
        return FAILED(EINTR);
    default:
        return small_call(process, x);
    }
}

void process_system_call(struct process *process) {
    uint64_t registers[MACHINE_REGISTERS];
    machine_get(process->machine, registers);
    uint64_t number = registers[8];
    if (number == CALL_rt_sigreturn) {
        process_signal_return(process);
    } else if (number == CALL_exit || number == CALL_exit_group) {
        exit_call(process, (int)registers[0] & 0xff, number == CALL_exit_group);
    } else {
        uint64_t result =
            number == CALL_clone ? clone_task(process, registers, registers) : call(process, registers);
        uc_reg_write(process->machine->uc, UC_ARM64_REG_X0, &result);
        if (process->current->state == TASK_WAITING)
            save_task(process);
    }
}
