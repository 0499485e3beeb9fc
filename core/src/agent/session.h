/*
 * session.h: the memory that the unspool process and the agents in the watched programs share.
 *
 * The unspool process makes one sparse memfd, sealed against a change of its size (F_SEAL_SHRINK, _GROW and
 * _SEAL: a page that vanished would kill whoever touches it), and fills in the header. An agent opens it as
 * /proc/PID/fd/N, maps header, one area and the zone, and closes it. Offsets are multiples of
 * SESSION_ALIGNMENT:
 *
 *     struct session_header                       at 0
 *     SESSION_AREAS areas, one a process          at SESSION_AREAS_OFFSET + n * area_size:
 *         struct session_area, then the ring of ring_size bytes
 *     the zone: unwind tables, append-only        at zone_offset, zone_size bytes; agents map it read-only
 *
 * Every word has one writer at a time, named below: "unspool" or "agent". What has two is changed by
 * compare-and-swap and said so. Words marked "release" are written last, after what they announce, with a
 * release store; readers load them with acquire. To the unspool process everything that an agent can write is
 * untrusted. Memory that nobody wrote is zero, hence zero is "nothing yet" everywhere.
 *
 * Plain C structs without atomics' types and without pointers of this process: Python declares the same.
 */
#ifndef UNSPOOL_SESSION_H
#define UNSPOOL_SESSION_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "unspool.h"

#define SESSION_MAGIC 0x4e53534553505355u /* "USPSESSN" */
#define SESSION_VERSION 3u
#define SESSION_ALIGNMENT 65536u /* the largest page size of both architectures */

#define SESSION_AREAS 256
#define SESSION_SLOTS 4096           /* threads of one process that can be sampled at one time */
#define SESSION_SLOT_WINDOW 64       /* a thread's slot is one of this many from (tid % SLOTS) on, around */
#define SESSION_NO_THREAD UINT32_MAX /* no thread's id */
#define SESSION_REQUESTS 8192
#define SESSION_MODULES 4096 /* executable mappings of one process */
#define SESSION_MODULE_BUFFERS 4
#define SESSION_WORKSPACES 128 /* handlers that may run at one time in one process */
#define SESSION_WORKSPACE_SIZE 270336u
#define SESSION_REFUSALS 64
#define SESSION_AREAS_OFFSET SESSION_ALIGNMENT
#define SESSION_LEAST_RING 131072u /* ring_size: a power of two in these bounds */
#define SESSION_LARGEST_RING (16u << 20)
#define SESSION_HEARTBEAT_LIMIT 5000000000u /* ns: older, and no unspool process there: agents stop */

/* ------------------------------------------------------------------ header */

enum session_state {
    SESSION_RUNNING = 1,
    SESSION_STOPPING = 2, /* agents take no more samples and re-arm no timer */
};

enum session_flag {
    SESSION_TIMES = 1,     /* samples bring user and system time of the thread (getrusage), for triggers that
                              see user time only */
    SESSION_NO_FOLLOW = 2, /* programs and processes that the program starts are not profiled */
};

/* Why a process is not profiled, or not fully. Also what agent_start returns, negated. */
enum session_refusal_reason {
    SESSION_REFUSED_UNREACHABLE = 1,   /* the path can't be opened or mapped (chroot, setuid, no /proc) */
    SESSION_REFUSED_NOT_A_SESSION = 2, /* another version, architecture or sizes */
    SESSION_REFUSED_ADDRESS_SPACE =
        3,                        /* RLIMIT_AS is finite: a mapping of ours could make one of theirs fail */
    SESSION_REFUSED_NO_AREA = 4,  /* SESSION_AREAS processes are profiled already */
    SESSION_REFUSED_SIGNAL = 5,   /* the handler can't be installed */
    SESSION_REFUSED_STOPPING = 6, /* the session has ended, or its unspool process has */
    SESSION_REFUSED_RUNNING = 7,  /* agent_start: this process is in a session already */
    /* By hooks, of a program that process `pid` starts: its file shows that nothing can be preloaded into it.
     */
    SESSION_REFUSED_STATIC = 8,
    SESSION_REFUSED_MACHINE = 9,     /* for another machine, or 32-bit */
    SESSION_REFUSED_PRIVILEGED = 10, /* the loader would be in secure-execution mode */
    SESSION_REFUSED_UNREADABLE = 11,
    SESSION_REFUSED_ENVIRONMENT = 12, /* too large for the stack of a vfork's child */
};

struct session_refusal {
    uint32_t pid;    /* as the process sees itself */
    uint32_t reason; /* release; enum session_refusal_reason */
};

struct session_header {
    uint64_t magic; /* release */
    uint32_t version;
    uint32_t arch; /* enum unspool_arch: of the programs */
    uint64_t file_size;
    uint64_t area_size; /* from one area to the next: session_area_size(ring_size) */
    uint64_t ring_size;
    uint64_t zone_offset;
    uint64_t zone_size;
    uint64_t cookie;       /* random, not 0: si_value of the signals that are ours */
    uint64_t period;       /* ns of a thread's CPU time between two samples */
    uint32_t signal;       /* SIGPROF */
    uint32_t address_bits; /* see struct unspool_unwinder */
    uint32_t flags;        /* enum session_flag */
    uint32_t unspool_pid;  /* looked for where the heartbeat is old; 0: never */
    uint8_t reserved0[40];

    /* At 128. What changes while the session lasts. */
    uint32_t state; /* unspool, release: enum session_state */
    uint32_t reserved1;
    uint64_t heartbeat; /* unspool: CLOCK_MONOTONIC in ns, at least once a second */
    uint8_t reserved2[48];

    /* At 192. A futex word that agents count up when something waits for the unspool process: a process has
     * come, a thread was made, an eighth of a ring is full, a program changed its mappings. See
     * unspool_session_wait. */
    uint32_t doorbell;
    uint32_t
        refusal_count; /* agents, by atomic addition: so many were told; entry n is at n % SESSION_REFUSALS */
    uint8_t reserved3[56];

    struct session_refusal refusals[SESSION_REFUSALS]; /* at 256 */

    /* At 768. claims[n] says whose area n is: 0, or the pid as that process sees it. Agents claim by
     * compare-and-swap 0 → pid; unspool alone sets it to 0 again, once the area's bytes are zero again (hole
     * punched: fallocate keeps the size). */
    uint32_t claims[SESSION_AREAS];
};
static_assert(offsetof(struct session_header, state) == 128, "layout");
static_assert(offsetof(struct session_header, doorbell) == 192, "layout");
static_assert(offsetof(struct session_header, refusals) == 256, "layout");
static_assert(offsetof(struct session_header, claims) == 768, "layout");
static_assert(sizeof(struct session_header) == 1792, "layout");

/* ------------------------------------------------------------------ threads */

/* What unspool wants of a thread's slot. */
enum session_wish {
    SESSION_WISH_NOTHING = 0,
    SESSION_WISH_TIMER = 1,   /* the next agent code that runs creates a timer on the thread's CPU clock */
    SESSION_WISH_OUTSIDE = 2, /* signals come from a perf event of unspool's: perf_fd */
    SESSION_WISH_END = 3,     /* the thread is gone, or is to be left alone: its timer goes */
};

/* What the agent has made of it. */
enum session_slot_state {
    SESSION_SLOT_FREE = 0,
    SESSION_SLOT_BUSY = 1,    /* a system call is under way */
    SESSION_SLOT_TIMER = 2,   /* timer_id is armed */
    SESSION_SLOT_OUTSIDE = 3, /* no timer of ours */
    SESSION_SLOT_FAILED = 4,  /* timer_create failed: error says why (EAGAIN: RLIMIT_SIGPENDING) */
};

/* One thread. Life: unspool finds a slot of the thread's window whose tid and state are 0, sets everything
 * that is its own, tid last, and makes a request. When the thread has ended it sets wish to END and makes a
 * request; when it then sees state FREE it sets tid to 0, and the slot can be used again. If the id is
 * another thread's before that, the ended one's slot waits with tid SESSION_NO_THREAD. The thread that called
 * agent_start makes its own slot before the area's state is RUNNING. A thread's first signal from outside may
 * come before its timer is there: a bootstrap. */
struct session_slot {
    uint32_t tid;    /* unspool, release; as the program sees it (the last number of NSpid); 0: free */
    uint32_t wish;   /* unspool: enum session_wish */
    int32_t perf_fd; /* unspool: the descriptor, in the unspool process, whose signals are ours; 0: none */
    uint32_t reserved0;
    /* unspool: the mapping that is the thread's own stack (of a sample's sp), private and anonymous; 0: not
     * known, then memory is read by process_vm_readv. stack_end last, release. */
    uint64_t stack_start;
    uint64_t stack_end;
    uint32_t stack_is_main; /* it is the mapping named [stack]; else it is read no further than the thread
                               pointer, which libc keeps above the stack it made */
    uint32_t reserved1[7];

    /* At 64. The agent's: by compare-and-swap of state from and to BUSY, release. */
    uint32_t state; /* enum session_slot_state */
    int32_t error;  /* errno of timer_create */
    int32_t timer_id;
    uint32_t missed;  /* the timer fired while somebody held the slot, and was not armed again */
    uint64_t due;     /* CPU time of the thread, ns, at which the timer fires next */
    uint64_t samples; /* written to the ring */
    uint64_t
        resume_at; /* CPU time of the thread, ns, before which no sample is taken: SESSION_LOST_TOO_SLOW */
    uint64_t reserved3[3];
};
static_assert(offsetof(struct session_slot, stack_start) == 16, "layout");
static_assert(offsetof(struct session_slot, state) == 64, "layout");
static_assert(sizeof(struct session_slot) == 128, "layout");

/* ------------------------------------------------------------------ modules */

/* One list of the process's executable mappings, for unspool_walk. `table` points into the zone as the
 * process sees it: area.zone_address + offset in the zone; `code` is NULL, code_size 0. A mapping whose table
 * is still to come has table NULL and is_pending 1. */
struct session_modules {
    uint32_t count;
    uint32_t pending_count; /* how many is_pending there are */
    uint32_t changes;       /* area.changes before the mappings were read that this list is of */
    uint32_t reserved;
    uint8_t is_pending[SESSION_MODULES];
    struct unspool_module module[SESSION_MODULES]; /* sorted by start, not overlapping */
};
static_assert(offsetof(struct session_modules, module) == 16 + SESSION_MODULES, "layout");
static_assert(sizeof(struct unspool_module) == 48, "layout");

/* ------------------------------------------------------------------ handlers at work */

/* What a running handler needs: its stack, room for one stack of frames. A handler takes one that is free;
 * its word is apart, so that unspool sees at a glance which list of modules is being read. */
struct session_busy {
    uint32_t tid;     /* agent, compare-and-swap from 0: who uses the workspace */
    uint32_t reading; /* agent: 1 + the buffer of modules that it walks with; 0: none */
    uint8_t reserved[56];
};
static_assert(sizeof(struct session_busy) == 64, "layout");

/* ------------------------------------------------------------------ one process */

enum session_area_state {
    SESSION_AREA_CLAIMED = 0,
    SESSION_AREA_WAITING = 1, /* the process waits for its first list of modules, 2 s at most */
    SESSION_AREA_RUNNING = 2,
    SESSION_AREA_STOPPED = 3, /* by agent_stop, by hooks (a seccomp filter), or since unspool had gone */
};

enum session_origin {
    SESSION_ORIGIN_START = 1, /* a program began, or unspool_agent_start was called */
    SESSION_ORIGIN_FORK = 2,  /* of parent_pid, whose modules it has */
};

enum session_note { /* bits of area.notes: for people to know, not errors */
                    SESSION_NOTE_OWN_HANDLER =
                        1, /* the program has a handler of its own for our signal; it is called for theirs */
                    SESSION_NOTE_SECCOMP = 2, /* the program set a seccomp filter: the agent has stopped */
                    SESSION_NOTE_HANDLER_LOST = 4, /* the signal's handler is not ours any more */
};

/* Why a sample was not written. */
enum session_lost {
    SESSION_LOST_RING_FULL = 0,
    SESSION_LOST_NO_WORKSPACE = 1, /* SESSION_WORKSPACES handlers were running */
    SESSION_LOST_NO_SLOT = 2,      /* a signal of ours, but the thread has no slot */
    SESSION_LOST_NO_MODULES = 3,   /* no list of modules is there yet */
    SESSION_LOST_TOO_SLOW = 4,     /* the sample before took so long that the program would not get on */
    SESSION_LOST_REASONS = 8,
};

struct session_area {
    /* Written once by the agent, before state. */
    uint32_t pid; /* as the process sees itself */
    uint32_t parent_pid;
    uint32_t origin;        /* enum session_origin */
    uint32_t first_tid;     /* the thread that called agent_start */
    uint64_t started;       /* CLOCK_MONOTONIC, ns */
    uint64_t area_address;  /* where the process mapped this area */
    uint64_t zone_address;  /* and the zone */
    uint64_t agent_address; /* an address in the agent's own code: which mapping is ours */
    uint8_t reserved0[16];

    /* At 64. The agent's, as time goes by. */
    uint32_t state; /* release, and a futex word: enum session_area_state */
    uint32_t notes; /* by atomic or: enum session_note */
    uint32_t
        changes; /* counted up by hooks when the program may have changed its mappings (dlopen, dlclose) */
    uint32_t requests_done; /* requests before this number were served; by compare-and-swap */
    uint64_t foreign;       /* signals that were not ours, by atomic addition, as are the following */
    uint64_t lost[SESSION_LOST_REASONS]; /* by enum session_lost */
    uint32_t
        unloads; /* of the changes those that may take code away (dlclose), counted up before and after */
    uint32_t replacing; /* by atomic addition: threads that are about to call exec; no signal may be sent */
    uint8_t reserved1[32];

    /* At 192. The unspool process's, as time goes by. */
    uint64_t modules; /* release: epoch << 8 | buffer; the epoch begins with 1. See unspool_area_publish */
    uint32_t modules_futex; /* counted up with it */
    uint32_t requests_made; /* release: number of requests so far; see requests */
    uint32_t quiet; /* release; 1: no sample and no system call from now on (a seccomp filter was seen, or
                       the agent has stopped), and no perf event of unspool's is open any more */
    uint32_t no_reading; /* 1: process_vm_readv must not be called */
    uint32_t signalling; /* 1 while a signal is being sent, unless somebody is replacing */
    uint8_t reserved2[36];

    /* At 256. The ring's two ends: positions that only grow; position % ring_size is a place. */
    uint64_t ring_head; /* agent, by compare-and-swap: where the next record is reserved */
    uint8_t reserved3[56];
    uint64_t ring_tail;   /* at 320; unspool, release: everything before was read, and is zero again */
    uint32_t ring_wanted; /* unspool: 1 while it wants the doorbell when an eighth of the ring is full; agents
                             set it to 0 by compare-and-swap when they ring */
    uint32_t threads_wanted; /* unspool: 1 while it wants the doorbell when a thread is made; the agent sets
                                it to 0 when it rings */
    uint8_t reserved4[48];

    uint8_t reserved5[3712];

    struct session_busy busy[SESSION_WORKSPACES]; /* at 4096 */
    uint32_t requests[SESSION_REQUESTS];          /* at 12288: numbers of slots; entry n % SESSION_REQUESTS */
    struct session_slot slots[SESSION_SLOTS];     /* at 45056 */
    struct session_modules modules_buffer[SESSION_MODULE_BUFFERS]; /* at 569344 */
    uint8_t reserved6[4032];
    uint8_t workspaces[SESSION_WORKSPACES][SESSION_WORKSPACE_SIZE];
    /* The ring follows. */
};
static_assert(offsetof(struct session_area, state) == 64, "layout");
static_assert(offsetof(struct session_area, modules) == 192, "layout");
static_assert(offsetof(struct session_area, ring_head) == 256, "layout");
static_assert(offsetof(struct session_area, ring_tail) == 320, "layout");
static_assert(offsetof(struct session_area, busy) == 4096, "layout");
static_assert(offsetof(struct session_area, requests) == 12288, "layout");
static_assert(offsetof(struct session_area, slots) == 45056, "layout");
static_assert(offsetof(struct session_area, modules_buffer) == 569344, "layout");
static_assert(offsetof(struct session_area, workspaces) % 4096 == 0, "layout");
static_assert(sizeof(struct session_area) % SESSION_ALIGNMENT == 0, "layout");

/* ------------------------------------------------------------------ the ring */

/* Handlers of all threads write, unspool reads. A record never wraps around the ring's end: what is left
 * there is a padding record. A place that was not written yet holds size 0. */
enum session_record_kind {
    SESSION_RECORD_PADDING = 1,
    SESSION_RECORD_SAMPLE = 2,
    SESSION_RECORD_SAMPLE_AND_COPY = 3,
};

#define SESSION_MOST_FRAMES 4096

/* Followed by uint64_t addresses[frame_count], then uint8_t how[frame_count], then zeroes up to 8 bytes; in a
 * SAMPLE_AND_COPY then by a struct unspool_copy and its bytes, then zeroes as far as room was reserved: what
 * can be read shows too late. Padding may be 8 bytes long: size and kind only. */
struct session_record {
    uint32_t size; /* release, last: bytes of all this, a multiple of 8 */
    uint8_t kind;  /* enum session_record_kind */
    uint8_t end;   /* from here on as struct unspool_sample says */
    uint8_t flags;
    uint8_t trigger;
    uint32_t tid;
    uint32_t frame_count;
    uint64_t time;
    uint64_t cpu_time;
    uint64_t due;
    uint64_t user_time;
    uint64_t system_time;
    uint64_t sp;
    uint32_t epoch;
    uint32_t slot;
};
static_assert(sizeof(struct session_record) == 72, "layout");

#define SESSION_LARGEST_RECORD (sizeof(struct session_record) + SESSION_MOST_FRAMES * 9u)
static_assert(2 * SESSION_LARGEST_RECORD <= SESSION_LEAST_RING, "an empty ring has room, padding included");

/* A copy is left out where it would fill the ring further than this: samples have to fit. */
#define SESSION_RING_FOR_COPIES(ring_size) ((ring_size) / 4 * 3)

static inline uint64_t session_area_size(uint64_t ring_size) {
    return sizeof(struct session_area) + ring_size;
}

#endif
