/*
 * agent.h: what the parts of the agent (libunspool_agent.so) offer each other.
 *
 * The agent is freestanding: raw system calls, no libc symbol but weak ones, no allocation, no lock that a
 * signal handler could wait for, no thread-local data. Nothing here touches errno.
 */
#ifndef UNSPOOL_AGENT_H
#define UNSPOOL_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "session.h"

/* A signal's action as the kernel takes it (rt_sigaction, a mask of 8 bytes). */
struct kernel_action {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};

/* ------------------------------------------------------------------ agent.c: start and stop */

/* Joins the session at path (/proc/PID/fd/N): claims an area, waits for the first list of modules (2 s at
 * most), installs the handler, arms a timer for the calling thread. 0, or -enum session_refusal_reason; then
 * nothing is left behind. From a constructor, or from a thread of a running program; not from a signal
 * handler. */
int agent_start(const char *path);

/* Leaves the session: deletes the timers, restores the program's handler (hook_program_action), unmaps
 * everything once no handler runs. May be called when nothing was started. */
void agent_stop(void);

/* In the child of a fork, before it goes on: leaves the parent's area to the parent and claims an area of its
 * own in the same session, with the parent's modules. Where there is none, the child is not profiled. */
void agent_in_child(void);

/* In the child of a fork that is not to be followed: the child is not profiled. */
void agent_leave_child(void);

/* No more samples, no more signals of ours, no more system calls: the program is about to set a seccomp
 * filter. Waits for the unspool process, half a second at most. Notes is or-ed into area.notes (enum
 * session_note). */
void agent_be_quiet(uint32_t notes);

/* Around exec: no signal is sent to the process in between, or the new program would be ended by it. A system
 * call must follow, before exec, by which one that was sent already comes. */
void agent_before_exec(void);
void agent_after_failed_exec(void);

/* The program's mappings may have changed (before dlopen): samples are marked stale
 * until the unspool process has looked again, which it is woken for. */
void agent_modules_changed(void);

/* The same before and after dlclose: code may be gone, and other code in its place. */
void agent_modules_unloaded(void);

/* A thread was made: the unspool process is woken, if it can look at once. */
void agent_thread_made(void);

/* Or-ed into area.notes, for people to know: enum session_note. */
void agent_note(uint32_t notes);

/* True while this process (checked by getpid, so not in a vfork child) is in a session. False once it is
 * quiet, without a system call: a filter may forbid getpid. */
bool agent_is_running(void);

/* True where programs that this process starts are to be profiled too: it is in a session, which goes on and
 * follows; no handler of ours was silenced. In the child of a vfork as in its parent. No system call. */
bool agent_follows(void);

/* Tells the unspool process that something is not profiled: an entry in header.refusals. */
void agent_refuse(uint32_t pid, enum session_refusal_reason reason);

/* The signal that is ours while agent_is_running, else 0. No system call. */
int agent_signal(void);

/* ------------------------------------------------------------------ exported, for Python (dlopen, then call)
 */

int unspool_agent_start(const char *path); /* agent_start */
void unspool_agent_stop(void);             /* agent_stop */

/* ------------------------------------------------------------------ hooks.c: what the agent calls */

/* The signal's action when agent_start installed our handler: the program's own, from now on kept by hooks.
 */
void hook_keep_action(int signal, const struct kernel_action *action);

/* The action that the program believes to be installed: restored by agent_stop. */
void hook_program_action(int signal, struct kernel_action *action);

/* A signal that is not ours came: does what would have been done without us. Entered by a jump from our
 * handler's first instructions, with the kernel's arguments and stack pointer, as if the kernel had called
 * it; every signal is blocked (the program's mask is in the context) until it or rt_sigreturn changes that.
 * Returns into the restorer. */
void agent_foreign_signal(int signal, void *info, void *context);

#endif
