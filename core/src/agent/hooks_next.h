/*
 * hooks_next.h: the functions that our hooks stand before.
 *
 * They are looked up in the loaded files' symbol tables, from the file after the agent on, as
 * dlsym(RTLD_NEXT) does it; but nothing is allocated for a name that is not there, and a libc whose dlsym
 * lies in a library that the program does not have (glibc before 2.34) will do.
 */
#ifndef UNSPOOL_HOOKS_NEXT_H
#define UNSPOOL_HOOKS_NEXT_H

#include <stdint.h>

/* Name by name; NEXT(name) has the type of the function's declaration. */
#define NEXT_FUNCTIONS(X)                                                                                    \
    X(dlclose)                                                                                               \
    X(dlopen)                                                                                                \
    X(execv)                                                                                                 \
    X(execve)                                                                                                \
    X(execveat)                                                                                              \
    X(execvp)                                                                                                \
    X(execvpe)                                                                                               \
    X(fexecve)                                                                                               \
    X(popen)                                                                                                 \
    X(posix_spawn)                                                                                           \
    X(posix_spawnp)                                                                                          \
    X(prctl)                                                                                                 \
    X(pthread_create)                                                                                        \
    X(sigaction)                                                                                             \
    X(siginterrupt)                                                                                          \
    X(signal)                                                                                                \
    X(sigset)                                                                                                \
    X(sigtimedwait)                                                                                          \
    X(sigwait)                                                                                               \
    X(sigwaitinfo)                                                                                           \
    X(signalfd)                                                                                              \
    X(sysv_signal)                                                                                           \
    X(system)

enum next {
#define X(name) NEXT_##name,
    NEXT_FUNCTIONS(X)
#undef X
        NEXT_COUNT
};

/* The function's address, 0 if nobody has it. The first call looks all up: from the agent's constructor. */
uintptr_t next_function(enum next which);

/* The same, looked up among the files that are loaded now. */
uintptr_t next_function_now(enum next which);

#define NEXT(name) ((__typeof__(&name))next_function(NEXT_##name))

#endif
