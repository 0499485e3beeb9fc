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

/* A packed rule, from its highest byte: PACKED | kind, ra_slot, fp_slot (2 bytes), cfa_offset (4). No
 * pointer to a rule has PACKED set: user addresses are below 1 << 56. */
#define PACKED ((uint64_t)1 << 63)

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
    if ((rule->flags & ~unimportant) || RULE_RA(rule) != UNSPOOL_SAVED_AT_CFA ||
        rule->ra_slot != (int8_t)rule->ra_slot)
        return (uintptr_t)rule;
    return PACKED | (uint64_t)rule->kind << 56 | (uint64_t)(uint8_t)rule->ra_slot << 48 |
           (uint64_t)(uint16_t)rule->fp_slot << 32 | (uint32_t)rule->cfa_offset;
}

/* The packed rule or the pointer that is kept for a lookup address, or 0. */
static inline uint64_t cached_rule(const struct unspool_cache *cache, uint64_t lookup) {
    uint64_t slot = lookup * 0x9e3779b97f4a7c15u >> 52; /* 4,096 entries */
    return cache->entry[slot].address == lookup ? cache->entry[slot].rule : 0;
}

static inline void cache_rule(struct unspool_cache *cache, uint64_t lookup, const struct rule *rule) {
    uint64_t slot = lookup * 0x9e3779b97f4a7c15u >> 52;
    cache->entry[slot].address = lookup;
    cache->entry[slot].rule = pack_rule(rule);
}

#endif
