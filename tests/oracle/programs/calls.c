/* Calls of every kind: recursion, mutual recursion, tail calls, through tables, a switch by table, a call
 * that does not return as a function's last instruction, a cold part. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf out;
static volatile int failures;

__attribute__((noinline)) static unsigned fibonacci(unsigned n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static int is_odd(unsigned n);
__attribute__((noinline)) static int is_even(unsigned n) {
    return n == 0 ? 1 : is_odd(n - 1);
}
__attribute__((noinline)) static int is_odd(unsigned n) {
    return n == 0 ? 0 : is_even(n - 1);
}

__attribute__((noinline)) static int add(int a, int b) {
    return a + b;
}
__attribute__((noinline)) static int subtract(int a, int b) {
    return a - b;
}
__attribute__((noinline)) static int multiply(int a, int b) {
    return a * b;
}
static int (*const volatile operations[])(int, int) = {add, subtract, multiply};

__attribute__((noinline)) static int by_switch(int kind, int value) {
    switch (kind) {
    case 0:
        return value + 11;
    case 1:
        return value * 5;
    case 2:
        return value - 3;
    case 3:
        return (int)strlen("three") + value;
    case 4:
        return value ^ 0x55;
    case 5:
        return abs(-value);
    case 6:
        return value << 2;
    default:
        return -1;
    }
}

__attribute__((noinline, noreturn)) static void give_up(int value) {
    failures = value;
    longjmp(out, value);
}

__attribute__((noinline)) static void ends_in_a_call(int value) {
    give_up(value + 1);
}

__attribute__((noinline, cold)) static int report(const char *what) {
    return fprintf(stderr, "calls: %s\n", what);
}

__attribute__((noinline)) static int mostly_hot(int value) {
    if (__builtin_expect(value == 1000000, 0)) {
        report("never");
        exit(9);
    }
    return value & 7;
}

int main(void) {
    volatile int total = 0;
    if (fibonacci(13) != 233 || !is_even(60) || is_odd(40))
        return 1;
    for (int i = 0; i < 30; i++)
        total += operations[i % 3](i, 3) + by_switch(i % 9, i) + mostly_hot(i);
    if (setjmp(out) == 0)
        ends_in_a_call(4);
    return failures == 5 && total == 1785 ? 0 : 3;
}
