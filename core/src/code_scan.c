/*
 * code_scan.c: looks through a function's instructions once, when its table is compiled.
 */
#include "code_scan.h"
#include "instruction.h"

static bool moves_sp(const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++) {
        const struct stack_effect *effect = &instruction->effects[i];
        if (effect->to == REGISTER_SP && effect->kind != EFFECT_STORE)
            return true;
    }
    return false;
}

/* The bytes at a virtual address, and how many follow; NULL: none. */
static const uint8_t *code_bytes(const struct unspool_compile_input *input, uint64_t address,
                                 uint64_t *size) {
    for (uint64_t i = 0; i < input->code_count; i++) {
        uint64_t offset = address - input->code[i].address;
        if (offset < input->code[i].size) {
            *size = input->code[i].size - offset;
            return input->code[i].bytes + offset;
        }
    }
    return NULL;
}

bool code_moves_sp(const struct unspool_compile_input *input, uint64_t start, uint64_t end) {
    uint64_t address = start + input->image_address, size = 0;
    const uint8_t *bytes = code_bytes(input, address, &size);
    if (!bytes)
        return false;
    if (size > end - start)
        size = end - start;
    struct instruction instruction;
    for (uint64_t at = 0; at < size; at += instruction.length) {
        if (input->arch == UNSPOOL_AARCH64)
            aarch64_decode(bytes + at, size - at, address + at, &instruction);
        else
            x86_64_decode(bytes + at, size - at, address + at, &instruction);
        if (instruction.length == 0)
            return false;
        if (moves_sp(&instruction))
            return true;
    }
    return false;
}
