/*
 * hooks_environment.c: the agent's constructor: takes what brought us here out of the program's environment
 * and joins the session.
 *
 * The agent is linked with -z initfirst, so that in glibc no other code has seen the environment before. The
 * program then finds in environ, in main's envp and in /proc/self/environ what it would find without us.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/prctl.h>
#include <stdint.h>

#include "agent.h"
#include "hooks.h"
#include "hooks_next.h"

#define AGENT_FILE "/libunspool_agent.so"
#define LONGEST_PATH 4096
#define PROC_STAT_SIZE 2048

extern const char *
gnu_get_libc_version(void); /* glibc alone has it, and gives constructors main's arguments */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library);
extern int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
#pragma weak gnu_get_libc_version
#pragma weak __register_atfork
#pragma weak pthread_atfork

static char agent_file[LONGEST_PATH];
static char session_path[LONGEST_PATH];
static const struct preload preload = {.agent = agent_file, .session = session_path};

const struct preload *preload_for_children(void) {
    return agent_file[0] && agent_follows() ? &preload : NULL;
}

long environment_find(char *const environment[], const char *name) {
    for (long i = 0; environment && environment[i]; i++)
        if (text_after(environment[i], name))
            return i;
    return -1;
}

/* ------------------------------------------------------------------ the block of strings */

/* The strings lie one behind the other where the kernel put them, and the program changed nothing yet.
 * Strings of the dynamic loader's, which keeps pointers to some, must not move. */
static bool strings_may_move(char **environment, long from) {
    for (long i = from; environment[i] && environment[i + 1]; i++)
        if (environment[i + 1] != environment[i] + text_length(environment[i]) + 1 ||
            text_after(environment[i + 1], "LD_"))
            return false;
    return true;
}

static char *end_of_strings(char **environment) {
    char *end = NULL;
    for (long i = 0; environment[i]; i++)
        end = environment[i] + text_length(environment[i]) + 1;
    return end;
}

/* Takes bytes [start, stop) of entry `index` out of the strings; what follows moves up, unless it may not. */
static void cut(char **environment, long index, char *start, char *stop, bool may_move) {
    char *end =
        may_move ? end_of_strings(environment) : environment[index] + text_length(environment[index]) + 1;
    size_t removed = (size_t)(stop - start);
    put(start, stop, (size_t)(end - stop));
    for (char *c = end - removed; c < end; c++)
        *c = 0;
    for (long i = index + 1; may_move && environment[i]; i++)
        environment[i] -= removed;
}

/* The auxiliary vector follows the array and must stay where it is: one null more ends a search that takes it
 * to begin right behind the first. */
static void remove_entry(char **environment, long index) {
    for (long i = index; environment[i]; i++)
        environment[i] = environment[i + 1];
}

static void remove_string(char **environment, long index, bool may_move) {
    char *string = environment[index];
    size_t length = text_length(string);
    cut(environment, index, string, string + length + (may_move ? 1 : 0), may_move);
    remove_entry(environment, index);
}

/* ------------------------------------------------------------------ /proc/self/environ */

/* Number `field` (from 1) of /proc/self/stat, whose second field ends with the last ')'. */
static uint64_t stat_field(const char *text, int field) {
    const char *place = text;
    for (const char *c = text; *c; c++)
        if (*c == ')')
            place = c + 1;
    for (int i = 2; i < field; i++) {
        while (*place && *place != ' ')
            place++;
        place += *place == ' ';
    }
    uint64_t number = 0;
    while (*place >= '0' && *place <= '9')
        number = number * 10 + (uint64_t)(*place++ - '0');
    return number;
}

/* Without CAP_SYS_RESOURCE the kernel takes the new end only together with all that it knows of the memory.
 */
static void set_end_by_map(uint64_t end) {
    char text[PROC_STAT_SIZE];
    long file = system_call(SYS_openat, AT_FDCWD, (long)"/proc/self/stat", O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (file < 0)
        return;
    long size = system_call(SYS_read, file, (long)text, sizeof text - 1, 0, 0, 0);
    system_call(SYS_close, file, 0, 0, 0, 0, 0);
    if (size <= 0)
        return;
    text[size] = 0;
    struct prctl_mm_map map = {
        .start_code = stat_field(text, 26),
        .end_code = stat_field(text, 27),
        .start_data = stat_field(text, 45),
        .end_data = stat_field(text, 46),
        .start_brk = stat_field(text, 47),
        .brk = (uint64_t)system_call(SYS_brk, 0, 0, 0, 0, 0, 0),
        .start_stack = stat_field(text, 28),
        .arg_start = stat_field(text, 48),
        .arg_end = stat_field(text, 49),
        .env_start = stat_field(text, 50),
        .env_end = end,
        .exe_fd = (uint32_t)-1,
    };
    if (map.env_start && map.env_start <= end)
        system_call(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, (long)&map, sizeof map, 0, 0);
}

static void set_end_of_strings(char *end) {
    if (system_call(SYS_prctl, PR_SET_MM, PR_SET_MM_ENV_END, (long)end, 0, 0, 0))
        set_end_by_map((uint64_t)(uintptr_t)end);
}

/* ------------------------------------------------------------------ what is ours */

/* Where the agent's path ends in LD_PRELOAD's value; keeps the path. NULL: it is not there. */
static char *agent_in(char *value) {
    char *start = value;
    for (char *c = value;; c++) {
        if (*c && *c != ':' && *c != ' ')
            continue;
        size_t length = (size_t)(c - start);
        size_t name_length = sizeof AGENT_FILE - 1;
        if (length > name_length && length < sizeof agent_file && text_after(c - name_length, AGENT_FILE)) {
            *put(agent_file, start, length) = 0;
            return c;
        }
        if (!*c)
            return NULL;
        start = c + 1;
    }
}

/* The program's own libraries follow the agent's path. */
static void restore_preload(char **environment, bool may_move) {
    long index = environment_find(environment, PRELOAD_VARIABLE);
    if (index < 0)
        return;
    char *value = environment[index] + sizeof PRELOAD_VARIABLE - 1;
    char *end = agent_in(value);
    if (end && *end)
        cut(environment, index, value, end + 1, may_move);
    else if (end)
        remove_string(environment, index, may_move);
}

/* True if the program was started by unspool. */
static bool clean(char **environment) {
    long session = environment_find(environment, SESSION_VARIABLE);
    if (session < 0)
        return false;
    const char *value = environment[session] + sizeof SESSION_VARIABLE - 1;
    if (text_length(value) >= sizeof session_path)
        return false;
    put_text(session_path, value);
    long own = environment_find(environment, PRELOAD_VARIABLE);
    bool may_move = strings_may_move(environment, own >= 0 && own < session ? own : session);
    char *first = environment[0];
    remove_string(environment, session, may_move);
    restore_preload(environment, may_move);
    if (may_move)
        set_end_of_strings(environment[0] ? end_of_strings(environment) : first);
    return true;
}

/* ------------------------------------------------------------------ forks and the constructor */

static void in_child(void) {
    if (agent_follows())
        agent_in_child();
    else
        agent_leave_child();
    if (!agent_is_running())
        signal_give_back();
}

__attribute__((constructor)) static void begin(int count, char **arguments, char **their_environment) {
    char **environment = &environ ? environ : NULL;
    (void)count;
    (void)arguments;
    if (!environment && gnu_get_libc_version)
        environment = their_environment; /* libc's own constructor is still to come */
    if (__register_atfork)
        __register_atfork(NULL, NULL, in_child, NULL);
    else if (pthread_atfork)
        pthread_atfork(NULL, NULL, in_child);
    next_function(NEXT_execve); /* all: later the loader's lock may be one that a fork's child can't have */
    if (environment && clean(environment))
        agent_start(session_path);
}
