/*
 * perf_ring.c: takes records out of a ring that the kernel fills (perf_event_open(2), mmap).
 *
 * The kernel writes at head and never overtakes tail, which is ours. Nothing is interpreted here.
 */
#include "unspool.h"

#include <string.h>

/* struct perf_event_mmap_page: where head and tail are, and on which page the data begin. */
#define HEAD_OFFSET 1024
#define TAIL_OFFSET 1032

uint64_t unspool_perf_ring_read(uint8_t *ring, uint64_t page_size, uint64_t size, uint8_t *buffer) {
    uint64_t *head_word = (uint64_t *)(void *)(ring + HEAD_OFFSET);
    uint64_t *tail_word = (uint64_t *)(void *)(ring + TAIL_OFFSET);
    uint64_t head = __atomic_load_n(head_word, __ATOMIC_ACQUIRE); /* the records before it are whole */
    uint64_t tail = __atomic_load_n(tail_word, __ATOMIC_RELAXED);
    uint64_t count = head - tail;
    if (count > size)
        count = 0; /* no state that the kernel leaves a ring in: begin anew */
    const uint8_t *data = ring + page_size;
    uint64_t at = tail & (size - 1);
    uint64_t first = count < size - at ? count : size - at;
    if (first)
        memcpy(buffer, data + at, first);
    if (count > first)
        memcpy(buffer + first, data, count - first);
    __atomic_store_n(tail_word, head, __ATOMIC_RELEASE); /* only now may the kernel write there */
    return count;
}
