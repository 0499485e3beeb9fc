/*
 * code.h: instruction bytes of the walked process, from the file or through the memory reader.
 *
 * Reading never faults and never fails loudly: fewer bytes than asked for, or none, is an answer.
 */
#ifndef UNSPOOL_CODE_H
#define UNSPOOL_CODE_H

#include "unspool.h"

struct code {
    const struct unspool_unwinder *unwinder;
    struct unspool_memory *memory;
};

/* The module whose mapping holds address, or NULL. */
const struct unspool_module *find_module(const struct unspool_unwinder *unwinder, uint64_t address);

/* Copies up to size bytes of code at address into buffer; returns how many. Only executable
 * mappings are read. */
size_t code_read(const struct code *code, uint64_t address, uint8_t *buffer, size_t size);

#endif
