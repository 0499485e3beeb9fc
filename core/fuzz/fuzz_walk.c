/*
 * fuzz_walk.c: whole walks over any registers, memory, code, modules and tables. A table is compiled from
 * the input and then damaged, or is the input itself; what unspool_table_check accepts must be safe.
 * With and without a cache, singly, step by step and in a batch, walks must agree.
 *
 * Input: choices, address size, sizes of table and code, how many changes to the table, where modules
 * begin and end; registers; changes (place, value); table or CFI; code; then memory, a byte a word.
 */
#include "input.h"

enum choices { AARCH64 = 1, RAW_TABLE = 2, CODE_THROUGH_MEMORY = 4, NO_TABLE_SECOND = 8, SECOND_MODULE = 16 };
enum { WORDS = 128, FRAMES = 24, CODE_SIZE = 0x4000 };

struct process {
    struct unspool_unwinder unwinder;
    struct unspool_module modules[2];
    struct unspool_memory memory;
    struct unspool_region regions[2];
    uint64_t stack[WORDS], other[WORDS];
    uint8_t code[CODE_SIZE];
};

struct stack {
    uint64_t addresses[FRAMES];
    uint8_t how[FRAMES];
    struct unspool_stack stack;
};

static struct process p;
static struct unspool_cache cache;

static uint8_t *compile_table(uint32_t arch, struct cursor cfi, uint64_t *size) {
    uint8_t *copy = copy_of(&cfi);
    const struct unspool_section section = {
        .bytes = copy, .size = cursor_left(&cfi), .kind = UNSPOOL_EH_FRAME, .address = 0x3000};
    const struct unspool_section code = {.bytes = p.code, .size = CODE_SIZE};
    const struct unspool_compile_input input = {.arch = arch,
                                                .section_count = 1,
                                                .sections = &section,
                                                .entry_address = 0x1800,
                                                .code = &code,
                                                .code_count = 1};
    struct unspool_table *table;
    struct unspool_problems problems;
    check(unspool_table_compile(&input, &table, &problems) == UNSPOOL_OK);
    *size = unspool_table_size(table);
    free(copy);
    return (uint8_t *)table;
}

/* The table that the input describes, or NULL when it is not accepted. */
static uint8_t *make_table(uint8_t choices, struct cursor changes, struct cursor bytes) {
    uint64_t size = cursor_left(&bytes);
    uint8_t *table = choices & RAW_TABLE
                         ? copy_of(&bytes)
                         : compile_table(choices & AARCH64 ? UNSPOOL_AARCH64 : UNSPOOL_X86_64, bytes, &size);
    while (cursor_left(&changes) >= 4 && size) {
        uint16_t place = cursor_u16(&changes);
        uint16_t value = cursor_u16(&changes);
        table[place % size] ^= (uint8_t)value;
        table[(place + 1u) % size] ^= (uint8_t)(value >> 8);
    }
    if (unspool_table_check(table, size) == UNSPOOL_OK)
        return table;
    free(table);
    return NULL;
}

static void make_process(uint8_t choices, uint8_t address_size, uint8_t border, const uint8_t *table) {
    static const uint8_t address_bits[] = {48, 39, 42, 47, 52, 64};
    const struct unspool_table *tables[] = {(const struct unspool_table *)table,
                                            choices & NO_TABLE_SECOND ? NULL
                                                                      : (const struct unspool_table *)table};
    uint64_t middle = CODE_AT + 0x1000 + border * 0x10u;
    for (size_t i = 0; i < 2; i++)
        p.modules[i] = (struct unspool_module){
            .start = i ? middle : CODE_AT,
            .end = i || !(choices & SECOND_MODULE) ? CODE_AT + CODE_SIZE : middle,
            .image_base = CODE_AT,
            .table = tables[i],
            .code = choices & CODE_THROUGH_MEMORY ? NULL : p.code + (i ? middle - CODE_AT : 0),
            .code_size = i ? CODE_AT + CODE_SIZE - middle : CODE_SIZE,
        };
    p.unwinder = (struct unspool_unwinder){
        .arch = choices & AARCH64 ? UNSPOOL_AARCH64 : UNSPOOL_X86_64,
        .address_bits = address_bits[address_size % sizeof address_bits],
        .modules = p.modules,
        .module_count = choices & SECOND_MODULE ? 2 : 1,
    };
}

static void walk(const struct unspool_registers *registers, struct stack *out) {
    memset(out, 0xee, sizeof *out);
    out->stack = (struct unspool_stack){.addresses = out->addresses, .how = out->how, .capacity = FRAMES - 1};
    unspool_memory_reset(&p.memory);
    unspool_walk(&p.unwinder, registers, &p.memory, &out->stack);
    check(out->stack.count >= 1 && out->stack.count < FRAMES);
    check(out->stack.end <= UNSPOOL_END_UNMAPPED_PC);
    check(out->addresses[FRAMES - 1] == 0xeeeeeeeeeeeeeeee && out->how[FRAMES - 1] == 0xee);
    for (size_t i = 0; i < out->stack.count; i++)
        check((out->how[i] & 0x7f) <= UNSPOOL_HOW_FRAME_POINTER && (i == 0) == (out->how[i] == 0));
}

static void check_same(const uint64_t *addresses, const uint8_t *how, uint64_t count, uint32_t end,
                       const struct stack *expected) {
    check(count == expected->stack.count && end == expected->stack.end);
    check(memcmp(addresses, expected->addresses, count * sizeof *addresses) == 0);
    check(memcmp(how, expected->how, count) == 0);
}

static void check_cached(const struct unspool_registers *registers, const struct stack *expected) {
    struct stack cached;
    unspool_cache_clear(&cache);
    p.unwinder.cache = &cache;
    for (int warm = 0; warm < 2; warm++) {
        walk(registers, &cached);
        check_same(cached.addresses, cached.how, cached.stack.count, cached.stack.end, expected);
    }
    p.unwinder.cache = NULL;
}

static void check_steps(const struct unspool_registers *first) {
    struct unspool_registers registers = *first;
    uint32_t how = 0, end = 0;
    unspool_memory_reset(&p.memory);
    for (size_t i = 0; i < FRAMES; i++)
        if (!unspool_step(&p.unwinder, &registers, &p.memory, &how, &end)) {
            check(end <= UNSPOOL_END_UNMAPPED_PC);
            break;
        }
}

/* Two samples, the second with the stack's upper half, against single walks of the same. */
static void check_batch(const struct unspool_registers *registers, uint64_t stack_size) {
    bool is_aarch64 = p.unwinder.arch == UNSPOOL_AARCH64;
    const uint64_t *value = registers->value;
    uint64_t pc = value[is_aarch64 ? UNSPOOL_AARCH64_PC : UNSPOOL_X86_64_PC];
    uint64_t fp = value[is_aarch64 ? UNSPOOL_AARCH64_FP : UNSPOOL_X86_64_RBP];
    uint64_t lr = value[UNSPOOL_AARCH64_LR], half = stack_size / 16 * 8;
    const uint64_t samples[] = {pc, STACK_AT, fp, lr, pc ^ 0x40, STACK_AT + half, fp, lr};
    const uint64_t stack_offsets[] = {0, half, stack_size};
    uint64_t addresses[2 * FRAMES], offsets[3] = {0};
    uint8_t how[2 * FRAMES], ends[2];
    struct unspool_batch batch = {2,
                                  samples,
                                  stack_offsets,
                                  (const uint8_t *)p.stack,
                                  FRAMES - 1,
                                  2 * FRAMES,
                                  addresses,
                                  how,
                                  offsets,
                                  ends,
                                  0,
                                  0};
    p.unwinder.cache = &cache;
    check(unspool_walk_many(&p.unwinder, &batch, 0) == 2);
    p.unwinder.cache = NULL;
    p.memory.region_count = 0;
    for (size_t i = 0; i < 2; i++) {
        struct unspool_registers single = {0};
        struct stack expected;
        for (uint32_t k = 0; k < 4; k++) {
            static const uint8_t numbers[2][4] = {{16, 7, 6, 0}, {32, 31, 29, 30}};
            if (k == 3 && !is_aarch64)
                break;
            single.value[numbers[is_aarch64][k]] = samples[4 * i + k];
            single.known |= (uint64_t)1 << numbers[is_aarch64][k];
        }
        p.memory.stack = (struct unspool_region){samples[4 * i + 1], stack_offsets[i + 1] - stack_offsets[i],
                                                 (const uint8_t *)p.stack + stack_offsets[i]};
        walk(&single, &expected);
        check_same(addresses + offsets[i], how + offsets[i], offsets[i + 1] - offsets[i], ends[i], &expected);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    struct cursor input = cursor_over(data, size);
    uint8_t choices = cursor_u8(&input), address_size = cursor_u8(&input);
    uint16_t table_size = cursor_u16(&input), code_size = cursor_u16(&input);
    uint8_t change_count = cursor_u8(&input) % 8, border = cursor_u8(&input);
    struct unspool_registers registers;
    read_registers(&input, &registers);
    if (input.failed)
        return 0;
    struct cursor changes = take_up_to(&input, 4u * change_count);
    struct cursor table_bytes = take_up_to(&input, table_size);
    struct cursor code = take_up_to(&input, code_size < 0x800 ? code_size : 0x800);
    memset(p.code, choices & AARCH64 ? 0 : 0xcc, sizeof p.code); /* traps: nothing to follow for long */
    memcpy(p.code + 0x1000, code.at, cursor_left(&code));
    uint8_t *table = make_table(choices, changes, table_bytes);
    if (!table)
        return 0;
    make_process(choices, address_size, border, table);
    uint64_t stack_size = 8 * read_words(&input, p.stack, WORDS);
    uint64_t other_size = 8 * read_words(&input, p.other, WORDS);
    p.regions[0] = (struct unspool_region){OTHER_AT, other_size, (const uint8_t *)p.other};
    p.regions[1] = (struct unspool_region){CODE_AT, CODE_SIZE, p.code};
    p.memory = (struct unspool_memory){
        .stack = {STACK_AT, stack_size, (const uint8_t *)p.stack}, .regions = p.regions, .region_count = 2};
    struct stack plain;
    walk(&registers, &plain);
    check_cached(&registers, &plain);
    check_steps(&registers);
    check_batch(&registers, stack_size);
    free(table);
    return 0;
}
