/*
 * hooks_file.c: whether the agent can be preloaded into a program, from its file.
 *
 * As execve(2) and ld.so(8), "Secure-execution mode", have it. The file is not trusted: it is read by pread
 * in small pieces with every offset checked by the kernel, and at most FILE_LIMIT entries of anything.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "hooks.h"

#define SCRIPT_LINE 256 /* bytes of a script's first line that the kernel looks at */
#define SCRIPT_DEPTH 5  /* scripts that are run by scripts */
#define FILE_LIMIT 1024
#define SHELL "/bin/sh"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

static bool read_at(int file, uint64_t offset, void *buffer, size_t size) {
    return system_call(SYS_pread64, file, (long)buffer, (long)size, (long)offset, 0, 0) == (long)size;
}

static bool is_privileged(int file, const struct stat *status) {
    long user = system_call(SYS_getuid, 0, 0, 0, 0, 0, 0);
    long group = system_call(SYS_getgid, 0, 0, 0, 0, 0, 0);
    if (user != system_call(SYS_geteuid, 0, 0, 0, 0, 0, 0) ||
        group != system_call(SYS_getegid, 0, 0, 0, 0, 0, 0))
        return true;
    if ((status->st_mode & S_ISUID && (long)status->st_uid != user) ||
        (status->st_mode & S_ISGID && (long)status->st_gid != group))
        return true;
    const char *name = "security.capability";
    return user && system_call(SYS_fgetxattr, file, (long)name, 0, 0, 0, 0) > 0;
}

/* ------------------------------------------------------------------ ELF */

struct elf_file {
    int descriptor;
    Elf64_Ehdr header;
};

static bool read_segment(const struct elf_file *file, unsigned index, Elf64_Phdr *segment) {
    uint64_t offset;
    return index < file->header.e_phnum && index < FILE_LIMIT &&
           file->header.e_phentsize == sizeof *segment &&
           !__builtin_add_overflow(file->header.e_phoff, index * sizeof *segment, &offset) &&
           read_at(file->descriptor, offset, segment, sizeof *segment);
}

static bool find_segment(const struct elf_file *file, uint32_t type, Elf64_Phdr *segment) {
    for (unsigned i = 0; read_segment(file, i, segment); i++)
        if (segment->p_type == type)
            return true;
    return false;
}

/* Where the file has what is mapped at a virtual address; 0: nowhere. */
static uint64_t file_offset(const struct elf_file *file, uint64_t address) {
    Elf64_Phdr segment;
    for (unsigned i = 0; read_segment(file, i, &segment); i++)
        if (segment.p_type == PT_LOAD && address - segment.p_vaddr < segment.p_filesz)
            return segment.p_offset + (address - segment.p_vaddr);
    return 0;
}

/* The value of the entry of the dynamic section with this tag, from entry *index on; *index becomes the next.
 */
static bool find_dynamic(const struct elf_file *file, const Elf64_Phdr *dynamic, int64_t tag, unsigned *index,
                         uint64_t *value) {
    Elf64_Dyn entry;
    while (*index < FILE_LIMIT && *index < dynamic->p_filesz / sizeof entry &&
           read_at(file->descriptor, dynamic->p_offset + *index * sizeof entry, &entry, sizeof entry) &&
           entry.d_tag != DT_NULL) {
        ++*index;
        if (entry.d_tag == tag) {
            *value = entry.d_un.d_val;
            return true;
        }
    }
    return false;
}

/* AddressSanitizer's library, where the program is linked to it, refuses to start unless it comes first. */
static void find_first_library(const struct elf_file *file, char name[FILE_NAME_SIZE]) {
    Elf64_Phdr dynamic;
    unsigned index = 0;
    uint64_t strings;
    uint64_t offset;
    name[0] = 0;
    if (!find_segment(file, PT_DYNAMIC, &dynamic) ||
        !find_dynamic(file, &dynamic, DT_STRTAB, &index, &strings))
        return;
    strings = file_offset(file, strings);
    index = 0;
    while (strings && find_dynamic(file, &dynamic, DT_NEEDED, &index, &offset)) {
        char text[FILE_NAME_SIZE];
        if (!read_at(file->descriptor, strings + offset, text, sizeof text))
            continue;
        text[sizeof text - 1] = 0;
        if (text_after(text, "libasan.so"))
            put(name, text, sizeof text);
    }
}

static enum file_kind elf_kind(struct elf_file *file, const struct stat *status, struct file_nature *nature) {
    Elf64_Phdr segment;
    if (file->header.e_ident[EI_CLASS] != ELFCLASS64 || file->header.e_machine != MACHINE)
        return FILE_FOREIGN;
    if (!find_segment(file, PT_INTERP, &segment))
        return FILE_STATIC;
    if (is_privileged(file->descriptor, status))
        return FILE_PRIVILEGED;
    find_first_library(file, nature->first_library);
    return FILE_PRELOADABLE;
}

/* ------------------------------------------------------------------ scripts */

/* The interpreter of a "#!" line, in place. NULL: none is named. */
static const char *interpreter(char line[SCRIPT_LINE]) {
    size_t start = 2;
    while (line[start] == ' ' || line[start] == '\t')
        start++;
    size_t end = start;
    while (end < SCRIPT_LINE - 1 && line[end] && line[end] != ' ' && line[end] != '\t' && line[end] != '\n')
        end++;
    line[end] = 0;
    return end > start ? line + start : NULL;
}

/* The nature of an open file; FILE_UNKNOWN with line set to its interpreter where it is a script. */
static const char *look_at(int file, bool is_searched, char line[SCRIPT_LINE], struct file_nature *nature) {
    struct stat status;
    struct elf_file elf = {.descriptor = file};
    long got = system_call(SYS_pread64, file, (long)line, SCRIPT_LINE - 1, 0, 0, 0);
    if (system_call(SYS_fstat, file, (long)&status, 0, 0, 0, 0) || !S_ISREG(status.st_mode) || got < 2)
        return NULL;
    line[got] = 0;
    if (line[0] == '#' && line[1] == '!')
        return interpreter(line);
    if (text_after(line, ELFMAG) && read_at(file, 0, &elf.header, sizeof elf.header))
        nature->kind = elf_kind(&elf, &status, nature);
    else if (is_searched)
        return SHELL;
    else
        nature->kind = FILE_FOREIGN;
    return NULL;
}

void file_nature(int directory, const char *path, bool is_searched, struct file_nature *nature) {
    char line[SCRIPT_LINE];
    *nature = (struct file_nature){.kind = FILE_UNKNOWN};
    for (int depth = 0; path && depth < SCRIPT_DEPTH; depth++) {
        int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
        long file = system_call(SYS_openat, directory, (long)path, flags, 0, 0, 0);
        if (file < 0) {
            nature->kind = file == -ENOENT || file == -ENOTDIR ? FILE_UNKNOWN : FILE_UNREADABLE;
            return;
        }
        path = look_at((int)file, is_searched, line, nature);
        system_call(SYS_close, file, 0, 0, 0, 0, 0);
        directory = AT_FDCWD;
    }
}

void file_nature_of_open(int file, struct file_nature *nature) {
    char line[SCRIPT_LINE];
    *nature = (struct file_nature){.kind = FILE_UNKNOWN};
    const char *path = look_at(file, false, line, nature);
    if (path)
        file_nature(AT_FDCWD, path, false, nature);
}
