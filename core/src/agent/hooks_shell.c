/*
 * hooks_shell.c: system() and popen(), in which libc starts a shell by itself, past our hooks.
 *
 * The shell is told to become a shell that has the agent: `LD_PRELOAD=… UNSPOOL_SESSION=… exec /bin/sh -c
 * 'COMMAND' sh`. libc's own functions do all else, so that signals, cancellation and pclose are as they were.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "agent.h"
#include "hooks.h"
#include "hooks_next.h"

#define SHELL "/bin/sh"
#define LONGEST_STRING 131072 /* MAX_ARG_STRLEN of the kernel */

/* In single quotes, in which a shell changes nothing. */
static char *put_quoted(char *to, const char *text) {
    *to++ = '\'';
    for (; *text; text++) {
        if (*text == '\'')
            to = put_text(to, "'\\'");
        *to++ = *text;
    }
    *to++ = '\'';
    return to;
}

static size_t quoted_size(const char *text) {
    size_t size = 2;
    for (; *text; text++)
        size += *text == '\'' ? 4 : 1;
    return size;
}

/* What stands before and after the command's words. */
#define EXEC " exec " SHELL " -c "
#define NAME " sh" /* $0: what the shell calls itself in messages */

static char *put_command(char *to, const char *command, const struct preload *preload, const char *own) {
    to = put_quoted(put_text(to, PRELOAD_VARIABLE), preload->agent);
    if (own) {
        *to++ = ':';
        to = put_quoted(to, own);
    }
    *to++ = ' ';
    to = put_quoted(put_text(to, SESSION_VARIABLE), preload->session);
    to = put_quoted(put_text(to, EXEC), command);
    return put_text(to, NAME);
}

/* A command that is to be released by unmap_command; NULL: the program's own will do. */
static char *map_command(const char *command, size_t *size) {
    const struct preload *preload = command ? preload_for_children() : NULL;
    struct file_nature nature;
    if (!preload || *command == '-' || *command == '+' || !agent_is_running())
        return NULL;
    file_nature(AT_FDCWD, SHELL, false, &nature);
    if (nature.kind != FILE_PRELOADABLE)
        return NULL;
    long index = environment_find(environ, PRELOAD_VARIABLE);
    const char *own = index >= 0 ? environ[index] + sizeof PRELOAD_VARIABLE - 1 : NULL;
    *size = sizeof PRELOAD_VARIABLE + quoted_size(preload->agent) + 2 + (own ? quoted_size(own) : 0) +
            sizeof SESSION_VARIABLE + quoted_size(preload->session) + sizeof EXEC + quoted_size(command) +
            sizeof NAME;
    if (*size >= LONGEST_STRING)
        return NULL;
    long block =
        system_call(SYS_mmap, 0, (long)*size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block <= 0 && block >= -4095)
        return NULL;
    *put_command((char *)block, command, preload, own) = 0;
    return (char *)block;
}

static void unmap_command(char *command, size_t size) {
    if (command)
        system_call(SYS_munmap, (long)command, (long)size, 0, 0, 0, 0);
}

HOOK int system(const char *command) {
    size_t size = 0;
    char *instead = map_command(command, &size);
    int result = NEXT(system)(instead ? instead : command);
    unmap_command(instead, size);
    return result;
}

HOOK FILE *popen(const char *command, const char *mode) {
    size_t size = 0;
    char *instead = map_command(command, &size);
    FILE *result = NEXT(popen)(instead ? instead : command, mode);
    unmap_command(instead, size);
    return result;
}
