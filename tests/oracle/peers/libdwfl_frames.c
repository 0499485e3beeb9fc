/*
 * libdwfl_frames.c: prints the frames that elfutils' libdwfl sees in a stopped process:
 *
 *   libdwfl_frames PID
 *
 * "frame ADDRESS" a frame, then "end complete" where libdwfl reports no error, else "end error".
 */
#include <elfutils/libdwfl.h>
#include <stdio.h>
#include <stdlib.h>

static int show(Dwfl_Frame *frame, void *left) {
    Dwarf_Addr pc;
    if (!dwfl_frame_pc(frame, &pc, NULL) || --*(int *)left == 0)
        return DWARF_CB_ABORT;
    printf("frame 0x%lx\n", (unsigned long)pc);
    return DWARF_CB_OK;
}

int main(int argc, char **argv) {
    static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                             .find_debuginfo = dwfl_standard_find_debuginfo};
    pid_t pid = argc > 1 ? (pid_t)atoi(argv[1]) : 0;
    Dwfl *dwfl = dwfl_begin(&callbacks);
    if (!pid || !dwfl || dwfl_linux_proc_report(dwfl, pid) || dwfl_report_end(dwfl, NULL, NULL) ||
        dwfl_linux_proc_attach(dwfl, pid, false))
        return 3;
    int left = 1000;
    puts(dwfl_getthread_frames(dwfl, pid, show, &left) == 0 ? "end complete" : "end error");
    dwfl_end(dwfl);
    return 0;
}
