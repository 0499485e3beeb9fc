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

static bool changes_lr(const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++) {
        const struct stack_effect *effect = &instruction->effects[i];
        if (effect->to == REGISTER_LR && effect->kind != EFFECT_STORE)
            return true;
    }
    return instruction->flow == FLOW_CALL;
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

bool code_changes_frame(const struct unspool_compile_input *input, uint64_t start, uint64_t end) {
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
        if (moves_sp(&instruction) || (input->arch == UNSPOOL_AARCH64 && changes_lr(&instruction)))
            return true;
    }
    return false;
}

/* glibc's __startcontext on aarch64: mov x0, x19; cbnz x0, setcontext; b exit. A hint may be before it. */
bool code_ends_context(const struct unspool_compile_input *input, uint64_t start, uint64_t end) {
    static const struct {
        uint32_t mask, word;
    } ending[] = {{0xffffffff, 0xaa1303e0}, {0xff00001f, 0xb5000000}, {0xfc000000, 0x14000000}};
    uint64_t size = 0;
    const uint8_t *bytes = code_bytes(input, start + input->image_address, &size);
    if (input->arch != UNSPOOL_AARCH64 || !bytes || end - start < sizeof ending / 2 || size < end - start)
        return false;
    uint64_t skipped = end - start - sizeof ending / 2;
    if (skipped != 0 && (skipped != 4 || bytes[3] != 0xd5)) /* system instructions, hints among them */
        return false;
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        const uint8_t *at = bytes + skipped + 4 * i;
        uint32_t word =
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        if ((word & ending[i].mask) != ending[i].word)
            return false;
    }
    return true;
}
