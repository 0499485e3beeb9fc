/*
 * handler.c: from a signal to a record in the ring.
 *
 * Three parts, called by entry_ARCH.S. handler_enter runs on the stack of the program and may use next to
 * nothing of it; handler_main runs on a workspace's stack; handler_leave gives the workspace back. Every
 * signal is blocked meanwhile. No memory of the program is read but by process_vm_readv, which can't fault,
 * or where the thread's own stack is known to be.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "../code.h"
#include "../memory.h"
#include "ring.h"
#include "state.h"

#define SHARE_OF_HANDLERS 5       /* one part in so many of a thread's CPU time goes into samples at most */
#define SHORT_STACK 64            /* frames */
#define USUAL_COPY 32768          /* bytes of a stack of which nobody knows where it ends */
#define MOST_UNKNOWN 256          /* copies of samples that ended in no module, for each list of modules */
#define NO_SUCH_PROCESS (-3)      /* -ESRCH */
#define GET_THREAD_POINTER 0x1003 /* ARCH_GET_FS */

static inline void count_lost(struct session_area *area, enum session_lost reason) {
    __atomic_add_fetch(&area->lost[reason], 1, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ on the program's stack */

/* What a signal can be by its siginfo alone. */
enum origin {
    ORIGIN_FOREIGN,
    ORIGIN_TIMER,
    ORIGIN_UNSPOOL, /* sent with our cookie */
    ORIGIN_FILE,    /* by a file descriptor: ours if it is our perf event's */
    ORIGIN_UNKNOWN, /* the kernel had no room to say: ours if a perf event watches the thread */
};

static inline enum origin origin_of(const siginfo_t *info) {
    bool has_cookie = (uint64_t)(uintptr_t)info->si_value.sival_ptr == agent.cookie && agent.cookie;
    if (info->si_code == SI_TIMER)
        return has_cookie ? ORIGIN_TIMER : ORIGIN_FOREIGN;
    if (info->si_code == SI_QUEUE)
        return has_cookie ? ORIGIN_UNSPOOL : ORIGIN_FOREIGN;
    if (info->si_code >= POLL_IN && info->si_code <= POLL_HUP)
        return ORIGIN_FILE;
    if (info->si_code == SI_USER && info->si_pid == 0)
        return ORIGIN_UNKNOWN;
    return ORIGIN_FOREIGN;
}

/* Whether a signal that may be a perf event's is ours. */
static inline bool is_watched(const struct session_slot *slot, enum origin origin, const siginfo_t *info) {
    int32_t descriptor = __atomic_load_n(&slot->perf_fd, __ATOMIC_RELAXED);
    return descriptor && (origin == ORIGIN_UNKNOWN || info->si_fd == descriptor);
}

static inline uint32_t trigger_of(const struct session_slot *slot, enum origin origin) {
    if (origin == ORIGIN_TIMER)
        return UNSPOOL_TRIGGER_TIMER;
    return slot->wish == SESSION_WISH_OUTSIDE ? UNSPOOL_TRIGGER_OUTSIDE : UNSPOOL_TRIGGER_BOOTSTRAP;
}

static inline struct workspace *take_workspace(struct session_area *area, uint32_t tid) {
    for (uint32_t i = 0; i < SESSION_WORKSPACES; i++) {
        uint32_t number = (tid + i) % SESSION_WORKSPACES, nobody = 0;
        uint32_t *user = &area->busy[number].tid;
        if (!__atomic_load_n(user, __ATOMIC_RELAXED) &&
            __atomic_compare_exchange_n(user, &nobody, tid, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            struct workspace *workspace = workspace_at(area, number);
            workspace->number = number;
            return workspace;
        }
    }
    return NULL;
}

static inline void leave(void) {
    __atomic_sub_fetch(&agent.inside, 1, __ATOMIC_SEQ_CST);
}

/* A signal that may be ours, in a process that is being sampled. */
static inline uint64_t enter_area(struct session_area *area, enum origin origin, const siginfo_t *info,
                                  const void *context) {
    uint32_t tid = own_tid();
    if (own_pid() != area->pid) /* a child that has its parent's memory */
        return origin == ORIGIN_TIMER || origin == ORIGIN_UNSPOOL ? ENTER_NOTHING : ENTER_FOREIGN;
    struct session_slot *slot = find_slot(area, tid);
    if ((origin == ORIGIN_FILE || origin == ORIGIN_UNKNOWN) && !(slot && is_watched(slot, origin, info)))
        return ENTER_FOREIGN;
    if (!slot) {
        count_lost(area, SESSION_LOST_NO_SLOT);
        return ENTER_NOTHING;
    }
    struct workspace *workspace = take_workspace(area, tid);
    if (!workspace) {
        count_lost(area, SESSION_LOST_NO_WORKSPACE);
        arm_again(agent.header, slot, read_clock(CLOCK_OF_THREAD));
        return ENTER_NOTHING;
    }
    workspace->area = area;
    workspace->slot = slot;
    workspace->context = context;
    workspace->tid = tid;
    workspace->trigger = trigger_of(slot, origin);
    return (uint64_t)(uintptr_t)workspace;
}

/* In a process that is sampled. Quiet: no system call may be made, not even to find out whose signal it is;
 * one that may be the program's is dropped rather than let it end the program. */
static inline uint64_t enter_process(struct session_area *area, const siginfo_t *info, const void *context) {
    enum origin origin = origin_of(info);
    if (origin == ORIGIN_FOREIGN)
        return ENTER_FOREIGN;
    if (!area || __atomic_load_n(&agent.is_quiet, __ATOMIC_RELAXED) ||
        __atomic_load_n(&area->quiet, __ATOMIC_RELAXED))
        return ENTER_NOTHING;
    return enter_area(area, origin, info, context);
}

uint64_t handler_enter(int signal, const void *info, const void *context) {
    (void)signal;
    __atomic_add_fetch(&agent.inside, 1, __ATOMIC_SEQ_CST);
    struct session_area *area = __atomic_load_n(&agent.area, __ATOMIC_SEQ_CST);
    uint64_t result = enter_process(area, info, context);
    if (result == ENTER_FOREIGN && area)
        __atomic_add_fetch(&area->foreign, 1, __ATOMIC_RELAXED);
    if (result <= ENTER_FOREIGN)
        leave();
    return result;
}

void handler_leave(struct workspace *workspace) {
    struct session_busy *busy = &workspace->area->busy[workspace->number];
    __atomic_store_n(&busy->tid, 0, __ATOMIC_RELEASE);
    leave();
}

/* ------------------------------------------------------------------ the interrupted code */

static void read_registers(const ucontext_t *context, struct unspool_registers *registers) {
#if defined(__aarch64__)
    for (int i = 0; i < 31; i++)
        registers->value[i] = context->uc_mcontext.regs[i];
    registers->value[UNSPOOL_AARCH64_SP] = context->uc_mcontext.sp;
    registers->value[UNSPOOL_AARCH64_PC] = context->uc_mcontext.pc;
    registers->known = ((uint64_t)1 << 33) - 1;
#else
    static const uint8_t order[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                    REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                    REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    for (unsigned i = 0; i < sizeof order; i++)
        registers->value[i] = (uint64_t)context->uc_mcontext.gregs[order[i]];
    registers->known = ((uint64_t)1 << sizeof order) - 1;
#endif
    registers->pc_is_return_address = 0;
}

#if defined(__aarch64__)
enum { OWN_ARCH = UNSPOOL_AARCH64, OWN_SP = UNSPOOL_AARCH64_SP, RED_ZONE = 0 };
static uint64_t thread_pointer(void) {
    uint64_t value;
    __asm__("mrs %0, tpidr_el0" : "=r"(value));
    return value;
}
#else
enum { OWN_ARCH = UNSPOOL_X86_64, OWN_SP = UNSPOOL_X86_64_RSP, RED_ZONE = 128 };
static uint64_t thread_pointer(void) {
    uint64_t value = 0;
    system_call(SYS_arch_prctl, GET_THREAD_POINTER, (long)&value, 0, 0, 0, 0);
    return value;
}
#endif

/* How far the stack can be read from sp on; 0: it is not known to be there. Between sp and the thread
 * pointer, in one mapping, lies nothing but what this thread needs to live: nobody takes it away. */
static uint64_t known_stack_end(const struct session_slot *slot, uint64_t sp) {
    uint64_t end = __atomic_load_n(&slot->stack_end, __ATOMIC_ACQUIRE);
    if (sp >= end || sp < __atomic_load_n(&slot->stack_start, __ATOMIC_ACQUIRE))
        return 0;
    if (slot->stack_is_main)
        return end;
    uint64_t pointer = thread_pointer();
    return pointer > sp && pointer < end ? pointer : 0;
}

struct io_vector {
    uint64_t address, size;
};

static void prepare_memory(struct workspace *workspace, uint64_t sp) {
    struct unspool_memory *memory = &workspace->memory;
    const struct session_area *area = workspace->area;
    bool may_read = !__atomic_load_n(&area->no_reading, __ATOMIC_RELAXED);
    memory->pid = may_read ? (int32_t)area->pid : 0;
    unspool_memory_reset(memory);
    memory->stack = (struct unspool_region){.address = sp};
    uint64_t end = known_stack_end(workspace->slot, sp);
    if (end) {
        memory->stack.size = end - sp;
        memory->stack.bytes = (const uint8_t *)(uintptr_t)sp;
    } else if (may_read) {
        struct io_vector to = {(uintptr_t)workspace->stack_copy, sizeof workspace->stack_copy};
        struct io_vector from = {sp, sizeof workspace->stack_copy};
        long got = system_call(SYS_process_vm_readv, memory->pid, (long)&to, 1, (long)&from, 1, 0);
        memory->stack.size = got > 0 ? (uint64_t)got : 0;
        memory->stack.bytes = workspace->stack_copy;
    }
}

/* ------------------------------------------------------------------ modules */

static const struct session_modules no_modules;

/* The current list, which stays as it is until `reading` is 0 again; *current names it. */
static const struct session_modules *begin_reading(struct workspace *workspace, uint64_t *current) {
    struct session_area *area = workspace->area;
    uint32_t *reading = &area->busy[workspace->number].reading;
    *current = __atomic_load_n(&area->modules, __ATOMIC_ACQUIRE);
    for (;;) {
        uint32_t buffer = (uint32_t)(*current & 0xff);
        if (!*current || buffer >= SESSION_MODULE_BUFFERS)
            return &no_modules;
        __atomic_store_n(reading, buffer + 1, __ATOMIC_SEQ_CST);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        uint64_t now = __atomic_load_n(&area->modules, __ATOMIC_SEQ_CST);
        if (now == *current)
            return &area->modules_buffer[buffer];
        *current = now;
    }
}

static void end_reading(struct workspace *workspace) {
    __atomic_store_n(&workspace->area->busy[workspace->number].reading, 0, __ATOMIC_RELEASE);
}

/* True when a frame lies in a module whose table is still to come. */
static bool misses_table(const struct session_modules *modules, const struct unspool_unwinder *unwinder,
                         const struct unspool_stack *stack) {
    for (uint64_t i = 0; modules->pending_count && i < stack->count; i++) {
        const struct unspool_module *module = find_module(unwinder, stack->addresses[i] - (i != 0));
        if (module && modules->is_pending[module - modules->module])
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------ one sample */

/* A stack that ended where no code is known to be may do so since the code is new. */
static bool ended_at_unknown(const struct session_record *about) {
    return about->end == UNSPOOL_END_UNMAPPED_PC || about->end == UNSPOOL_END_BAD_RETURN_ADDRESS;
}

/* Then the unspool process is woken to look, once for each list of modules. */
static void tell_unknown_code(const struct session_record *about) {
    if (ended_at_unknown(about) &&
        __atomic_exchange_n(&agent.unknown_epoch, about->epoch, __ATOMIC_RELAXED) != about->epoch) {
        __atomic_store_n(&agent.unknown_copies, 0, __ATOMIC_RELAXED);
        ring_doorbell(agent.header);
    }
}

static bool is_proved(const struct unspool_stack *stack) {
    uint8_t all = 0;
    for (uint64_t i = 0; i < stack->count; i++)
        all |= stack->how[i];
    return stack->end == UNSPOOL_END_ROOT && !(all & UNSPOOL_HOW_GUESS);
}

/* Whether the unspool process, which soon knows more code, may walk the stack better. Where nothing says that
 * there is more to be known, it may be no code at all, sample after sample. */
static bool is_worth_a_copy(const struct unspool_stack *stack, const struct session_record *about) {
    if (about->flags)
        return (about->flags & UNSPOOL_SAMPLE_NO_TABLE_YET) || !is_proved(stack);
    return __atomic_load_n(&agent.unknown_epoch, __ATOMIC_RELAXED) != about->epoch ||
           __atomic_fetch_add(&agent.unknown_copies, 1, __ATOMIC_RELAXED) < MOST_UNKNOWN;
}

/* Walks; says with which modules and what is to be said of them. */
static void walk(struct workspace *workspace, struct unspool_stack *stack, struct session_record *about) {
    struct session_area *area = workspace->area;
    struct unspool_registers registers;
    uint64_t current;
    const struct session_modules *modules = begin_reading(workspace, &current);
    struct unspool_unwinder unwinder = {
        .arch = OWN_ARCH,
        .address_bits = agent.header->address_bits,
        .modules = modules->module,
        .module_count = modules->count < SESSION_MODULES ? modules->count : SESSION_MODULES,
        .cache = &workspace->cache,
    };
    about->epoch = (uint32_t)(current >> 8);
    if (workspace->cache_epoch != about->epoch || !about->epoch) {
        unspool_cache_clear(&workspace->cache);
        workspace->cache_epoch = about->epoch;
    }
    read_registers(workspace->context, &registers);
    about->sp = registers.value[OWN_SP];
    prepare_memory(workspace, about->sp);
    unspool_walk(&unwinder, &registers, &workspace->memory, stack);
    about->end = (uint8_t)stack->end;
    if (!about->epoch || misses_table(modules, &unwinder, stack))
        about->flags |= UNSPOOL_SAMPLE_NO_TABLE_YET;
    if (__atomic_load_n(&area->modules, __ATOMIC_ACQUIRE) != current ||
        (about->epoch && __atomic_load_n(&area->changes, __ATOMIC_RELAXED) != modules->changes))
        about->flags |= UNSPOOL_SAMPLE_STALE_MODULES;
    end_reading(workspace);
}

static void wake_reader(struct session_area *area, uint64_t used) {
    uint32_t wanted = 1;
    if (used >= agent.ring_size / 8 && __atomic_load_n(&area->ring_wanted, __ATOMIC_RELAXED) &&
        __atomic_compare_exchange_n(&area->ring_wanted, &wanted, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ring_doorbell(agent.header);
}

/* How much of the stack is copied at most: as far as it is known to go, or up to the thread pointer, which
 * libc keeps above the stack it made, if that is near; else a usual size. A multiple of 8. */
static uint32_t most_to_copy(const struct workspace *workspace, uint64_t sp) {
    const uint64_t most = UNSPOOL_LARGEST_COPY - RED_ZONE;
    uint64_t end = known_stack_end(workspace->slot, sp), pointer = end ? end : thread_pointer();
    uint64_t size = pointer > sp ? pointer - sp : most + 1;
    if (size > most)
        size = end ? most : USUAL_COPY;
    return (uint32_t)(size + RED_ZONE + 7) & ~7u;
}

/* capacity bytes are there, zero, behind the struct. Reads as the walk did. */
static void fill_copy(struct workspace *workspace, uint64_t sp, uint32_t capacity,
                      struct unspool_copy *copy) {
    read_registers(workspace->context, &copy->registers);
    copy->address = sp - RED_ZONE;
    copy->size = memory_read(&workspace->memory, copy->address, copy + 1, capacity);
    if (copy->size <= RED_ZONE) { /* nothing is mapped below sp */
        copy->address = sp;
        copy->size = memory_read(&workspace->memory, sp, copy + 1, capacity);
    }
}

/* A record of *size bytes to be filled in, behind which the copy is there already; *size is all of it then.
 * NULL: there is no room, or no need. */
__attribute__((noinline, cold)) static struct session_record *
begin_with_copy(struct workspace *workspace, const struct unspool_stack *stack, struct session_record *about,
                uint32_t *size, uint64_t *used) {
    struct session_area *area = workspace->area;
    uint8_t *ring = (uint8_t *)area + sizeof *area;
    if (!is_worth_a_copy(stack, about))
        return NULL;
    uint32_t capacity = most_to_copy(workspace, about->sp);
    uint32_t whole = *size + (uint32_t)sizeof(struct unspool_copy) + capacity;
    struct session_record *record =
        ring_reserve(area, ring, agent.ring_size, SESSION_RING_FOR_COPIES(agent.ring_size), whole, used);
    if (!record)
        return NULL;
    fill_copy(workspace, about->sp, capacity, (struct unspool_copy *)(void *)((uint8_t *)record + *size));
    about->kind = SESSION_RECORD_SAMPLE_AND_COPY;
    *size = whole;
    return record;
}

static void write_record(struct workspace *workspace, const struct unspool_stack *stack,
                         struct session_record *about) {
    struct session_area *area = workspace->area;
    uint8_t *ring = (uint8_t *)area + sizeof *area;
    uint32_t count = (uint32_t)stack->count, size = record_size(count);
    uint64_t used;
    struct session_record *record = NULL;
    if (about->flags || ended_at_unknown(about))
        record = begin_with_copy(workspace, stack, about, &size, &used);
    if (!record)
        record = ring_reserve(area, ring, agent.ring_size, agent.ring_size, size, &used);
    if (record) {
        uint8_t *frames = (uint8_t *)(record + 1);
        memcpy((uint8_t *)record + sizeof record->size, (const uint8_t *)about + sizeof about->size,
               sizeof *record - sizeof record->size);
        memcpy(frames, stack->addresses, count * sizeof *stack->addresses);
        memcpy(frames + count * sizeof *stack->addresses, stack->how, count);
        ring_commit(record, size);
        __atomic_add_fetch(&workspace->slot->samples, 1, __ATOMIC_RELAXED);
    } else {
        count_lost(area, SESSION_LOST_RING_FULL);
    }
    wake_reader(area, used);
}

/* User and system time of this thread. */
static void read_times(struct session_record *about) {
    int64_t usage[18] = {0}; /* struct rusage: two timevals, then counts */
    system_call(SYS_getrusage, 1 /* RUSAGE_THREAD */, (long)usage, 0, 0, 0, 0);
    about->user_time = (uint64_t)usage[0] * NANOSECONDS + (uint64_t)usage[1] * 1000;
    about->system_time = (uint64_t)usage[2] * NANOSECONDS + (uint64_t)usage[3] * 1000;
}

/* To the root, by rules alone, and few frames: the walk took some µs, which no rate makes too much. */
static bool was_short(const struct unspool_stack *stack) {
    uint8_t others = 0;
    for (uint64_t i = 0; i < stack->count && i < SHORT_STACK; i++)
        others |= stack->how[i] > UNSPOOL_HOW_CFI;
    return stack->end == UNSPOOL_END_ROOT && stack->count <= SHORT_STACK && !others;
}

/* True: it may have taken long. */
static bool take_sample(struct workspace *workspace, uint64_t time, uint64_t cpu_time) {
    struct unspool_stack stack = {
        .addresses = workspace->addresses,
        .how = workspace->how,
        .capacity = SESSION_MOST_FRAMES,
    };
    struct session_record about = {
        .kind = SESSION_RECORD_SAMPLE,
        .trigger = (uint8_t)workspace->trigger,
        .tid = workspace->tid,
        .time = time,
        .cpu_time = cpu_time,
        .due = workspace->trigger == UNSPOOL_TRIGGER_TIMER ? workspace->slot->due : 0,
        .slot = (uint32_t)(workspace->slot - workspace->area->slots),
    };
    if (agent.header->flags & SESSION_TIMES)
        read_times(&about);
    walk(workspace, &stack, &about);
    about.frame_count = (uint32_t)stack.count;
    write_record(workspace, &stack, &about);
    tell_unknown_code(&about);
    return !was_short(&stack);
}

/* The session is over, or the unspool process has died without saying so. */
bool session_is_over(const struct session_header *header, uint64_t time) {
    if (__atomic_load_n(&header->state, __ATOMIC_ACQUIRE) != SESSION_RUNNING)
        return true;
    uint64_t heartbeat = __atomic_load_n(&header->heartbeat, __ATOMIC_RELAXED);
    return time > heartbeat && time - heartbeat > SESSION_HEARTBEAT_LIMIT && header->unspool_pid &&
           system_call(SYS_kill, header->unspool_pid, 0, 0, 0, 0, 0) == NO_SUCH_PROCESS;
}

void handler_main(struct workspace *workspace) {
    struct session_header *header = agent.header;
    uint64_t time = read_clock(CLOCK_OF_SYSTEM), cpu_time = read_clock(CLOCK_OF_THREAD);
    if (__atomic_load_n(&agent.is_stopping, __ATOMIC_SEQ_CST) || session_is_over(header, time)) {
        delete_timer(workspace->slot);
        __atomic_store_n(&workspace->area->state, SESSION_AREA_STOPPED, __ATOMIC_RELEASE);
        return;
    }
    if (cpu_time < workspace->slot->resume_at) {
        count_lost(workspace->area, SESSION_LOST_TOO_SLOW);
    } else if (take_sample(workspace, time, cpu_time)) {
        workspace->slot->resume_at = cpu_time + (read_clock(CLOCK_OF_THREAD) - cpu_time) * SHARE_OF_HANDLERS;
    }
    serve_requests(header, workspace->area);
    if (workspace->trigger == UNSPOOL_TRIGGER_TIMER)
        arm_again(header, workspace->slot, cpu_time);
}
