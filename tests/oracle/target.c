/* target.c: see target.h. */
#define _GNU_SOURCE
#include "target.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static _Noreturn void fail(const char *what, const char *which) {
    fprintf(stderr, "tracer: %s: %s\n", what, which);
    exit(3);
}

size_t target_read(const struct target *target, uint64_t address, void *bytes, size_t size) {
    struct iovec local = {bytes, size};
    size_t done = 0;
    while (done < size) {
        uint64_t at = address + done;
        uint64_t piece = size - done; /* a failing page must not hide the pages before it */
        struct iovec remote = {(void *)(uintptr_t)at, piece};
        local = (struct iovec){(char *)bytes + done, piece};
        ssize_t got = process_vm_readv(target->pid, &local, 1, &remote, 1, 0);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

/* ------------------------------------------------------------------ modules */

static const struct unspool_table *load_table(struct target *target, const char *path) {
    for (size_t i = 0; i < target->table_count; i++) {
        if (!strcmp(target->tables[i].path, path))
            return target->tables[i].table;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status))
        fail("no table", path);
    void *block = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (block == MAP_FAILED || unspool_table_check(block, (uint64_t)status.st_size) != UNSPOOL_OK)
        fail("not a table", path);
    target->tables = realloc(target->tables, (target->table_count + 1) * sizeof *target->tables);
    target->tables[target->table_count++] = (struct target_table){strdup(path), block};
    return block;
}

static void add_module(struct target *target, const char *line) {
    uint64_t start, end, base;
    char path[4096];
    if (sscanf(line, "module %" SCNx64 " %" SCNx64 " %" SCNx64 " %4095[^\n]", &start, &end, &base, path) != 4)
        fail("bad line from the driver", line);
    struct unspool_module module = {.start = start, .end = end, .image_base = base};
    if (strcmp(path, "-")) { /* code of no file is made at run time: it is read when it is needed */
        uint8_t *code = malloc(end - start);
        if (!code)
            fail("no memory for", path);
        module.table = load_table(target, path);
        module.code = code;
        module.code_size = target_read(target, start, code, end - start);
    }
    target->modules = realloc(target->modules, (target->module_count + 1) * sizeof *target->modules);
    target->modules[target->module_count++] = module;
}

void target_refresh(struct target *target) {
    for (uint64_t i = 0; i < target->module_count; i++)
        free((void *)(uintptr_t)target->modules[i].code);
    target->module_count = 0;
    printf("maps %d\n", (int)target->pid);
    fflush(stdout);
    char line[8192];
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "done", 4))
            return;
        if (!strncmp(line, "module ", 7))
            add_module(target, line);
        else if (sscanf(line, "mark makecontext %" SCNx64, &target->makecontext) != 1)
            fail("bad line from the driver", line);
    }
    fail("the driver went away", "stdin");
}

const struct unspool_module *target_module(const struct target *target, uint64_t address) {
    for (uint64_t i = 0; i < target->module_count; i++) {
        if (address - target->modules[i].start < target->modules[i].end - target->modules[i].start)
            return &target->modules[i];
    }
    return NULL;
}

const uint8_t *target_code(const struct target *target, uint64_t pc, uint8_t buffer[15], size_t *size) {
    const struct unspool_module *module = target_module(target, pc);
    if (module && module->table && pc - module->start + 15 <= module->code_size) {
        *size = 15;
        return module->code + (pc - module->start);
    }
    *size = target_read(target, pc, buffer, 15); /* code made at run time, or the end of a mapping */
    return buffer;
}

bool target_mapping(const struct target *target, uint64_t address, uint64_t *start, uint64_t *end) {
    char line[4096];
    snprintf(line, sizeof line, "/proc/%d/maps", (int)target->pid);
    FILE *maps = fopen(line, "re");
    if (!maps)
        return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, maps)) {
        uint64_t low, high;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64, &low, &high) != 2 || address < low || address >= high)
            continue;
        *start = low;
        *end = high;
        found = true;
    }
    fclose(maps);
    return found;
}
