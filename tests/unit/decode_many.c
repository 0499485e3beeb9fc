/*
 * decode_many.c: many instructions at once, for test_decode_differential.py.
 */
#include "instruction.h"

void decode_many(int is_aarch64, const uint8_t *code, size_t size, uint64_t address, const uint32_t *offsets,
                 size_t count, struct instruction *out);

void decode_many(int is_aarch64, const uint8_t *code, size_t size, uint64_t address, const uint32_t *offsets,
                 size_t count, struct instruction *out) {
    for (size_t i = 0; i < count; i++)
        (is_aarch64 ? aarch64_decode : x86_64_decode)(code + offsets[i], size - offsets[i],
                                                      address + offsets[i], out + i);
}
