/* The printf and scanf families, with floating point, wide characters and variable arguments. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

__attribute__((noinline)) static int describe(char *text, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(text, size, format, arguments);
    va_end(arguments);
    return written;
}

int main(void) {
    char text[256];
    wchar_t wide[64];
    int number;
    double real;
    describe(text, sizeof text, "%d %s %c %5.3f %x", 42, "text", 'c', 3.14159, 0xbeefu);
    if (strcmp(text, "42 text c 3.142 beef"))
        return 1;
    describe(text, sizeof text, "%lld|%-8s|%+08d|%p|%e|%Lg", 1234567890123LL, "left", 77, (void *)0x1000,
             1e-9, 2.5L);
    if (!strstr(text, "|left    |+0000077|0x1000|1.000000e-09|2.5"))
        return 2;
    if (sscanf("17 2.75 rest", "%d %lf", &number, &real) != 2 || number != 17 || real != 2.75)
        return 3;
    if (swprintf(wide, 64, L"%ls-%d", L"wide", 5) != 6 || wcscmp(wide, L"wide-5"))
        return 4;
    if (strtod("1.0e-308", NULL) <= 0 || strtol("-0x7f", NULL, 16) != -0x7f)
        return 5;
    for (int i = 0; i < 20; i++)
        printf("%3d %g %s\n", i, i / 7.0, i % 2 ? "odd" : "even");
    return fflush(stdout) ? 6 : 0;
}
