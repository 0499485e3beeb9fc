/*
 * load.c: puts an aarch64 ELF program into the emulated machine, as execve does: segments, the loader, the
 * first stack with arguments, environment and auxiliary vector.
 */
#define _GNU_SOURCE
#include "process.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where things are, as on a kernel with 39-bit addresses and no randomization. (The processor without address
 * translation has no room for 48 bits.) */
#define PROGRAM_BIAS 0x5555550000u
#define LOADER_BIAS 0x7ff7f80000u
#define LIBRARIES_START 0x7fd0000000u
#define STACK_END 0x7ffffff000u
#define STACK_SIZE ((uint64_t)8 << 20)
#define IMAGE_ROOM ((uint64_t)256 << 20)
#define RETURN_CODE 0x7ff7ffb000u

struct image {
    uint64_t bias, entry, headers, header_count, end;
    char loader[256];
    bool executable_stack;
};

static _Noreturn void fail(const char *what, const char *which) {
    fprintf(stderr, "emulator: %s: %s\n", what, which);
    exit(3);
}

static uint64_t page_down(uint64_t address) {
    return address & ~(MACHINE_PAGE - 1);
}

static uint64_t page_up(uint64_t address) {
    return page_down(address + MACHINE_PAGE - 1);
}

static uint32_t protection_of(const Elf64_Phdr *header) {
    return (header->p_flags & PF_R ? UC_PROT_READ : 0) | (header->p_flags & PF_W ? UC_PROT_WRITE : 0) |
           (header->p_flags & PF_X ? UC_PROT_EXEC : 0);
}

/* Whole pages of the file, then zeros: what mmap and the kernel's clearing of .bss do. */
static void load_segment(struct process *process, const char *path, const Elf64_Phdr *header, uint64_t bias,
                         const uint8_t *file, uint64_t file_size) {
    uint64_t start = page_down(header->p_vaddr), end = page_up(header->p_vaddr + header->p_memsz);
    uint64_t offset = page_down(header->p_offset);
    bool has_zeros = header->p_memsz > header->p_filesz;
    uint64_t size = header->p_offset - offset + header->p_filesz;
    if (!has_zeros) /* the rest of the last page shows what follows in the file */
        size = page_up(size);
    if (offset > file_size)
        fail("segment beyond the end of", path);
    if (size > file_size - offset)
        size = file_size - offset;
    if (!machine_map(process->machine, bias + start, end - start, protection_of(header)))
        fail("no room for", path);
    memcpy(machine_at(process->machine, bias + start, end - start), file + offset, size);
    if (header->p_flags & PF_X)
        process->watcher.file_mapped(process->watcher.context, path, bias + start, bias + end, offset);
}

static void read_header(const Elf64_Phdr *header, const uint8_t *file, struct image *image) {
    if (header->p_type == PT_INTERP && header->p_filesz < sizeof image->loader)
        memcpy(image->loader, file + header->p_offset, header->p_filesz);
    if (header->p_type == PT_GNU_STACK)
        image->executable_stack = header->p_flags & PF_X;
    if (header->p_type == PT_LOAD && header->p_offset == 0)
        image->headers = image->bias + header->p_vaddr + ((const Elf64_Ehdr *)(const void *)file)->e_phoff;
    if (header->p_type == PT_LOAD && image->bias + header->p_vaddr + header->p_memsz > image->end)
        image->end = image->bias + header->p_vaddr + header->p_memsz;
}

static struct image load_image(struct process *process, const char *path, uint64_t bias) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status))
        fail("can't open", path);
    uint64_t size = (uint64_t)status.st_size;
    uint8_t *file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)(const void *)file;
    if (file == MAP_FAILED || size < sizeof *elf || memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0 ||
        elf->e_machine != EM_AARCH64)
        fail("no program for aarch64", path);
    struct image image = {.bias = elf->e_type == ET_DYN ? bias : 0, .header_count = elf->e_phnum};
    image.entry = image.bias + elf->e_entry;
    const Elf64_Phdr *header = (const Elf64_Phdr *)(const void *)(file + elf->e_phoff);
    if (bias == PROGRAM_BIAS)
        machine_add_arena(process->machine, elf->e_type == ET_DYN ? bias : 0, IMAGE_ROOM);
    for (int i = 0; i < elf->e_phnum; i++) {
        read_header(&header[i], file, &image);
        if (header[i].p_type == PT_LOAD)
            load_segment(process, path, &header[i], image.bias, file, size);
    }
    munmap(file, size);
    return image;
}

static uint64_t push_bytes(struct process *process, uint64_t *sp, const void *bytes, size_t size) {
    *sp -= size;
    memcpy(machine_at(process->machine, *sp, size), bytes, size);
    return *sp;
}

/* argc, argv, envp, auxv: what _start finds at sp. */
static uint64_t make_stack(struct process *process, const struct image *image, uint64_t loader_base,
                           char **arguments) {
    static const char *const environment[] = {"PATH=/usr/bin:/bin", "LANG=C", "HOME=/"};
    enum { VARIABLES = sizeof environment / sizeof *environment, ARGUMENTS = 64 };
    uint64_t words[ARGUMENTS + VARIABLES + 64], count = 0, argc = 0, sp = STACK_END - 16;
    uint8_t random[16] = "oracle's random";
    while (arguments[argc] && argc < ARGUMENTS)
        argc++;
    words[count++] = argc;
    for (uint64_t i = 0; i < argc; i++)
        words[count++] = push_bytes(process, &sp, arguments[i], strlen(arguments[i]) + 1);
    words[count++] = 0;
    for (size_t i = 0; i < VARIABLES; i++)
        words[count++] = push_bytes(process, &sp, environment[i], strlen(environment[i]) + 1);
    words[count++] = 0;
    uint64_t random_at = push_bytes(process, &sp, random, sizeof random);
    uint64_t platform = push_bytes(process, &sp, "aarch64", 8);
    /* fp, asimd, aes, pmull, sha1, sha2, crc32, atomics, cpuid, paca, pacg */
    uint64_t capabilities = 0x9fb | 0xc0000000u;
    uint64_t vector[][2] = {{AT_PHDR, image->headers},
                            {AT_PHENT, sizeof(Elf64_Phdr)},
                            {AT_PHNUM, image->header_count},
                            {AT_PAGESZ, MACHINE_PAGE},
                            {AT_BASE, loader_base},
                            {AT_FLAGS, 0},
                            {AT_ENTRY, image->entry},
                            {AT_UID, 1000},
                            {AT_EUID, 1000},
                            {AT_GID, 1000},
                            {AT_EGID, 1000},
                            {AT_SECURE, 0},
                            {AT_CLKTCK, 100},
                            {AT_HWCAP, capabilities},
                            {AT_HWCAP2, 0},
                            {AT_RANDOM, random_at},
                            {AT_PLATFORM, platform},
                            {AT_EXECFN, words[1]},
                            {51 /* AT_MINSIGSTKSZ */, 4720},
                            {AT_NULL, 0}};
    memcpy(&words[count], vector, sizeof vector);
    count += sizeof vector / sizeof(uint64_t);
    sp = (sp - count * 8) & ~(uint64_t)15;
    memcpy(machine_at(process->machine, sp, count * 8), words, count * 8);
    return sp;
}

/* What the vDSO has for handlers to return to. A return address there is in no function. */
static void make_return_code(struct process *process) {
    static const uint32_t code[] = {0xd503201f, 0xd2801168, 0xd4000001}; /* nop; mov x8, #139; svc #0 */
    machine_map(process->machine, RETURN_CODE, MACHINE_PAGE, UC_PROT_READ | UC_PROT_EXEC);
    memcpy(machine_at(process->machine, RETURN_CODE, sizeof code), code, sizeof code);
    process->return_code = RETURN_CODE + 4;
    process->watcher.code_mapped(process->watcher.context, RETURN_CODE, RETURN_CODE + MACHINE_PAGE);
}

void process_load(struct process *process, const char *path, char **arguments) {
    uint64_t registers[MACHINE_REGISTERS] = {0}, loader_base = 0;
    machine_add_arena(process->machine, LIBRARIES_START, STACK_END - LIBRARIES_START);
    make_return_code(process);
    process->mmap_end = LOADER_BIAS;
    struct image image = load_image(process, path, PROGRAM_BIAS);
    process->break_start = process->break_end = page_up(image.end) + 16 * MACHINE_PAGE;
    process->entry = process->program_entry = image.entry;
    if (image.loader[0]) {
        char loader[512];
        snprintf(loader, sizeof loader, "%s%s", process->root, image.loader);
        struct image second = load_image(process, loader, LOADER_BIAS);
        process->entry = second.entry;
        loader_base = second.bias;
    }
    uint32_t protection = UC_PROT_READ | UC_PROT_WRITE | (image.executable_stack ? UC_PROT_EXEC : 0);
    machine_map(process->machine, STACK_END - STACK_SIZE, STACK_SIZE, protection);
    if (image.executable_stack)
        process->watcher.code_mapped(process->watcher.context, STACK_END - STACK_SIZE, STACK_END);
    registers[MACHINE_SP] = make_stack(process, &image, loader_base, arguments);
    registers[MACHINE_PC] = process->entry;
    machine_set(process->machine, registers);
    process->current = &process->task[0];
    *process->current = (struct task){.state = TASK_READY, .tid = 1000, .fresh = true};
    process->next_tid = 1001;
}
