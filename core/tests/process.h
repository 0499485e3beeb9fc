/*
 * process.h: a process made for a test: one file's code and unwind table, a stack, registers.
 *
 *     begin_process(&p, UNSPOOL_X86_64);
 *     function(&p, 0x1000, 0x20, CFI(ADVANCE(1), DEF_CFA_OFFSET(16)));
 *     interrupted_at(&p, CODE_AT + 0x1008, STACK_AT);
 *     put(&p, STACK_AT + 8, CODE_AT + 0x1105);
 *     expect_walk(&p, UNSPOOL_END_ROOT, FRAMES({CODE_AT + 0x1008, INTERRUPTED}, ...));
 *
 * expect_walk walks in every way there is (with and without a cache, step by step, with each depth
 * limit, in a batch) and wants one result from all.
 */
#ifndef UNSPOOL_PROCESS_H
#define UNSPOOL_PROCESS_H

#include "cfi_program.h"
#include "cfi_writer.h"
#include "check.h"
#include "unspool.h"

#define CODE_AT UINT64_C(0x400000)
#define CODE_SIZE 0x3000u
#define STACK_AT UINT64_C(0x7fff0000)
#define STACK_WORDS 256u
#define STACK_END (STACK_AT + 8 * STACK_WORDS)
#define MOST_FRAMES 16u

enum {
    INTERRUPTED = UNSPOOL_HOW_INTERRUPTED,
    BY_CFI = UNSPOOL_HOW_CFI,
    EXACTLY = UNSPOOL_HOW_CFI_EXACT,
    BY_SIGNAL = UNSPOOL_HOW_SIGNAL_FRAME,
    BY_PLT = UNSPOOL_HOW_PLT,
    BY_CODE = UNSPOOL_HOW_CODE_ANALYSIS,
    BY_LEAF = UNSPOOL_HOW_LEAF,
    BY_FRAME_POINTER = UNSPOOL_HOW_FRAME_POINTER,
    GUESSED = UNSPOOL_HOW_GUESS,
};

struct process {
    struct unspool_unwinder unwinder;
    struct unspool_module modules[3]; /* sorted; the first is the code */
    struct unspool_registers registers;
    struct unspool_memory memory;
    struct unspool_region regions[2]; /* other memory than the stack: set memory.region_count */
    struct writer eh_frame;
    uint64_t cie;
    struct unspool_table *table;
    uint8_t code[CODE_SIZE];
    uint64_t stack[STACK_WORDS];
};

struct expected_frame {
    uint64_t address;
    uint32_t how;
};
#define FRAMES(...)                                                                                          \
    (const struct expected_frame[]){__VA_ARGS__},                                                            \
        sizeof((const struct expected_frame[]){__VA_ARGS__}) / sizeof(struct expected_frame)

static inline void end_process(struct process *p) {
    unspool_table_free(p->table);
    writer_free(&p->eh_frame);
    *p = (struct process){0};
}

/* Begins anew. Code is all zero bytes: traps on aarch64, nothing that returns on x86_64. */
static inline void begin_process(struct process *p, uint32_t arch) {
    end_process(p);
    p->cie = write_cie(&p->eh_frame, arch == UNSPOOL_AARCH64 ? &aarch64_cie : &x86_64_cie);
    p->modules[0] = (struct unspool_module){
        .start = CODE_AT,
        .end = CODE_AT + CODE_SIZE,
        .image_base = CODE_AT,
        .code = p->code,
        .code_size = CODE_SIZE,
    };
    p->unwinder =
        (struct unspool_unwinder){.arch = arch, .address_bits = 48, .modules = p->modules, .module_count = 1};
    p->memory.regions = p->regions;
}

/* A function at a relative address. */
static inline void function(struct process *p, uint64_t start, uint64_t size, const uint8_t *instructions,
                            size_t instructions_size) {
    write_fde(&p->eh_frame, p->cie, start, size, instructions, instructions_size);
}

/* The outermost function: its return address is undefined. */
static inline void root_function(struct process *p, uint64_t start, uint64_t size) {
    uint8_t ra = p->unwinder.arch == UNSPOOL_AARCH64 ? X30 : RIP;
    function(p, start, size, CFI(UNDEFINED(ra)));
}

static inline void put_code(struct process *p, uint64_t relative_address, const uint8_t *bytes, size_t size) {
    memcpy(p->code + relative_address, bytes, size);
}

/* Stores a word of the stack. */
static inline void put(struct process *p, uint64_t address, uint64_t value) {
    memcpy((uint8_t *)p->stack + (address - STACK_AT), &value, sizeof value);
}

static inline void set_register(struct process *p, uint32_t number, uint64_t value) {
    p->registers.value[number] = value;
    p->registers.known |= (uint64_t)1 << number;
}

/* pc and sp; the copy of the stack starts at sp. */
static inline void interrupted_at(struct process *p, uint64_t pc, uint64_t sp) {
    set_register(p, pc_register(p->unwinder.arch), pc);
    set_register(p, sp_register(p->unwinder.arch), sp);
    p->memory.stack =
        (struct unspool_region){sp, STACK_END - sp, (const uint8_t *)p->stack + (sp - STACK_AT)};
}

static inline void compile_process(struct process *p) {
    const struct unspool_section sections[] = {as_section(&p->eh_frame, UNSPOOL_EH_FRAME)};
    const struct unspool_section code = {.bytes = p->code, .size = CODE_SIZE};
    const struct unspool_compile_input input = {
        .arch = p->unwinder.arch, .section_count = 1, .sections = sections, .code = &code, .code_count = 1};
    struct unspool_problems problems;
    unspool_table_free(p->table);
    CHECK_EQUAL(unspool_table_compile(&input, &p->table, &problems), UNSPOOL_OK);
    p->modules[0].table = p->table;
}

static inline void compare_frame(const struct expected_frame *expected, uint64_t address, uint32_t how) {
    CHECK_EQUAL(address, expected->address);
    CHECK_EQUAL(how, expected->how);
}

static inline void expect_stack(struct process *p, uint32_t end, const struct expected_frame *frames,
                                size_t count, uint64_t depth_limit) {
    uint64_t addresses[MOST_FRAMES + 1];
    uint8_t how[MOST_FRAMES + 1];
    struct unspool_stack stack = {.addresses = addresses, .how = how, .capacity = depth_limit};
    if (!p->table)
        compile_process(p);
    unspool_memory_reset(&p->memory);
    unspool_walk(&p->unwinder, &p->registers, &p->memory, &stack);
    CHECK_EQUAL(stack.end, end);
    CHECK_EQUAL(stack.count, count);
    for (size_t i = 0; i < count && i < stack.count; i++)
        compare_frame(&frames[i], addresses[i], how[i]);
}

static inline void expect_steps(struct process *p, uint32_t end, const struct expected_frame *frames,
                                size_t count) {
    struct unspool_registers registers = p->registers;
    uint32_t how = UNSPOOL_HOW_INTERRUPTED, got = 0, pc = pc_register(p->unwinder.arch);
    for (size_t i = 0; i < count; i++) {
        compare_frame(&frames[i], registers.value[pc], how);
        if (!CHECK_EQUAL(unspool_step(&p->unwinder, &registers, &p->memory, &how, &got), i + 1 < count))
            return;
    }
    CHECK_EQUAL(got, end);
}

/* As the second of two samples, the first of which ends at once. */
static inline void expect_batch(struct process *p, uint32_t end, const struct expected_frame *frames,
                                size_t count) {
    uint32_t arch = p->unwinder.arch;
    const uint64_t *value = p->registers.value;
    uint64_t lr = arch == UNSPOOL_AARCH64 ? value[UNSPOOL_AARCH64_LR] : 0;
    const uint64_t registers[] = {
        0x10, 0x10, 0, 0, value[pc_register(arch)], value[sp_register(arch)], value[fp_register(arch)], lr};
    const uint64_t stack_offsets[] = {0, 0, p->memory.stack.size};
    uint64_t addresses[MOST_FRAMES + 2], offsets[3] = {0};
    uint8_t how[MOST_FRAMES + 2], ends[2];
    struct unspool_batch batch = {.count = 2,
                                  .registers = registers,
                                  .stack_offsets = stack_offsets,
                                  .stack_bytes = p->memory.stack.bytes,
                                  .depth_limit = MOST_FRAMES,
                                  .capacity = MOST_FRAMES + 2,
                                  .addresses = addresses,
                                  .how = how,
                                  .offsets = offsets,
                                  .ends = ends};
    CHECK_EQUAL(unspool_walk_many(&p->unwinder, &batch, 0), 2);
    CHECK_EQUAL(ends[0], UNSPOOL_END_UNMAPPED_PC);
    CHECK_EQUAL(offsets[1], 1);
    CHECK_EQUAL(ends[1], end);
    CHECK_EQUAL(offsets[2], 1 + count);
    for (size_t i = 0; i < count && 1 + i < offsets[2]; i++)
        compare_frame(&frames[i], addresses[1 + i], how[1 + i]);
}

/* What walk_many takes: pc, sp, fp (and lr), and nothing but a stack. */
static inline bool fits_a_batch(const struct process *p) {
    uint32_t arch = p->unwinder.arch;
    uint64_t known = (uint64_t)1 << pc_register(arch) | (uint64_t)1 << sp_register(arch) |
                     (uint64_t)1 << fp_register(arch);
    if (arch == UNSPOOL_AARCH64)
        known |= (uint64_t)1 << UNSPOOL_AARCH64_LR;
    return p->registers.known == known && !p->memory.region_count && !p->registers.pc_is_return_address;
}

static inline void expect_walk(struct process *p, uint32_t end, const struct expected_frame *frames,
                               size_t count) {
    static struct unspool_cache cache;
    expect_stack(p, end, frames, count, MOST_FRAMES);
    memset(&cache, 0x55, sizeof cache);
    unspool_cache_clear(&cache);
    p->unwinder.cache = &cache;
    expect_stack(p, end, frames, count, MOST_FRAMES);
    expect_stack(p, end, frames, count, MOST_FRAMES);
    for (int warm = 0; warm < 2 && fits_a_batch(p); warm++) {
        if (!warm)
            unspool_cache_clear(&cache);
        expect_batch(p, end, frames, count);
    }
    p->unwinder.cache = NULL;
    for (uint64_t limit = 0; limit < count; limit++)
        expect_stack(p, UNSPOOL_END_DEPTH_LIMIT, frames, limit, limit);
    expect_steps(p, end, frames, count);
    if (fits_a_batch(p))
        expect_batch(p, end, frames, count);
}

#endif
