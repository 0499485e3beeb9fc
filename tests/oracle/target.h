/*
 * target.h: the traced process as the walker sees it: memory, mappings, modules with their tables.
 *
 * Tables come from the driver: the tracer writes "maps PID" to stdout and reads lines from stdin until
 * "done" (numbers in hex):
 *   module START END IMAGE_BASE TABLE   an executable mapping; TABLE is a file or -
 *   mark NAME ADDRESS                   where a function that the tracer watches starts
 */
#ifndef ORACLE_TARGET_H
#define ORACLE_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "unspool.h"

struct target_table {
    char *path;
    const struct unspool_table *table;
};

struct target {
    pid_t pid; /* 0: its memory is in regions */
    const struct unspool_region *regions;
    uint64_t region_count;
    struct unspool_module *modules;
    uint64_t module_count;
    struct target_table *tables; /* every table that was ever loaded */
    size_t table_count;
    uint64_t makecontext; /* address of the function, or 0 */
};

/* Reads as much as can be read; returns the number of bytes. */
size_t target_read(const struct target *target, uint64_t address, void *bytes, size_t size);

/* Asks the driver for the modules and copies their code. Ends the program when the driver is gone or
 * a table is not one. */
void target_refresh(struct target *target);

const struct unspool_module *target_module(const struct target *target, uint64_t address);

/* The bytes at pc, at most 15: from the module's copy, or read into buffer. */
const uint8_t *target_code(const struct target *target, uint64_t pc, uint8_t buffer[15], size_t *size);

/* The mapping that holds an address, from /proc/PID/maps. */
bool target_mapping(const struct target *target, uint64_t address, uint64_t *start, uint64_t *end);

#endif
