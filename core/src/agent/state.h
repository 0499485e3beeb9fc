/*
 * state.h: what the agent knows of its process, shared by agent.c, handler.c and timers.c.
 *
 * Everything is hidden and lives in the agent's own data; `area` is the switch: NULL means that nothing is to
 * be sampled. It is loaded after `inside` was counted up, so that agent_stop can wait until nobody uses what
 * it unmaps.
 */
#ifndef UNSPOOL_AGENT_STATE_H
#define UNSPOOL_AGENT_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "../system.h"
#include "agent.h"

struct agent {
    struct session_area *area; /* release */
    struct session_header *header;
    const uint8_t *zone;
    uint64_t cookie; /* kept after agent_stop: late signals are still known as ours */
    uint64_t area_size, ring_size, zone_size;
    uint32_t pid;
    int32_t signal;
    uint32_t is_quiet;            /* no system calls from handlers */
    uint32_t is_stopping;         /* handlers take no samples and arm no timers */
    uint32_t unknown_epoch;       /* of the modules for which code in none of them was told */
    uint32_t unknown_copies;      /* so many samples that ended in such code were copied since then */
    _Alignas(64) uint32_t inside; /* handlers that have begun and not ended */
};
extern struct agent agent;

/* What one running handler uses. The handler's stack ends where this begins, and grows down from there. */
#define WORKSPACE_STACK 32768
struct workspace {
    struct session_area *area;
    struct session_slot *slot;
    const void *context; /* ucontext_t of the interrupted code */
    uint32_t number;
    uint32_t tid;
    uint32_t trigger; /* enum unspool_trigger */
    uint32_t cache_epoch;
    struct unspool_memory memory;
    uint8_t stack_copy[8192];
    uint64_t addresses[SESSION_MOST_FRAMES];
    uint8_t how[SESSION_MOST_FRAMES];
    struct unspool_cache cache; /* of modules of cache_epoch */
};
static_assert(WORKSPACE_STACK + sizeof(struct workspace) <= SESSION_WORKSPACE_SIZE, "a workspace fits");

static inline struct workspace *workspace_at(struct session_area *area, uint32_t number) {
    return (struct workspace *)(void *)(area->workspaces[number] + WORKSPACE_STACK);
}

/* ------------------------------------------------------------------ the kernel's structs */

struct kernel_timespec {
    int64_t seconds, nanoseconds;
};

#define NANOSECONDS 1000000000u
#define CLOCK_OF_THREAD 3 /* CLOCK_THREAD_CPUTIME_ID */
#define CLOCK_OF_SYSTEM 1 /* CLOCK_MONOTONIC */

static inline uint64_t read_clock(int clock) {
    struct kernel_timespec time = {0, 0};
    system_call(SYS_clock_gettime, clock, (long)&time, 0, 0, 0, 0);
    return (uint64_t)time.seconds * NANOSECONDS + (uint64_t)time.nanoseconds;
}

static inline uint32_t own_pid(void) {
    return (uint32_t)system_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

static inline uint32_t own_tid(void) {
    return (uint32_t)system_call(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

/* ------------------------------------------------------------------ agent.c */

/* Wakes the unspool process. */
void ring_doorbell(struct session_header *header);

/* ------------------------------------------------------------------ timers.c */

/* The slot of a thread, or NULL. */
struct session_slot *find_slot(struct session_area *area, uint32_t tid);

/* Brings a slot to what unspool wishes. By whichever thread. */
void serve_slot(const struct session_header *header, struct session_slot *slot);

/* Serves a bounded number of the requests that are open. */
void serve_requests(const struct session_header *header, struct session_area *area);

/* After a signal of the thread's timer: arms it again, a period after it was due. cpu_time is now. */
void arm_again(const struct session_header *header, struct session_slot *slot, uint64_t cpu_time);

/* The timer goes, whatever unspool wishes. By the thread's own handler, or when no handler runs. */
void delete_timer(struct session_slot *slot);

/* ------------------------------------------------------------------ handler.c, called by entry_ARCH.S */

/* What the kernel calls; see entry_ARCH.S. */
void agent_signal_entry(int signal, void *info, void *context);

/* What is to be done about a signal: nothing, the program's handler, or a sample in the workspace whose
 * address this is. On the program's stack: as little of it as can be. */
#define ENTER_NOTHING 0u
#define ENTER_FOREIGN 1u
uint64_t handler_enter(int signal, const void *info, const void *context);

/* On the workspace's stack. */
void handler_main(struct workspace *workspace);

/* On the program's stack again: gives the workspace back. */
void handler_leave(struct workspace *workspace);

/* The unspool process has ended the session, or has died without saying so. time: CLOCK_MONOTONIC. */
bool session_is_over(const struct session_header *header, uint64_t time);

#endif
