/*
 * main.c: signals at every instruction. A SIGPROF handler walks from its ucontext; whatever instruction
 * of whatever probe it hits, the callers must be the true ones, up to main and the root, without a guess.
 *
 * A scenario goes on until every instruction of its probes was hit. On aarch64 under qemu-user (with
 * -singlestep: else signals come at the ends of blocks only) timers do all of it; on x86_64, where an
 * interrupt does not come between just any two instructions, the trap flag does the rest.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "own_process.h"
#include "truth.h"

/* Walks from one instruction, and how long a scenario may take: a hundredth of it is usual. */
enum { WALKS_AN_INSTRUCTION = 3, SECONDS = 60 };

static struct own_process process;
static struct unspool_memory memory;
static uint8_t alternate_stack[1 << 18];
static timer_t timer;
static const struct scenario *volatile current; /* NULL: hits don't count, and no more shall come */
static volatile uint32_t hits[PROBE_COUNT][MOST_BYTES];
static volatile uint64_t walks, wrong_walks;

/* The first walk that was wrong. */
static struct {
    uint64_t addresses[MOST_FRAMES], expected[MOST_FRAMES];
    uint8_t how[MOST_FRAMES];
    uint64_t count, expected_count;
    uint32_t end;
} wrong;

/* ------------------------------------------------------------------ in the handlers */

static void check_walk(const struct unspool_registers *registers, const uint16_t *calls) {
    uint64_t addresses[MOST_FRAMES], expected[MOST_FRAMES];
    uint8_t how[MOST_FRAMES];
    struct unspool_stack stack = {.addresses = addresses, .how = how, .capacity = MOST_FRAMES};
    own_process_memory(&process, registers->value[OWN_SP], &memory);
    unspool_walk(&process.unwinder, registers, &memory, &stack);
    walks++;
    uint64_t count = true_stack(calls, registers->value[OWN_PC], expected);
    if (is_true(current, &stack, expected, count) || wrong_walks++)
        return;
    memcpy(wrong.addresses, addresses, sizeof addresses);
    memcpy(wrong.how, how, sizeof how);
    memcpy(wrong.expected, expected, sizeof expected);
    wrong.count = stack.count;
    wrong.end = stack.end;
    wrong.expected_count = count;
}

/* The probe that pc is in; send_signal is left out, for it is active twice, and which time it is pc does
 * not tell. */
static void hit(const ucontext_t *context) {
    struct unspool_registers registers;
    registers_of(context, &registers);
    uint64_t pc = registers.value[OWN_PC];
    for (const uint16_t *calls = current->calls; !(*calls & LAST); calls++) {
        uint32_t number = probe_number(*calls);
        uint64_t offset = pc - (uint64_t)(uintptr_t)probes[number].start;
        if (number == probe_send_signal || offset >= (uint64_t)(probes[number].stop - probes[number].start))
            continue;
        if (hits[number][offset]++ < WALKS_AN_INSTRUCTION)
            check_walk(&registers, calls);
    }
}

/* After a short time, another one each time. */
static void arm_timer(void) {
    static uint32_t state = 1;
    state = state * 1664525 + 1013904223;
    const struct itimerspec when = {.it_value.tv_nsec = 2000 + (long)(state >> 15)};
    timer_settime(timer, 0, &when, NULL);
}

static void on_profile(int number, siginfo_t *info, void *context) {
    int saved_errno = errno;
    (void)number;
    (void)info;
    if (current) {
        hit(context);
        arm_timer();
    }
    errno = saved_errno;
}

#if defined(__x86_64__)
#define TRAP_FLAG 0x100
static volatile bool is_stepping;

static void on_trap(int number, siginfo_t *info, void *context) {
    ucontext_t *interrupted = context;
    (void)number;
    (void)info;
    if (is_stepping)
        hit(context);
    else
        interrupted->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}
#endif

/* ------------------------------------------------------------------ probes that send signals */

PROBE(signals_twice) unsigned long signals_twice(unsigned long n) {
    send_signal(getpid(), syscall(SYS_gettid), SIGUSR1);
    return n + 1;
}

PROBE(handler_one) void handler_one(int number, siginfo_t *info, void *context);
void handler_one(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    (void)context;
    signal_restorer = __builtin_return_address(0);
    send_signal(getpid(), syscall(SYS_gettid), SIGUSR2);
    __asm__ volatile(""); /* no tail call */
}

/* On the alternate stack. */
PROBE(handler_two) void handler_two(int number, siginfo_t *info, void *context);
void handler_two(int number, siginfo_t *info, void *context) {
    (void)info;
    (void)context;
    leaf_plain((unsigned long)number);
    __asm__ volatile("");
}

/* ------------------------------------------------------------------ set-up */

/* A handler that all signals may interrupt that come after it in the table below. */
static __attribute__((noinline)) void install_handlers(void) {
    static const struct {
        int number, flags;
        void (*handler)(int, siginfo_t *, void *);
    } table[] = {
        {SIGUSR1, 0, handler_one},
        {SIGUSR2, SA_ONSTACK, handler_two},
        {SIGPROF, SA_ONSTACK, on_profile},
#if defined(__x86_64__)
        {SIGTRAP, SA_ONSTACK, on_trap},
#endif
    };
    const stack_t alternate = {.ss_sp = alternate_stack, .ss_size = sizeof alternate_stack};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    bool is_done = sigaltstack(&alternate, NULL) == 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sigaction action = {.sa_sigaction = table[i].handler,
                                   .sa_flags = SA_SIGINFO | SA_RESTART | table[i].flags};
        sigfillset(&action.sa_mask);
        for (size_t k = i + 1; table[i].handler != on_profile && k < sizeof table / sizeof *table; k++)
            sigdelset(&action.sa_mask, table[k].number);
        is_done = is_done && sigaction(table[i].number, &action, NULL) == 0;
    }
    if (!is_done || timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) {
        perror("set-up");
        exit(2);
    }
}

/* ------------------------------------------------------------------ scenarios */

/* Instructions of a scenario's probes, and how many of them were hit. */
static uint32_t count_hits(const struct scenario *scenario, uint32_t *total) {
    uint32_t hit_count = 0;
    *total = 0;
    for (const uint16_t *calls = scenario->calls; !(*calls & LAST); calls++) {
        uint32_t number = probe_number(*calls);
        for (size_t i = 0; number != probe_send_signal && i < MOST_BYTES; i++) {
            *total += is_instruction[number][i];
            hit_count += is_instruction[number][i] && hits[number][i];
        }
    }
    return hit_count;
}

/* Every instruction was hit. On x86_64 a handler can't be stepped through (the kernel clears the trap flag
 * when it calls one), so of what runs in handlers every probe must have been hit somewhere. */
static bool is_complete(const struct scenario *scenario) {
    uint32_t total, hit_count = count_hits(scenario, &total);
    bool has_handlers = false, every_probe = true;
    for (const uint16_t *calls = scenario->calls; !(*calls & LAST); calls++) {
        const struct scenario one = {.calls = {*calls, LAST}};
        uint32_t size;
        has_handlers = has_handlers || (*calls & SIGNALLED);
        every_probe = every_probe && (probe_number(*calls) == probe_send_signal || count_hits(&one, &size));
    }
#if defined(__x86_64__)
    if (has_handlers)
        return every_probe;
#endif
    return hit_count == total && every_probe;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Called between two turns: is another one needed? */
static __attribute__((noinline)) bool goes_on(uint64_t turns, double end) {
#if defined(__x86_64__)
    is_stepping = false;
#endif
    if (wrong_walks || now() > end || (turns % 1024 == 0 && is_complete(current)))
        return false;
#if defined(__x86_64__)
    if (turns % 1024 == 1023) {
        is_stepping = true;
        set_trap_flag();
    }
#endif
    return true;
}

PROBE(run_scenario) void run_scenario(const struct scenario *scenario, double end);
void run_scenario(const struct scenario *scenario, double end) {
    for (uint64_t turns = 1; goes_on(turns, end); turns++)
        call_probe(scenario->entry, 7);
}

static void print_address(uint64_t address) {
    printf("  %12llx %-22s", (unsigned long long)address, address ? probe_of(address) : "");
}

static void print_wrong(void) {
    printf("  the first wrong stack ended by %u; found, how, true:\n", wrong.end);
    for (uint64_t i = 0; i < MOST_FRAMES && (i < wrong.count || i < wrong.expected_count); i++) {
        print_address(i < wrong.count ? wrong.addresses[i] : 0);
        printf("0x%02x", i < wrong.count ? wrong.how[i] : 0);
        print_address(i < wrong.expected_count ? wrong.expected[i] : 0);
        printf("\n");
    }
}

/* True when every instruction was hit and every walk was right. */
static __attribute__((noinline)) bool report(const struct scenario *scenario, double seconds) {
    uint32_t total, hit_count = count_hits(scenario, &total);
    bool is_passed = is_complete(scenario) && !wrong_walks;
    printf("%s %-44s %4u of %4u instructions hit, %5llu walks, %llu wrong, %.1f s\n",
           is_passed ? "ok  " : "FAIL", scenario->name, hit_count, total, (unsigned long long)walks,
           (unsigned long long)wrong_walks, seconds);
    if (wrong_walks)
        print_wrong();
    for (const uint16_t *calls = scenario->calls; !is_passed && !(*calls & LAST); calls++)
        for (size_t i = 0; probe_number(*calls) != probe_send_signal && i < MOST_BYTES; i++)
            if (is_instruction[probe_number(*calls)][i] && !hits[probe_number(*calls)][i])
                printf("  never hit: %s+0x%zx\n", probes[probe_number(*calls)].name, i);
    return is_passed;
}

__attribute__((section("probe_main"))) int main(int argc, char **argv) {
    bool is_passed = true;
    own_process_begin(&process, alternate_stack, sizeof alternate_stack);
    if (!prepare_truth())
        return 2;
    install_handlers();
    for (size_t i = 0; i < scenario_count; i++) {
        const struct scenario *scenario = &scenarios[i];
        if (argc > 1 && strcmp(argv[1], scenario->name) != 0)
            continue;
        memset((void *)(uintptr_t)hits, 0, sizeof hits);
        walks = wrong_walks = 0;
        double start = now();
        scenario->entry(7); /* so that signal_restorer is known */
        current = scenario;
        arm_timer();
        run_scenario(scenario, start + SECONDS);
        current = NULL;
        is_passed = report(scenario, now() - start) && is_passed;
    }
    return !is_passed;
}
