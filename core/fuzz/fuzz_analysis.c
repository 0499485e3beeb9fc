/*
 * fuzz_analysis.c: code analysis over random code, table and registers: no crash, no endless loop, and
 * what it says stays within what analysis.h promises.
 *
 * Input: one byte of choices, two that choose the pc, then code bytes.
 */
#include "analysis.h"
#include "input.h"
#include "instruction.h"

#define CODE_ADDRESS 0x7f0000000000u

static void check_recipe(const struct frame_recipe *recipe, bool lr_is_live) {
    uint8_t kind = recipe->return_address.kind;
    check(kind == VALUE_AT_SP || kind == VALUE_AT_FP || (kind == VALUE_LR && lr_is_live));
    check(recipe->sp.kind == VALUE_SP || recipe->sp.kind == VALUE_FP);
    check(recipe->fp.kind == VALUE_UNKNOWN || recipe->fp.kind == VALUE_FP || recipe->fp.kind == VALUE_AT_SP ||
          recipe->fp.kind == VALUE_AT_FP);
}

static void check_decoder(const uint8_t *code, size_t size, bool is_aarch64) {
    struct instruction instruction;
    for (size_t at = 0; at < size; at += is_aarch64 ? 4 : 1) {
        if (is_aarch64)
            aarch64_decode(code + at, size - at, CODE_ADDRESS + at, &instruction);
        else
            x86_64_decode(code + at, size - at, CODE_ADDRESS + at, &instruction);
        check(instruction.length <= size - at && instruction.length <= 15);
        check((instruction.length == 0) == (instruction.flow == FLOW_INVALID));
        check(instruction.effect_count <= INSTRUCTION_EFFECTS);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4)
        return 0;
    uint8_t choices = data[0];
    uint64_t pc = CODE_ADDRESS + (data[1] | (uint64_t)data[2] << 8);
    const uint8_t *code_bytes = data + 3;
    size_t code_size = size - 3;
    bool is_aarch64 = choices & 1, interrupted = choices & 2, lr_is_live = is_aarch64 && (choices & 4);
    struct unspool_region region = {CODE_ADDRESS, code_size, code_bytes};
    struct unspool_module module = {
        .start = CODE_ADDRESS,
        .end = CODE_ADDRESS + code_size,
        .image_base = CODE_ADDRESS,
        .code = choices & 8 ? NULL : code_bytes,
        .code_size = code_size,
    };
    struct unspool_unwinder unwinder = {
        .arch = is_aarch64 ? UNSPOOL_AARCH64 : UNSPOOL_X86_64,
        .address_bits = 48,
        .modules = &module,
        .module_count = 1,
    };
    static struct unspool_memory memory;
    memset(&memory, 0, sizeof memory);
    memory.regions = &region;
    memory.region_count = 1;
    struct code code = {&unwinder, &memory};
    struct frame_recipe recipe;
    check_decoder(code_bytes, code_size, is_aarch64);
    if (analyse_code(&code, pc, interrupted, lr_is_live, &recipe) != CALLER_NOT_FOUND)
        check_recipe(&recipe, lr_is_live);
    if (plt_recipe(&code, pc, &recipe))
        check_recipe(&recipe, true);
    uint64_t function = called_function(&code, pc);
    if (function)
        check(code_reaches(&code, function, pc) == recipe_from_entry(&code, function, pc, &recipe));
    is_signal_return(&code, pc, interrupted);
    return 0;
}
