/*
 * timers.c: one-shot timers on threads' CPU clocks, which count kernel time too.
 *
 * Any thread of a process may create a timer on another one's clock. A timer is armed anew by the handler
 * that it called: if the program takes the signal over behind our back, it sees one stray signal a thread at
 * most. Whoever works on a slot holds it as BUSY; who finds it so leaves, since the holder looks again before
 * it goes.
 */
#include "state.h"

#define SIGNAL_THREAD 4 /* SIGEV_THREAD_ID */
#define ABSOLUTE_TIME 1 /* TIMER_ABSTIME */
#define REQUESTS_AT_ONCE 16

struct kernel_sigevent {
    uint64_t value;
    int32_t signal, notify, tid;
    uint8_t padding[44];
};

struct kernel_itimerspec {
    struct kernel_timespec interval, value;
};

struct session_slot *find_slot(struct session_area *area, uint32_t tid) {
    for (uint32_t i = 0; i < SESSION_SLOT_WINDOW; i++) {
        struct session_slot *slot = &area->slots[(tid + i) % SESSION_SLOTS];
        if (__atomic_load_n(&slot->tid, __ATOMIC_ACQUIRE) == tid)
            return slot;
    }
    return NULL;
}

/* The number of another thread's CPU clock (CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED). */
static long clock_of(uint32_t tid) {
    return (long)(int32_t)(~tid << 3 | 6);
}

static long arm(int32_t timer, uint64_t due) {
    const struct kernel_itimerspec when = {
        .value = {(int64_t)(due / NANOSECONDS), (int64_t)(due % NANOSECONDS)},
    };
    return system_call(SYS_timer_settime, timer, ABSOLUTE_TIME, (long)&when, 0, 0, 0);
}

/* A number that differs between threads and times: a first sample must not come at the same phase always. */
static uint64_t scatter(uint64_t seed) {
    seed = (seed ^ seed >> 33) * 0xff51afd7ed558ccdu;
    return seed ^ seed >> 33;
}

/* The slot's new state. */
static uint32_t create_timer(const struct session_header *header, struct session_slot *slot) {
    uint32_t tid = slot->tid;
    struct kernel_timespec now = {0, 0};
    struct kernel_sigevent event = {
        .value = header->cookie,
        .signal = (int32_t)header->signal,
        .notify = SIGNAL_THREAD,
        .tid = (int32_t)tid,
    };
    long result = system_call(SYS_clock_gettime, clock_of(tid), (long)&now, 0, 0, 0, 0);
    if (!result)
        result = system_call(SYS_timer_create, clock_of(tid), (long)&event, (long)&slot->timer_id, 0, 0, 0);
    if (!result) {
        uint64_t cpu_time = (uint64_t)now.seconds * NANOSECONDS + (uint64_t)now.nanoseconds;
        uint64_t phase = scatter(read_clock(CLOCK_OF_SYSTEM) + tid) % header->period;
        slot->due = cpu_time + phase + 1; /* 0 would disarm it */
        __atomic_store_n(&slot->missed, 0, __ATOMIC_SEQ_CST);
        result = arm(slot->timer_id, slot->due);
        if (!result)
            return SESSION_SLOT_TIMER;
        system_call(SYS_timer_delete, slot->timer_id, 0, 0, 0, 0, 0);
    }
    slot->error = (int32_t)-result;
    return SESSION_SLOT_FAILED;
}

static bool is_satisfied(uint32_t wish, uint32_t state) {
    switch (wish) {
    case SESSION_WISH_TIMER:
        return state == SESSION_SLOT_TIMER || state == SESSION_SLOT_FAILED;
    case SESSION_WISH_OUTSIDE:
        return state == SESSION_SLOT_OUTSIDE;
    case SESSION_WISH_END:
        return state == SESSION_SLOT_FREE;
    default:
        return true;
    }
}

static uint32_t satisfy(const struct session_header *header, struct session_slot *slot, uint32_t wish,
                        uint32_t state) {
    if (state == SESSION_SLOT_TIMER)
        system_call(SYS_timer_delete, slot->timer_id, 0, 0, 0, 0, 0);
    slot->due = 0;
    if (wish == SESSION_WISH_TIMER)
        return create_timer(header, slot);
    return wish == SESSION_WISH_OUTSIDE ? SESSION_SLOT_OUTSIDE : SESSION_SLOT_FREE;
}

/* True when the slot was in that state; now the caller holds it. */
static bool hold(struct session_slot *slot, uint32_t state) {
    return __atomic_compare_exchange_n(&slot->state, &state, SESSION_SLOT_BUSY, 0, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED);
}

static void let_go(struct session_slot *slot, uint32_t state) {
    __atomic_store_n(&slot->state, state, __ATOMIC_SEQ_CST);
}

/* Of a slot that is held, from due to due, so that the rate holds although the clock is looked at once a
 * tick; a little in the future, or the signal would come before anything else has run. Who is very late had
 * the signal blocked. */
static void arm_next(const struct session_header *header, struct session_slot *slot, uint64_t cpu_time) {
    uint64_t due = slot->due + header->period, soonest = cpu_time + header->period / 4;
    if (due + 2 * header->period < cpu_time)
        due = cpu_time + header->period;
    slot->due = due;
    __atomic_store_n(&slot->missed, 0, __ATOMIC_SEQ_CST);
    arm(slot->timer_id, due < soonest ? soonest : due);
}

void serve_slot(const struct session_header *header, struct session_slot *slot) {
    for (;;) {
        uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_SEQ_CST);
        uint32_t wish = __atomic_load_n(&slot->wish, __ATOMIC_SEQ_CST);
        bool is_missed = state == SESSION_SLOT_TIMER && __atomic_load_n(&slot->missed, __ATOMIC_SEQ_CST);
        bool is_done = is_satisfied(wish, state);
        if (state == SESSION_SLOT_BUSY || (is_done && !is_missed) ||
            ((wish == SESSION_WISH_TIMER || is_missed) &&
             __atomic_load_n(&agent.is_stopping, __ATOMIC_SEQ_CST)))
            return;
        if (!hold(slot, state))
            continue;
        if (is_done)
            arm_next(header, slot, read_clock((int)clock_of(slot->tid)));
        let_go(slot, is_done ? state : satisfy(header, slot, wish, state));
    }
}

void serve_requests(const struct session_header *header, struct session_area *area) {
    for (int i = 0; i < REQUESTS_AT_ONCE; i++) {
        uint32_t done = __atomic_load_n(&area->requests_done, __ATOMIC_ACQUIRE);
        if (done == __atomic_load_n(&area->requests_made, __ATOMIC_ACQUIRE))
            return;
        uint32_t slot = __atomic_load_n(&area->requests[done % SESSION_REQUESTS], __ATOMIC_RELAXED);
        if (__atomic_compare_exchange_n(&area->requests_done, &done, done + 1, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            serve_slot(header, &area->slots[slot % SESSION_SLOTS]);
    }
}

void arm_again(const struct session_header *header, struct session_slot *slot, uint64_t cpu_time) {
    if (!hold(slot, SESSION_SLOT_TIMER)) {
        /* Somebody is at work on it, perhaps the very code that the signal interrupted: it has just armed the
         * timer, and will see this. */
        __atomic_store_n(&slot->missed, 1, __ATOMIC_SEQ_CST);
        if (!hold(slot, SESSION_SLOT_TIMER))
            return;
    }
    arm_next(header, slot, cpu_time);
    let_go(slot, SESSION_SLOT_TIMER);
    serve_slot(header, slot); /* what was wished meanwhile */
}

void delete_timer(struct session_slot *slot) {
    if (!hold(slot, SESSION_SLOT_TIMER))
        return;
    system_call(SYS_timer_delete, slot->timer_id, 0, 0, 0, 0, 0);
    let_go(slot, SESSION_SLOT_FREE);
}
