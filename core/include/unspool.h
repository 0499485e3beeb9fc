/*
 * unspool.h: the whole C interface of the core.
 *
 * The core compiles unwind information into tables and walks stacks with them. Walking
 * (unspool_walk, unspool_step, unspool_walk_many) allocates nothing, takes no lock and calls
 * nothing that is not async-signal-safe; compiling may allocate and belongs outside handlers. A walk
 * takes about 12 KB of the stack where code has to be followed or CFI to be run: an alternate signal
 * stack needs room for that. unspool_walk_many takes 90 KB more.
 * Nothing in this header is thread-local or global: a caller owns all state. Two walks at a time, in
 * two threads or in a thread and its signal handler, may share tables and modules but not an
 * unspool_memory or an unspool_cache.
 *
 * Words. An address is where something is in a process. The image base is where a file's lowest
 * virtual address is mapped; relative address = address - image base. A lookup address is what is
 * looked up in tables: the pc itself for an interrupted frame, return address - 1 for a caller.
 */
#ifndef UNSPOOL_H
#define UNSPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef UNSPOOL_HIDDEN /* in the agent: a program may have libunspool.so, too */
#pragma GCC visibility push(hidden)
#else
#pragma GCC visibility push(default) /* the library is built with -fvisibility=hidden */
#endif

enum unspool_arch {
    UNSPOOL_X86_64 = 1,
    UNSPOOL_AARCH64 = 2,
};

/* ------------------------------------------------------------------ registers */

/* Values are indexed by DWARF number: x86_64 0..15, aarch64 0..30 and 31 = sp; the pc has a slot
 * of its own, which is also DWARF's return-address column on x86_64. */
#define UNSPOOL_REGISTERS 33
enum unspool_register {
    UNSPOOL_X86_64_RBX = 3,
    UNSPOOL_X86_64_RBP = 6,
    UNSPOOL_X86_64_RSP = 7,
    UNSPOOL_X86_64_PC = 16,
    UNSPOOL_AARCH64_FP = 29,
    UNSPOOL_AARCH64_LR = 30,
    UNSPOOL_AARCH64_SP = 31,
    UNSPOOL_AARCH64_PC = 32,
};

struct unspool_registers {
    uint64_t value[UNSPOOL_REGISTERS];
    uint64_t known;                /* bit n: value[n] is known; an unknown value is never read */
    uint32_t pc_is_return_address; /* 0 for an interrupted frame, 1 for a caller */
    uint32_t reserved;
};

/* ------------------------------------------------------------------ tables */

/* One table serves one file: a flat, relocatable, 8-byte aligned block (format:
 * core/src/unwind_table.h). The same bytes serve on the heap, in a disk cache and in shared
 * memory. A block that was not compiled here must pass unspool_table_check before any use. */
struct unspool_table;

enum unspool_section_kind {
    UNSPOOL_EH_FRAME = 1,
    UNSPOOL_DEBUG_FRAME = 2,
};

struct unspool_section {
    const uint8_t *bytes;
    uint64_t size;
    uint64_t address;    /* virtual address of bytes[0] in the file; 0 for .debug_frame */
    uint32_t kind;       /* enum unspool_section_kind */
    uint32_t open_ended; /* 1: the size is an upper bound; the first zero terminator or malformed
                            entry ends the section silently */
};

struct unspool_compile_input {
    uint32_t arch;
    uint32_t section_count;
    const struct unspool_section *sections;
    uint64_t image_address; /* the file's lowest virtual address: relative address 0 */
    uint64_t text_address;  /* base of DW_EH_PE_textrel */
    uint64_t data_address;  /* base of DW_EH_PE_datarel */
    uint64_t entry_address; /* e_entry, where nobody called; 0 = none */
    /* The file's code, by virtual address (kind and open_ended don't matter), or none: then
     * neither UNSPOOL_ROW_DOUBTED nor UNSPOOL_ROW_CODE is found out. */
    const struct unspool_section *code;
    uint64_t code_count;
};

enum unspool_problem_kind {
    UNSPOOL_PROBLEM_TRUNCATED = 1,    /* an entry or an operand runs past its end */
    UNSPOOL_PROBLEM_CIE_MISSING,      /* an FDE points to no CIE */
    UNSPOOL_PROBLEM_CIE_UNSUPPORTED,  /* version, augmentation, address or segment size */
    UNSPOOL_PROBLEM_POINTER_ENCODING, /* DW_EH_PE value that can't be resolved */
    UNSPOOL_PROBLEM_INSTRUCTION,      /* unknown or malformed DW_CFA, or absurdly many where exact */
    UNSPOOL_PROBLEM_RANGE,            /* an address range that wraps or lies 4 GiB away */
    UNSPOOL_PROBLEM_OVERLAP,          /* two FDEs of one section claim an address */
};

struct unspool_problem {
    uint32_t kind;
    uint32_t section; /* index into the input's sections */
    uint64_t offset;  /* in the section: of the entry */
};

#define UNSPOOL_PROBLEMS_KEPT 16
struct unspool_problems {
    uint64_t count; /* how many there were; the first UNSPOOL_PROBLEMS_KEPT are kept */
    struct unspool_problem first[UNSPOOL_PROBLEMS_KEPT];
};

enum unspool_status {
    UNSPOOL_OK = 0,
    UNSPOOL_NO_MEMORY = -1,
    UNSPOOL_BAD_ARGUMENT = -2,
    UNSPOOL_BAD_TABLE = -3, /* not a table, of another version, truncated or inconsistent */
    UNSPOOL_NOT_FOUND = -4,
    UNSPOOL_BAD_RING = -5, /* what a program wrote into its ring is no record */
};

/* Compiles every section into one table. What can't be read is left out and told in *problems;
 * the rest is kept. Where sections overlap, .eh_frame goes before .debug_frame. The table is
 * released with unspool_table_free. */
int unspool_table_compile(const struct unspool_compile_input *input, struct unspool_table **table,
                          struct unspool_problems *problems);
void unspool_table_free(struct unspool_table *table);

/* Room for tables that grow. It must outlive them, and has room for a million functions, of all its tables
 * and of those that are freed, too: behind them, nothing is known. UNSPOOL_OK or UNSPOOL_NO_MEMORY. */
struct unspool_pool;
int unspool_pool_new(struct unspool_pool **pool);
void unspool_pool_free(struct unspool_pool *pool);

/* A table that is compiled function by function, as walks and lookups ask for it, and says what a whole one
 * says: for who walks few stacks. index: .eh_frame_hdr. The input's bytes and the index must stay as long as
 * the table. It can be looked up in and walked by, by several threads, but never in a signal handler: where
 * it grows it allocates and locks. UNSPOOL_NOT_FOUND: the index, or another section than .eh_frame, does not
 * serve for that; compile it whole. */
int unspool_table_begin(struct unspool_pool *pool, const struct unspool_compile_input *input,
                        const struct unspool_section *index, struct unspool_table **table);
void unspool_table_end(struct unspool_table *table);

/* Size of the whole block in bytes. */
uint64_t unspool_table_size(const struct unspool_table *table);

/* Checks an untrusted block (8-byte aligned): afterwards no lookup or walk can leave it.
 * UNSPOOL_OK or UNSPOOL_BAD_TABLE. Linear in the size. */
int unspool_table_check(const void *block, uint64_t size);

enum unspool_cfa_base { UNSPOOL_CFA_SP = 0, UNSPOOL_CFA_FP = 1, UNSPOOL_CFA_RBX = 2 };
enum unspool_saved {
    UNSPOOL_SAVED_SAME = 0,    /* still in its register (for the return address: lr) */
    UNSPOOL_SAVED_AT_CFA = 1,  /* in memory at CFA + offset */
    UNSPOOL_SAVED_UNKNOWN = 2, /* undefined: the caller's value is lost */
};
enum unspool_row_flag {
    UNSPOOL_ROW_SIGNAL = 1,       /* CIE augmentation 'S': the frame below was interrupted */
    UNSPOOL_ROW_SIGNED = 2,       /* return address carries a PAC */
    UNSPOOL_ROW_END = 4,          /* return address explicitly undefined: outermost frame */
    UNSPOOL_ROW_EXACT = 8,        /* no rule can say it: see unspool_table_exact */
    UNSPOOL_ROW_NONE = 16,        /* nothing is known here */
    UNSPOOL_ROW_DEBUG_FRAME = 32, /* from .debug_frame, not .eh_frame */
    UNSPOOL_ROW_DOUBTED = 64,     /* the function has one row, as at its first instruction, though its code
                                     moves sp: code analysis says whether the row holds at an address */
    UNSPOOL_ROW_CODE = 128,       /* from the code itself, which no unwind information describes */
};

/* One row, spelled out: what holds for relative addresses start <= a < end. */
struct unspool_row {
    uint64_t start, end;
    int32_t cfa_offset;
    int32_t ra_offset; /* from the CFA, when ra == UNSPOOL_SAVED_AT_CFA */
    int32_t fp_offset; /* likewise */
    uint8_t cfa_base;  /* enum unspool_cfa_base */
    uint8_t ra;        /* enum unspool_saved */
    uint8_t fp;
    uint8_t flags; /* enum unspool_row_flag */
};

uint64_t unspool_table_row_count(const struct unspool_table *table);
/* Spells out rows first .. first+capacity-1; returns how many were written. Rows are sorted, do not
 * overlap and leave no gap between the first and the last (gaps are UNSPOOL_ROW_NONE). */
size_t unspool_table_rows(const struct unspool_table *table, uint64_t first, struct unspool_row *rows,
                          size_t capacity);
/* Spells out rows that say nothing (UNSPOOL_ROW_NONE) of `least` bytes or more; returns how many there are,
 * which may be more than were written. */
size_t unspool_table_gaps(const struct unspool_table *table, uint64_t least, struct unspool_row *rows,
                          size_t capacity);
/* The row that holds at a relative lookup address: UNSPOOL_OK or UNSPOOL_NOT_FOUND. */
int unspool_table_lookup(const struct unspool_table *table, uint64_t relative_address,
                         struct unspool_row *row);

enum unspool_exact_kind {
    UNSPOOL_EXACT_UNDEFINED = 0,
    UNSPOOL_EXACT_SAME,
    UNSPOOL_EXACT_OFFSET,         /* at CFA + value */
    UNSPOOL_EXACT_VAL_OFFSET,     /* is CFA + value */
    UNSPOOL_EXACT_REGISTER,       /* in register number value */
    UNSPOOL_EXACT_EXPRESSION,     /* at the address the expression yields */
    UNSPOOL_EXACT_VAL_EXPRESSION, /* is what the expression yields */
    UNSPOOL_EXACT_UNSPECIFIED,    /* CFI says nothing: the ABI's default holds */
};

struct unspool_exact_rule {
    uint8_t kind; /* enum unspool_exact_kind */
    uint8_t reserved[3];
    uint32_t expression_size;
    int64_t value;
    const uint8_t *expression; /* inside the table */
};

/* What the CFI of an UNSPOOL_ROW_EXACT row says, by DWARF register; the return-address column is in
 * rules[return_address_register]. CFA: register + offset, or an expression. */
struct unspool_exact_row {
    uint64_t start, end; /* relative addresses */
    uint32_t cfa_register;
    uint32_t cfa_expression_size; /* 0: register + offset */
    int64_t cfa_offset;
    const uint8_t *cfa_expression;
    uint32_t return_address_register;
    uint32_t reserved;
    struct unspool_exact_rule rules[UNSPOOL_REGISTERS];
};
int unspool_table_exact(const struct unspool_table *table, uint64_t relative_address,
                        struct unspool_exact_row *row);

/* ------------------------------------------------------------------ a process */

/* One executable mapping. A file with two executable mappings has two modules with one table;
 * an anonymous one (JIT code) has none. */
struct unspool_module {
    uint64_t start, end;               /* addresses */
    uint64_t image_base;               /* address of relative address 0 */
    const struct unspool_table *table; /* NULL: no unwind information */
    const uint8_t *code;               /* bytes of [start, start + code_size), or NULL: code is read */
    uint64_t code_size;                /* through the unspool_memory */
};

struct unspool_region {
    uint64_t address, size;
    const uint8_t *bytes;
};

/* A memory reader, which cannot fault. The stack is tried first, then the regions, then, if pid is
 * not 0, the process itself by process_vm_readv, a page at a time. Code that no module brings may be
 * read in a process although data may not: its stack is not what it was, its code still is.
 *   snapshot:       copies in stack and regions, pid 0; code_pid: 0, or the process they are from
 *   own process:    the thread's own mapped stack as it is in stack, pid = getpid()
 *   other process:  pid
 * Set everything to 0 first; unspool_memory_reset forgets the page that was read last. */
struct unspool_memory {
    struct unspool_region stack;
    const struct unspool_region *regions; /* sorted by address, not overlapping */
    uint64_t region_count;
    int32_t pid;
    int32_t code_pid;
    uint32_t page_size; /* private, as are the following: how much of page is valid */
    uint32_t slots_read;
    uint64_t page_address; /* address of page[0] */
    uint8_t page[4096];
};
void unspool_memory_reset(struct unspool_memory *memory);

/* What was looked up and found out before: the rule of a lookup address, what following code has shown, and
 * the last stack that unspool_walk followed to its root: where the next one's memory still holds the same, it
 * is compared, not walked. Pays when many stacks are walked. It belongs to one set of modules: clear it
 * whenever they change. Its members are private. */
#define UNSPOOL_CACHE_ENTRIES 8192
#define UNSPOOL_CACHE_ANSWERS 512
#define UNSPOOL_KEPT_FRAMES 64
struct unspool_cache {
    struct {
        uint64_t address;
        uint64_t rule;
    } entry[UNSPOOL_CACHE_ENTRIES];
    struct unspool_answer {
        uint64_t question[5];
        int64_t offset[3];
        uint8_t kind[3];
        uint8_t result;
        uint8_t reserved[4];
    } answer[UNSPOOL_CACHE_ANSWERS];
    struct unspool_last_walk {
        uint32_t count;
        uint32_t in_vain;
        struct unspool_kept_frame {
            uint64_t pc, sp, fp;
            int16_t pc_slot, fp_slot;
            uint8_t fp_is_saved;
            uint8_t reserved[3];
        } frame[UNSPOOL_KEPT_FRAMES];
    } last;
};
void unspool_cache_clear(struct unspool_cache *cache);

struct unspool_unwinder {
    uint32_t arch;
    uint32_t address_bits; /* user addresses are below 1 << address_bits; the rest may be PAC */
    const struct unspool_module *modules; /* sorted by start, not overlapping */
    uint64_t module_count;
    struct unspool_cache *cache; /* or NULL */
};

/* ------------------------------------------------------------------ walking */

/* How a frame was found: by which step from the frame it called. */
enum unspool_how {
    UNSPOOL_HOW_INTERRUPTED = 0, /* the registers themselves */
    UNSPOOL_HOW_CFI = 1,
    UNSPOOL_HOW_CFI_EXACT = 2,
    UNSPOOL_HOW_SIGNAL_FRAME = 3, /* restored from what the kernel saved */
    UNSPOOL_HOW_PLT = 4,
    UNSPOOL_HOW_CODE_ANALYSIS = 5,
    UNSPOOL_HOW_LEAF = 6,
    UNSPOOL_HOW_FRAME_POINTER = 7,
    UNSPOOL_HOW_GUESS = 0x80, /* or-ed in: nothing proves this frame */
};

enum unspool_end {
    UNSPOOL_END_ROOT = 0,
    UNSPOOL_END_STACK_BYTES_ENDED = 1,
    UNSPOOL_END_NO_UNWIND_INFO = 2,
    UNSPOOL_END_UNREADABLE_MEMORY = 3,
    UNSPOOL_END_BAD_RETURN_ADDRESS = 4,
    UNSPOOL_END_LOOP = 5,
    UNSPOOL_END_DEPTH_LIMIT = 6,
    UNSPOOL_END_UNMAPPED_PC = 7,
};

/* What a walk writes: the pc of the interrupted frame, then return addresses, PAC stripped. */
struct unspool_stack {
    uint64_t *addresses;
    uint8_t *how;      /* enum unspool_how | UNSPOOL_HOW_GUESS, one a frame */
    uint64_t capacity; /* the depth limit */
    uint64_t count;
    uint32_t end; /* enum unspool_end */
    uint32_t reserved;
};

void unspool_walk(const struct unspool_unwinder *unwinder, const struct unspool_registers *registers,
                  struct unspool_memory *memory, struct unspool_stack *stack);

/* One step: registers become the caller's and *how says by what; returns 1. Or the stack ends here:
 * registers are unchanged, *end says why; returns 0. */
int unspool_step(const struct unspool_unwinder *unwinder, struct unspool_registers *registers,
                 struct unspool_memory *memory, uint32_t *how, uint32_t *end);

/* Many samples that share their modules. Input: count samples, each four registers (pc, sp, fp, lr)
 * and a stack copy that starts at sp: stack_bytes[stack_offsets[i] .. stack_offsets[i + 1]).
 * Output: frames of sample i are addresses/how[offsets[i] .. offsets[i + 1]). */
struct unspool_batch {
    uint64_t count;
    const uint64_t *registers;     /* [count][4] */
    const uint64_t *stack_offsets; /* [count + 1] */
    const uint8_t *stack_bytes;
    uint64_t depth_limit;
    uint64_t capacity;   /* of addresses and how */
    uint64_t *addresses; /* [capacity] */
    uint8_t *how;        /* [capacity] */
    uint64_t *offsets;   /* [count + 1] */
    uint8_t *ends;       /* [count] */
    int32_t code_pid;    /* 0, or the process that the samples are from: as in struct unspool_memory */
    uint32_t reserved;
};
/* Walks samples first .. until one does not fit or all are done; offsets[first] must be set (0 for
 * the first call). Returns the number of the first sample that was not walked. */
uint64_t unspool_walk_many(const struct unspool_unwinder *unwinder, struct unspool_batch *batch,
                           uint64_t first);

/* ------------------------------------------------------------------ a session */

/* The unspool process's side of the memory that it shares with watched programs (core/src/agent/session.h).
 * What programs write there is never trusted. */
struct session_area;

enum unspool_trigger {
    UNSPOOL_TRIGGER_TIMER = 1,     /* on the thread's CPU clock */
    UNSPOOL_TRIGGER_OUTSIDE = 2,   /* a perf event of the unspool process */
    UNSPOOL_TRIGGER_BOOTSTRAP = 3, /* a signal from outside to a thread that had no timer yet */
};
enum unspool_sample_flag {
    UNSPOOL_SAMPLE_STALE_MODULES = 1, /* the modules changed, or may have, before or while it was walked */
    UNSPOOL_SAMPLE_NO_TABLE_YET = 2,  /* a frame lies in a module whose table is still to come */
};

struct unspool_sample {
    uint64_t time;      /* CLOCK_MONOTONIC, ns */
    uint64_t cpu_time;  /* the thread's (CLOCK_THREAD_CPUTIME_ID), ns */
    uint64_t due;       /* the cpu_time at which the timer was to fire; 0: not by a timer. Later by far: the
                           signal was blocked meanwhile */
    uint64_t user_time; /* getrusage(RUSAGE_THREAD), ns; 0 where nobody asked for it */
    uint64_t system_time;
    uint64_t sp; /* of the interrupted frame */
    uint32_t tid;
    uint32_t slot;
    uint32_t epoch; /* of the modules that it was walked with */
    uint32_t frame_count;
    uint8_t end;     /* enum unspool_end */
    uint8_t flags;   /* enum unspool_sample_flag */
    uint8_t trigger; /* enum unspool_trigger */
    uint8_t reserved[5];
};

/* Of a sample whose walk may have ended early since a table or a module was not there yet: what it takes to
 * walk it once more. size bytes follow, the stack from address on as far as it was copied. */
struct unspool_copy {
    uint64_t address; /* below sp where code may keep something there */
    uint64_t size;
    struct unspool_registers registers; /* of the interrupted frame */
};
#define UNSPOOL_LARGEST_COPY 262144u /* of size: numerical kernels keep blocks of matrices on the stack */

/* Frames of samples[i] are addresses/how[offsets[i] .. offsets[i + 1]), innermost first. What is in
 * copies[copy_offsets[i] .. copy_offsets[i + 1]) is nothing, or a struct unspool_copy with its bytes. */
struct unspool_samples {
    uint64_t capacity;       /* of samples; offsets and copy_offsets have one more */
    uint64_t frame_capacity; /* of addresses and how; 4096 or more, else a sample may never fit */
    uint64_t copy_capacity;  /* of copies, in bytes: so that one copy fits, or 0: copies are left out */
    uint64_t count;
    struct unspool_sample *samples;
    uint64_t *offsets;
    uint64_t *addresses;
    uint8_t *how;
    uint64_t *copy_offsets;
    uint8_t *copies;
};
/* Takes what is in a ring, from the first on: 0 when nothing is left that is whole, 1 when there was no room
 * for more, UNSPOOL_BAD_RING. One thread at a time. */
int unspool_ring_read(struct session_area *area, uint64_t ring_size, struct unspool_samples *samples);

/* Finds a slot for a thread of wish TIMER or OUTSIDE and requests it: its number or UNSPOOL_NOT_FOUND. */
int unspool_area_add_thread(struct session_area *area, uint32_t tid, uint32_t wish, int32_t perf_fd);
/* Another wish for a slot, END for instance: UNSPOOL_OK, or UNSPOOL_NOT_FOUND: too many requests are open. */
int unspool_area_change_thread(struct session_area *area, uint32_t slot, uint32_t wish);
/* True when an ended thread's slot was given back by the agent; then it is free for others. */
int unspool_area_release_slot(struct session_area *area, uint32_t slot);
/* Where a thread's own stack is mapped: see struct session_slot. */
void unspool_area_set_stack(struct session_area *area, uint32_t slot, uint64_t start, uint64_t end,
                            uint32_t is_main);

/* Sends a thread (both ids as we see them) a signal that agents know by the cookie, from where it makes its
 * timer: UNSPOOL_OK, or UNSPOOL_NOT_FOUND: the thread is gone, or the process is about to call exec: what it
 * runs then would be ended by the signal. */
int unspool_area_signal(struct session_area *area, uint32_t pid, uint32_t tid, int32_t signal,
                        uint64_t cookie);

/* A buffer of modules that nobody reads, to be filled in: its number or UNSPOOL_NOT_FOUND (try again later).
 */
int unspool_area_free_modules(struct session_area *area);
/* Makes it the current list, wakes a process that waits for one, returns its epoch. */
uint32_t unspool_area_publish(struct session_area *area, uint32_t buffer);

/* Waits until *word is no longer value, at most so long; returns what it is then. */
uint32_t unspool_session_wait(const uint32_t *word, uint32_t value, uint64_t nanoseconds);

/* ------------------------------------------------------------------ the kernel's rings */

/* Takes everything out of a ring of perf_event_open(2): copies it into buffer, which has room for size
 * bytes, and gives the room back to the kernel. ring: as it was mapped, writable: a page, then size bytes (a
 * power of two). Returns the number of bytes. One thread at a time. */
uint64_t unspool_perf_ring_read(uint8_t *ring, uint64_t page_size, uint64_t size, uint8_t *buffer);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
