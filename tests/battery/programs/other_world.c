/*
 * other_world.c: the program moves to where /proc/PID/fd of the profiler is out of its reach. Arguments: how,
 * and an empty folder. As root all of it works; else the program says "not permitted" and that it expects
 * nothing more.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "battery.h"

static int move(const char *how, const char *empty) {
    if (!strcmp(how, "unshare"))
        return unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_FS | CLONE_FILES |
                       CLONE_SYSVSEM);
    if (!strcmp(how, "unshare-pid"))
        return unshare(CLONE_NEWPID);
    if (!strcmp(how, "unshare-user"))
        return unshare(CLONE_NEWUSER);
    if (!strcmp(how, "chroot"))
        return chroot(empty) || chdir("/") ? -1 : 0;
    if (!strcmp(how, "setuid"))
        return setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534) ? -1
                                                                                                      : 0;
    if (!strcmp(how, "chdir"))
        return chdir("/proc/self");
    CHECK(!strcmp(how, "non-dumpable"));
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    burn(0.1);
    int result = move(argv[1], argv[2]);
    CHECK(!result || errno == EPERM);
    if (result)
        puts("not permitted");
    burn(0.1);
    int status;
    int child = fork();
    if (!child) {
        burn(0.1);
        execl("/bin/true", "true", NULL);
        _exit(errno == ENOENT ? 0 : 3); /* nothing there after chroot */
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    burn(0.1);
    return done();
}
