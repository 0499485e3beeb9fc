/*
 * filters.c: seccomp filters that forbid what a profiler uses. Argument: which. A forbidden call ends the
 * process: it may not be made on the program's behalf. Set through prctl, through syscall(), or past libc, in
 * a thread or for all.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "battery.h"

#define ALLOW(number)                                                                                        \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define FORBID(number, how) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, how)
#define LOAD_NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define KILL SECCOMP_RET_KILL_PROCESS
#define FAIL (SECCOMP_RET_ERRNO | EPERM)

static struct sock_filter only_what_we_use[] = {
    /* not even rt_sigreturn */
    LOAD_NUMBER,
    ALLOW(SYS_write),
    ALLOW(SYS_exit_group),
    ALLOW(SYS_exit),
    ALLOW(SYS_clock_gettime),
    ALLOW(SYS_futex),
    ALLOW(SYS_newfstatat),
    ALLOW(SYS_fstat),
    ALLOW(SYS_madvise),
    ALLOW(SYS_munmap),
    ALLOW(SYS_brk),
    ALLOW(SYS_rt_sigprocmask),
    BPF_STMT(BPF_RET | BPF_K, KILL),
};

#define PROFILERS_CALLS(how)                                                                                 \
    LOAD_NUMBER, FORBID(SYS_process_vm_readv, how), FORBID(SYS_timer_create, how),                           \
        FORBID(SYS_timer_settime, how), FORBID(SYS_timer_delete, how), FORBID(SYS_rt_sigaction, how),        \
        FORBID(SYS_getrusage, how), FORBID(SYS_gettid, how), FORBID(SYS_getpid, how), FORBID(SYS_mmap, how), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter profilers_calls_kill[] = {PROFILERS_CALLS(KILL)};
static struct sock_filter profilers_calls_fail[] = {PROFILERS_CALLS(FAIL)};
static struct sock_filter ids_kill[] = {
    LOAD_NUMBER,
    FORBID(SYS_getpid, KILL),
    FORBID(SYS_gettid, KILL),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_filter all_allowed[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};

#define FILTER(array) ((struct sock_fprog){sizeof(array) / sizeof(array)[0], array})

static void *compute(void *unused) {
    burn(0.35);
    return unused;
}

static void set(struct sock_fprog filter, int by_prctl) {
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (by_prctl)
        CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0));
    else
        CHECK(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter));
}

static int in_strict_mode(void) {
    int status;
    int child = fork();
    if (!child) {
        burn(0.05);
        CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0));
        volatile uint64_t value = 1;
        for (int i = 0; i < 150000000; i++)
            value = value * 3;
        syscall(SYS_exit, 11);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 11;
}

static void handle(int signal) {
    (void)signal;
}

/* What libc does without asking who it is. */
static void live_without_ids(void) {
    struct sigaction action = {.sa_handler = handle};
    set(FILTER(ids_kill), 1);
    set(FILTER(all_allowed), 1);
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    CHECK(!sigaction(SIGPROF, &action, NULL));
    void *library = dlopen("libm.so.6", RTLD_NOW);
    CHECK(library && !dlclose(library));
    execl("/bin/echo", "echo", "ok", (char *)NULL);
}

int main(int argc, char **argv) {
    pthread_t thread;
    CHECK(argc == 2);
    uint32_t action = SECCOMP_RET_ALLOW;
    CHECK(!syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action)); /* sets nothing */
    burn(0.1);
    printf("%s\n", argv[1]);
    fflush(stdout);
    if (!strcmp(argv[1], "strict")) {
        CHECK(in_strict_mode());
        return done();
    }
    if (!strcmp(argv[1], "ids")) {
        live_without_ids();
        return 1;
    }
    CHECK(!pthread_create(&thread, NULL, compute, NULL));
    burn(0.05);
    if (!strcmp(argv[1], "whitelist"))
        set(FILTER(only_what_we_use), 0);
    else if (!strcmp(argv[1], "whitelist-prctl"))
        set(FILTER(only_what_we_use), 1);
    else if (!strcmp(argv[1], "kill"))
        set(FILTER(profilers_calls_kill), 0);
    else if (!strcmp(argv[1], "fail"))
        set(FILTER(profilers_calls_fail), 0);
    else
        set(FILTER(all_allowed), 1);
    burn(0.2);
    CHECK(!pthread_join(thread, NULL));
    CHECK(write(1, "ok\n", 3) == 3);
    _exit(0);
}
