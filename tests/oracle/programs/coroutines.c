/* swapcontext between contexts on stacks that lie side by side; one ends, one is left behind. */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

static ucontext_t main_context, ping_context, pong_context;
static char ping_stack[16384], pong_stack[16384];
static int trace, restarted;

__attribute__((noinline)) static void yield_to(ucontext_t *from, ucontext_t *to) {
    if (swapcontext(from, to))
        abort();
}

static void ping(int rounds) {
    for (int i = 0; i < rounds; i++) {
        trace = trace * 3 + 1;
        yield_to(&ping_context, &pong_context);
    }
}

__attribute__((noinline)) static void deeper(int level) {
    char text[32];
    trace += snprintf(text, sizeof text, "%d", level);
    if (level)
        deeper(level - 1);
    else
        yield_to(&pong_context, &ping_context);
    trace ^= level;
}

static void pong(void) {
    for (;;)
        deeper(3);
}

static void make(ucontext_t *context, char *stack, ucontext_t *next) {
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = sizeof ping_stack;
    context->uc_link = next;
}

int main(void) {
    for (int round = 0; round < 2; round++) {
        make(&ping_context, ping_stack, &main_context);
        makecontext(&ping_context, (void (*)(void))ping, 1, 5);
        make(&pong_context, pong_stack, NULL);
        makecontext(&pong_context, pong, 0);
        yield_to(&main_context, &ping_context);
    }
    volatile int again = 0;
    getcontext(&main_context);
    if (again++ < 3) {
        restarted++;
        setcontext(&main_context);
    }
    return restarted == 3 && trace != 0 ? 0 : 1;
}
