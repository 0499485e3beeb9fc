/*
 * memory.h: reading the walked process's memory, which never faults.
 *
 * The first try, the stack at hand, is inline: nearly every read ends there. Async-signal-safe.
 */
#ifndef UNSPOOL_MEMORY_H
#define UNSPOOL_MEMORY_H

#include <stdbool.h>
#include <string.h>

#include "unspool.h"

/* Copies up to size bytes at address; returns how many could be read from the first on. */
size_t memory_read(struct unspool_memory *memory, uint64_t address, void *buffer, size_t size);

/* The same for code, which may be read in a process where data may not. */
size_t memory_read_code(struct unspool_memory *memory, uint64_t address, void *buffer, size_t size);

static inline bool memory_read_u64(struct unspool_memory *memory, uint64_t address, uint64_t *value) {
    uint64_t offset = address - memory->stack.address;
    if (memory->stack.size >= sizeof *value && offset <= memory->stack.size - sizeof *value) {
        memcpy(value, memory->stack.bytes + offset, sizeof *value);
        return true;
    }
    return memory_read(memory, address, value, sizeof *value) == sizeof *value;
}

/* The same, of what lets code lead elsewhere (a PLT slot): it is noted that something rests on it. */
static inline bool memory_read_slot(struct unspool_memory *memory, uint64_t address, uint64_t *value) {
    bool is_read = memory_read_u64(memory, address, value);
    memory->slots_read += is_read;
    return is_read;
}

/* Why a read at address failed: the copy of the stack was too short, or nothing is there. */
enum unspool_end memory_end(const struct unspool_memory *memory, uint64_t address);

#endif
