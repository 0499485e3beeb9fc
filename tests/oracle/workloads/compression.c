/* zlib and zstd, there and back. argv[1]: KiB of input. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

int main(int argc, char **argv) {
    size_t size = (argc > 1 ? (size_t)atoi(argv[1]) : 4) * 1024, room = size + size / 2 + 4096;
    unsigned char *text = malloc(size), *packed = malloc(room), *back = malloc(size);
    unsigned state = 5;
    for (size_t i = 0; i < size; i++) { /* words that repeat, between numbers that do not */
        state = state * 1664525u + 1013904223u;
        text[i] =
            (unsigned char)(i % 96 < 64 ? "the quick brown fox jumps"[i * 7 / 3 % 25] : 'a' + (state >> 28));
    }
    for (int level = 1; level <= 9; level += 4) {
        uLongf packed_size = room, back_size = size;
        if (compress2(packed, &packed_size, text, size, level) != Z_OK ||
            uncompress(back, &back_size, packed, packed_size) != Z_OK || memcmp(text, back, size))
            return 1;
    }
    for (int level = 1; level <= 19; level += 6) {
        size_t packed_size = ZSTD_compress(packed, room, text, size, level);
        if (ZSTD_isError(packed_size) || ZSTD_decompress(back, size, packed, packed_size) != size ||
            memcmp(text, back, size))
            return 2;
    }
    unsigned long sums = crc32(0, text, (uInt)size) ^ adler32(1, text, (uInt)size);
    free(text);
    free(packed);
    free(back);
    return sums ? 0 : 3;
}
