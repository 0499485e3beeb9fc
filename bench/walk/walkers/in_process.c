/* in_process.c: walks its own stack, of 31 frames with distinct return addresses. At its bottom it reads a
 * command a line and answers each with "NANOSECONDS FRAMES" of one walk:
 *
 *   direct         the walk is called: the mean of 1,000
 *   handler KB     it is called by a signal's handler, each time after a millisecond of writing at random
 * into so many kilobytes: the median of 20 */
#include "in_process.h"
#include "deep_stack.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 1000, SIGNALS = 20, CAPACITY = 256 };

static volatile uint64_t
    handler_nanoseconds; /* a signal changes them, which the compiler does not expect of raise() */
static volatile size_t handler_frames;

static void handle(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    uintptr_t addresses[CAPACITY];
    uint64_t start = now(CLOCK_MONOTONIC);
    handler_frames = walk_context(context, addresses, CAPACITY);
    handler_nanoseconds = now(CLOCK_MONOTONIC) - start;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static NOINLINE void from_handler(size_t kilobytes) {
    uint64_t times[SIGNALS];
    uint8_t *memory = kilobytes ? malloc(kilobytes << 10) : NULL;
    if (memory)
        memset(memory, 1, kilobytes << 10);
    for (int i = 0; i < SIGNALS; i++) {
        write_at_random(memory, kilobytes << 10);
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
    uint64_t start = now(CLOCK_MONOTONIC);
    for (int i = 0; i < CALLS; i++)
        frames = walk_here(addresses, CAPACITY);
    printf("%lu %zu\n", (now(CLOCK_MONOTONIC) - start) / CALLS, frames);
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

LEVELS_23(obey)
LEVEL(level_24, level_23)

int main(void) {
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (sigaction(SIGUSR1, &action, NULL))
        abort();
    set_up();
    level_24();
    return 0;
}
