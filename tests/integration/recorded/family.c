/* family fork|vfork|spawn|exec: a child that uses 250 ms of the processor, made in this way. Prints its
 * process id. `family child` is what is executed. */
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "burn.h"

DEFINE_BURNER(burn_as_parent)
DEFINE_BURNER(burn_as_child)

extern char **environ;

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    const char *way = arguments[1];
    char *child_arguments[] = {arguments[0], "child", NULL};
    pid_t child = 0;
    if (!strcmp(way, "child")) {
        burn_as_child(250 * MILLISECONDS);
        return 0;
    }
    burn_as_parent(100 * MILLISECONDS);
    if (!strcmp(way, "exec"))
        execve(arguments[0], child_arguments, environ);
    else if (!strcmp(way, "spawn"))
        posix_spawn(&child, arguments[0], NULL, NULL, child_arguments, environ);
    else if (!strcmp(way, "vfork")) {
        child = vfork();
        if (!child) {
            execv(arguments[0], child_arguments);
            _exit(1);
        }
    } else {
        child = fork();
        if (!child) {
            burn_as_child(250 * MILLISECONDS);
            _exit(0);
        }
    }
    int status = 1;
    waitpid(child, &status, 0);
    printf("%d\n", child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
