/*
 * process.h: as much of a Linux process on aarch64 as the oracle's programs need: loading, system calls,
 * signals, threads.
 *
 * Knows nothing of stacks of calls: what changes control beside instructions (a signal that is delivered,
 * a return from one, another thread) is told to whoever watches. Files are read only below a folder.
 */
#ifndef ORACLE_PROCESS_H
#define ORACLE_PROCESS_H

#include "machine.h"

enum { TASKS = 32, SIGNALS = 65, FILES = 32 };

enum task_state { TASK_FREE, TASK_READY, TASK_WAITING };

struct task {
    enum task_state state;
    int tid;
    uint64_t registers[MACHINE_REGISTERS]; /* while it does not run, as are the following */
    uint64_t pstate, thread_pointer;
    uint8_t vectors[32 * 16];
    uint32_t vector_status[2];
    uint64_t mask, pending;           /* signals: bit n - 1 */
    uint64_t stack_start, stack_size; /* sigaltstack; size 0: none */
    uint64_t futex;                   /* what it waits for; 0: for a signal */
    uint64_t clear_tid;
    bool fresh;                         /* has not run yet */
    uint64_t parent[MACHINE_REGISTERS]; /* of a child of vfork: where the parent goes on */
    bool is_vfork_child;
};

struct action { /* the kernel's struct sigaction */
    uint64_t handler, flags, restorer, mask;
};

/* A file that was mapped with executable code in it, for the watcher. */
struct watcher {
    void *context;
    void (*file_mapped)(void *context, const char *path, uint64_t start, uint64_t end, uint64_t offset);
    void (*code_mapped)(void *context, uint64_t start, uint64_t end); /* of no file */
    void (*stack_declared)(void *context, uint64_t start, uint64_t end);
    void (*signal_delivered)(void *context, uint64_t interrupted, uint64_t frame, uint64_t restorer);
    void (*vfork)(void *context, bool begins);
};

struct process {
    struct machine *machine;
    struct watcher watcher;
    const char *root; /* the folder that stands for / */
    struct task task[TASKS];
    struct task *current;
    struct action action[SIGNALS];
    uint64_t break_start, break_end, mmap_end;
    uint64_t entry; /* of the program; of the loader, when there is one */
    uint64_t program_entry, return_code;
    char *path[FILES]; /* of open files, by descriptor */
    int next_tid;
    int child_status;      /* of the last child of vfork */
    uint64_t timer_period; /* setitimer: in instructions; 0: none */
    uint64_t clock;        /* instructions, by whoever runs them */
    bool exited;
    int exit_code, killed_by;
    uint64_t unknown_calls;
};

/* Puts a program (and its loader) into memory and sets the registers for its first instruction. Ends the
 * emulator when it can't. */
void process_load(struct process *process, const char *path, char **arguments);

/* The instruction before pc was svc. */
void process_system_call(struct process *process);

/* Delivers a pending signal, if one is not blocked. */
void process_signals(struct process *process);
/* Calls code at `handler` as the kernel calls a handler, at the current instruction. */
void process_deliver(struct process *process, int signal, const struct action *action, uint64_t fault);
/* A fault of the current instruction: becomes a signal. */
void process_fault(struct process *process, int signal, uint64_t address);
void process_signal_return(struct process *process);

/* Lets another task run; false when none can. */
bool process_switch(struct process *process);
void process_end_task(struct process *process);
void process_kill(struct process *process, int signal);

/* signals.c: makes a signal pending for a task, and wakes it. */
void process_raise(struct process *process, struct task *task, int signal);

#endif
