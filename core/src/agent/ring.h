/*
 * ring.h: writing records into a ring that handlers of many threads share (see struct session_record).
 *
 * A handler reserves bytes by one compare-and-swap, fills them in, and stores the size last. Nobody waits: a
 * full ring refuses, and the caller counts the loss. The reader (session.c) leaves zeroes behind, so that a
 * size of 0 says "reserved, not written yet".
 */
#ifndef UNSPOOL_RING_H
#define UNSPOOL_RING_H

#include "session.h"

/* Room for size bytes (a multiple of 8), or NULL: more than limit of the ring would be taken. *used: how much
 * of it is taken then. */
static inline struct session_record *ring_reserve(struct session_area *area, uint8_t *ring,
                                                  uint64_t ring_size, uint64_t limit, uint64_t size,
                                                  uint64_t *used) {
    for (;;) {
        /* tail first: it never passes head, so that what is used can only seem more than it is. */
        uint64_t tail = __atomic_load_n(&area->ring_tail, __ATOMIC_ACQUIRE);
        uint64_t head = __atomic_load_n(&area->ring_head, __ATOMIC_ACQUIRE);
        uint64_t place = head & (ring_size - 1);
        uint64_t padding = ring_size - place < size ? ring_size - place : 0;
        *used = head - tail + padding + size;
        if (*used > limit)
            return NULL;
        if (!__atomic_compare_exchange_n(&area->ring_head, &head, head + padding + size, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        struct session_record *record = (struct session_record *)(void *)(ring + place);
        if (!padding)
            return record;
        record->kind = SESSION_RECORD_PADDING;
        __atomic_store_n(&record->size, (uint32_t)padding, __ATOMIC_RELEASE);
        return (struct session_record *)(void *)ring;
    }
}

/* The record is whole. */
static inline void ring_commit(struct session_record *record, uint32_t size) {
    __atomic_store_n(&record->size, size, __ATOMIC_RELEASE);
}

static inline uint32_t record_size(uint32_t frame_count) {
    return ((uint32_t)sizeof(struct session_record) + frame_count * 9 + 7) & ~7u;
}

#endif
