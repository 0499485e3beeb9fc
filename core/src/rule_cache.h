/*
 * rule_cache.h: the direct-mapped cache from lookup address to rule (struct unspool_cache), and the ordinary
 * step by a rule that is kept there.
 *
 * An entry is 16 bytes. An ordinary rule is kept whole in its second word ("packed"), so that a step
 * needs no other load; any other rule is kept as a pointer into its table. Async-signal-safe.
 */
#ifndef UNSPOOL_RULE_CACHE_H
#define UNSPOOL_RULE_CACHE_H

#include "walk.h"

/* A packed rule, from its highest byte: PACKED | kind, ra_slot, fp_slot (2 bytes), cfa_offset (4). fp_slot is
 * ra_slot where fp is not saved, so that both can be checked alike. Any other entry is the address of a rule,
 * which is below 1 << 56, and perhaps ENDS_STACK. */
#define PACKED ((uint64_t)1 << 63)
#define ENDS_STACK ((uint64_t)1 << 62)
#define PACKED_CFA_BY_FP ((uint64_t)UNSPOOL_CFA_FP << 56)
#define PACKED_FP_IS_SAVED ((uint64_t)UNSPOOL_SAVED_AT_CFA << 60)

static inline bool is_packed(uint64_t entry) {
    return entry & PACKED;
}

static inline struct rule unpack_rule(uint64_t entry) {
    return (struct rule){
        .cfa_offset = (int32_t)(uint32_t)entry,
        .fp_slot = (int16_t)(uint16_t)(entry >> 32),
        .ra_slot = (int8_t)(uint8_t)(entry >> 48),
        .kind = (uint8_t)(entry >> 56 & 0x3f),
    };
}

/* Signed return addresses need no care: a PAC is stripped wherever it is found. */
static inline uint64_t pack_rule(const struct rule *rule) {
    const uint8_t unimportant = UNSPOOL_ROW_SIGNED | UNSPOOL_ROW_DEBUG_FRAME;
    if (rule->flags == UNSPOOL_ROW_END)
        return ENDS_STACK | (uintptr_t)rule;
    if ((rule->flags & ~unimportant) || RULE_RA(rule) != UNSPOOL_SAVED_AT_CFA ||
        RULE_FP(rule) == UNSPOOL_SAVED_UNKNOWN || rule->ra_slot != (int8_t)rule->ra_slot)
        return (uintptr_t)rule;
    int16_t fp_slot = RULE_FP(rule) == UNSPOOL_SAVED_AT_CFA ? rule->fp_slot : rule->ra_slot;
    return PACKED | (uint64_t)rule->kind << 56 | (uint64_t)(uint8_t)rule->ra_slot << 48 |
           (uint64_t)(uint16_t)fp_slot << 32 | (uint32_t)rule->cfa_offset;
}

static inline uint64_t cache_slot(uint64_t lookup) {
    return lookup * 0x9e3779b97f4a7c15u >> 51; /* 8,192 entries */
}

/* What is kept for a lookup address, or 0. */
static inline uint64_t cached_rule(const struct unspool_cache *cache, uint64_t lookup) {
    uint64_t slot = cache_slot(lookup);
    return cache->entry[slot].address == lookup ? cache->entry[slot].rule : 0;
}

/* The same without a branch: for whom a wrong guess of the processor costs more than to wait for the answer.
 */
static inline uint64_t cached_rule_unguessed(const struct unspool_cache *cache, uint64_t lookup) {
    uint64_t slot = cache_slot(lookup);
    return cache->entry[slot].rule & -(uint64_t)(cache->entry[slot].address == lookup);
}

/* True when a caller with such an entry is the stack's last frame. */
static inline bool ends_stack(uint64_t entry) {
    return (entry & (PACKED | ENDS_STACK)) == ENDS_STACK;
}

/* The rule of an entry that is neither 0 nor packed. */
static inline const struct rule *rule_of_entry(uint64_t entry) {
    return (const struct rule *)(uintptr_t)(entry & ~ENDS_STACK);
}

static inline void cache_rule(struct unspool_cache *cache, uint64_t lookup, const struct rule *rule) {
    uint64_t slot = cache_slot(lookup);
    cache->entry[slot].address = lookup;
    cache->entry[slot].rule = pack_rule(rule);
}

#endif
