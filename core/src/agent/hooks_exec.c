/*
 * hooks_exec.c: programs that the program starts get the agent, too: in the environment that they are given
 * and nowhere else.
 *
 * Where the agent can't be preloaded the environment stays as it is, and that is told. May run in the child
 * of a vfork: nothing is written but the stack; a block in memory of its own would be left behind in the
 * parent.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent.h"
#include "hooks.h"
#include "hooks_next.h"

#define MOST_ON_STACK 4096     /* bytes of an environment, unless it must be there */
#define MOST_AT_ALL 16384      /* bytes of it on any stack */
#define LONGEST_CANDIDATE 1024 /* of a path along PATH */
#define DEFAULT_PATH "/bin:/usr/bin"

enum start_kind { EXECVE, EXECVPE, FEXECVE, EXECVEAT, SPAWN, SPAWNP };

/* One call that starts a program. */
struct start {
    enum start_kind kind;
    int directory; /* or the file itself */
    int flags;
    const char *path;
    char *const *arguments;
    pid_t *child;
    const posix_spawn_file_actions_t *actions;
    const posix_spawnattr_t *attributes;
};

static bool is_spawn(const struct start *start) {
    return start->kind == SPAWN || start->kind == SPAWNP;
}

static int perform(const struct start *start, char *const environment[]) {
    char *const *arguments = start->arguments;
    switch (start->kind) {
    case EXECVE:
        return NEXT(execve)(start->path, arguments, environment);
    case EXECVPE:
        return NEXT(execvpe)(start->path, arguments, environment);
    case FEXECVE:
        return NEXT(fexecve)(start->directory, arguments, environment);
    case EXECVEAT: /* some libcs have none */
        return (int)libc_result(system_call(SYS_execveat, start->directory, (long)start->path,
                                            (long)arguments, (long)environment, start->flags, 0));
    case SPAWN:
        return NEXT(posix_spawn)(start->child, start->path, start->actions, start->attributes, arguments,
                                 environment);
    case SPAWNP:
        return NEXT(posix_spawnp)(start->child, start->path, start->actions, start->attributes, arguments,
                                  environment);
    }
    return -1;
}

/* ------------------------------------------------------------------ which file */

/* The first candidate along PATH that can be executed. */
static void search(const char *name, struct file_nature *nature) {
    long index = environment_find(environ, "PATH=");
    const char *directory = index >= 0 ? environ[index] + 5 : DEFAULT_PATH;
    char path[LONGEST_CANDIDATE];
    *nature = (struct file_nature){.kind = FILE_UNKNOWN};
    while (nature->kind == FILE_UNKNOWN) {
        size_t length = 0;
        while (directory[length] && directory[length] != ':')
            length++;
        if (length + text_length(name) + 2 <= sizeof path) {
            char *end = put(path, directory, length);
            if (length)
                *end++ = '/';
            *put_text(end, name) = 0;
            if (!system_call(SYS_faccessat, AT_FDCWD, (long)path, X_OK, 0, 0, 0))
                file_nature(AT_FDCWD, path, true, nature);
        }
        if (!directory[length])
            return;
        directory += length + 1;
    }
}

static bool has_slash(const char *name) {
    while (*name && *name != '/')
        name++;
    return *name;
}

static void nature_of(const struct start *start, struct file_nature *nature) {
    bool is_searched = start->kind == EXECVPE || start->kind == SPAWNP;
    if (is_searched && !has_slash(start->path))
        search(start->path, nature);
    else if (start->kind == FEXECVE)
        file_nature_of_open(start->directory, nature);
    else if (start->kind == EXECVEAT && start->flags & AT_EMPTY_PATH && !*start->path)
        file_nature_of_open(start->directory, nature);
    else
        file_nature(start->kind == EXECVEAT ? start->directory : AT_FDCWD, start->path, is_searched, nature);
}

static bool can_read(const char *path) {
    long file = system_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (file >= 0)
        system_call(SYS_close, file, 0, 0, 0, 0, 0);
    return file >= 0;
}

/* 0, or why the agent can't come along. What is not there or no file needs no word. */
static int obstacle(const struct file_nature *nature, const struct preload *preload) {
    switch (nature->kind) {
    case FILE_PRELOADABLE:
        return can_read(preload->agent) ? 0 : SESSION_REFUSED_UNREACHABLE;
    case FILE_STATIC:
        return SESSION_REFUSED_STATIC;
    case FILE_FOREIGN:
        return SESSION_REFUSED_MACHINE;
    case FILE_PRIVILEGED:
        return SESSION_REFUSED_PRIVILEGED;
    case FILE_UNREADABLE:
        return SESSION_REFUSED_UNREADABLE;
    case FILE_UNKNOWN:
        break;
    }
    return -1;
}

/* ------------------------------------------------------------------ the environment */

/* What a program is given instead of `own`. */
struct plan {
    const struct preload *preload;
    const char *first_library;
    char *const *own;
    size_t count;      /* of entries in own */
    long preload_at;   /* of LD_PRELOAD in own; -1: it has none */
    size_t array_size; /* bytes of the new array, which the new strings follow */
    size_t size;       /* of both */
};

static struct plan plan_environment(char *const own[], const struct preload *preload,
                                    const char *first_library) {
    struct plan plan = {.preload = preload, .first_library = first_library, .own = own};
    while (own && own[plan.count])
        plan.count++;
    plan.preload_at = environment_find(own, PRELOAD_VARIABLE);
    plan.array_size = (plan.count + 3) * sizeof(char *);
    plan.size = plan.array_size + sizeof SESSION_VARIABLE + text_length(preload->session) +
                sizeof PRELOAD_VARIABLE + text_length(preload->agent) + text_length(first_library) + 2 +
                (plan.preload_at >= 0 ? text_length(own[plan.preload_at]) : 0);
    return plan;
}

/* LD_PRELOAD's new value: first_library:agent:own. Returns where it ends. */
static char *put_preload(char *to, const struct plan *plan) {
    if (plan->first_library[0]) {
        to = put_text(to, plan->first_library);
        *to++ = ':';
    }
    to = put_text(to, plan->preload->agent);
    if (plan->preload_at >= 0) {
        *to++ = ':';
        to = put_text(to, plan->own[plan->preload_at] + sizeof PRELOAD_VARIABLE - 1);
    }
    return to;
}

/* Its own LD_PRELOAD keeps its place; what is new comes last. */
static char **fill_environment(const struct plan *plan, void *block) {
    char **array = block;
    char *text = (char *)block + plan->array_size;
    size_t count = plan->count;
    for (size_t i = 0; i < count; i++)
        array[i] = plan->own[i];
    array[plan->preload_at >= 0 ? (size_t)plan->preload_at : count++] = text;
    text = put_preload(put_text(text, PRELOAD_VARIABLE), plan);
    *text++ = 0;
    array[count++] = text;
    *put_text(put_text(text, SESSION_VARIABLE), plan->preload->session) = 0;
    array[count] = NULL;
    return array;
}

/* Memory of its own, where the stack might be too small and a block is not left behind. */
static void *map_block(size_t size) {
    if (size <= MOST_ON_STACK || !agent_is_running())
        return NULL;
    long block =
        system_call(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block > 0 || block < -4095 ? (void *)block : NULL;
}

/* pid: 0 = this process. */
static void tell(long pid, int reason) {
    if (reason <= 0)
        return;
    pid = pid ? pid : system_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
    agent_refuse((uint32_t)pid, (enum session_refusal_reason)reason);
}

static int perform_with(const struct start *start, const struct plan *plan) {
    void *block = map_block(plan->size);
    if (!block && plan->size > MOST_AT_ALL) {
        tell(0, SESSION_REFUSED_ENVIRONMENT);
        return perform(start, plan->own);
    }
    uint64_t on_stack[block ? 1 : plan->size / 8 + 1];
    int result = perform(start, fill_environment(plan, block ? block : on_stack));
    if (block)
        system_call(SYS_munmap, (long)block, (long)plan->size, 0, 0, 0, 0);
    return result;
}

static bool is_too_big(const struct start *start, int result) {
    return is_spawn(start) ? result == E2BIG : last_error() == E2BIG;
}

static int perform_either(const struct start *start, char *const environment[], const struct preload *preload,
                          const struct file_nature *nature) {
    if (!preload)
        return perform(start, environment);
    struct plan plan = plan_environment(environment, preload, nature->first_library);
    int result = perform_with(start, &plan);
    return is_too_big(start, result) ? perform(start, environment) : result; /* by what we add, maybe */
}

static int perform_exec(const struct start *start, char *const environment[], const struct preload *preload,
                        const struct file_nature *nature) {
    struct kernel_action handler;
    agent_before_exec();
    bool was_ignored = signal_before_exec(&handler);
    int result = perform_either(start, environment, preload, nature);
    if (was_ignored)
        signal_after_failed_exec(&handler);
    agent_after_failed_exec();
    return result;
}

/* Everything that starts a program comes here. */
static int start_program(struct start start, char *const environment[]) {
    const struct preload *preload = preload_for_children();
    struct file_nature nature;
    int reason = 0;
    if (preload && environment_find(environment, SESSION_VARIABLE) >= 0)
        preload = NULL;
    if (preload) {
        nature_of(&start, &nature);
        reason = obstacle(&nature, preload);
    }
    if (reason)
        preload = NULL;
    if (!is_spawn(&start)) {
        tell(0, reason);
        return perform_exec(&start, environment, preload, &nature);
    }
    pid_t child = 0;
    start.child = start.child ? start.child : &child;
    int result = perform_either(&start, environment, preload, &nature);
    if (!result)
        tell(*start.child, reason);
    return result;
}

/* ------------------------------------------------------------------ exec */

HOOK int execve(const char *path, char *const arguments[], char *const environment[]) {
    return start_program((struct start){.kind = EXECVE, .path = path, .arguments = arguments}, environment);
}

HOOK int execv(const char *path, char *const arguments[]) {
    return start_program((struct start){.kind = EXECVE, .path = path, .arguments = arguments}, environ);
}

HOOK int execvpe(const char *file, char *const arguments[], char *const environment[]) {
    return start_program((struct start){.kind = EXECVPE, .path = file, .arguments = arguments}, environment);
}

HOOK int execvp(const char *file, char *const arguments[]) {
    return start_program((struct start){.kind = EXECVPE, .path = file, .arguments = arguments}, environ);
}

HOOK int fexecve(int file, char *const arguments[], char *const environment[]) {
    return start_program((struct start){.kind = FEXECVE, .directory = file, .arguments = arguments},
                         environment);
}

HOOK int execveat(int directory, const char *path, char *const arguments[], char *const environment[],
                  int flags) {
    struct start start = {EXECVEAT, .directory = directory, .flags = flags, .path = path,
                          .arguments = arguments};
    return start_program(start, environment);
}

/* The arguments of execl and its like, with their null. */
static size_t count_arguments(va_list list) {
    va_list copy;
    va_copy(copy, list);
    size_t count = 2; /* the first and the null */
    while (va_arg(copy, char *))
        count++;
    va_end(copy);
    return count;
}

static void take_arguments(char **arguments, const char *first, size_t count, va_list *list) {
    arguments[0] = (char *)(uintptr_t)first;
    for (size_t i = 1; i < count; i++)
        arguments[i] = va_arg(*list, char *);
}

/* For execl and its like. */
static int exec_list(enum start_kind kind, const char *path, const char *first, va_list *list,
                     bool has_environment) {
    size_t count = count_arguments(*list);
    char *arguments[count];
    take_arguments(arguments, first, count, list);
    char *const *environment = has_environment ? va_arg(*list, char *const *) : environ;
    return start_program((struct start){.kind = kind, .path = path, .arguments = arguments}, environment);
}

HOOK int execl(const char *path, const char *first, ...) {
    va_list list;
    va_start(list, first);
    int result = exec_list(EXECVE, path, first, &list, false);
    va_end(list);
    return result;
}

HOOK int execlp(const char *file, const char *first, ...) {
    va_list list;
    va_start(list, first);
    int result = exec_list(EXECVPE, file, first, &list, false);
    va_end(list);
    return result;
}

HOOK int execle(const char *path, const char *first, ...) {
    va_list list;
    va_start(list, first);
    int result = exec_list(EXECVE, path, first, &list, true);
    va_end(list);
    return result;
}

/* ------------------------------------------------------------------ spawn */

HOOK int posix_spawn(pid_t *restrict child, const char *restrict path,
                     const posix_spawn_file_actions_t *restrict actions,
                     const posix_spawnattr_t *restrict attributes, char *const arguments[restrict],
                     char *const environment[restrict]) {
    struct start start = {SPAWN, .path = path, .child = child};
    start.arguments = arguments;
    start.actions = actions;
    start.attributes = attributes;
    return start_program(start, environment);
}

HOOK int posix_spawnp(pid_t *restrict child, const char *restrict file,
                      const posix_spawn_file_actions_t *restrict actions,
                      const posix_spawnattr_t *restrict attributes, char *const arguments[restrict],
                      char *const environment[restrict]) {
    struct start start = {SPAWNP, .path = file, .child = child};
    start.arguments = arguments;
    start.actions = actions;
    start.attributes = attributes;
    return start_program(start, environment);
}
