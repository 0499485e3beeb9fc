/*
 * code.c: instruction bytes, from the file where the caller has them, else through the memory reader.
 */
#include "code.h"
#include "memory.h"

const struct unspool_module *find_module(const struct unspool_unwinder *unwinder, uint64_t address) {
    uint64_t low = 0;
    uint64_t high = unwinder->module_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (unwinder->modules[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == unwinder->module_count || unwinder->modules[low].start > address)
        return NULL;
    return &unwinder->modules[low];
}

size_t code_read(const struct code *code, uint64_t address, uint8_t *buffer, size_t size) {
    const struct unspool_module *module = find_module(code->unwinder, address);
    if (!module)
        return 0;
    uint64_t left = module->end - address;
    if (size > left)
        size = (size_t)left;
    uint64_t offset = address - module->start;
    if (!module->code)
        return memory_read_code(code->memory, address, buffer, size);
    if (offset >= module->code_size)
        return 0;
    if (size > module->code_size - offset)
        size = (size_t)(module->code_size - offset);
    memcpy(buffer, module->code + offset, size);
    return size;
}
