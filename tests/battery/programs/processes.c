/*
 * processes.c: children by each of the ways there are; each child computes and checks what it got. Argument:
 * the way. With the argument "child" it is the child: its environment must be what it was given.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "battery.h"

extern char **environ;
static const char *self;
static char *given[] = {"BATTERY=1", "EMPTY=", NULL};
static char *nothing[] = {NULL};
static char *child_arguments[] = {"processes", "child", "0", NULL};
static char *given_arguments[] = {"processes", "child", "2", NULL};

static int be_child(int expected) {
    int count = 0;
    while (environ[count])
        count++;
    CHECK(count == expected);
    CHECK(!expected || (!strcmp(environ[0], given[0]) && !strcmp(environ[1], given[1])));
    CHECK(!getenv("LD_PRELOAD") && !getenv("UNSPOOL_SESSION"));
    burn(0.03);
    return 40;
}

static void expect(int child, int status_wanted) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == status_wanted);
}

static void *spawn_in_thread(void *unused) {
    for (int i = 0; i < 10; i++) {
        pid_t child;
        burn(0.005);
        CHECK(!posix_spawn(&child, self, NULL, NULL, given_arguments, given));
        expect(child, 40);
    }
    return unused;
}

static void by_fork(void) {
    for (int i = 0; i < 40; i++) {
        burn(0.005);
        int child = fork();
        if (!child) {
            int grandchild = i % 4 ? 0 : fork();
            burn(0.01);
            if (i % 4 == 0 && grandchild)
                expect(grandchild, 5);
            _exit(5);
        }
        expect(child, 5);
    }
}

static void by_vfork(void) {
    for (volatile int i = 0; i < 60; i++) {
        burn(0.003);
        int child = vfork();
        if (!child) {
            if (i % 3 == 0)
                _exit(6);
            execve(i % 3 == 1 ? self : "/nowhere/at/all", given_arguments, given);
            _exit(7);
        }
        expect(child, i % 3 == 0 ? 6 : i % 3 == 1 ? 40 : 7);
    }
}

static void by_spawn(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&threads[i], NULL, spawn_in_thread, NULL));
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_join(threads[i], NULL));
    pid_t child;
    CHECK(posix_spawn(&child, "/nowhere/at/all", NULL, NULL, given_arguments, given) == ENOENT);
    CHECK(!posix_spawnp(NULL, "true", NULL, NULL, (char *[]){"true", NULL}, environ));
    wait(NULL);
    CHECK(system("exit 3") == 3 << 8 && system(NULL));
    CHECK(
        system(
            "test \"$0\" = sh -a -z \"$UNSPOOL_SESSION\" -a -z \"$LD_PRELOAD\" && echo \"it's\" '$x \\ `'") ==
        0);
    char line[64];
    FILE *pipe = popen("printf 'a\\nb c'; exit 4", "r");
    CHECK(pipe && fread(line, 1, sizeof line, pipe) == 5 && !memcmp(line, "a\nb c", 5) &&
          pclose(pipe) == 4 << 8);
}

static void by_empty_exec(void) {
    int child = fork();
    if (!child) {
        burn(0.01);
        execve(self, child_arguments, nothing);
        _exit(8);
    }
    expect(child, 40);
    child = fork();
    if (!child) {
        clearenv();
        execl(self, "processes", "child", "0", NULL);
        _exit(8);
    }
    expect(child, 40);
    child = fork();
    if (!child) {
        execle(self, "processes", "child", "2", NULL, given);
        _exit(8);
    }
    expect(child, 40);
    child = fork();
    if (!child) {
        fexecve(open(self, O_RDONLY | O_CLOEXEC), given_arguments, given);
        _exit(8);
    }
    expect(child, 40);
    child = fork();
    if (!child) {
        syscall(SYS_execve, self, given_arguments, given);
        _exit(8);
    }
    expect(child, 40);
}

static void by_daemon(void) {
    int ends[2];
    char byte = 0;
    CHECK(!pipe(ends));
    int child = fork();
    if (!child) {
        setsid();
        if (fork())
            _exit(0);
        for (int i = 0; i < 1024; i++)
            if (i != ends[1])
                close(i);
        CHECK(open("/dev/null", O_RDWR) == 0); /* nobody holds a descriptor open */
        CHECK(dup(0) == 1 && dup(0) == 2);
        burn(0.2);
        _exit(write(ends[1], "d", 1) != 1);
    }
    expect(child, 0);
    close(ends[1]);
    burn(0.1);
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'd');
    CHECK(read(ends[0], &byte, 1) == 0);
}

int main(int argc, char **argv) {
    char path[4096] = "";
    CHECK(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    self = path;
    if (argc == 3 && !strcmp(argv[1], "child"))
        return be_child(atoi(argv[2]));
    CHECK(argc == 2);
    burn(0.1); /* so that there are samples without the children, too */
    if (!strcmp(argv[1], "fork"))
        by_fork();
    else if (!strcmp(argv[1], "vfork"))
        by_vfork();
    else if (!strcmp(argv[1], "spawn"))
        by_spawn();
    else if (!strcmp(argv[1], "exec"))
        by_empty_exec();
    else
        by_daemon();
    return done();
}
