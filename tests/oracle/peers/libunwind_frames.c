/*
 * libunwind_frames.c: prints the frames that libunwind (remote accessors) sees in a stopped process:
 *
 *   libunwind_frames PID
 *
 * "frame ADDRESS" a frame, then "end complete" where libunwind says that there are no more, else "end error".
 */
#include <libunwind-ptrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    pid_t pid = argc > 1 ? (pid_t)atoi(argv[1]) : 0;
    int status, result;
    if (!pid || ptrace(PTRACE_ATTACH, pid, NULL, NULL) || waitpid(pid, &status, __WALL) != pid)
        return 2;
    unw_addr_space_t space = unw_create_addr_space(&_UPT_accessors, 0);
    void *context = _UPT_create(pid);
    unw_cursor_t cursor;
    if (!space || !context || unw_init_remote(&cursor, space, context))
        return 3;
    int left = 1000;
    do {
        unw_word_t pc = 0;
        unw_get_reg(&cursor, UNW_REG_IP, &pc);
        printf("frame 0x%lx\n", (unsigned long)pc);
        result = unw_step(&cursor);
    } while (result > 0 && --left);
    puts(result == 0 ? "end complete" : "end error");
    ptrace(PTRACE_DETACH, pid, NULL, (void *)(long)SIGSTOP);
    return 0;
}
