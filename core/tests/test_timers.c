/*
 * test_timers.c: the agent's timers (agent/timers.c), with the kernel's part played by this file: a timer
 * that fires at the worst moment, which is while the code that armed it still holds the slot.
 */
#include <stdint.h>
#include <stdlib.h>

#include "system.h"
static long play_kernel(long number, long a, long b, long c, long d, long e, long f);
#define system_call play_kernel
#include "agent/timers.c"
#undef system_call
#include "check.h"

enum { TID = 7, PERIOD = 5000000, TIMER_ID = 3 };

struct agent agent;
static struct session_header header = {.period = PERIOD, .signal = 27, .cookie = 1};
static struct session_slot slot;
static uint64_t cpu_time, armed_for; /* ns; 0: the timer is not armed */
static int fires_at_once, armed_count;

static long play_kernel(long number, long a, long b, long c, long d, long e, long f) {
    (void)a, (void)d, (void)e, (void)f;
    if (number == SYS_clock_gettime)
        *(struct kernel_timespec *)b = (struct kernel_timespec){0, (int64_t)cpu_time};
    if (number == SYS_timer_create)
        *(int32_t *)c = TIMER_ID;
    if (number == SYS_timer_settime) {
        const struct kernel_itimerspec *when = (const struct kernel_itimerspec *)c;
        armed_for = (uint64_t)when->value.nanoseconds;
        armed_count++;
        if (fires_at_once) { /* before the call has returned */
            fires_at_once--;
            cpu_time = armed_for;
            armed_for = 0;
            arm_again(&header, &slot, cpu_time); /* as the handler does */
        }
    }
    if (number == SYS_timer_delete)
        armed_for = 0;
    return 0;
}

static void begin(void) {
    slot = (struct session_slot){.tid = TID, .wish = SESSION_WISH_TIMER};
    cpu_time = 1000;
    armed_for = 0;
    armed_count = 0;
}

static void a_timer_is_armed_again_a_period_later(void) {
    begin();
    serve_slot(&header, &slot);
    CHECK_EQUAL(slot.state, SESSION_SLOT_TIMER);
    CHECK(armed_for > cpu_time && armed_for <= cpu_time + PERIOD);
    uint64_t due = armed_for;
    cpu_time = due + 10;
    arm_again(&header, &slot, cpu_time);
    CHECK_EQUAL(armed_for, due + PERIOD);
    CHECK_EQUAL(armed_count, 2);
}

static void a_timer_that_fires_while_it_is_armed_goes_on(void) {
    for (int times = 1; times < 4; times++) {
        begin();
        fires_at_once = times;
        serve_slot(&header, &slot);
        CHECK_EQUAL(fires_at_once, 0);
        CHECK_EQUAL(slot.state, SESSION_SLOT_TIMER);
        CHECK_EQUAL(slot.missed, 0);
        CHECK_EQUAL(armed_count, 1 + times);
        CHECK(armed_for > cpu_time && armed_for <= cpu_time + PERIOD);
    }
}

/* What a slot missed before is nothing to its next timer. */
static void a_new_timer_has_missed_nothing(void) {
    begin();
    slot.state = SESSION_SLOT_OUTSIDE;
    arm_again(&header, &slot, cpu_time); /* a late signal */
    CHECK_EQUAL(armed_count, 0);
    slot.state = SESSION_SLOT_FREE;
    serve_slot(&header, &slot);
    CHECK_EQUAL(armed_count, 1);
    CHECK_EQUAL(slot.missed, 0);
}

static void no_timer_is_armed_once_the_agent_stops(void) {
    begin();
    serve_slot(&header, &slot);
    slot.missed = 1;
    agent.is_stopping = 1;
    serve_slot(&header, &slot);
    agent.is_stopping = 0;
    CHECK_EQUAL(armed_count, 1);
}

int main(void) {
    RUN(a_timer_is_armed_again_a_period_later);
    RUN(a_timer_that_fires_while_it_is_armed_goes_on);
    RUN(a_new_timer_has_missed_nothing);
    RUN(no_timer_is_armed_once_the_agent_stops);
    return check_result();
}
