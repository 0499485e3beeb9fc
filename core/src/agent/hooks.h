/*
 * hooks.h: what the hooks offer each other.
 *
 * Hooks are functions of libc's names that stand before libc's own. They run wherever the program calls them:
 * in any thread, in signal handlers, in the child of a vfork, which has its parent's memory. What they change
 * in memory is therefore on the stack, or is changed only where agent_is_running() says that it is ours.
 */
#ifndef UNSPOOL_HOOKS_H
#define UNSPOOL_HOOKS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "../system.h"

#define HOOK __attribute__((visibility("default")))

#pragma weak __errno_location

static inline void set_errno(int error) {
    int *(*location)(void) = __errno_location;
    if (location)
        *location() = error;
}

static inline int last_error(void) {
    int *(*location)(void) = __errno_location;
    return location ? *location() : 0;
}

/* A raw system call's result as libc gives it. */
static inline long libc_result(long result) {
    if (result >= -4095 && result < 0) {
        set_errno((int)-result);
        return -1;
    }
    return result;
}

/* ------------------------------------------------------------------ text */

static inline size_t text_length(const char *text) {
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

/* What follows prefix in text, NULL if text does not begin with it. */
static inline const char *text_after(const char *text, const char *prefix) {
    while (*prefix)
        if (*text++ != *prefix++)
            return NULL;
    return text;
}

/* Copies length bytes; returns where the copy ends. */
static inline char *put(char *to, const char *from, size_t length) {
    for (size_t i = 0; i < length; i++)
        to[i] = from[i];
    return to + length;
}

static inline char *put_text(char *to, const char *from) {
    return put(to, from, text_length(from));
}

/* ------------------------------------------------------------------ hooks_file.c */

enum file_kind {
    FILE_PRELOADABLE,
    FILE_UNKNOWN, /* there is no such file */
    FILE_UNREADABLE,
    FILE_STATIC,    /* no dynamic loader runs */
    FILE_FOREIGN,   /* for another machine, 32-bit, or no ELF file */
    FILE_PRIVILEGED /* the loader would be in secure-execution mode */
};

#define FILE_NAME_SIZE 32

struct file_nature {
    enum file_kind kind;
    char first_library[FILE_NAME_SIZE]; /* insists on being loaded before any other; "" = none */
};

/* What the kernel would run for this file. is_searched: by execvp, which gives scripts without "#!" to the
 * shell. */
void file_nature(int directory, const char *path, bool is_searched, struct file_nature *nature);
void file_nature_of_open(int file, struct file_nature *nature);

/* ------------------------------------------------------------------ hooks_environment.c */

/* The program's environment; "weak" as a libc has it. */
extern char **environ;
#pragma weak environ

/* What programs get that this one starts. */
struct preload {
    const char *agent;   /* path */
    const char *session; /* UNSPOOL_SESSION's value */
};

/* NULL where programs are not to be followed. */
const struct preload *preload_for_children(void);

/* Where `name=` stands in an environment (which may be NULL); -1: it does not. */
long environment_find(char *const environment[], const char *name);

#define PRELOAD_VARIABLE "LD_PRELOAD="
#define SESSION_VARIABLE "UNSPOOL_SESSION="

/* ------------------------------------------------------------------ hooks_signal.c */

/* Every signal is blocked until the mask that was, which is returned, is set again. */
uint64_t signals_block_all(void);
void signals_set_mask(uint64_t mask);

/* Around an exec: the new program is to inherit an ignored signal as ignored. True: after a failure our
 * handler, which is in *ours then, is to come back. */
struct kernel_action;
bool signal_before_exec(struct kernel_action *ours);
void signal_after_failed_exec(const struct kernel_action *ours);

/* In a child that is not in the session: nothing of ours stays installed. */
void signal_give_back(void);

/* rt_sigaction by syscall(): 0 or a negated errno. */
long hook_rt_sigaction(int signal, const void *action, void *old, size_t mask_size);

#endif
