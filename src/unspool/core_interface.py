"""The interface of libunspool.so (core/include/unspool.h) in cffi's words, and some of its numbers.

tests/unit/test_core_layout.py compares every struct, constant and function with the header. What they
mean is said there. cffi reads the declarations when the library is built, since that takes longer than
everything else that happens when unspool starts:

    python core_interface.py OUTPUT     writes the module unspool._core_declarations
"""

import sys

DECLARATIONS = """
#define UNSPOOL_REGISTERS 33
#define UNSPOOL_PROBLEMS_KEPT 16
#define UNSPOOL_CACHE_ENTRIES 8192
#define UNSPOOL_CACHE_ANSWERS 512
#define UNSPOOL_KEPT_FRAMES 64

enum unspool_arch { UNSPOOL_X86_64 = 1, UNSPOOL_AARCH64 = 2 };
enum unspool_register {
    UNSPOOL_X86_64_RBX = 3, UNSPOOL_X86_64_RBP = 6, UNSPOOL_X86_64_RSP = 7, UNSPOOL_X86_64_PC = 16,
    UNSPOOL_AARCH64_FP = 29, UNSPOOL_AARCH64_LR = 30, UNSPOOL_AARCH64_SP = 31, UNSPOOL_AARCH64_PC = 32
};
struct unspool_registers {
    uint64_t value[UNSPOOL_REGISTERS];
    uint64_t known;
    uint32_t pc_is_return_address;
    uint32_t reserved;
};

struct unspool_table;
enum unspool_section_kind { UNSPOOL_EH_FRAME = 1, UNSPOOL_DEBUG_FRAME = 2 };
struct unspool_section {
    const uint8_t *bytes;
    uint64_t size;
    uint64_t address;
    uint32_t kind;
    uint32_t open_ended;
};
struct unspool_compile_input {
    uint32_t arch;
    uint32_t section_count;
    const struct unspool_section *sections;
    uint64_t image_address;
    uint64_t text_address;
    uint64_t data_address;
    uint64_t entry_address;
    const struct unspool_section *code;
    uint64_t code_count;
};
enum unspool_problem_kind {
    UNSPOOL_PROBLEM_TRUNCATED = 1,
    UNSPOOL_PROBLEM_CIE_MISSING,
    UNSPOOL_PROBLEM_CIE_UNSUPPORTED,
    UNSPOOL_PROBLEM_POINTER_ENCODING,
    UNSPOOL_PROBLEM_INSTRUCTION,
    UNSPOOL_PROBLEM_RANGE,
    UNSPOOL_PROBLEM_OVERLAP
};
struct unspool_problem {
    uint32_t kind;
    uint32_t section;
    uint64_t offset;
};
struct unspool_problems {
    uint64_t count;
    struct unspool_problem first[UNSPOOL_PROBLEMS_KEPT];
};
enum unspool_status {
    UNSPOOL_OK = 0,
    UNSPOOL_NO_MEMORY = -1,
    UNSPOOL_BAD_ARGUMENT = -2,
    UNSPOOL_BAD_TABLE = -3,
    UNSPOOL_NOT_FOUND = -4,
    UNSPOOL_BAD_RING = -5
};
int unspool_table_compile(const struct unspool_compile_input *input, struct unspool_table **table,
                          struct unspool_problems *problems);
void unspool_table_free(struct unspool_table *table);
struct unspool_pool;
int unspool_pool_new(struct unspool_pool **pool);
void unspool_pool_free(struct unspool_pool *pool);
int unspool_table_begin(struct unspool_pool *pool, const struct unspool_compile_input *input,
                        const struct unspool_section *index, struct unspool_table **table);
void unspool_table_end(struct unspool_table *table);
uint64_t unspool_table_size(const struct unspool_table *table);
int unspool_table_check(const void *block, uint64_t size);

enum unspool_cfa_base { UNSPOOL_CFA_SP = 0, UNSPOOL_CFA_FP = 1, UNSPOOL_CFA_RBX = 2 };
enum unspool_saved { UNSPOOL_SAVED_SAME = 0, UNSPOOL_SAVED_AT_CFA = 1, UNSPOOL_SAVED_UNKNOWN = 2 };
enum unspool_row_flag {
    UNSPOOL_ROW_SIGNAL = 1,
    UNSPOOL_ROW_SIGNED = 2,
    UNSPOOL_ROW_END = 4,
    UNSPOOL_ROW_EXACT = 8,
    UNSPOOL_ROW_NONE = 16,
    UNSPOOL_ROW_DEBUG_FRAME = 32,
    UNSPOOL_ROW_DOUBTED = 64,
    UNSPOOL_ROW_CODE = 128
};
struct unspool_row {
    uint64_t start, end;
    int32_t cfa_offset;
    int32_t ra_offset;
    int32_t fp_offset;
    uint8_t cfa_base;
    uint8_t ra;
    uint8_t fp;
    uint8_t flags;
};
uint64_t unspool_table_row_count(const struct unspool_table *table);
size_t unspool_table_rows(const struct unspool_table *table, uint64_t first, struct unspool_row *rows,
                          size_t capacity);
size_t unspool_table_gaps(const struct unspool_table *table, uint64_t least, struct unspool_row *rows,
                          size_t capacity);
int unspool_table_lookup(const struct unspool_table *table, uint64_t relative_address,
                         struct unspool_row *row);

enum unspool_exact_kind {
    UNSPOOL_EXACT_UNDEFINED = 0,
    UNSPOOL_EXACT_SAME,
    UNSPOOL_EXACT_OFFSET,
    UNSPOOL_EXACT_VAL_OFFSET,
    UNSPOOL_EXACT_REGISTER,
    UNSPOOL_EXACT_EXPRESSION,
    UNSPOOL_EXACT_VAL_EXPRESSION,
    UNSPOOL_EXACT_UNSPECIFIED
};
struct unspool_exact_rule {
    uint8_t kind;
    uint8_t reserved[3];
    uint32_t expression_size;
    int64_t value;
    const uint8_t *expression;
};
struct unspool_exact_row {
    uint64_t start, end;
    uint32_t cfa_register;
    uint32_t cfa_expression_size;
    int64_t cfa_offset;
    const uint8_t *cfa_expression;
    uint32_t return_address_register;
    uint32_t reserved;
    struct unspool_exact_rule rules[UNSPOOL_REGISTERS];
};
int unspool_table_exact(const struct unspool_table *table, uint64_t relative_address,
                        struct unspool_exact_row *row);

struct unspool_module {
    uint64_t start, end;
    uint64_t image_base;
    const struct unspool_table *table;
    const uint8_t *code;
    uint64_t code_size;
};
struct unspool_region {
    uint64_t address, size;
    const uint8_t *bytes;
};
struct unspool_memory {
    struct unspool_region stack;
    const struct unspool_region *regions;
    uint64_t region_count;
    int32_t pid;
    int32_t code_pid;
    uint32_t page_size;
    uint32_t slots_read;
    uint64_t page_address;
    uint8_t page[4096];
};
void unspool_memory_reset(struct unspool_memory *memory);

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
    uint32_t address_bits;
    const struct unspool_module *modules;
    uint64_t module_count;
    struct unspool_cache *cache;
};

enum unspool_how {
    UNSPOOL_HOW_INTERRUPTED = 0,
    UNSPOOL_HOW_CFI = 1,
    UNSPOOL_HOW_CFI_EXACT = 2,
    UNSPOOL_HOW_SIGNAL_FRAME = 3,
    UNSPOOL_HOW_PLT = 4,
    UNSPOOL_HOW_CODE_ANALYSIS = 5,
    UNSPOOL_HOW_LEAF = 6,
    UNSPOOL_HOW_FRAME_POINTER = 7,
    UNSPOOL_HOW_GUESS = 0x80
};
enum unspool_end {
    UNSPOOL_END_ROOT = 0,
    UNSPOOL_END_STACK_BYTES_ENDED = 1,
    UNSPOOL_END_NO_UNWIND_INFO = 2,
    UNSPOOL_END_UNREADABLE_MEMORY = 3,
    UNSPOOL_END_BAD_RETURN_ADDRESS = 4,
    UNSPOOL_END_LOOP = 5,
    UNSPOOL_END_DEPTH_LIMIT = 6,
    UNSPOOL_END_UNMAPPED_PC = 7
};
struct unspool_stack {
    uint64_t *addresses;
    uint8_t *how;
    uint64_t capacity;
    uint64_t count;
    uint32_t end;
    uint32_t reserved;
};
void unspool_walk(const struct unspool_unwinder *unwinder, const struct unspool_registers *registers,
                  struct unspool_memory *memory, struct unspool_stack *stack);
int unspool_step(const struct unspool_unwinder *unwinder, struct unspool_registers *registers,
                 struct unspool_memory *memory, uint32_t *how, uint32_t *end);
struct unspool_batch {
    uint64_t count;
    const uint64_t *registers;
    const uint64_t *stack_offsets;
    const uint8_t *stack_bytes;
    uint64_t depth_limit;
    uint64_t capacity;
    uint64_t *addresses;
    uint8_t *how;
    uint64_t *offsets;
    uint8_t *ends;
    int32_t code_pid;
    uint32_t reserved;
};
uint64_t unspool_walk_many(const struct unspool_unwinder *unwinder, struct unspool_batch *batch,
                           uint64_t first);

struct session_area;
enum unspool_trigger {
    UNSPOOL_TRIGGER_TIMER = 1,
    UNSPOOL_TRIGGER_OUTSIDE = 2,
    UNSPOOL_TRIGGER_BOOTSTRAP = 3
};
enum unspool_sample_flag {
    UNSPOOL_SAMPLE_STALE_MODULES = 1,
    UNSPOOL_SAMPLE_NO_TABLE_YET = 2
};
struct unspool_sample {
    uint64_t time;
    uint64_t cpu_time;
    uint64_t due;
    uint64_t user_time;
    uint64_t system_time;
    uint64_t sp;
    uint32_t tid;
    uint32_t slot;
    uint32_t epoch;
    uint32_t frame_count;
    uint8_t end;
    uint8_t flags;
    uint8_t trigger;
    uint8_t reserved[5];
};
struct unspool_copy {
    uint64_t address;
    uint64_t size;
    struct unspool_registers registers;
};
#define UNSPOOL_LARGEST_COPY 262144
struct unspool_samples {
    uint64_t capacity;
    uint64_t frame_capacity;
    uint64_t copy_capacity;
    uint64_t count;
    struct unspool_sample *samples;
    uint64_t *offsets;
    uint64_t *addresses;
    uint8_t *how;
    uint64_t *copy_offsets;
    uint8_t *copies;
};
int unspool_ring_read(struct session_area *area, uint64_t ring_size, struct unspool_samples *samples);
int unspool_area_add_thread(struct session_area *area, uint32_t tid, uint32_t wish, int32_t perf_fd);
int unspool_area_change_thread(struct session_area *area, uint32_t slot, uint32_t wish);
int unspool_area_release_slot(struct session_area *area, uint32_t slot);
void unspool_area_set_stack(struct session_area *area, uint32_t slot, uint64_t start, uint64_t end,
                            uint32_t is_main);
int unspool_area_signal(struct session_area *area, uint32_t pid, uint32_t tid, int32_t signal,
                        uint64_t cookie);
int unspool_area_free_modules(struct session_area *area);
uint32_t unspool_area_publish(struct session_area *area, uint32_t buffer);
uint32_t unspool_session_wait(const uint32_t *word, uint32_t value, uint64_t nanoseconds);
uint64_t unspool_perf_ring_read(uint8_t *ring, uint64_t page_size, uint64_t size, uint8_t *buffer);
"""

OK, NO_MEMORY, BAD_TABLE = 0, -1, -3
ARCHITECTURES = {"x86_64": 1, "aarch64": 2}
SECTION_KINDS = {"eh_frame": 1, "debug_frame": 2}
PC_NUMBER = {"x86_64": 16, "aarch64": 32}
SP_NUMBER = {"x86_64": 7, "aarch64": 31}
FP_NUMBER = {"x86_64": 6, "aarch64": 29}
LR_NUMBER = {"aarch64": 30}
GUESS = 0x80


def write_declarations(path: str) -> None:
    """The declarations as a Python module that cffi loads as it is."""
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(DECLARATIONS)
    ffi.set_source("unspool._core_declarations", None)
    ffi.emit_python_code(path)


if __name__ == "__main__":
    write_declarations(sys.argv[1])
