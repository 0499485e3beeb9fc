/*
 * agent.c: joining a session and leaving it.
 *
 * Nothing is left behind where joining fails: no mapping, no descriptor, no handler. Runs in a constructor,
 * in the child of a fork, or in a thread that Python calls from; never in a signal handler. Where it waits,
 * it waits for a bounded time and for nobody in the program.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "state.h"

#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define ADDRESS_SPACE_LIMIT 9 /* RLIMIT_AS */
#define NO_LIMIT UINT64_MAX
#define SA_RESTORER_FLAG 0x04000000ul
#define SIGNAL_MASK_SIZE 8
#define WAIT_FOR_MODULES (2 * (uint64_t)NANOSECONDS)
#define WAIT_STEP 50000000 /* ns between two looks at whether the unspool process lives */
#define SILENCE_STEPS 500
#define SILENCE_STEP 1000000 /* ns */
#define HEADER_SIZE SESSION_AREAS_OFFSET

struct agent agent;

#if defined(__x86_64__)
void __restore_rt(void);
enum { OWN_ARCH = UNSPOOL_X86_64 };
#else
enum { OWN_ARCH = UNSPOOL_AARCH64 };
#endif

/* ------------------------------------------------------------------ mappings */

static bool is_error(long result) {
    return result < 0 && result >= -4095;
}

/* Part of the session's file; NULL: it can't be mapped. */
static void *map(int file, uint64_t offset, uint64_t size, int access) {
    long result = system_call(SYS_mmap, 0, (long)size, access, MAP_SHARED, file, (long)offset);
    if (is_error(result))
        return NULL;
    system_call(SYS_madvise, result, (long)size, MADV_DONTDUMP, 0, 0, 0);
    return (void *)result;
}

static void unmap(const void *address, uint64_t size) {
    if (address)
        system_call(SYS_munmap, (long)address, (long)size, 0, 0, 0, 0);
}

static uint64_t area_offset(const struct session_header *header, uint32_t number) {
    return SESSION_AREAS_OFFSET + number * header->area_size;
}

/* Sizes that the unspool process made; still, a file that is no session must not be mapped as one. */
static bool is_sound(const struct session_header *header, uint64_t file_size) {
    uint64_t ring = header->ring_size;
    return __atomic_load_n(&header->magic, __ATOMIC_ACQUIRE) == SESSION_MAGIC &&
           header->version == SESSION_VERSION && header->arch == OWN_ARCH && header->file_size == file_size &&
           ring >= SESSION_LEAST_RING && ring <= SESSION_LARGEST_RING && !(ring & (ring - 1)) &&
           header->area_size == session_area_size(ring) &&
           header->zone_offset == area_offset(header, SESSION_AREAS) && header->zone_size &&
           header->zone_size <= file_size && header->zone_offset <= file_size - header->zone_size &&
           header->period && header->cookie && header->signal && header->signal < 32;
}

/* ------------------------------------------------------------------ the session */

void ring_doorbell(struct session_header *header) {
    __atomic_add_fetch(&header->doorbell, 1, __ATOMIC_RELEASE);
    system_call(SYS_futex, (long)&header->doorbell, FUTEX_WAKE, INT32_MAX, 0, 0, 0);
}

static void tell_refusal(struct session_header *header, uint32_t pid, uint32_t reason) {
    uint32_t number = __atomic_fetch_add(&header->refusal_count, 1, __ATOMIC_RELAXED);
    struct session_refusal *refusal = &header->refusals[number % SESSION_REFUSALS];
    __atomic_store_n(&refusal->pid, pid, __ATOMIC_RELAXED);
    __atomic_store_n(&refusal->reason, reason, __ATOMIC_RELEASE);
    ring_doorbell(header);
}

/* The number of an area that is now this process's, or -1. */
static int claim_area(struct session_header *header, uint32_t pid) {
    for (int i = 0; i < SESSION_AREAS; i++) {
        uint32_t nobody = 0;
        if (!__atomic_load_n(&header->claims[i], __ATOMIC_RELAXED) &&
            __atomic_compare_exchange_n(&header->claims[i], &nobody, pid, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return i;
    }
    return -1;
}

static bool has_address_space_limit(void) {
    uint64_t limit[2] = {NO_LIMIT, NO_LIMIT};
    system_call(SYS_prlimit64, 0, ADDRESS_SPACE_LIMIT, 0, (long)limit, 0, 0);
    return limit[0] != NO_LIMIT;
}

/* Until the first list of modules is there, or can't be expected any more. */
static void wait_for_modules(const struct session_header *header, struct session_area *area) {
    uint64_t start = read_clock(CLOCK_OF_SYSTEM), now = start;
    while (now - start < WAIT_FOR_MODULES && !session_is_over(header, now)) {
        uint32_t seen = __atomic_load_n(&area->modules_futex, __ATOMIC_ACQUIRE);
        struct kernel_timespec step = {0, WAIT_STEP};
        if (__atomic_load_n(&area->modules, __ATOMIC_ACQUIRE))
            return;
        system_call(SYS_futex, (long)&area->modules_futex, FUTEX_WAIT, seen, (long)&step, 0, 0);
        now = read_clock(CLOCK_OF_SYSTEM);
    }
}

/* ------------------------------------------------------------------ the handler */

static bool install_handler(int signal) {
    struct kernel_action before = {0};
    const struct kernel_action ours = {
        .handler = (void *)(uintptr_t)agent_signal_entry,
#if defined(__x86_64__)
        .flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK | SA_RESTORER_FLAG,
        .restorer = (void *)(uintptr_t)__restore_rt,
#else
        .flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK,
#endif
        .mask = UINT64_MAX,
    };
    if (system_call(SYS_rt_sigaction, signal, 0, (long)&before, SIGNAL_MASK_SIZE, 0, 0))
        return false;
    if (before.handler != ours.handler)
        hook_keep_action(signal, &before);
    return !system_call(SYS_rt_sigaction, signal, (long)&ours, 0, SIGNAL_MASK_SIZE, 0, 0);
}

/* A signal of ours may still be pending where it is blocked: by default it would end the program. To ignore a
 * signal discards it everywhere. */
static void restore_handler(int signal) {
    struct kernel_action theirs = {0}, now = {0};
    const struct kernel_action ignored = {.handler = (void *)(uintptr_t)SIG_IGN};
    system_call(SYS_rt_sigaction, signal, 0, (long)&now, SIGNAL_MASK_SIZE, 0, 0);
    if (now.handler != (void *)(uintptr_t)agent_signal_entry)
        return; /* the program's newer one stays */
    hook_program_action(signal, &theirs);
    if (theirs.handler == (void *)(uintptr_t)SIG_DFL)
        system_call(SYS_rt_sigaction, signal, (long)&ignored, 0, SIGNAL_MASK_SIZE, 0, 0);
    system_call(SYS_rt_sigaction, signal, (long)&theirs, 0, SIGNAL_MASK_SIZE, 0, 0);
}

/* ------------------------------------------------------------------ start */

static void describe_process(struct session_area *area, const uint8_t *zone, uint32_t parent_pid,
                             uint32_t origin) {
    area->pid = own_pid();
    area->parent_pid = parent_pid;
    area->origin = origin;
    area->first_tid = own_tid();
    area->started = read_clock(CLOCK_OF_SYSTEM);
    area->area_address = (uintptr_t)area;
    area->zone_address = (uintptr_t)zone;
    area->agent_address = (uintptr_t)agent_signal_entry;
}

/* From here on handlers know the area, and the calling thread has a timer. */
static void begin_sampling(struct session_header *header, struct session_area *area) {
    struct session_slot *slot = &area->slots[area->first_tid % SESSION_SLOTS];
    agent.pid = area->pid;
    __atomic_store_n(&agent.is_quiet, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&agent.is_stopping, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&agent.area, area, __ATOMIC_SEQ_CST);
    slot->wish = SESSION_WISH_TIMER;
    __atomic_store_n(&slot->tid, area->first_tid, __ATOMIC_RELEASE);
    serve_slot(header, slot);
    __atomic_store_n(&area->state, SESSION_AREA_RUNNING, __ATOMIC_RELEASE);
    ring_doorbell(header);
}

static int refuse(struct session_header *header, enum session_refusal_reason reason) {
    tell_refusal(header, own_pid(), reason);
    return -(int)reason;
}

/* Copies of what must not change under us, and what agent_stop unmaps. */
static void remember(struct session_header *header, const uint8_t *zone) {
    agent.header = header;
    agent.zone = zone;
    agent.cookie = header->cookie;
    agent.area_size = header->area_size;
    agent.ring_size = header->ring_size;
    agent.zone_size = header->zone_size;
    agent.signal = (int32_t)header->signal;
}

/* With the header mapped: an area, the zone, the handler. */
static int join(int file, struct session_header *header) {
    uint32_t pid = own_pid();
    if (session_is_over(header, read_clock(CLOCK_OF_SYSTEM)))
        return -SESSION_REFUSED_STOPPING;
    if (has_address_space_limit())
        return refuse(header, SESSION_REFUSED_ADDRESS_SPACE);
    int number = claim_area(header, pid);
    if (number < 0)
        return refuse(header, SESSION_REFUSED_NO_AREA);
    struct session_area *area =
        map(file, area_offset(header, (uint32_t)number), header->area_size, PROT_READ | PROT_WRITE);
    const uint8_t *zone = map(file, header->zone_offset, header->zone_size, PROT_READ);
    int result = area && zone ? 0 : -SESSION_REFUSED_UNREACHABLE;
    if (!result) {
        describe_process(area, zone, (uint32_t)system_call(SYS_getppid, 0, 0, 0, 0, 0, 0),
                         SESSION_ORIGIN_START);
        __atomic_store_n(&area->state, SESSION_AREA_WAITING, __ATOMIC_RELEASE);
        ring_doorbell(header);
        wait_for_modules(header, area);
        remember(header, zone);
        result = install_handler(agent.signal) ? 0 : -SESSION_REFUSED_SIGNAL;
    }
    if (!result) {
        begin_sampling(header, area);
        return 0;
    }
    if (area)
        __atomic_store_n(&area->state, SESSION_AREA_STOPPED, __ATOMIC_RELEASE);
    unmap(zone, header->zone_size);
    unmap(area, header->area_size);
    return refuse(header, (enum session_refusal_reason) - result);
}

int agent_start(const char *path) {
    struct stat status;
    if (__atomic_load_n(&agent.area, __ATOMIC_SEQ_CST))
        return -SESSION_REFUSED_RUNNING;
    long file = system_call(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CLOEXEC, 0, 0, 0);
    if (is_error(file))
        return -SESSION_REFUSED_UNREACHABLE;
    int result = -SESSION_REFUSED_NOT_A_SESSION;
    struct session_header *header = NULL;
    if (!system_call(SYS_fstat, file, (long)&status, 0, 0, 0, 0) && status.st_size >= (long)HEADER_SIZE) {
        header = map((int)file, 0, HEADER_SIZE, PROT_READ | PROT_WRITE);
        if (!header)
            result = -SESSION_REFUSED_UNREACHABLE;
        else if (is_sound(header, (uint64_t)status.st_size))
            result = join((int)file, header);
    }
    if (result)
        unmap(header, HEADER_SIZE);
    system_call(SYS_close, file, 0, 0, 0, 0, 0);
    return result;
}

/* ------------------------------------------------------------------ stop */

/* False: some handler does not end. */
static bool wait_for_handlers(void) {
    for (int i = 0; i < 100000; i++) {
        if (!__atomic_load_n(&agent.inside, __ATOMIC_SEQ_CST))
            return true;
        system_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    }
    return false;
}

/* This process itself, not one that has its memory. */
static bool has_joined(void) {
    return __atomic_load_n(&agent.area, __ATOMIC_SEQ_CST) && own_pid() == agent.pid;
}

void agent_stop(void) {
    struct session_area *area = agent.area;
    struct session_header *header = agent.header;
    if (!has_joined())
        return;
    __atomic_store_n(&agent.is_stopping, 1, __ATOMIC_SEQ_CST);
    bool is_still = wait_for_handlers();
    for (uint32_t i = 0; i < SESSION_SLOTS; i++)
        if (__atomic_load_n(&area->slots[i].tid, __ATOMIC_ACQUIRE))
            delete_timer(&area->slots[i]);
    restore_handler(agent.signal);
    __atomic_store_n(&area->state, SESSION_AREA_STOPPED, __ATOMIC_RELEASE);
    ring_doorbell(header);
    __atomic_store_n(&agent.area, NULL, __ATOMIC_SEQ_CST);
    if (!is_still || !wait_for_handlers()) /* rather leave the mappings than pull them from under a handler */
        return;
    unmap(agent.zone, agent.zone_size);
    unmap(area, agent.area_size);
    unmap(header, HEADER_SIZE);
}

/* ------------------------------------------------------------------ fork */

/* Another mapping of the session's file, from its first byte on, made from the header's: the path may be out
 * of reach by now. NULL: it can't be. */
static struct session_area *map_area_again(const struct session_header *header, uint32_t number) {
    uint64_t offset = area_offset(header, number);
    long whole =
        system_call(SYS_mremap, (long)header, 0, (long)(offset + header->area_size), MREMAP_MAYMOVE, 0, 0);
    if (is_error(whole))
        return NULL;
    unmap((const void *)whole, offset);
    system_call(SYS_madvise, whole + (long)offset, (long)header->area_size, MADV_DONTDUMP, 0, 0, 0);
    return (struct session_area *)(whole + (long)offset);
}

/* The parent's list as it is now: the child has the same mappings. */
static void copy_modules(struct session_area *area, struct session_area *parent) {
    for (int i = 0; i < 3; i++) {
        uint64_t current = __atomic_load_n(&parent->modules, __ATOMIC_ACQUIRE);
        const struct session_modules *from = &parent->modules_buffer[current & (SESSION_MODULE_BUFFERS - 1)];
        struct session_modules *to = &area->modules_buffer[0];
        uint32_t count = from->count < SESSION_MODULES ? from->count : SESSION_MODULES;
        if (!current)
            return;
        to->count = count;
        to->pending_count = from->pending_count;
        to->changes = from->changes;
        memcpy(to->is_pending, from->is_pending, count);
        memcpy(to->module, from->module, count * sizeof *to->module);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (__atomic_load_n(&parent->modules, __ATOMIC_SEQ_CST) != current)
            continue; /* it may have been overwritten meanwhile */
        area->changes = __atomic_load_n(&parent->changes, __ATOMIC_RELAXED);
        __atomic_store_n(&area->modules, current & ~(uint64_t)0xff, __ATOMIC_RELEASE);
        return;
    }
}

void agent_leave_child(void) {
    struct session_area *parent = agent.area;
    __atomic_store_n(&agent.area, NULL, __ATOMIC_SEQ_CST);
    agent.inside = 0;
    if (!parent)
        return;
    unmap(agent.zone, agent.zone_size);
    unmap(parent, agent.area_size);
    unmap(agent.header, HEADER_SIZE);
}

void agent_in_child(void) {
    struct session_area *parent = agent.area;
    struct session_header *header = agent.header;
    if (!parent)
        return;
    if (agent.is_quiet || agent.is_stopping || session_is_over(header, read_clock(CLOCK_OF_SYSTEM))) {
        agent_leave_child();
        return;
    }
    int number = claim_area(header, own_pid());
    struct session_area *area = number < 0 ? NULL : map_area_again(header, (uint32_t)number);
    if (!area) {
        tell_refusal(header, own_pid(), number < 0 ? SESSION_REFUSED_NO_AREA : SESSION_REFUSED_UNREACHABLE);
        agent_leave_child();
        return;
    }
    agent.inside = 0; /* of threads that did not come along */
    describe_process(area, agent.zone, parent->pid, SESSION_ORIGIN_FORK);
    copy_modules(area, parent);
    begin_sampling(header, area);
    unmap(parent, agent.area_size);
}

/* ------------------------------------------------------------------ what hooks see and say */

bool agent_is_running(void) {
    return !__atomic_load_n(&agent.is_quiet, __ATOMIC_SEQ_CST) && has_joined();
}

int agent_signal(void) {
    return __atomic_load_n(&agent.area, __ATOMIC_SEQ_CST) ? agent.signal : 0;
}

bool agent_follows(void) {
    return __atomic_load_n(&agent.area, __ATOMIC_SEQ_CST) && !(agent.header->flags & SESSION_NO_FOLLOW) &&
           __atomic_load_n(&agent.header->state, __ATOMIC_ACQUIRE) == SESSION_RUNNING &&
           !__atomic_load_n(&agent.is_quiet, __ATOMIC_RELAXED);
}

void agent_refuse(uint32_t pid, enum session_refusal_reason reason) {
    if (__atomic_load_n(&agent.area, __ATOMIC_SEQ_CST))
        tell_refusal(agent.header, pid, reason);
}

void agent_note(uint32_t notes) {
    if (agent_is_running())
        __atomic_or_fetch(&agent.area->notes, notes, __ATOMIC_RELAXED);
}

/* Whether the unspool process has closed its perf events: it says so by area.quiet. */
static bool wait_for_silence(const struct session_area *area) {
    for (int i = 0; i < SILENCE_STEPS; i++) {
        const struct kernel_timespec step = {0, SILENCE_STEP};
        if (__atomic_load_n(&area->quiet, __ATOMIC_ACQUIRE))
            return true;
        system_call(SYS_nanosleep, (long)&step, 0, 0, 0, 0, 0);
    }
    return false;
}

void agent_be_quiet(uint32_t notes) {
    struct session_area *area = agent.area;
    if (!agent_is_running())
        return;
    __atomic_or_fetch(&area->notes, notes, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&agent.is_quiet, 1, __ATOMIC_SEQ_CST))
        return;
    __atomic_store_n(&area->state, SESSION_AREA_STOPPED, __ATOMIC_RELEASE);
    ring_doorbell(agent.header);
    bool is_silent = wait_for_silence(area);
    wait_for_handlers();
    for (uint32_t i = 0; i < SESSION_SLOTS; i++)
        if (__atomic_load_n(&area->slots[i].tid, __ATOMIC_ACQUIRE))
            delete_timer(&area->slots[i]);
    if (is_silent)
        restore_handler(agent.signal);
}

void agent_before_exec(void) {
    if (!agent_is_running())
        return;
    struct session_area *area = agent.area;
    __atomic_add_fetch(&area->replacing, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < SILENCE_STEPS && __atomic_load_n(&area->signalling, __ATOMIC_SEQ_CST); i++) {
        const struct kernel_timespec step = {0, SILENCE_STEP};
        system_call(SYS_nanosleep, (long)&step, 0, 0, 0, 0, 0);
    }
}

void agent_after_failed_exec(void) {
    if (agent_is_running())
        __atomic_sub_fetch(&agent.area->replacing, 1, __ATOMIC_SEQ_CST);
}

void agent_modules_changed(void) {
    if (!agent_is_running())
        return;
    __atomic_add_fetch(&agent.area->changes, 1, __ATOMIC_RELEASE);
    ring_doorbell(agent.header);
}

void agent_modules_unloaded(void) {
    if (agent_is_running())
        __atomic_add_fetch(&agent.area->unloads, 1, __ATOMIC_SEQ_CST);
    agent_modules_changed();
}

void agent_thread_made(void) {
    if (agent_is_running() && __atomic_exchange_n(&agent.area->threads_wanted, 0, __ATOMIC_ACQ_REL))
        ring_doorbell(agent.header);
}

__attribute__((visibility("default"))) int unspool_agent_start(const char *path) {
    return agent_start(path);
}

__attribute__((visibility("default"))) void unspool_agent_stop(void) {
    agent_stop();
}
