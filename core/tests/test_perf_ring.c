/* The kernel's rings: what is between tail and head comes out once, in order, also where it wraps around. */
#include "check.h"
#include "unspool.h"

#include <string.h>

enum { PAGE = 4096, SIZE = 64 };

static uint8_t ring[PAGE + SIZE] __attribute__((aligned(8)));

static uint64_t *head(void) {
    return (uint64_t *)(void *)(ring + 1024);
}

static uint64_t *tail(void) {
    return (uint64_t *)(void *)(ring + 1032);
}

/* Byte number i that was ever written has the value i. */
static void write_until(uint64_t end) {
    for (uint64_t i = *head(); i < end; i++)
        ring[PAGE + i % SIZE] = (uint8_t)i;
    *head() = end;
}

static void comes_out_in_order(void) {
    uint8_t buffer[SIZE];
    static const uint64_t ends[] = {0, 8, 40, 104, 104, 160, 224};
    memset(ring, 0, sizeof ring);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        uint64_t start = *tail();
        write_until(ends[i]);
        uint64_t count = unspool_perf_ring_read(ring, PAGE, SIZE, buffer);
        CHECK_EQUAL(count, ends[i] - start);
        CHECK_EQUAL(*tail(), ends[i]);
        for (uint64_t j = 0; j < count; j++)
            CHECK_EQUAL(buffer[j], (uint8_t)(start + j));
    }
}

static void an_impossible_head_yields_nothing(void) {
    uint8_t buffer[SIZE];
    memset(ring, 0, sizeof ring);
    *head() = SIZE + 8;
    CHECK_EQUAL(unspool_perf_ring_read(ring, PAGE, SIZE, buffer), 0);
    CHECK_EQUAL(*tail(), SIZE + 8);
}

int main(void) {
    RUN(comes_out_in_order);
    RUN(an_impossible_head_yields_nothing);
    return check_result();
}
