/* malloc in all sizes, realloc, calloc, aligned, trimming, mmap thresholds; getenv, time and locale. */
#include <locale.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(void) {
    void *kept[64] = {0};
    unsigned state = 3;
    for (int i = 0; i < 400; i++) {
        state = state * 1103515245u + 12345u;
        size_t at = state >> 8 & 63, size = (state >> 16 & 0x7ff) << (i % 60 == 0 ? 8 : 0);
        if (i % 3 == 0) {
            kept[at] = realloc(kept[at], size + 1);
        } else {
            free(kept[at]);
            kept[at] = i % 7 ? malloc(size + 1) : calloc(size + 1, 1);
        }
        memset(kept[at], 1, 1);
    }
    for (int i = 0; i < 64; i++)
        free(kept[i]);
    malloc_trim(0);
    void *aligned = aligned_alloc(256, 1024);
    if (!aligned || (size_t)aligned % 256)
        return 1;
    free(aligned);
    struct tm when = {.tm_year = 120, .tm_mday = 1};
    char text[64];
    if (!setlocale(LC_ALL, "C") || !strftime(text, sizeof text, "%Y-%m-%d", &when) ||
        strcmp(text, "2020-01-01"))
        return 2;
    return time(NULL) > 0 && !getenv("UNSPOOL_NO_SUCH_VARIABLE") ? 0 : 3;
}
