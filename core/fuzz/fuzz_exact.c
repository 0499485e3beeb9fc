/*
 * fuzz_exact.c: one step by any CFI with any registers and memory: by the exact evaluator itself, and as a
 * whole step of the walk.
 *
 * Input: choices, return-address column, sizes of the CIE's and the FDE's instructions, lookup address;
 * registers; the instructions; then memory, a byte a word.
 */
#include "../tests/cfi_writer.h"
#include "exact.h"
#include "input.h"

enum choices { AARCH64 = 1, IS_SIGNAL = 2, HAS_ALL_REGISTERS = 4, USUAL_START = 8 };
enum { WORDS = 96, FUNCTION = 0x1000, FUNCTION_SIZE = 0x100 };

static struct unspool_table *compile(uint8_t choices, uint8_t return_address_register, struct cursor initial,
                                     struct cursor instructions) {
    struct writer section = {0}, all = {0};
    struct cie_shape shape = choices & AARCH64 ? aarch64_cie : x86_64_cie;
    if (choices & USUAL_START)
        write_bytes(&all, shape.instructions, shape.instructions_size);
    else
        shape.return_address_register = return_address_register & 0x7f;
    write_bytes(&all, initial.at, cursor_left(&initial));
    shape.instructions = all.bytes;
    shape.instructions_size = all.size;
    shape.augmentation = choices & IS_SIGNAL ? "S" : "";
    uint64_t cie = write_cie(&section, &shape);
    write_fde(&section, cie, FUNCTION, FUNCTION_SIZE, instructions.at, cursor_left(&instructions));
    const struct unspool_section sections[] = {as_section(&section, UNSPOOL_EH_FRAME)};
    const struct unspool_compile_input input = {
        .arch = choices & AARCH64 ? UNSPOOL_AARCH64 : UNSPOOL_X86_64,
        .section_count = 1,
        .sections = sections,
    };
    struct unspool_table *table;
    struct unspool_problems problems;
    check(unspool_table_compile(&input, &table, &problems) == UNSPOOL_OK);
    writer_free(&section);
    writer_free(&all);
    return table;
}

static void check_exact_step(const struct exact_input *input, const struct unspool_registers *before) {
    struct unspool_registers registers = *before;
    struct exact_result result = {0};
    enum exact_status status = exact_step(input, &registers, &result);
    if (status != EXACT_OK)
        check(memcmp(&registers, before, sizeof registers) == 0);
    else
        check((registers.known >> UNSPOOL_REGISTERS) == 0 && registers.pc_is_return_address <= 1);
}

static void check_step(const struct unspool_unwinder *unwinder, const struct unspool_registers *before,
                       struct unspool_memory *memory) {
    struct unspool_registers registers = *before;
    uint32_t how = 0, end = 0;
    if (unspool_step(unwinder, &registers, memory, &how, &end)) {
        check((how & ~(uint32_t)UNSPOOL_HOW_GUESS) <= UNSPOOL_HOW_FRAME_POINTER);
    } else {
        check(end <= UNSPOOL_END_UNMAPPED_PC);
        check(memcmp(&registers, before, sizeof registers) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    struct cursor input = cursor_over(data, size);
    uint8_t choices = cursor_u8(&input), return_address_register = cursor_u8(&input);
    uint8_t initial_size = cursor_u8(&input), instructions_size = cursor_u8(&input);
    uint64_t lookup = FUNCTION + (uint64_t)cursor_u8(&input);
    struct unspool_registers registers;
    read_registers(&input, &registers);
    if (input.failed)
        return 0;
    struct cursor initial = take_up_to(&input, initial_size);
    struct unspool_table *table =
        compile(choices, return_address_register, initial, take_up_to(&input, instructions_size));
    uint64_t words[2][WORDS];
    size_t stack_words = read_words(&input, words[0], WORDS),
           other_words = read_words(&input, words[1], WORDS);
    const struct unspool_region other = {OTHER_AT, 8 * other_words, (const uint8_t *)words[1]};
    struct unspool_memory memory = {.stack = {STACK_AT, 8 * stack_words, (const uint8_t *)words[0]},
                                    .regions = &other,
                                    .region_count = 1};
    const struct exact_input exact = {
        .arch = choices & AARCH64 ? UNSPOOL_AARCH64 : UNSPOOL_X86_64,
        .table = table,
        .lookup_address = lookup,
        .image_base = CODE_AT,
        .memory = &memory,
        .has_all_registers = choices & HAS_ALL_REGISTERS,
    };
    check_exact_step(&exact, &registers);
    const struct unspool_module module = {
        .start = CODE_AT, .end = CODE_AT + 0x4000, .image_base = CODE_AT, .table = table};
    const struct unspool_unwinder unwinder = {
        .arch = exact.arch, .address_bits = 48, .modules = &module, .module_count = 1};
    uint32_t pc = exact.arch == UNSPOOL_AARCH64 ? UNSPOOL_AARCH64_PC : UNSPOOL_X86_64_PC;
    registers.value[pc] = CODE_AT + lookup + registers.pc_is_return_address;
    check_step(&unwinder, &registers, &memory);
    unspool_table_free(table);
    return 0;
}
