/*
 * session.c: the unspool process's side of a session's memory: reading rings, asking for threads, publishing
 * lists of modules. Not part of the agent.
 *
 * A program may write anything into its area at any time. Hence what is read from there is copied first and
 * checked then, indices are masked, and one call never takes more than one ring's worth.
 */
#define _GNU_SOURCE
#include "agent/session.h"
#include "system.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FRAME_SIZE (sizeof(uint64_t) + 1)

struct kernel_time {
    int64_t seconds, nanoseconds;
};

/* ------------------------------------------------------------------ the ring */

/* Bytes of a record up to where a copy may follow. */
static uint64_t size_with_frames(const struct session_record *record) {
    uint64_t bytes = sizeof *record + (uint64_t)record->frame_count * FRAME_SIZE;
    return (bytes + 7) & ~(uint64_t)7;
}

static bool is_sound(const struct session_record *record, uint32_t size) {
    if (record->frame_count > SESSION_MOST_FRAMES)
        return false;
    uint64_t own = size_with_frames(record), most = own;
    if (record->kind == SESSION_RECORD_SAMPLE_AND_COPY) {
        own += sizeof(struct unspool_copy);
        most = own + UNSPOOL_LARGEST_COPY;
    } else if (record->kind != SESSION_RECORD_SAMPLE) {
        return false;
    }
    return size >= own && size <= most && record->end <= UNSPOOL_END_UNMAPPED_PC &&
           record->flags <= (UNSPOOL_SAMPLE_STALE_MODULES | UNSPOOL_SAMPLE_NO_TABLE_YET) &&
           record->trigger >= UNSPOOL_TRIGGER_TIMER && record->trigger <= UNSPOOL_TRIGGER_BOOTSTRAP &&
           record->slot < SESSION_SLOTS;
}

/* size: of the bytes that may follow. */
static bool is_copy_sound(const struct unspool_copy *copy, uint64_t size) {
    return copy->size <= size && copy->address <= UINT64_MAX - copy->size &&
           !(copy->registers.known >> UNSPOOL_REGISTERS) && copy->registers.pc_is_return_address <= 1;
}

static bool are_frames_sound(const uint8_t *how, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if ((how[i] & ~UNSPOOL_HOW_GUESS) > UNSPOOL_HOW_FRAME_POINTER)
            return false;
    return true;
}

enum record_result { TAKEN, NO_ROOM, DAMAGED };

/* The copy that is at a place: size bytes, of which some may be unused. */
static enum record_result take_copy(const uint8_t *at, uint64_t size, struct unspool_samples *to) {
    uint64_t first = to->copy_offsets[to->count], left = to->copy_capacity - first;
    struct unspool_copy copy;
    memcpy(&copy, at, sizeof copy);
    if (!is_copy_sound(&copy, size - sizeof copy))
        return DAMAGED;
    if (!to->copy_capacity)
        return TAKEN;
    if (left < sizeof copy || left - sizeof copy < copy.size)
        return NO_ROOM;
    memcpy(to->copies + first, &copy, sizeof copy);
    memcpy(to->copies + first + sizeof copy, at + sizeof copy, copy.size);
    to->copy_offsets[to->count + 1] = first + sizeof copy + copy.size;
    return TAKEN;
}

static enum record_result take_sample(const uint8_t *at, uint32_t size, struct unspool_samples *to) {
    struct session_record record;
    if (size < sizeof record)
        return DAMAGED;
    memcpy(&record, at, sizeof record);
    if (!is_sound(&record, size))
        return DAMAGED;
    uint64_t first = to->offsets[to->count];
    if (to->count == to->capacity || to->frame_capacity - first < record.frame_count)
        return NO_ROOM;
    memcpy(to->addresses + first, at + sizeof record, record.frame_count * sizeof *to->addresses);
    memcpy(to->how + first, at + sizeof record + record.frame_count * sizeof *to->addresses,
           record.frame_count);
    if (!are_frames_sound(to->how + first, record.frame_count))
        return DAMAGED;
    to->copy_offsets[to->count + 1] = to->copy_offsets[to->count];
    if (record.kind == SESSION_RECORD_SAMPLE_AND_COPY) {
        uint64_t own = size_with_frames(&record);
        enum record_result result = take_copy(at + own, size - own, to);
        if (result != TAKEN)
            return result;
    }
    to->samples[to->count++] = (struct unspool_sample){
        .time = record.time,
        .cpu_time = record.cpu_time,
        .due = record.due,
        .user_time = record.user_time,
        .system_time = record.system_time,
        .sp = record.sp,
        .tid = record.tid,
        .slot = record.slot,
        .epoch = record.epoch,
        .frame_count = record.frame_count,
        .end = record.end,
        .flags = record.flags,
        .trigger = record.trigger,
    };
    to->offsets[to->count] = first + record.frame_count;
    return TAKEN;
}

/* What lies at a place, whose first bytes (size, kind) were there already. */
static enum record_result take_record(const uint8_t *at, uint32_t size, uint64_t left,
                                      struct unspool_samples *samples) {
    uint8_t kind;
    if (size % 8 || size > left)
        return DAMAGED;
    memcpy(&kind, at + offsetof(struct session_record, kind), sizeof kind);
    if (kind == SESSION_RECORD_PADDING)
        return size == left ? TAKEN : DAMAGED;
    return take_sample(at, size, samples);
}

int unspool_ring_read(struct session_area *area, uint64_t ring_size, struct unspool_samples *samples) {
    if (ring_size < SESSION_LEAST_RING || ring_size > SESSION_LARGEST_RING || (ring_size & (ring_size - 1)))
        return UNSPOOL_BAD_ARGUMENT;
    uint8_t *ring = (uint8_t *)area + sizeof *area;
    uint64_t tail = __atomic_load_n(&area->ring_tail, __ATOMIC_RELAXED);
    samples->count = 0;
    samples->offsets[0] = samples->copy_offsets[0] = 0;
    for (uint64_t taken = 0; taken < ring_size;) {
        uint64_t place = tail & (ring_size - 1);
        if (place % 8)
            return UNSPOOL_BAD_RING;
        uint32_t size = __atomic_load_n((uint32_t *)(ring + place), __ATOMIC_ACQUIRE);
        if (!size) /* not written yet */
            return 0;
        enum record_result result = take_record(ring + place, size, ring_size - place, samples);
        if (result != TAKEN)
            return result == NO_ROOM ? 1 : UNSPOOL_BAD_RING;
        memset(ring + place, 0, size);
        tail += size;
        taken += size;
        __atomic_store_n(&area->ring_tail, tail, __ATOMIC_RELEASE);
    }
    return 1;
}

/* ------------------------------------------------------------------ threads */

static bool request(struct session_area *area, uint32_t slot) {
    uint32_t made = __atomic_load_n(&area->requests_made, __ATOMIC_RELAXED);
    if (made - __atomic_load_n(&area->requests_done, __ATOMIC_ACQUIRE) >= SESSION_REQUESTS)
        return false;
    __atomic_store_n(&area->requests[made % SESSION_REQUESTS], slot, __ATOMIC_RELAXED);
    __atomic_store_n(&area->requests_made, made + 1, __ATOMIC_RELEASE);
    return true;
}

/* The id is another thread's by now: the slot goes on without it, until its timer is gone. */
static void detach(struct session_slot *slot) {
    __atomic_store_n(&slot->tid, SESSION_NO_THREAD, __ATOMIC_RELEASE);
}

/* The thread's own slot, or the first free one of its window, or NULL. */
static struct session_slot *slot_for(struct session_area *area, uint32_t tid) {
    struct session_slot *found = NULL;
    for (uint32_t i = 0; i < SESSION_SLOT_WINDOW; i++) {
        struct session_slot *slot = &area->slots[(tid + i) % SESSION_SLOTS];
        uint32_t owner = __atomic_load_n(&slot->tid, __ATOMIC_ACQUIRE);
        if (owner == tid && __atomic_load_n(&slot->wish, __ATOMIC_RELAXED) == SESSION_WISH_END)
            detach(slot);
        else if (owner == tid)
            return slot;
        else if (!found && !owner && __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == SESSION_SLOT_FREE)
            found = slot;
    }
    return found;
}

int unspool_area_add_thread(struct session_area *area, uint32_t tid, uint32_t wish, int32_t perf_fd) {
    struct session_slot *found = slot_for(area, tid);
    if (!found)
        return UNSPOOL_NOT_FOUND;
    uint32_t number = (uint32_t)(found - area->slots);
    if (found->tid != tid) {
        found->samples = 0;
        found->resume_at = 0;
        unspool_area_set_stack(area, number, 0, 0, 0);
    }
    __atomic_store_n(&found->perf_fd, perf_fd, __ATOMIC_RELAXED);
    __atomic_store_n(&found->wish, wish, __ATOMIC_RELAXED);
    __atomic_store_n(&found->tid, tid, __ATOMIC_RELEASE);
    if (request(area, number))
        return (int)number;
    return UNSPOOL_NOT_FOUND; /* asked again, it finds this slot by its tid */
}

int unspool_area_change_thread(struct session_area *area, uint32_t slot, uint32_t wish) {
    __atomic_store_n(&area->slots[slot % SESSION_SLOTS].wish, wish, __ATOMIC_RELEASE);
    return request(area, slot % SESSION_SLOTS) ? UNSPOOL_OK : UNSPOOL_NOT_FOUND;
}

int unspool_area_release_slot(struct session_area *area, uint32_t slot) {
    struct session_slot *ended = &area->slots[slot % SESSION_SLOTS];
    if (__atomic_load_n(&ended->wish, __ATOMIC_RELAXED) != SESSION_WISH_END ||
        __atomic_load_n(&ended->state, __ATOMIC_ACQUIRE) != SESSION_SLOT_FREE)
        return 0;
    __atomic_store_n(&ended->wish, SESSION_WISH_NOTHING, __ATOMIC_RELAXED);
    __atomic_store_n(&ended->tid, 0, __ATOMIC_RELEASE);
    return 1;
}

void unspool_area_set_stack(struct session_area *area, uint32_t slot, uint64_t start, uint64_t end,
                            uint32_t is_main) {
    struct session_slot *target = &area->slots[slot % SESSION_SLOTS];
    __atomic_store_n(&target->stack_end, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&target->stack_start, start, __ATOMIC_RELEASE);
    __atomic_store_n(&target->stack_is_main, is_main, __ATOMIC_RELEASE);
    __atomic_store_n(&target->stack_end, end, __ATOMIC_RELEASE);
}

int unspool_area_signal(struct session_area *area, uint32_t pid, uint32_t tid, int32_t signal,
                        uint64_t cookie) {
    siginfo_t about = {.si_signo = signal, .si_code = SI_QUEUE};
    about.si_pid = getpid();
    about.si_uid = getuid();
    about.si_value.sival_ptr = (void *)(uintptr_t)cookie;
    long result = -1;
    /* Who calls exec says so, then looks whether a signal is being sent: either we see that, or it waits. */
    __atomic_store_n(&area->signalling, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&area->replacing, __ATOMIC_SEQ_CST))
        result = system_call(SYSTEM_rt_tgsigqueueinfo, (long)pid, (long)tid, signal, (long)&about, 0, 0);
    __atomic_store_n(&area->signalling, 0, __ATOMIC_SEQ_CST);
    return result ? UNSPOOL_NOT_FOUND : UNSPOOL_OK;
}

/* ------------------------------------------------------------------ modules */

int unspool_area_free_modules(struct session_area *area) {
    uint64_t current = __atomic_load_n(&area->modules, __ATOMIC_RELAXED);
    bool is_taken[SESSION_MODULE_BUFFERS] = {false};
    if (current)
        is_taken[(current & 0xff) % SESSION_MODULE_BUFFERS] = true;
    /* A handler says what it reads, then looks whether it is still current: either we see that it reads, or
     * it sees what was published before this. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < SESSION_WORKSPACES; i++) {
        uint32_t reading = __atomic_load_n(&area->busy[i].reading, __ATOMIC_ACQUIRE);
        if (reading)
            is_taken[(reading - 1) % SESSION_MODULE_BUFFERS] = true;
    }
    for (int i = 0; i < SESSION_MODULE_BUFFERS; i++)
        if (!is_taken[i])
            return i;
    return UNSPOOL_NOT_FOUND;
}

uint32_t unspool_area_publish(struct session_area *area, uint32_t buffer) {
    uint64_t epoch = (__atomic_load_n(&area->modules, __ATOMIC_RELAXED) >> 8) + 1;
    __atomic_store_n(&area->modules, epoch << 8 | buffer % SESSION_MODULE_BUFFERS, __ATOMIC_RELEASE);
    __atomic_add_fetch(&area->modules_futex, 1, __ATOMIC_RELEASE);
    system_call(SYSTEM_futex, (long)&area->modules_futex, FUTEX_WAKE, INT32_MAX, 0, 0, 0);
    return (uint32_t)epoch;
}

uint32_t unspool_session_wait(const uint32_t *word, uint32_t value, uint64_t nanoseconds) {
    struct kernel_time limit = {(int64_t)(nanoseconds / 1000000000), (int64_t)(nanoseconds % 1000000000)};
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
        system_call(SYSTEM_futex, (long)word, FUTEX_WAIT, value, (long)&limit, 0, 0);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
