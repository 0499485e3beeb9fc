/*
 * test_session_ring.c: what handlers write into a ring comes out of it whole, in order, once; what a program
 * that is not to be trusted writes comes out as an error.
 */
#define _GNU_SOURCE
#include "agent/ring.h"
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8, RECORDS = 4000, MOST = 200, RING = SESSION_LEAST_RING, CAPACITY = 512 };

static struct session_area *area;
static struct unspool_sample samples[CAPACITY];
static uint64_t offsets[CAPACITY + 1], addresses[CAPACITY * MOST + SESSION_MOST_FRAMES];
static uint8_t how[CAPACITY * MOST + SESSION_MOST_FRAMES];
static uint64_t copy_offsets[CAPACITY + 1];
static uint8_t copies[RING];
static struct unspool_samples batch;

static uint8_t *ring(void) {
    return (uint8_t *)area + sizeof *area;
}

static void begin(void) {
    free(area);
    area = calloc(1, session_area_size(RING));
    if (!area)
        exit(2);
    batch = (struct unspool_samples){
        .capacity = CAPACITY,
        .frame_capacity = sizeof how,
        .copy_capacity = sizeof copies,
        .samples = samples,
        .offsets = offsets,
        .addresses = addresses,
        .how = how,
        .copy_offsets = copy_offsets,
        .copies = copies,
    };
}

/* A record whose contents follow from tid and number. False: the ring is full. */
static bool write_one(uint32_t tid, uint64_t number, uint32_t count) {
    uint64_t used;
    struct session_record *record = ring_reserve(area, ring(), RING, RING, record_size(count), &used);
    if (!record)
        return false;
    record->kind = SESSION_RECORD_SAMPLE;
    record->trigger = UNSPOOL_TRIGGER_TIMER;
    record->end = UNSPOOL_END_LOOP;
    record->flags = UNSPOOL_SAMPLE_NO_TABLE_YET;
    record->tid = tid;
    record->frame_count = count;
    record->time = number;
    record->cpu_time = 2;
    record->due = 3;
    record->user_time = 4;
    record->system_time = 5;
    record->sp = 6;
    record->epoch = 7;
    record->slot = 8;
    uint8_t *frames = (uint8_t *)(record + 1);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t address = number << 20 | (uint64_t)tid << 12 | i;
        memcpy(frames + i * sizeof address, &address, sizeof address);
        frames[count * sizeof address + i] = (uint8_t)(i % 8);
    }
    ring_commit(record, record_size(count));
    return true;
}

static bool is_as_written(uint64_t i) {
    const struct unspool_sample *sample = &samples[i];
    if (offsets[i + 1] - offsets[i] != sample->frame_count)
        return false;
    for (uint32_t k = 0; k < sample->frame_count; k++)
        if (addresses[offsets[i] + k] != (sample->time << 20 | (uint64_t)sample->tid << 12 | k) ||
            how[offsets[i] + k] != k % 8)
            return false;
    return true;
}

static void test_a_record_comes_out_as_it_went_in(void) {
    begin();
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
    CHECK_EQUAL(batch.count, 0);
    CHECK(write_one(77, 9, 3));
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
    CHECK_EQUAL(batch.count, 1);
    const struct unspool_sample expected = {
        .time = 9,
        .cpu_time = 2,
        .due = 3,
        .user_time = 4,
        .system_time = 5,
        .sp = 6,
        .tid = 77,
        .slot = 8,
        .epoch = 7,
        .frame_count = 3,
        .end = UNSPOOL_END_LOOP,
        .flags = UNSPOOL_SAMPLE_NO_TABLE_YET,
        .trigger = UNSPOOL_TRIGGER_TIMER,
    };
    CHECK_BYTES(&samples[0], &expected, sizeof expected);
    CHECK(is_as_written(0));
    CHECK_EQUAL(area->ring_head, area->ring_tail);
    CHECK_EQUAL(area->ring_tail, record_size(3));
}

static void test_a_full_ring_refuses_and_what_was_read_is_room_again(void) {
    begin();
    uint64_t written = 0, read = 0;
    for (int turn = 0; turn < 5; turn++) {
        while (write_one(1, written, (uint32_t)(written % MOST)))
            written++;
        CHECK(area->ring_head - area->ring_tail <= RING);
        int result;
        do {
            result = unspool_ring_read(area, RING, &batch);
            for (uint64_t i = 0; i < batch.count; i++, read++) {
                CHECK_EQUAL(samples[i].time, read);
                CHECK(is_as_written(i));
            }
        } while (result == 1);
        CHECK_EQUAL(result, 0);
        CHECK_EQUAL(read, written);
    }
    CHECK(written > 300);
    for (uint32_t i = 0; i < RING; i++)
        if (ring()[i])
            CHECK_EQUAL(i, RING);
}

static void test_the_deepest_stack_fits_an_empty_ring_anywhere(void) {
    begin();
    for (uint64_t i = 0; i < RING / 8; i++) {
        area->ring_head = area->ring_tail = i * 8;
        if (!CHECK(write_one(1, i, SESSION_MOST_FRAMES)))
            return;
        CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
        CHECK_EQUAL(batch.count, 1);
        CHECK_EQUAL(samples[0].frame_count, SESSION_MOST_FRAMES);
        if (i % 64 == 0)
            CHECK(is_as_written(0));
    }
}

static void test_a_record_without_room_for_it_stays(void) {
    begin();
    CHECK(write_one(1, 0, 10));
    CHECK(write_one(1, 1, 10));
    batch.frame_capacity = 19;
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 1);
    CHECK_EQUAL(batch.count, 1);
    batch.frame_capacity = 10;
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
    CHECK_EQUAL(batch.count, 1);
    CHECK_EQUAL(samples[0].time, 1);
    CHECK(write_one(1, 2, 0));
    batch.capacity = 0;
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 1);
    batch.capacity = 1;
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
    CHECK_EQUAL(samples[0].time, 2);
}

static void test_what_is_not_committed_is_waited_for(void) {
    uint64_t used;
    begin();
    struct session_record *first = ring_reserve(area, ring(), RING, RING, record_size(0), &used);
    CHECK(write_one(1, 1, 0));
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
    CHECK_EQUAL(batch.count, 0);
    first->kind = SESSION_RECORD_SAMPLE;
    first->trigger = UNSPOOL_TRIGGER_OUTSIDE;
    ring_commit(first, record_size(0));
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
    CHECK_EQUAL(batch.count, 2);
}

static void expect_damage(void) {
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), UNSPOOL_BAD_RING);
}

static void test_damaged_records_are_refused(void) {
    static const struct {
        uint32_t size, frame_count;
        uint8_t kind, end, flags, trigger, how;
        uint32_t slot;
    } bad[] = {
        {4, 1, 2, 0, 0, 1, 0, 0},           /* not a multiple of 8 */
        {RING + 8, 1, 2, 0, 0, 1, 0, 0},    /* beyond the end */
        {8, 1, 2, 0, 0, 1, 0, 0},           /* less than a header */
        {96, 1, 2, 0, 0, 1, 0, 0},          /* more than it holds */
        {88, 2, 2, 0, 0, 1, 0, 0},          /* less than it holds */
        {88, 0x80000001, 2, 0, 0, 1, 0, 0}, /* a product that overflows */
        {72 + (SESSION_MOST_FRAMES + 8) * 9, SESSION_MOST_FRAMES + 8, 2, 0, 0, 1, 0, 0}, /* too deep */
        {88, 1, 0, 0, 0, 1, 0, 0},                                                       /* kind */
        {88, 1, 3, 0, 0, 1, 0, 0}, /* no room for a copy */
        {88, 1, 4, 0, 0, 1, 0, 0},
        {88, 1, 1, 0, 0, 1, 0, 0}, /* padding before the end */
        {88, 1, 2, 8, 0, 1, 0, 0}, /* end */
        {88, 1, 2, 0, 4, 1, 0, 0}, /* flags */
        {88, 1, 2, 0, 0, 0, 0, 0}, /* trigger */
        {88, 1, 2, 0, 0, 4, 0, 0},
        {88, 1, 2, 0, 0, 1, 8, 0},             /* how */
        {88, 1, 2, 0, 0, 1, 0, SESSION_SLOTS}, /* slot */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin();
        struct session_record *record = (struct session_record *)(void *)ring();
        *record = (struct session_record){
            .size = bad[i].size,
            .kind = bad[i].kind,
            .end = bad[i].end,
            .flags = bad[i].flags,
            .trigger = bad[i].trigger,
            .frame_count = bad[i].frame_count,
            .slot = bad[i].slot,
        };
        ((uint8_t *)(record + 1))[8] = bad[i].how;
        expect_damage();
        *record = (struct session_record){.size = 88, .kind = 2, .trigger = 1, .frame_count = 1};
        ((uint8_t *)(record + 1))[8] = UNSPOOL_HOW_GUESS | UNSPOOL_HOW_FRAME_POINTER;
        CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0); /* the same, but sound */
        CHECK_EQUAL(batch.count, 1);
    }
}

/* ------------------------------------------------------------------ copies */

/* The sample number `number` with one frame and a copy of size bytes, of which as many have been read. */
static struct unspool_copy *write_copy(uint64_t number, uint32_t size, uint64_t read) {
    uint32_t own = record_size(1), whole = own + (uint32_t)sizeof(struct unspool_copy) + size;
    uint64_t used;
    struct session_record *record =
        ring_reserve(area, ring(), RING, SESSION_RING_FOR_COPIES(RING), whole, &used);
    if (!record)
        return NULL;
    record->kind = SESSION_RECORD_SAMPLE_AND_COPY;
    record->trigger = UNSPOOL_TRIGGER_TIMER;
    record->frame_count = 1;
    record->time = number;
    struct unspool_copy *copy = (struct unspool_copy *)(void *)((uint8_t *)record + own);
    copy->address = number << 20;
    copy->size = read;
    copy->registers.known = (UINT64_C(1) << UNSPOOL_REGISTERS) - 1;
    for (uint64_t i = 0; i < UNSPOOL_REGISTERS; i++)
        copy->registers.value[i] = number + i;
    for (uint64_t i = 0; i < size && i < read; i++)
        ((uint8_t *)(copy + 1))[i] = (uint8_t)(i + number);
    ring_commit(record, whole);
    return copy;
}

static bool is_copy_as_written(uint64_t i, uint64_t read) {
    const struct unspool_copy *copy = (const struct unspool_copy *)(void *)(copies + copy_offsets[i]);
    uint64_t number = samples[i].time;
    if (copy_offsets[i + 1] - copy_offsets[i] != sizeof *copy + read || copy->address != number << 20 ||
        copy->size != read || copy->registers.value[16] != number + 16)
        return false;
    for (uint64_t k = 0; k < read; k++)
        if (((const uint8_t *)(copy + 1))[k] != (uint8_t)(k + number))
            return false;
    return true;
}

static void test_a_copy_comes_out_with_its_sample_only(void) {
    begin();
    CHECK(write_one(1, 1, 2));
    CHECK(write_copy(2, 4096, 4096));
    CHECK(write_copy(3, 4096, 1000)); /* the rest could not be read */
    CHECK(write_copy(4, 0, 0));
    CHECK(write_one(1, 5, 2));
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
    CHECK_EQUAL(batch.count, 5);
    CHECK_EQUAL(copy_offsets[0], 0);
    CHECK_EQUAL(copy_offsets[1], 0);
    CHECK(is_copy_as_written(1, 4096) && is_copy_as_written(2, 1000) && is_copy_as_written(3, 0));
    CHECK_EQUAL(copy_offsets[4], copy_offsets[5]);
    CHECK(is_as_written(0) && is_as_written(4));
    for (uint32_t i = 0; i < RING; i++)
        if (ring()[i])
            CHECK_EQUAL(i, RING);
}

static void test_copies_leave_a_part_of_the_ring_to_samples(void) {
    begin();
    const uint64_t limit = SESSION_RING_FOR_COPIES(RING);
    uint64_t written = 0, others = 0;
    while (write_copy(written + 1, 8192, 8192))
        written++;
    CHECK_EQUAL(written, limit / (8192 + record_size(1) + sizeof(struct unspool_copy)));
    while (write_one(1, 100 + others, 3))
        others++;
    CHECK(others * record_size(3) >= (RING - limit) / 8 * 7);
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), others + written > CAPACITY);
    for (uint64_t i = 0; i < written; i++)
        CHECK(is_copy_as_written(i, 8192));
    CHECK(!write_copy(1, (uint32_t)limit, 1)); /* too much by itself */
}

static void test_a_copy_without_room_for_it_stays_or_is_left_out(void) {
    begin();
    CHECK(write_copy(1, 4096, 4096));
    CHECK(write_copy(2, 4096, 4096));
    batch.copy_capacity = 2 * (sizeof(struct unspool_copy) + 4096) - 1;
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 1);
    CHECK_EQUAL(batch.count, 1);
    CHECK(is_copy_as_written(0, 4096));
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
    CHECK_EQUAL(batch.count, 1);
    CHECK(samples[0].time == 2 && is_copy_as_written(0, 4096));
    CHECK(write_copy(3, 4096, 4096));
    batch.copy_capacity = 0;
    batch.copies = NULL;
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
    CHECK_EQUAL(batch.count, 1);
    CHECK_EQUAL(copy_offsets[1], 0);
    CHECK_EQUAL(samples[0].time, 3);
}

static void test_damaged_copies_are_refused(void) {
    for (int what = 0; what < 7; what++) {
        begin();
        struct unspool_copy *copy = write_copy(7, 64, 64);
        struct session_record *record = (struct session_record *)(void *)ring();
        switch (what) {
        case 0:
            copy->size = 65; /* more than follows */
            break;
        case 1:
            copy->size = UINT64_MAX - 8;
            break;
        case 2:
            copy->address = UINT64_MAX - 63; /* around the end of the address space */
            break;
        case 3:
            copy->registers.known |= UINT64_C(1) << UNSPOOL_REGISTERS;
            break;
        case 4:
            copy->registers.pc_is_return_address = 2;
            break;
        case 5:
            record->size = record_size(1) + sizeof *copy - 8; /* its head is cut off */
            break;
        case 6:
            record->kind = SESSION_RECORD_SAMPLE; /* which has none */
            break;
        }
        expect_damage();
        batch.copy_capacity = 0; /* nor if nobody wants them */
        area->ring_tail = 0;
        expect_damage();
    }
}

static void test_a_copy_has_a_largest_size(void) {
    const uint32_t size = 1u << 20,
                   largest = record_size(1) + (uint32_t)sizeof(struct unspool_copy) + UNSPOOL_LARGEST_COPY;
    begin();
    free(area);
    area = calloc(1, session_area_size(size));
    if (!area)
        exit(2);
    struct session_record *record = (struct session_record *)(void *)ring();
    *record = (struct session_record){.size = largest, .kind = 3, .trigger = 1, .frame_count = 1};
    batch.copy_capacity = 0;
    CHECK_EQUAL(unspool_ring_read(area, size, &batch), 0);
    CHECK_EQUAL(batch.count, 1);
    record = (struct session_record *)(void *)(ring() + largest);
    *record = (struct session_record){.size = largest + 8, .kind = 3, .trigger = 1, .frame_count = 1};
    CHECK_EQUAL(unspool_ring_read(area, size, &batch), UNSPOOL_BAD_RING);
}

static void test_damaged_ends_of_the_ring_are_masked_or_refused(void) {
    begin();
    area->ring_tail = 4;
    expect_damage();
    area->ring_tail = (uint64_t)0 - 8; /* the last place: no room for a sample there */
    ring()[RING - 8] = 80;
    ring()[RING - 4] = SESSION_RECORD_SAMPLE;
    expect_damage();
    ring()[RING - 8] = 8;
    ring()[RING - 4] = SESSION_RECORD_PADDING;
    CHECK_EQUAL(unspool_ring_read(area, RING, &batch), 0);
    CHECK_EQUAL(area->ring_tail, 0);
    CHECK_EQUAL(unspool_ring_read(area, RING + 8, &batch), UNSPOOL_BAD_ARGUMENT);
    CHECK_EQUAL(unspool_ring_read(area, RING / 2, &batch), UNSPOOL_BAD_ARGUMENT);
}

/* ------------------------------------------------------------------ slots of threads */

static void test_an_id_used_again_gets_a_slot_of_its_own(void) {
    begin();
    int ended = unspool_area_add_thread(area, 77, SESSION_WISH_TIMER, 0);
    CHECK_EQUAL(ended, 77);
    area->slots[ended].state = SESSION_SLOT_TIMER; /* a timer on the clock of a thread that ends */
    CHECK_EQUAL(unspool_area_change_thread(area, (uint32_t)ended, SESSION_WISH_END), UNSPOOL_OK);
    int next = unspool_area_add_thread(area, 77, SESSION_WISH_TIMER, 0);
    CHECK_EQUAL(next, 78);
    CHECK_EQUAL(area->slots[next].tid, 77);
    CHECK_EQUAL(area->slots[next].state, SESSION_SLOT_FREE); /* its timer is still to be made */
    CHECK(area->slots[ended].tid && area->slots[ended].tid != 77);
    CHECK_EQUAL(area->slots[ended].wish, SESSION_WISH_END);
    CHECK(!unspool_area_release_slot(area, (uint32_t)ended)); /* the old timer is still there */
    area->slots[ended].state = SESSION_SLOT_FREE;
    CHECK(unspool_area_release_slot(area, (uint32_t)ended));
    CHECK_EQUAL(area->slots[ended].tid, 0);
    CHECK_EQUAL(unspool_area_add_thread(area, 77, SESSION_WISH_TIMER, 0), next); /* asked again */
}

static volatile sig_atomic_t signals_with_cookie;

static void count_signal(int number, siginfo_t *about, void *context) {
    (void)context;
    signals_with_cookie += number == SIGPROF && about->si_code == SI_QUEUE && about->si_value.sival_int == 99;
}

static void test_a_signal_is_not_sent_to_a_process_that_calls_exec(void) {
    const struct sigaction action = {.sa_sigaction = count_signal, .sa_flags = SA_SIGINFO};
    uint32_t pid = (uint32_t)getpid(); /* the main thread's id, too */
    begin();
    CHECK_EQUAL(sigaction(SIGPROF, &action, NULL), 0);
    CHECK_EQUAL(unspool_area_signal(area, pid, pid, SIGPROF, 99), UNSPOOL_OK);
    CHECK_EQUAL(signals_with_cookie, 1);
    area->replacing = 1;
    CHECK_EQUAL(unspool_area_signal(area, pid, pid, SIGPROF, 99), UNSPOOL_NOT_FOUND);
    CHECK_EQUAL(signals_with_cookie, 1);
    CHECK_EQUAL(area->signalling, 0);
    area->replacing = 0;
    CHECK_EQUAL(unspool_area_signal(area, pid, UINT32_MAX >> 1, SIGPROF, 99), UNSPOOL_NOT_FOUND);
}

/* ------------------------------------------------------------------ many threads */

static uint32_t finished; /* threads */

static void *produce(void *argument) {
    uint32_t number = *(const uint32_t *)argument;
    for (uint64_t i = 0; i < RECORDS; i++)
        while (!write_one(number + 1, i, (uint32_t)((i * 7 + number) % MOST)))
            sched_yield();
    __atomic_add_fetch(&finished, 1, __ATOMIC_RELEASE);
    return NULL;
}

static uint64_t read_some(uint64_t *next) {
    int result = unspool_ring_read(area, RING, &batch);
    CHECK(result == 0 || result == 1);
    for (uint64_t i = 0; i < batch.count; i++) {
        uint32_t tid = samples[i].tid;
        if (!CHECK(tid >= 1 && tid <= THREADS) || !CHECK(is_as_written(i)) ||
            !CHECK_EQUAL(samples[i].time, next[tid - 1]++))
            exit(1);
    }
    return batch.count;
}

static void test_many_threads_write_while_one_reads(void) {
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    uint64_t next[THREADS] = {0};
    begin();
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, produce, &numbers[i]))
            exit(2);
    }
    while (__atomic_load_n(&finished, __ATOMIC_ACQUIRE) < THREADS)
        if (!read_some(next))
            sched_yield();
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    while (read_some(next))
        ;
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK_EQUAL(next[i], RECORDS);
}

int main(void) {
    RUN(test_a_record_comes_out_as_it_went_in);
    RUN(test_a_full_ring_refuses_and_what_was_read_is_room_again);
    RUN(test_the_deepest_stack_fits_an_empty_ring_anywhere);
    RUN(test_a_record_without_room_for_it_stays);
    RUN(test_what_is_not_committed_is_waited_for);
    RUN(test_damaged_records_are_refused);
    RUN(test_a_copy_comes_out_with_its_sample_only);
    RUN(test_copies_leave_a_part_of_the_ring_to_samples);
    RUN(test_a_copy_without_room_for_it_stays_or_is_left_out);
    RUN(test_damaged_copies_are_refused);
    RUN(test_a_copy_has_a_largest_size);
    RUN(test_damaged_ends_of_the_ring_are_masked_or_refused);
    RUN(test_an_id_used_again_gets_a_slot_of_its_own);
    RUN(test_a_signal_is_not_sent_to_a_process_that_calls_exec);
    RUN(test_many_threads_write_while_one_reads);
    free(area);
    return check_result();
}
