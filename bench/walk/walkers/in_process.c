/* in_process.c: walks its own stack, of 31 frames with distinct return addresses. At its bottom it reads a
 * command a line and answers each with "NANOSECONDS FRAMES" of one walk:
 *
 *   direct         the walk is called: the mean of 1,000
 *   handler KB     it is called by a signal's handler, each time after a millisecond of writing at random
 * into so many kilobytes: the median of 20 */
#include "in_process.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))
enum { CALLS = 1000, SIGNALS = 20, CAPACITY = 256, WRITES = 256, MILLISECOND = 1000000 };

static uint8_t *memory;
static volatile uint64_t
    handler_nanoseconds; /* a signal changes them, which the compiler does not expect of raise() */
static volatile size_t handler_frames;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void handle(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    uintptr_t addresses[CAPACITY];
    uint64_t start = now();
    handler_frames = walk_context(context, addresses, CAPACITY);
    handler_nanoseconds = now() - start;
}

static void write_at_random(size_t kilobytes) {
    static uint64_t state = 88172645463325252u;
    uint64_t lines = kilobytes << 4, end = now() + MILLISECOND;
    while (lines && now() < end)
        for (int i = 0; i < WRITES; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            memory[state % lines << 6]++;
        }
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static NOINLINE void from_handler(size_t kilobytes) {
    uint64_t times[SIGNALS];
    memory = kilobytes ? malloc(kilobytes << 10) : NULL;
    if (memory)
        memset(memory, 1, kilobytes << 10);
    for (int i = 0; i < SIGNALS; i++) {
        write_at_random(kilobytes);
        raise(SIGUSR1);
        times[i] = handler_nanoseconds;
    }
    free(memory);
    qsort(times, SIGNALS, sizeof *times, compare);
    printf("%lu %zu\n", times[SIGNALS / 2], handler_frames);
}

static NOINLINE void directly(void) {
    uintptr_t addresses[CAPACITY];
    size_t frames = walk_here(addresses, CAPACITY);
    uint64_t start = now();
    for (int i = 0; i < CALLS; i++)
        frames = walk_here(addresses, CAPACITY);
    printf("%lu %zu\n", (now() - start) / CALLS, frames);
}

static NOINLINE void obey(void) {
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "handler", 7))
            from_handler(strtoul(line + 7, NULL, 10));
        else
            directly();
        fflush(stdout);
    }
}

#define LEVEL(name, next)                                                                                    \
    static NOINLINE void name(void) {                                                                        \
        volatile int kept = 1;                                                                               \
        next();                                                                                              \
        kept++;                                                                                              \
    }
LEVEL(level_1, obey)
LEVEL(level_2, level_1)
LEVEL(level_3, level_2)
LEVEL(level_4, level_3)
LEVEL(level_5, level_4)
LEVEL(level_6, level_5)
LEVEL(level_7, level_6)
LEVEL(level_8, level_7)
LEVEL(level_9, level_8)
LEVEL(level_10, level_9)
LEVEL(level_11, level_10)
LEVEL(level_12, level_11)
LEVEL(level_13, level_12)
LEVEL(level_14, level_13)
LEVEL(level_15, level_14)
LEVEL(level_16, level_15)
LEVEL(level_17, level_16)
LEVEL(level_18, level_17)
LEVEL(level_19, level_18)
LEVEL(level_20, level_19)
LEVEL(level_21, level_20)
LEVEL(level_22, level_21)
LEVEL(level_23, level_22)
LEVEL(level_24, level_23)

int main(void) {
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (sigaction(SIGUSR1, &action, NULL))
        abort();
    set_up();
    level_24();
    return 0;
}
