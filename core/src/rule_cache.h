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

/* A packed rule, from its lowest bit: PACKED and two more; cfa_offset, which is a multiple of 8, in the other
 * bits of 4 bytes; ra_slot, fp_slot (2 bytes each). fp_slot is ra_slot where fp is not saved, so that both
 * can be checked alike. Any other entry is the address of a rule, which is even, and perhaps ENDS_STACK. */
#define PACKED ((uint64_t)1)
#define PACKED_CFA_BY_FP ((uint64_t)2)
#define PACKED_FP_IS_SAVED ((uint64_t)4)
#define PACKED_FLAGS ((uint64_t)7)
#define ENDS_STACK ((uint64_t)2)

static inline bool is_packed(uint64_t entry) {
    return entry & PACKED;
}

/* Offsets from the CFA's base and from the CFA, bytes. */
static inline int64_t packed_cfa_offset(uint64_t entry) {
    return (int32_t)(uint32_t)(entry & ~PACKED_FLAGS);
}
static inline int64_t packed_ra_offset(uint64_t entry) {
    return ((int64_t)(entry << 16) >> 48) * SLOT_SIZE;
}
static inline int64_t packed_fp_offset(uint64_t entry) {
    return ((int64_t)entry >> 48) * SLOT_SIZE;
}

static inline struct rule unpack_rule(uint64_t entry) {
    bool is_by_fp = entry & PACKED_CFA_BY_FP, fp_is_saved = entry & PACKED_FP_IS_SAVED;
    return (struct rule){
        .cfa_offset = (int32_t)packed_cfa_offset(entry),
        .ra_slot = (int16_t)(packed_ra_offset(entry) / SLOT_SIZE),
        .fp_slot = (int16_t)(packed_fp_offset(entry) / SLOT_SIZE),
        .kind = RULE_KIND(is_by_fp ? UNSPOOL_CFA_FP : UNSPOOL_CFA_SP, UNSPOOL_SAVED_AT_CFA,
                          fp_is_saved ? UNSPOOL_SAVED_AT_CFA : UNSPOOL_SAVED_SAME),
    };
}

/* Signed return addresses need no care: a PAC is stripped wherever it is found. */
static inline uint64_t pack_rule(const struct rule *rule) {
    const uint8_t unimportant = UNSPOOL_ROW_SIGNED | UNSPOOL_ROW_DEBUG_FRAME;
    if (rule->flags == UNSPOOL_ROW_END)
        return ENDS_STACK | (uintptr_t)rule;
    if ((rule->flags & ~unimportant) || RULE_RA(rule) != UNSPOOL_SAVED_AT_CFA ||
        RULE_FP(rule) == UNSPOOL_SAVED_UNKNOWN || RULE_CFA_BASE(rule) == UNSPOOL_CFA_RBX ||
        rule->cfa_offset % 8 != 0)
        return (uintptr_t)rule;
    bool fp_is_saved = RULE_FP(rule) == UNSPOOL_SAVED_AT_CFA;
    int16_t fp_slot = fp_is_saved ? rule->fp_slot : rule->ra_slot;
    return PACKED | (RULE_CFA_BASE(rule) == UNSPOOL_CFA_FP ? PACKED_CFA_BY_FP : 0) |
           (fp_is_saved ? PACKED_FP_IS_SAVED : 0) | (uint32_t)rule->cfa_offset |
           (uint64_t)(uint16_t)rule->ra_slot << 32 | (uint64_t)(uint16_t)fp_slot << 48;
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
