/* in_process_unspool.c: unspool's walker in its own process, as the agent uses it: the thread's stack is read
 * directly, all else through the kernel; tables of what is loaded, made from memory. */
#include "in_process.h"
#include "unspool.h"
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { MOST_MODULES = 64 };

static struct unspool_module modules[MOST_MODULES];
static struct unspool_cache cache;
static struct unspool_unwinder unwinder = {
    .arch = UNSPOOL_X86_64, .address_bits = 47, .modules = modules, .cache = &cache};
static struct unspool_memory memory;
static uintptr_t stack_end;

/* .eh_frame as .eh_frame_hdr tells where it is (pc-relative, 4 bytes), up to the end of its segment at most.
 */
static struct unspool_section eh_frame(const struct dl_phdr_info *info, const ElfW(Phdr) * header) {
    const uint8_t *bytes = (const uint8_t *)(info->dlpi_addr + header->p_vaddr);
    int32_t distance;
    struct unspool_section section = {.kind = UNSPOOL_EH_FRAME, .open_ended = 1};
    if (bytes[0] != 1 || bytes[1] != 0x1b)
        return section;
    memcpy(&distance, bytes + 4, sizeof distance);
    section.address = header->p_vaddr + 4 + (uint64_t)(int64_t)distance;
    section.bytes = (const uint8_t *)(info->dlpi_addr + section.address);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *load = &info->dlpi_phdr[i];
        if (load->p_type == PT_LOAD && section.address - load->p_vaddr < load->p_filesz)
            section.size = load->p_vaddr + load->p_filesz - section.address;
    }
    return section;
}

static int add_module(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size, (void)argument;
    struct unspool_section unwind = {0}, code = {0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_GNU_EH_FRAME)
            unwind = eh_frame(info, header);
        else if (header->p_type == PT_LOAD && header->p_flags & PF_X)
            code = (struct unspool_section){(const uint8_t *)(info->dlpi_addr + header->p_vaddr),
                                            header->p_filesz, header->p_vaddr, 0, 0};
    }
    if (!code.size || unwinder.module_count == MOST_MODULES)
        return 0;
    struct unspool_module *module = &modules[unwinder.module_count++];
    *module = (struct unspool_module){.start = (uintptr_t)code.bytes,
                                      .end = (uintptr_t)code.bytes + code.size,
                                      .image_base = info->dlpi_addr};
    uint64_t entry = getauxval(AT_ENTRY) - info->dlpi_addr;
    struct unspool_compile_input input = {
        .arch = UNSPOOL_X86_64,
        .section_count = 1,
        .sections = &unwind,
        .entry_address = entry - code.address < code.size ? entry : 0,
        .code = &code,
        .code_count = 1,
    };
    struct unspool_table *table = NULL;
    struct unspool_problems problems;
    if (unwind.size && unspool_table_compile(&input, &table, &problems) != UNSPOOL_OK)
        abort();
    module->table = table;
    return 0;
}

static int compare_modules(const void *a, const void *b) {
    uint64_t x = ((const struct unspool_module *)a)->start, y = ((const struct unspool_module *)b)->start;
    return (x > y) - (x < y);
}

void set_up(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "[stack]"))
            stack_end = strtoul(strchr(line, '-') + 1, NULL, 16);
    if (!stack_end)
        abort();
    fclose(maps);
    dl_iterate_phdr(add_module, NULL);
    qsort(modules, unwinder.module_count, sizeof *modules, compare_modules);
    unspool_cache_clear(&cache);
    memory.pid = getpid();
}

static size_t walk(uint64_t pc, uint64_t sp, uint64_t fp, uintptr_t *addresses, size_t capacity) {
    uint8_t how[capacity];
    struct unspool_stack stack = {.addresses = (uint64_t *)addresses, .how = how, .capacity = capacity};
    struct unspool_registers registers;
    registers.value[UNSPOOL_X86_64_PC] = pc;
    registers.value[UNSPOOL_X86_64_RSP] = sp;
    registers.value[UNSPOOL_X86_64_RBP] = fp;
    registers.known = 1u << UNSPOOL_X86_64_PC | 1u << UNSPOOL_X86_64_RSP | 1u << UNSPOOL_X86_64_RBP;
    registers.pc_is_return_address = 0;
    memory.stack = (struct unspool_region){sp, stack_end - sp, (const uint8_t *)sp};
    unspool_memory_reset(&memory);
    unspool_walk(&unwinder, &registers, &memory, &stack);
    return stack.end == UNSPOOL_END_ROOT ? stack.count : 0;
}

size_t walk_here(uintptr_t *addresses, size_t capacity) {
    uint64_t pc, sp, fp;
    __asm__ volatile("lea 0(%%rip), %0; mov %%rsp, %1; mov %%rbp, %2" : "=r"(pc), "=r"(sp), "=r"(fp));
    return walk(pc, sp, fp, addresses, capacity);
}

size_t walk_context(const ucontext_t *context, uintptr_t *addresses, size_t capacity) {
    const greg_t *registers = context->uc_mcontext.gregs;
    return walk((uint64_t)registers[REG_RIP], (uint64_t)registers[REG_RSP], (uint64_t)registers[REG_RBP],
                addresses, capacity);
}
