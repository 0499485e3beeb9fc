/*
 * memory.c: memory readers over copies and, by process_vm_readv, over processes.
 *
 * process_vm_readv on one's own process reads any address and can't fault. Pages are read whole and
 * the last one is kept, so that no page costs a system call a word.
 */
#include "memory.h"
#include "system.h"

#define PAGE ((uint64_t)sizeof((struct unspool_memory *)0)->page)

/* A stack rarely goes on further than this beyond its copy (the usual RLIMIT_STACK). */
#define STACK_LIMIT ((uint64_t)8 << 20)

struct io_vector { /* struct iovec, without a libc header's macros */
    void *base;
    size_t size;
};

void unspool_memory_reset(struct unspool_memory *memory) {
    memory->page_size = 0;
}

static size_t copy_region(const struct unspool_region *region, uint64_t address, void *buffer, size_t size) {
    uint64_t offset = address - region->address;
    if (offset >= region->size)
        return 0;
    size_t available = region->size - offset < size ? (size_t)(region->size - offset) : size;
    memcpy(buffer, region->bytes + offset, available);
    return available;
}

/* The last region that starts at or below address, or NULL. */
static const struct unspool_region *find_region(const struct unspool_memory *memory, uint64_t address) {
    uint64_t low = 0;
    uint64_t high = memory->region_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (memory->regions[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &memory->regions[low - 1] : NULL;
}

static size_t copy_page(struct unspool_memory *memory, int32_t pid, uint64_t address, void *buffer,
                        size_t size) {
    uint64_t page_address = address & ~(PAGE - 1);
    if (!memory->page_size || memory->page_address != page_address) {
        struct io_vector local = {memory->page, PAGE};
        struct io_vector remote = {(void *)(uintptr_t)page_address, PAGE};
        long got = system_call(SYSTEM_process_vm_readv, pid, (long)&local, 1, (long)&remote, 1, 0);
        memory->page_size = got > 0 ? (uint32_t)got : 0;
        memory->page_address = page_address;
    }
    struct unspool_region page = {memory->page_address, memory->page_size, memory->page};
    return copy_region(&page, address, buffer, size);
}

static size_t read_from(struct unspool_memory *memory, int32_t pid, uint64_t address, void *buffer,
                        size_t size) {
    uint8_t *to = buffer;
    size_t done = 0;
    while (done < size) {
        uint64_t from = address + done;
        if (from < address) /* past the end of the address space */
            break;
        size_t got = copy_region(&memory->stack, from, to + done, size - done);
        if (!got) {
            const struct unspool_region *region = find_region(memory, from);
            got = region ? copy_region(region, from, to + done, size - done) : 0;
        }
        if (!got && pid)
            got = copy_page(memory, pid, from, to + done, size - done);
        if (!got)
            break;
        done += got;
    }
    return done;
}

size_t memory_read(struct unspool_memory *memory, uint64_t address, void *buffer, size_t size) {
    return read_from(memory, memory->pid, address, buffer, size);
}

size_t memory_read_code(struct unspool_memory *memory, uint64_t address, void *buffer, size_t size) {
    return read_from(memory, memory->pid ? memory->pid : memory->code_pid, address, buffer, size);
}

enum unspool_end memory_end(const struct unspool_memory *memory, uint64_t address) {
    /* The first byte that was not in the copy may lie within the word at address. */
    uint64_t beyond = address + sizeof(uint64_t) - 1 - memory->stack.address;
    if (!memory->pid && memory->stack.size && beyond >= memory->stack.size &&
        beyond - memory->stack.size < STACK_LIMIT)
        return UNSPOOL_END_STACK_BYTES_ENDED;
    return UNSPOOL_END_UNREADABLE_MEMORY;
}
