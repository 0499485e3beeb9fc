/*
 * own_process.c: modules from /proc/self/maps, unwind information through AT_PHDR (the program is static
 * and not relocated, so that virtual addresses are addresses).
 */
#define _GNU_SOURCE
#include "own_process.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

static void fail(const char *what) {
    fprintf(stderr, "set-up: %s\n", what);
    exit(2);
}

static const uint8_t *pointer(uint64_t address) {
    return (const uint8_t *)(uintptr_t)address;
}

static const Elf64_Phdr *find_segment(uint32_t type, uint64_t address) {
    const Elf64_Phdr *segment = (const Elf64_Phdr *)getauxval(AT_PHDR);
    for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++)
        if (segment[i].p_type == type && (!address || address - segment[i].p_vaddr < segment[i].p_memsz))
            return &segment[i];
    fail("a segment is missing");
    return NULL;
}

/* .eh_frame by PT_GNU_EH_FRAME's pointer; where it ends is not said there, so the segment's end bounds it. */
static struct unspool_table *compile_own_table(uint64_t image_address) {
    const Elf64_Phdr *header = find_segment(PT_GNU_EH_FRAME, 0);
    const uint8_t *bytes = pointer(header->p_vaddr);
    int32_t distance;
    if (bytes[0] != 1 || bytes[1] != 0x1b) /* version; pc-relative, 4 bytes */
        fail("PT_GNU_EH_FRAME is of another kind");
    memcpy(&distance, bytes + 4, sizeof distance);
    uint64_t address = header->p_vaddr + 4 + (uint64_t)(int64_t)distance;
    const Elf64_Phdr *segment = find_segment(PT_LOAD, address);
    const struct unspool_section section = {
        .bytes = pointer(address),
        .size = segment->p_vaddr + segment->p_memsz - address,
        .address = address,
        .kind = UNSPOOL_EH_FRAME,
        .open_ended = 1,
    };
    const struct unspool_compile_input input = {
        .arch = OWN_ARCH,
        .section_count = 1,
        .sections = &section,
        .image_address = image_address,
        .entry_address = getauxval(AT_ENTRY),
    };
    struct unspool_table *table;
    struct unspool_problems problems;
    if (unspool_table_compile(&input, &table, &problems) != UNSPOOL_OK || problems.count)
        fail("the table can't be compiled");
    return table;
}

static void add_module(struct own_process *process, uint64_t start, uint64_t end, uint64_t image_address,
                       uint64_t image_end) {
    uint64_t count = process->unwinder.module_count;
    if (count == sizeof process->modules / sizeof *process->modules)
        fail("too many executable mappings");
    process->unwinder.module_count++;
    process->modules[count] = (struct unspool_module){
        .start = start,
        .end = end,
        .image_base = image_address,
        .table = start >= image_address && start < image_end ? process->table : NULL,
        .code = pointer(start),
        .code_size = end - start,
    };
}

static void read_maps(struct own_process *process, uint64_t image_address, uint64_t image_end) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], access[8];
    unsigned long start, end;
    if (!maps)
        fail("/proc/self/maps");
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &start, &end, access) != 3)
            fail("/proc/self/maps is of another form");
        if (strstr(line, "[stack]"))
            process->stacks[0] = (struct unspool_region){start, end - start, pointer(start)};
        else if (access[0] == 'r' && access[2] == 'x')
            add_module(process, start, end, image_address, image_end);
    }
    fclose(maps);
}

void own_process_begin(struct own_process *process, const void *alternate_stack, size_t alternate_size) {
    uint64_t image_address = UINT64_MAX, image_end = 0;
    const Elf64_Phdr *segment = (const Elf64_Phdr *)getauxval(AT_PHDR);
    for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++) {
        if (segment[i].p_type != PT_LOAD)
            continue;
        uint64_t start = segment[i].p_vaddr, end = start + segment[i].p_memsz;
        image_address = start < image_address ? start : image_address;
        image_end = end > image_end ? end : image_end;
    }
    image_address &= ~(uint64_t)0xfff;
    process->table = compile_own_table(image_address);
    process->unwinder =
        (struct unspool_unwinder){.arch = OWN_ARCH, .address_bits = 48, .modules = process->modules};
    read_maps(process, image_address, image_end);
    uint64_t alternate = (uint64_t)(uintptr_t)alternate_stack;
    process->stacks[1] = (struct unspool_region){alternate, alternate_size, alternate_stack};
    if (!process->stacks[0].size)
        fail("no stack is mapped");
    if (process->stacks[1].address < process->stacks[0].address) {
        struct unspool_region main_stack = process->stacks[0];
        process->stacks[0] = process->stacks[1];
        process->stacks[1] = main_stack;
    }
}

void own_process_memory(const struct own_process *process, uint64_t sp, struct unspool_memory *memory) {
    const struct unspool_region *stack = &process->stacks[sp >= process->stacks[1].address];
    memory->stack = *stack;
    memory->regions = process->stacks;
    memory->region_count = 2;
    memory->pid = 0;
    unspool_memory_reset(memory);
}

void registers_of(const ucontext_t *context, struct unspool_registers *registers) {
#if defined(__aarch64__)
    const mcontext_t *saved = &context->uc_mcontext;
    for (int i = 0; i < 31; i++)
        registers->value[i] = saved->regs[i];
    registers->value[UNSPOOL_AARCH64_SP] = saved->sp;
    registers->value[UNSPOOL_AARCH64_PC] = saved->pc;
    registers->known = ((uint64_t)1 << 33) - 1;
#else
    static const int order[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    for (int i = 0; i < 17; i++)
        registers->value[i] = (uint64_t)context->uc_mcontext.gregs[order[i]];
    registers->known = ((uint64_t)1 << 17) - 1;
#endif
    registers->pc_is_return_address = 0;
}
