/* main calls two functions, directly, each of which uses the CPU for 0.2 s. */
#include <time.h>

static volatile unsigned long sum;

static int is_over(clock_t end) {
    for (int i = 0; i < 10000; i++)
        sum += (unsigned long)i;
    return clock() >= end;
}

__attribute__((noipa)) static void first(void) {
    clock_t end = clock() + CLOCKS_PER_SEC / 5;
    while (!is_over(end))
        sum++;
}

__attribute__((noipa)) static void second(void) {
    clock_t end = clock() + CLOCKS_PER_SEC / 5;
    while (!is_over(end))
        sum--;
}

int main(void) {
    first();
    second();
    return sum == 0;
}
