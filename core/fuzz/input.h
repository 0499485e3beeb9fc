/*
 * input.h: what the fuzz targets read their input with: bytes that stand for whole values, so that few
 * bytes make a process in which a walk gets somewhere.
 */
#ifndef UNSPOOL_FUZZ_INPUT_H
#define UNSPOOL_FUZZ_INPUT_H

#include <stdlib.h>

#include "bytes.h"
#include "unspool.h"

#define CODE_AT UINT64_C(0x400000)
#define STACK_AT UINT64_C(0x7fff0000)
#define OTHER_AT UINT64_C(0x10000) /* memory below everything else */

/* What libFuzzer calls. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold for every input. */
static inline void check(bool holds) {
    if (!holds)
        abort();
}

/* A byte as a value that a register or a word of memory may have: three bits choose where, five bits how
 * far from there. */
static inline uint64_t interesting_value(uint8_t byte) {
    uint64_t few = byte & 0x1f;
    switch (byte >> 5) {
    case 0:
        return few;
    case 1:
        return CODE_AT + 0x1000 + few;
    case 2:
        return CODE_AT + 0x1000 + few * 0x40;
    case 3:
        return STACK_AT + few * 8;
    case 4:
        return STACK_AT + few * 0x40;
    case 5:
        return OTHER_AT + few * 8;
    case 6:
        return UINT64_C(0x00aa000000000000) | (CODE_AT + 0x1000 + few * 4); /* signed */
    default:
        return few < 16 ? UINT64_MAX - few * 8 : UINT64_MAX << (few + 32);
    }
}

/* As many bytes as there are, up to size. */
static inline struct cursor take_up_to(struct cursor *input, size_t size) {
    size_t taken = size < cursor_left(input) ? size : cursor_left(input);
    return cursor_over(cursor_take(input, taken), taken);
}

/* A copy of exactly its size, so that ASan sees a read beyond it; to be freed. */
static inline uint8_t *copy_of(const struct cursor *bytes) {
    size_t size = cursor_left(bytes);
    uint8_t *copy = malloc(size ? size : 1);
    check(copy != NULL);
    memcpy(copy, bytes->at, size);
    return copy;
}

/* Fills words with a value for each byte; returns how many. */
static inline size_t read_words(struct cursor *input, uint64_t *words, size_t count) {
    size_t n = 0;
    while (n < count && cursor_left(input))
        words[n++] = interesting_value(cursor_u8(input));
    return n;
}

static inline void read_registers(struct cursor *input, struct unspool_registers *registers) {
    *registers = (struct unspool_registers){0};
    registers->known = (uint64_t)cursor_u32(input) | (uint64_t)1 << 32;
    for (size_t i = 0; i < UNSPOOL_REGISTERS; i++)
        registers->value[i] = interesting_value(cursor_u8(input));
    registers->pc_is_return_address = cursor_u8(input) & 1;
}

#endif
