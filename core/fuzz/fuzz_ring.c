/*
 * fuzz_ring.c: a ring of any bytes is read without leaving it; what comes out is sound, and fits.
 *
 * Input: how far from the ring's end reading begins (in 8 bytes), room for samples, room for frames (in twice
 * as many bytes also for copies); then what lies there.
 */
#include "agent/session.h"
#include "input.h"

enum { RING = SESSION_LEAST_RING };

static void check_samples(const struct unspool_samples *samples) {
    check(samples->count <= samples->capacity && samples->offsets[0] == 0);
    for (uint64_t i = 0; i < samples->count; i++) {
        const struct unspool_sample *sample = &samples->samples[i];
        check(samples->offsets[i + 1] - samples->offsets[i] == sample->frame_count);
        check(sample->end <= UNSPOOL_END_UNMAPPED_PC && sample->slot < SESSION_SLOTS);
        check(sample->trigger >= UNSPOOL_TRIGGER_TIMER && sample->trigger <= UNSPOOL_TRIGGER_BOOTSTRAP);
    }
    for (uint64_t i = 0; i < samples->count; i++) {
        uint64_t first = samples->copy_offsets[i], size = samples->copy_offsets[i + 1] - first;
        struct unspool_copy copy;
        check(samples->copy_offsets[i + 1] <= samples->copy_capacity);
        check(!size || size >= sizeof copy);
        if (!size)
            continue;
        memcpy(&copy, samples->copies + first, sizeof copy);
        check(copy.size == size - sizeof copy && copy.address + copy.size >= copy.address);
        check(copy.registers.known < UINT64_C(1) << UNSPOOL_REGISTERS);
    }
    uint64_t frames = samples->offsets[samples->count];
    check(frames <= samples->frame_capacity);
    for (uint64_t i = 0; i < frames; i++)
        check((samples->how[i] & ~UNSPOOL_HOW_GUESS) <= UNSPOOL_HOW_FRAME_POINTER);
}

static void put(uint8_t *ring, uint64_t place, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < size; i++)
        ring[(place + i) % RING] = data[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct session_area *area;
    struct cursor input = cursor_over(data, size);
    uint64_t from_end = cursor_u8(&input) * UINT64_C(8);
    struct unspool_samples samples = {.capacity = cursor_u8(&input), .frame_capacity = cursor_u8(&input)};
    samples.copy_capacity = samples.frame_capacity * sizeof *samples.addresses * 2;
    if (!area)
        area = calloc(1, session_area_size(RING));
    samples.samples = calloc(samples.capacity + 1, sizeof *samples.samples);
    samples.offsets = calloc(samples.capacity + 1, sizeof *samples.offsets);
    samples.addresses = calloc(samples.frame_capacity + 1, sizeof *samples.addresses);
    samples.how = calloc(samples.frame_capacity + 1, sizeof *samples.how);
    samples.copy_offsets = calloc(samples.capacity + 1, sizeof *samples.copy_offsets);
    samples.copies = calloc(samples.copy_capacity + 1, 1);
    check(area && samples.samples && samples.offsets && samples.addresses && samples.how);
    check(samples.copy_offsets && samples.copies);

    uint8_t *ring = (uint8_t *)area + sizeof *area;
    size_t left = cursor_left(&input) < RING ? cursor_left(&input) : RING;
    put(ring, RING - from_end, input.at, left);
    area->ring_tail = RING - from_end;
    int result;
    do {
        result = unspool_ring_read(area, RING, &samples);
        check_samples(&samples);
        check(result == 0 || result == 1 || result == UNSPOOL_BAD_RING);
    } while (result == 1 && samples.count);

    for (size_t i = 0; i < left; i++)
        ring[(RING - from_end + i) % RING] = 0;
    free(samples.samples);
    free(samples.offsets);
    free(samples.addresses);
    free(samples.how);
    free(samples.copy_offsets);
    free(samples.copies);
    return 0;
}
