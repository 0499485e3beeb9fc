/* Frames of every shape: alloca, variable length arrays, realigned stacks with and without variable
 * arguments, 5 KB, 70 KB and 300 KB of locals, many arguments. */
#include <alloca.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

static volatile unsigned sink;

__attribute__((noinline)) static unsigned sum(const unsigned char *bytes, size_t size) {
    unsigned total = 0;
    for (size_t i = 0; i < size; i += 97)
        total += bytes[i];
    return total;
}

__attribute__((noinline)) static unsigned with_alloca(size_t size) {
    unsigned char *bytes = alloca(size);
    memset(bytes, 1, size);
    unsigned total = sum(bytes, size);
    for (int i = 0; i < 3; i++) {
        unsigned char *more = alloca(size / 2 + 1);
        memset(more, 2, size / 2 + 1);
        total += sum(more, size / 2 + 1);
    }
    return total;
}

__attribute__((noinline)) static unsigned with_array(int size) {
    unsigned char bytes[size];
    memset(bytes, 3, (size_t)size);
    return sum(bytes, (size_t)size);
}

__attribute__((noinline)) static unsigned realigned(unsigned seed) {
    _Alignas(64) unsigned char bytes[192];
    memset(bytes, (int)seed, sizeof bytes);
    return sum(bytes, sizeof bytes) + ((uintptr_t)bytes % 64 != 0) * 1000000;
}

__attribute__((noinline)) static unsigned realigned_variable(int size, ...) {
    _Alignas(128) unsigned char bytes[128];
    va_list arguments;
    va_start(arguments, size);
    unsigned total = 0;
    for (int i = 0; i < size; i++)
        total += va_arg(arguments, unsigned);
    va_end(arguments);
    unsigned char *more = alloca((size_t)size * 16);
    memset(more, 1, (size_t)size * 16);
    memset(bytes, (int)total, sizeof bytes);
    return total + sum(more, (size_t)size * 16) + sum(bytes, sizeof bytes) * 0 +
           ((uintptr_t)bytes % 128 != 0) * 1000000;
}

__attribute__((noinline)) static unsigned many(int a, int b, int c, int d, int e, int f, int g, int h, int i,
                                               int j) {
    return (unsigned)(a + b + c + d + e + f) + with_array(g * h) + (unsigned)(i - j);
}

#define LARGE(name, size)                                                                                    \
    __attribute__((noinline)) static unsigned name(void) {                                                   \
        unsigned char bytes[size];                                                                           \
        for (size_t i = 0; i < size; i += 97)                                                                \
            bytes[i] = 1;                                                                                    \
        return sum(bytes, size);                                                                             \
    }
LARGE(large, 5000)
LARGE(larger, 70000)
LARGE(largest, 300000)

int main(void) {
    unsigned total = 0;
    for (unsigned i = 1; i < 12; i++) {
        total += with_alloca(i * 100) * 0 + with_array((int)i * 50);
        total += realigned(i) * 0 + realigned_variable((int)i, i, i, i, i, i, i, i, i, i, i, i);
    }
    sink = total;
    if (realigned(5) != 5 * 2 || realigned_variable(2, 40u, 2u) != 42 + 1)
        return 1;
    if (large() != 52 || larger() != 722 || largest() != 3093)
        return 2;
    return many(1, 2, 3, 4, 5, 6, 10, 10, 9, 2) == 21 + 6 + 7 ? 0 : 3;
}
