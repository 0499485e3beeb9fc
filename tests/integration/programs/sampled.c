/*
 * sampled.c: a program to be sampled. The first argument says what it does; it prints "ok", or what went
 * wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

static double cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

__attribute__((noinline)) static unsigned long burn_some(unsigned long n) {
    for (unsigned long i = 0; i < 20000; i++) {
        n = n * 31 + i;
        __asm__ volatile("" : : "r"(n));
    }
    return n;
}

__attribute__((noinline)) static unsigned long burn(double seconds) {
    unsigned long n = 0;
    for (double end = cpu_time() + seconds; cpu_time() < end;)
        n += burn_some(n);
    __asm__ volatile("");
    return n;
}

__attribute__((noinline)) static unsigned long burn_deep(int depth, double seconds) {
    unsigned long n = depth ? burn_deep(depth - 1, seconds) : burn(seconds);
    __asm__ volatile("");
    return n;
}

static int fail(const char *what) {
    printf("%s\n", what);
    return 1;
}

static int succeed(void) {
    printf("ok\n");
    return 0;
}

/* Until standard input ends. */
static int burn_until_told(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 0) == 0)
        burn(0.002);
    return succeed();
}

/* ------------------------------------------------------------------ threads */

static double seconds;
static volatile bool is_told;

static void *run_thread(void *argument) {
    burn(seconds);
    return argument;
}

static void *run_until_told(void *argument) {
    while (!is_told)
        burn(0.002);
    return argument;
}

static int run_threads(int count, bool until_told) {
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, until_told ? run_until_told : run_thread, NULL))
            return fail("pthread_create");
    if (until_told)
        getchar();
    is_told = true;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    return succeed();
}

/* ------------------------------------------------------------------ what must stay as it is */

static int keep_errno(void) {
    double end = cpu_time() + seconds;
    errno = 12345;
    while (cpu_time() < end) {
        burn_some(1);
        if (errno != 12345)
            return fail("errno was changed");
    }
    return succeed();
}

static int keep_mask(void) {
    sigset_t mask, now;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGRTMIN + 3);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    burn(seconds);
    sigprocmask(SIG_SETMASK, NULL, &now);
    for (int i = 1; i < 65; i++)
        if (sigismember(&mask, i) != sigismember(&now, i))
            return fail("the mask was changed");
    return succeed();
}

static volatile int own_signals;

static void on_own_signal(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    own_signals += info->si_code == SI_KERNEL || info->si_code == SI_TKILL;
}

/* A handler and a timer of its own for the signal that is sampled with. */
static int keep_handler(void) {
    const struct itimerval every = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_sigaction = on_own_signal, .sa_flags = SA_SIGINFO}, seen;
    sigaction(SIGPROF, &action, NULL);
    sigaction(SIGPROF, NULL, &seen);
    if (seen.sa_sigaction != on_own_signal)
        return fail("another handler is seen");
    raise(SIGPROF);
    if (own_signals != 1)
        return fail("the handler is not called at once");
    setitimer(ITIMER_PROF, &every, NULL);
    burn(seconds);
    setitimer(ITIMER_PROF, &never, NULL);
    return own_signals > 3 ? succeed() : fail("the handler is not called");
}

/* The signal is blocked for a while. */
static int block(void) {
    sigset_t mask;
    sigfillset(&mask);
    burn(seconds / 2);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    burn(0.3);
    sigprocmask(SIG_UNBLOCK, &mask, NULL);
    burn(seconds / 2);
    return succeed();
}

/* ------------------------------------------------------------------ how much of a stack is used */

static uint8_t *handler_sp;

static void on_measure(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    (void)context;
    handler_sp = __builtin_frame_address(0);
}

/* Bytes of an alternate stack that are used below the kernel's frame while samples are taken. */
static int measure_stack(void) {
    static uint8_t stack[1 << 18] __attribute__((aligned(4096)));
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = on_measure, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&alternate, NULL);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    memset(stack, 0xa5, sizeof stack);
    burn(seconds);
    uint8_t *lowest = stack;
    while (lowest < stack + sizeof stack && *lowest == 0xa5)
        lowest++;
    if (lowest == stack + sizeof stack)
        return fail("no sample was taken on the alternate stack");
    printf("%ld\n", (long)(handler_sp - lowest));
    return 0;
}

/* On the smallest alternate stack that the kernel itself can use, and the 512 bytes that are allowed. */
static int use_small_stack(void) {
    size_t size = getauxval(AT_MINSIGSTKSZ) + 512;
    uint8_t *stack = calloc(3, size);
    const stack_t alternate = {.ss_sp = stack + size, .ss_size = size};
    if (sigaltstack(&alternate, NULL))
        return fail("sigaltstack");
    burn(seconds);
    for (size_t i = 0; i < size; i++)
        if (stack[i] || stack[2 * size + i])
            return fail("the memory beside the stack was written to");
    return succeed();
}

/* ------------------------------------------------------------------ processes */

static int run_child(bool is_checked) {
    int status;
    pid_t child = fork();
    burn(seconds);
    if (child == 0)
        _exit(is_checked ? 3 : 0);
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 3 ? succeed() : fail("the child failed");
}

/* As an emulator has it for the program. */
static void print_maps(void) {
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        fputs(line, stdout);
    printf("end\n");
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "burn";
    seconds = argc > 2 ? strtod(argv[2], NULL) : 0.5;
    int count = argc > 3 ? atoi(argv[3]) : 4;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (getenv("PRINT_MAPS"))
        print_maps();
    if (!strcmp(what, "until"))
        return burn_until_told();
    if (!strcmp(what, "threads"))
        return run_threads(count, false);
    if (!strcmp(what, "threads-until"))
        return run_threads(count, true);
    if (!strcmp(what, "errno"))
        return keep_errno();
    if (!strcmp(what, "mask"))
        return keep_mask();
    if (!strcmp(what, "handler"))
        return keep_handler();
    if (!strcmp(what, "block"))
        return block();
    if (!strcmp(what, "measure"))
        return measure_stack();
    if (!strcmp(what, "small"))
        return use_small_stack();
    if (!strcmp(what, "fork"))
        return run_child(true);
    burn_deep(count, seconds);
    return succeed();
}
