/*
 * hooks_system_calls.c: system calls that the program makes through libc's syscall() and prctl(): seccomp
 * filters are seen before they hold, handlers and programs as they are elsewhere.
 *
 * hooks_jump.S holds syscall() itself, which calls hook_system_call for few numbers and is libc's for all
 * others.
 */
#define _GNU_SOURCE
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <unistd.h>

#include "agent.h"
#include "hooks.h"
#include "hooks_next.h"

/* The declaration is <sys/prctl.h>'s, whose other half <linux/prctl.h> is. */
int prctl(int option, ...);

/* A filter may kill whoever makes a call that it does not know: be silent before it holds. */
static void before_seccomp(void) {
    agent_be_quiet(SESSION_NOTE_SECCOMP);
}

HOOK int prctl(int option, ...) {
    va_list list;
    va_start(list, option);
    unsigned long a = va_arg(list, unsigned long);
    unsigned long b = va_arg(list, unsigned long);
    unsigned long c = va_arg(list, unsigned long);
    unsigned long d = va_arg(list, unsigned long);
    va_end(list);
    if (option == PR_SET_SECCOMP)
        before_seccomp();
    return NEXT(prctl)(option, a, b, c, d);
}

long hook_system_call(long number, long a, long b, long c, long d, long e, long f);
long hook_system_call(long number, long a, long b, long c, long d, long e, long f) {
    switch (number) {
    case SYS_seccomp:
        if (a != SECCOMP_GET_ACTION_AVAIL && a != SECCOMP_GET_NOTIF_SIZES) /* which set nothing */
            before_seccomp();
        break;
    case SYS_prctl:
        if (a == PR_SET_SECCOMP)
            before_seccomp();
        break;
    case SYS_rt_sigaction:
        return libc_result(hook_rt_sigaction((int)a, (const void *)b, (void *)c, (size_t)d));
    case SYS_execve:
        return execve((const char *)a, (char *const *)b, (char *const *)c);
    case SYS_execveat:
        return execveat((int)a, (const char *)b, (char *const *)c, (char *const *)d, (int)e);
    default:
        break;
    }
    return libc_result(system_call(number, a, b, c, d, e, f));
}

long hook_failed_call(long result);
long hook_failed_call(long result) {
    return libc_result(result);
}

/* ------------------------------------------------------------------ libraries */

void *dlopen(const char *file, int mode);
int dlclose(void *handle);

uintptr_t hook_before_dlopen(void);
uintptr_t hook_before_dlopen(void) {
    if (agent_is_running())
        agent_modules_changed();
    return next_function(NEXT_dlopen);
}

HOOK int dlclose(void *handle) {
    bool is_ours = agent_is_running();
    if (is_ours)
        agent_modules_unloaded();
    int result = NEXT(dlclose)(handle);
    if (is_ours)
        agent_modules_unloaded();
    return result;
}
