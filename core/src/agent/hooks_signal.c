/*
 * hooks_signal.c: the program's own action for our signal: what it believes to be installed.
 *
 * sigaction and its like keep that action here and report it truthfully; the kernel has our handler, with the
 * flags of theirs that change what system calls do (SA_RESTART) and on which stack handlers run (SA_ONSTACK).
 * Signals that are not ours do what the action says. All other signals go to libc as they are.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include "hooks.h"
#include "hooks_next.h"
#include "state.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* programs may use them still */

#define MASK_SIZE 8 /* bytes of the kernel's signal sets */
#define PATIENCE 1000

/* Flags that the program's action gives to ours. */
#define PASSED_ON ((unsigned long)(SA_RESTART | SA_ONSTACK))

#if defined(__x86_64__)
#define RESTORER 0x04000000ul /* SA_RESTORER, which libc sets by itself */
#else
#define RESTORER 0ul
#endif

/* Where the agent's file begins and ends in memory, by the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static struct kernel_action kept;
static atomic_uint lock;            /* of kept: never held while a signal can come */
static atomic_bool is_interrupting; /* siginterrupt(signal, 1) */

static bool is(const void *handler, sighandler_t special) {
    return (uintptr_t)handler == (uintptr_t)special;
}

static uint64_t bit(int signal) {
    return (uint64_t)1 << (signal - 1);
}

static bool is_our_handler(const struct kernel_action *action) {
    uintptr_t address = (uintptr_t)action->handler;
    return address >= (uintptr_t)__ehdr_start && address < (uintptr_t)_end;
}

static void in_kernel(int signal, struct kernel_action *action) {
    *action = (struct kernel_action){.handler = NULL};
    system_call(SYS_rt_sigaction, signal, 0, (long)action, MASK_SIZE, 0, 0);
}

uint64_t signals_block_all(void) {
    uint64_t all = ~(uint64_t)0;
    uint64_t old = 0;
    system_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&old, MASK_SIZE, 0, 0);
    return old;
}

void signals_set_mask(uint64_t mask) {
    system_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, MASK_SIZE, 0, 0);
}

/* A lock that nobody gives back (its holder was killed, or this is a fork's copy) is taken after a while. */
static uint64_t lock_kept(void) {
    uint64_t mask = signals_block_all();
    for (int i = 0; i < PATIENCE && atomic_exchange_explicit(&lock, 1, memory_order_acquire); i++)
        system_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    return mask;
}

static void unlock_kept(uint64_t mask) {
    atomic_store_explicit(&lock, 0, memory_order_release);
    signals_set_mask(mask);
}

/* ------------------------------------------------------------------ what the agent calls */

void hook_keep_action(int signal, const struct kernel_action *action) {
    (void)signal;
    kept = *action;
}

void hook_program_action(int signal, struct kernel_action *action) {
    (void)signal;
    uint64_t mask = lock_kept();
    *action = kept;
    unlock_kept(mask);
}

/* In a process that has left the session: the kernel gets the program's action back. */
void signal_give_back(void) {
    struct kernel_action ours;
    in_kernel(agent.signal, &ours);
    if (agent.signal && is_our_handler(&ours))
        system_call(SYS_rt_sigaction, agent.signal, (long)&kept, 0, MASK_SIZE, 0, 0);
}

/* The default action is to end: by the signal itself, so that the parent sees it. */
static void end_by(int signal) {
    struct kernel_action action = {.handler = NULL};
    long pid = system_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
    system_call(SYS_rt_sigaction, signal, (long)&action, 0, MASK_SIZE, 0, 0);
    system_call(SYS_tgkill, pid, system_call(SYS_gettid, 0, 0, 0, 0, 0, 0), signal, 0, 0, 0);
    signals_set_mask(~bit(signal));
}

/* Nobody asks for signals of a file whose default is to end the program: it is a late one of ours, of a perf
 * event that is closed already. */
static bool is_of_file(const siginfo_t *info) {
    return info->si_code >= POLL_IN && info->si_code <= POLL_HUP;
}

void agent_foreign_signal(int signal, void *info, void *context) {
    struct kernel_action action;
    uint64_t mask;
    /* Every signal is blocked already. */
    lock_kept();
    action = kept;
    if (action.flags & SA_RESETHAND && !is(action.handler, SIG_IGN))
        kept.handler = NULL; /* SIG_DFL */
    atomic_store_explicit(&lock, 0, memory_order_release);
    if (is(action.handler, SIG_IGN) || (is(action.handler, SIG_DFL) && is_of_file(info)))
        return;
    if (is(action.handler, SIG_DFL)) {
        end_by(signal);
        return;
    }
    __builtin_memcpy(&mask, &((ucontext_t *)context)->uc_sigmask, sizeof mask);
    mask |= action.mask | (action.flags & SA_NODEFER ? 0 : bit(signal));
    signals_set_mask(mask);
    ((void (*)(int, void *, void *))(uintptr_t)action.handler)(signal, info, context);
}

/* ------------------------------------------------------------------ sigaction */

/* Our handler stays, with those flags of the program's that others can tell. */
static void pass_flags_on(int signal, struct kernel_action *ours, const struct kernel_action *theirs) {
    bool is_handler = !is(theirs->handler, SIG_IGN) && !is(theirs->handler, SIG_DFL);
    unsigned long flags = is_handler ? theirs->flags & PASSED_ON : PASSED_ON;
    ours->flags = (ours->flags & ~PASSED_ON) | flags;
    system_call(SYS_rt_sigaction, signal, (long)ours, 0, MASK_SIZE, 0, 0);
}

/* In a process that has our handler but is not in the session itself: the child of a vfork, whose memory is
 * its parent's, or of a fork past libc. What it sets goes to the kernel and stays its own. */
static long set_action_elsewhere(int signal, const struct kernel_action *action, struct kernel_action *old) {
    struct kernel_action before;
    struct kernel_action theirs;
    in_kernel(signal, &before);
    hook_program_action(signal, &theirs);
    long result = action ? system_call(SYS_rt_sigaction, signal, (long)action, 0, MASK_SIZE, 0, 0) : 0;
    if (!result && old)
        *old = is_our_handler(&before) ? theirs : before;
    return result;
}

/* As rt_sigaction for our signal, to which libc has given its restorer or not. */
static long set_action(int signal, const struct kernel_action *action, struct kernel_action *old) {
    struct kernel_action new_action = action ? *action : (struct kernel_action){.handler = NULL};
    struct kernel_action ours;
    in_kernel(signal, &ours);
    if (!(new_action.flags & RESTORER)) {
        new_action.flags |= RESTORER;
        new_action.restorer = ours.restorer;
    }
    if (!is_our_handler(&ours) || !agent_is_running())
        return set_action_elsewhere(signal, action ? &new_action : NULL, old);
    uint64_t mask = lock_kept();
    if (old)
        *old = kept;
    if (action) {
        kept = new_action;
        pass_flags_on(signal, &ours, &new_action);
    }
    unlock_kept(mask);
    if (action && !is(action->handler, SIG_IGN) && !is(action->handler, SIG_DFL))
        agent_note(SESSION_NOTE_OWN_HANDLER);
    return 0;
}

static int set_libc_action(int signal, const struct sigaction *action, struct sigaction *old) {
    struct kernel_action new_action = {.handler = NULL};
    struct kernel_action old_action;
    if (action) {
        new_action.handler = (void *)(uintptr_t)action->sa_sigaction;
        new_action.flags = (unsigned)action->sa_flags & ~RESTORER;
        __builtin_memcpy(&new_action.mask, &action->sa_mask, sizeof new_action.mask);
    }
    long result = set_action(signal, action ? &new_action : NULL, &old_action);
    if (old && !result) {
        *old = (struct sigaction){.sa_flags = (int)old_action.flags};
        old->sa_sigaction = (void (*)(int, siginfo_t *, void *))(uintptr_t)old_action.handler;
        old->sa_restorer = (void (*)(void))(uintptr_t)old_action.restorer;
        __builtin_memcpy(&old->sa_mask, &old_action.mask, sizeof old_action.mask);
    }
    return (int)libc_result(result);
}

/* ------------------------------------------------------------------ handlers on signal stacks */

/* A small signal stack has no room for our frame beside that of the program's handler: ours waits until that
 * has ended. Bit n of added_to: our signal was added to the mask of the program's handler for signal n. */
static _Atomic uint64_t added_to;

/* The action that the kernel is to have. */
static struct sigaction with_our_signal(int signal, const struct sigaction *action) {
    struct sigaction result = *action;
    uint64_t ours = bit(agent_signal());
    uint64_t mask;
    __builtin_memcpy(&mask, &action->sa_mask, sizeof mask);
    if (action->sa_flags & SA_ONSTACK && !(mask & ours)) {
        atomic_fetch_or(&added_to, bit(signal));
        mask |= ours;
    } else {
        atomic_fetch_and(&added_to, ~bit(signal));
    }
    __builtin_memcpy(&result.sa_mask, &mask, sizeof mask);
    return result;
}

/* As the program set it. */
static void hide_our_signal(struct sigaction *action) {
    uint64_t mask;
    __builtin_memcpy(&mask, &action->sa_mask, sizeof mask);
    mask &= ~bit(agent_signal());
    __builtin_memcpy(&action->sa_mask, &mask, sizeof mask);
}

HOOK int sigaction(int signal, const struct sigaction *action, struct sigaction *old) {
    if (!agent_signal() || signal < 1 || signal > 64)
        return NEXT(sigaction)(signal, action, old);
    if (signal == agent_signal())
        return set_libc_action(signal, action, old);
    uint64_t was_added = atomic_load(&added_to) & bit(signal);
    struct sigaction instead;
    if (action && agent_is_running()) {
        instead = with_our_signal(signal, action);
        action = &instead;
    }
    int result = NEXT(sigaction)(signal, action, old);
    if (!result && old && was_added)
        hide_our_signal(old);
    return result;
}

long hook_rt_sigaction(int signal, const void *action, void *old, size_t mask_size) {
    if (signal != agent_signal() || !signal || mask_size != MASK_SIZE)
        return system_call(SYS_rt_sigaction, signal, (long)action, (long)old, (long)mask_size, 0, 0);
    return set_action(signal, action, old);
}

/* ------------------------------------------------------------------ signal and its like */

static sighandler_t set_handler(int signal, sighandler_t handler, int flags, bool is_masked) {
    struct sigaction action = {.sa_flags = flags};
    struct sigaction old = {.sa_flags = 0};
    action.sa_handler = handler;
    if (is_masked) {
        uint64_t mask = bit(signal);
        __builtin_memcpy(&action.sa_mask, &mask, sizeof mask);
    }
    return set_libc_action(signal, &action, &old) ? SIG_ERR : old.sa_handler;
}

HOOK sighandler_t signal(int number, sighandler_t handler) {
    if (number != agent_signal() || !number || handler == SIG_ERR)
        return NEXT(signal)(number, handler);
    return set_handler(number, handler, atomic_load(&is_interrupting) ? 0 : SA_RESTART, true);
}

sighandler_t bsd_signal(int number, sighandler_t handler); /* few headers declare it */
HOOK sighandler_t bsd_signal(int number, sighandler_t handler) {
    return signal(number, handler);
}

HOOK sighandler_t ssignal(int number, sighandler_t handler) {
    return signal(number, handler);
}

HOOK sighandler_t sysv_signal(int number, sighandler_t handler) {
    if (number != agent_signal() || !number || handler == SIG_ERR)
        return NEXT(sysv_signal)(number, handler);
    return set_handler(number, handler, (int)SA_RESETHAND | SA_NODEFER, false);
}

HOOK sighandler_t __sysv_signal(int number, sighandler_t handler) {
    return sysv_signal(number, handler);
}

HOOK int siginterrupt(int number, int flag) {
    if (number != agent_signal() || !number)
        return NEXT(siginterrupt)(number, flag);
    struct sigaction action;
    set_libc_action(number, NULL, &action);
    atomic_store(&is_interrupting, flag);
    action.sa_flags = flag ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
    return set_libc_action(number, &action, NULL);
}

HOOK sighandler_t sigset(int number, sighandler_t disposition) {
    if (number != agent_signal() || !number || disposition == SIG_ERR)
        return NEXT(sigset)(number, disposition);
    uint64_t mask = bit(number);
    uint64_t old_mask = 0;
    int change = disposition == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK;
    struct sigaction old;
    if (disposition == SIG_HOLD)
        set_libc_action(number, NULL, &old);
    else
        old.sa_handler = set_handler(number, disposition, 0, false);
    system_call(SYS_rt_sigprocmask, change, (long)&mask, (long)&old_mask, MASK_SIZE, 0, 0);
    return old_mask & mask ? SIG_HOLD : old.sa_handler;
}

HOOK int sigignore(int number) {
    struct sigaction action = {.sa_flags = 0};
    action.sa_handler = SIG_IGN;
    return sigaction(number, &action, NULL);
}

/* ------------------------------------------------------------------ exec */

bool signal_before_exec(struct kernel_action *ours) {
    struct kernel_action theirs;
    int signal = agent_signal();
    if (!signal)
        return false;
    hook_program_action(signal, &theirs);
    in_kernel(signal, ours);
    if (!is(theirs.handler, SIG_IGN) || !is_our_handler(ours))
        return false;
    system_call(SYS_rt_sigaction, signal, (long)&theirs, 0, MASK_SIZE, 0, 0);
    return true;
}

void signal_after_failed_exec(const struct kernel_action *ours) {
    system_call(SYS_rt_sigaction, agent_signal(), (long)ours, 0, MASK_SIZE, 0, 0);
}
