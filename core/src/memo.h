/*
 * memo.h: numbers for distinct items, for compiling tables only (it allocates).
 */
#ifndef UNSPOOL_MEMO_H
#define UNSPOOL_MEMO_H

#include <stdbool.h>
#include <string.h>

#include "vector.h"

#define MAX_RULES 65535u
#define FIRST_SLOTS (1u << 11)
/* More steps than any honest search takes; items chosen to collide would make every search long. */
#define HASH_STEPS 512

/* Distinct items, at most MAX_RULES, and a hash of them: number + 1, 0 = empty; twice as many slots as items.
 */
struct memo {
    struct vector items;
    uint16_t *slots;
    uint32_t slot_count; /* a power of two */
};

static inline uint32_t hash_bytes(const void *bytes, size_t size) {
    uint64_t hash = 0;
    for (size_t i = 0; i < size; i += 8) { /* sizes are multiples of 4 */
        uint64_t word = 0;
        memcpy(&word, (const uint8_t *)bytes + i, size - i < 8 ? 4 : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

/* Twice as many slots. False: memory is out. */
static inline bool grow_memo(struct memo *memo, size_t size) {
    uint32_t count = memo->slots ? memo->slot_count * 2 : FIRST_SLOTS;
    uint16_t *slots = calloc(count, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < memo->items.count; i++) {
        uint32_t slot = hash_bytes((const uint8_t *)memo->items.items + i * size, size) & (count - 1);
        while (slots[slot])
            slot = (slot + 1) & (count - 1);
        slots[slot] = (uint16_t)(i + 1);
    }
    free(memo->slots);
    memo->slots = slots;
    memo->slot_count = count;
    return true;
}

/* The number of an item equal to *item, added if it is new; -1 when there is no room. Inline, so that
 * the compiler knows the size. */
static inline int32_t memoize(struct memo *memo, const void *item, size_t size) {
    if (memo->items.count * 2 >= memo->slot_count && !grow_memo(memo, size))
        return -1;
    uint32_t last = memo->slot_count - 1;
    uint32_t slot = hash_bytes(item, size) & last;
    for (uint32_t steps = 0; memo->slots[slot]; slot = (slot + 1) & last) {
        if (++steps == HASH_STEPS)
            return -1;
        uint16_t number = (uint16_t)(memo->slots[slot] - 1);
        if (memcmp((const uint8_t *)memo->items.items + number * size, item, size) == 0)
            return number;
    }
    if (memo->items.count == MAX_RULES)
        return -1;
    void *added = vector_add(&memo->items, 1, size);
    if (!added)
        return -1;
    memcpy(added, item, size);
    memo->slots[slot] = (uint16_t)memo->items.count;
    return (int32_t)memo->items.count - 1;
}

static inline void free_memo(struct memo *memo) {
    vector_free(&memo->items);
    free(memo->slots);
}

#endif
