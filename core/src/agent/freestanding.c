/*
 * freestanding.c: the functions that a compiler may call on its own account. Hidden: the program's are not
 * taken, and its calls do not come here. Compiled so that they are not recognized and turned into calls of
 * themselves.
 */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
int memcmp(const void *left, const void *right, size_t size);
size_t strlen(const char *text);

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    uint8_t *at = to;
    const uint8_t *source = from;
    for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t)) {
        __builtin_memcpy(at, source, sizeof(uint64_t));
        at += sizeof(uint64_t);
        source += sizeof(uint64_t);
    }
    for (; size; size--)
        *at++ = *source++;
    return to;
}

void *memmove(void *to, const void *from, size_t size) {
    uint8_t *at = to;
    const uint8_t *source = from;
    if (at <= source)
        for (size_t i = 0; i < size; i++)
            at[i] = source[i];
    else
        for (size_t i = size; i > 0; i--)
            at[i - 1] = source[i - 1];
    return to;
}

void *memset(void *to, int value, size_t size) {
    uint8_t *at = to;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)value;
    return to;
}

int memcmp(const void *left, const void *right, size_t size) {
    const uint8_t *a = left;
    const uint8_t *b = right;
    for (size_t i = 0; i < size; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

size_t strlen(const char *text) {
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}
