/* libc's hand-written memory and string functions, at many sizes and alignments. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

static char from[9000], to[9000], joined[9000];

int main(void) {
    static const size_t sizes[] = {0,  1,   2,   3,   4,   7,   8,   15,  16,  17,  31,   32,   33,   63,  64,
                                   65, 100, 127, 128, 129, 255, 256, 257, 500, 512, 1000, 2048, 4096, 8000};
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (char)('a' + i % 25);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t size = sizes[i], shift = i % 9;
        memcpy(to + shift, from + 3, size);
        if (memcmp(to + shift, from + 3, size))
            return 1;
        memmove(to + shift + 1, to + shift, size);
        memmove(to + shift, to + shift + 1, size);
        if (memcmp(to + shift, from + 3, size))
            return 2;
        memset(to, 'z', size + 1);
        to[size + 1] = 0;
        if (strlen(to) != size + 1 || strnlen(to, size) != size || memchr(to, 'q', size))
            return 3;
        if (strchr(to, 0) != to + size + 1 || strrchr(to, 'z') != to + size ||
            rawmemchr(to, 0) != to + size + 1)
            return 4;
        if (memrchr(to, 'z', size + 1) != to + size || strcmp(to, to) || strncmp(to, from, 1) <= 0)
            return 5;
        strcpy(joined, "prefix");
        memcpy(joined + 6, from, size);
        joined[size + 6] = 0;
        strncat(joined, from, sizes[i % 4] + 31);
        if (strstr(joined, "vwxyabcde") == NULL || strncasecmp(joined, "PREFIXA", 7))
            return 6;
        if (strspn(to, "z") != size + 1 || strcspn(to, "y") != size + 1 || strcasecmp(joined, joined))
            return 7;
        if (stpcpy(to, "end") != to + 3 || memmem(from, 5000, "lmnop", 5) == NULL)
            return 8;
    }
    wchar_t wide[40];
    wmemset(wide, L'w', 39);
    wide[39] = 0;
    return wcslen(wide) == 39 && wcschr(wide, L'x') == NULL ? 0 : 9;
}
