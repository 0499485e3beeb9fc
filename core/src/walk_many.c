/*
 * walk_many.c: many stack copies, and the cache that pays there.
 *
 * While one stack is walked, the beginnings of the next ones are fetched into the processor's caches. (To
 * walk several in turn, a frame each, was tried: what the memory is waited for less, the processor guesses
 * wrong more.)
 */
#include "cfi_program.h"
#include "rule_cache.h"

/* How many samples ahead, and how much of each: where most stacks' first frames are. */
enum { AHEAD = 8, AHEAD_BYTES = 512, CACHE_LINE = 64 };

/* No module holds the last address (their ends are exclusive), so an empty entry may say so: it is what
 * a return address of 0 looks up. */
void unspool_cache_clear(struct unspool_cache *cache) {
    for (uint32_t i = 0; i < UNSPOOL_CACHE_ENTRIES; i++) {
        cache->entry[i].address = UINT64_MAX;
        cache->entry[i].rule = 0;
    }
    memset(cache->answer, 0, sizeof cache->answer);
}

static struct unspool_region stack_copy(const struct unspool_batch *batch, uint64_t sample) {
    return (struct unspool_region){
        .address = batch->registers[4 * sample + 1],
        .size = batch->stack_offsets[sample + 1] - batch->stack_offsets[sample],
        .bytes = batch->stack_bytes + batch->stack_offsets[sample],
    };
}

static void fetch_ahead(const struct unspool_batch *batch, uint64_t sample) {
    if (sample + AHEAD >= batch->count)
        return;
    struct unspool_region copy = stack_copy(batch, sample + AHEAD);
    for (uint64_t offset = 0; offset < AHEAD_BYTES && offset < copy.size; offset += CACHE_LINE)
        __builtin_prefetch(copy.bytes + offset);
}

static void walk_sample(const struct unspool_unwinder *unwinder, const uint64_t *sample,
                        struct unspool_memory *memory, struct unspool_stack *stack) {
    struct unspool_registers registers;
    uint32_t arch = unwinder->arch;
    registers.value[pc_register(arch)] = sample[0];
    registers.value[sp_register(arch)] = sample[1];
    registers.value[fp_register(arch)] = sample[2];
    registers.known = (uint64_t)1 << pc_register(arch) | (uint64_t)1 << sp_register(arch) |
                      (uint64_t)1 << fp_register(arch);
    registers.value[UNSPOOL_AARCH64_LR] = sample[3];
    if (arch == UNSPOOL_AARCH64)
        registers.known |= (uint64_t)1 << UNSPOOL_AARCH64_LR;
    registers.pc_is_return_address = 0;
    unspool_walk(unwinder, &registers, memory, stack);
}

uint64_t unspool_walk_many(const struct unspool_unwinder *unwinder, struct unspool_batch *batch,
                           uint64_t first) {
    struct unspool_memory memory;
    memory.regions = NULL;
    memory.region_count = 0;
    memory.pid = 0;
    memory.code_pid = batch->code_pid;
    memory.page_size = 0;
    memory.slots_read = 0;
    for (uint64_t i = first; i < batch->count; i++) {
        uint64_t start = batch->offsets[i];
        uint64_t left = batch->capacity - start;
        struct unspool_stack stack = {
            .addresses = batch->addresses + start,
            .how = batch->how + start,
            .capacity = left < batch->depth_limit ? left : batch->depth_limit,
        };
        memory.stack = stack_copy(batch, i);
        fetch_ahead(batch, i);
        walk_sample(unwinder, batch->registers + 4 * i, &memory, &stack);
        if (stack.end == UNSPOOL_END_DEPTH_LIMIT && stack.capacity < batch->depth_limit)
            return i; /* the batch's room ended, not the stack */
        batch->offsets[i + 1] = start + stack.count;
        batch->ends[i] = (uint8_t)stack.end;
    }
    return batch->count;
}
