/*
 * cfi_program.h: running call frame instructions (DWARF 5, 6.4.2) and yielding their rows.
 *
 * The same machine compiles tables and, in the exact evaluator, answers for one address. It
 * allocates nothing, reads only the program's own bytes, and always ends: every instruction takes
 * at least one byte.
 */
#ifndef UNSPOOL_CFI_PROGRAM_H
#define UNSPOOL_CFI_PROGRAM_H

#include "bytes.h"
#include "unspool.h"

#define REMEMBERED_STATES 16

struct cfi_program {
    const uint8_t *initial; /* the CIE's instructions */
    const uint8_t *instructions;
    uint32_t initial_size;
    uint32_t instructions_size;
    uint64_t start, end; /* relative addresses */
    uint64_t code_alignment;
    int64_t data_alignment;
    uint64_t image_address;        /* to make absolute operands of set_loc relative */
    uint64_t instructions_address; /* relative address of instructions[0], for pc-relative ones */
    uint8_t arch;
    uint8_t return_address_register;
    uint8_t pointer_encoding;
    uint8_t flags; /* enum unspool_row_flag: SIGNAL, DEBUG_FRAME */
};

/* Registers that have rules; others (vector registers and so on) are parsed and dropped. */
static inline uint32_t tracked_registers(uint32_t arch) {
    return arch == UNSPOOL_AARCH64 ? UNSPOOL_REGISTERS : 17;
}
static inline uint32_t sp_register(uint32_t arch) {
    return arch == UNSPOOL_AARCH64 ? UNSPOOL_AARCH64_SP : UNSPOOL_X86_64_RSP;
}
static inline uint32_t fp_register(uint32_t arch) {
    return arch == UNSPOOL_AARCH64 ? UNSPOOL_AARCH64_FP : UNSPOOL_X86_64_RBP;
}
static inline uint32_t pc_register(uint32_t arch) {
    return arch == UNSPOOL_AARCH64 ? UNSPOOL_AARCH64_PC : UNSPOOL_X86_64_PC;
}

/* value is an offset, a register number, or the address of an expression block (ULEB128 size, then
 * the operations), as kind says. */
struct cfi_rules {
    uint64_t specified;              /* bit n: kind[n] is not UNSPECIFIED */
    uint8_t kind[UNSPOOL_REGISTERS]; /* enum unspool_exact_kind */
    bool cfa_is_expression;
    bool cfa_defined;
    bool ra_signed;
    uint32_t cfa_register;
    int64_t cfa_offset;
    const uint8_t *cfa_expression; /* a block, as in value */
    union {
        int64_t number;
        const uint8_t *expression;
    } value[UNSPOOL_REGISTERS];
};

struct cfi_machine {
    const struct cfi_program *program;
    struct cursor cursor;
    struct cfi_rules rules; /* of the current row */
    struct cfi_rules initial;
    uint64_t row_start, row_end; /* relative addresses of the current row */
    uint64_t location;
    uint32_t remembered_count;
    uint64_t changed; /* bit n: register n's rule may differ from the row before; for the caller to clear */
    bool done;
    struct cfi_rules remembered[REMEMBERED_STATES];
};

/* A cursor over an expression block's operations. Only for programs whose instructions directly
 * follow the initial ones, as a table keeps them. */
static inline struct cursor cfi_block(const struct cfi_program *program, const uint8_t *block) {
    const uint8_t *end = program->instructions + program->instructions_size;
    struct cursor cursor = cursor_over(block, (size_t)(end - block));
    uint64_t size = cursor_uleb(&cursor);
    if (size < cursor_left(&cursor))
        cursor.end = cursor.at + size;
    return cursor;
}

#define CFI_ALL_CHANGED UINT64_MAX /* signedness too, which has no bit of its own */

enum cfi_status { CFI_ROW = 0, CFI_DONE = 1, CFI_MALFORMED = -1 };

/* Runs the initial instructions: CFI_ROW, or CFI_MALFORMED. */
enum cfi_status cfi_begin(struct cfi_machine *machine, const struct cfi_program *program);

/* Goes to the next row, which is not empty and lies in start..end. After CFI_MALFORMED the rows
 * before still hold; nothing is known about the rest. */
enum cfi_status cfi_next_row(struct cfi_machine *machine);

/* DW_EH_PE value formats (LSB Core, 10.5.1), low four bits of an encoding. */
enum pointer_format {
    POINTER_ABSOLUTE = 0x00,
    POINTER_ULEB128 = 0x01,
    POINTER_UDATA2 = 0x02,
    POINTER_UDATA4 = 0x03,
    POINTER_UDATA8 = 0x04,
    POINTER_SIGNED = 0x08,
    POINTER_SLEB128 = 0x09,
    POINTER_SDATA2 = 0x0a,
    POINTER_SDATA4 = 0x0b,
    POINTER_SDATA8 = 0x0c,
};
enum pointer_base {
    POINTER_PC_RELATIVE = 0x10,
    POINTER_TEXT_RELATIVE = 0x20,
    POINTER_DATA_RELATIVE = 0x30,
    POINTER_FUNCTION_RELATIVE = 0x40,
    POINTER_ALIGNED = 0x50,
    POINTER_INDIRECT = 0x80,
    POINTER_OMIT = 0xff,
};
/* The raw value in one of the formats, sign-extended; sets cursor->failed for an unknown format. */
uint64_t read_encoded(struct cursor *cursor, uint8_t encoding);

/* __builtin_eh_return passes its values in registers that nobody else saves: rax and rdx, x0 to x3 (DWARF 0
 * and 1). True for a row of a function that uses it. (glibc's resolver on aarch64 saves all of x0 to x9.) */
bool cfi_passes_exceptions(const struct cfi_rules *rules, uint32_t arch);

/* Nothing but padding: what the CIE says holds throughout the function. */
bool cfi_is_one_row(const uint8_t *instructions, uint32_t size);

/* True for a function that says how it is entered and never that it is left, as clang does on aarch64 where
 * it optimizes for size. *first_row_end: relative address. */
bool cfi_tells_no_epilogue(const struct cfi_program *program, uint64_t *first_row_end);

/* aarch64: true when a row has x30 at CFA + 8. The header of a PLT pushed 16 bytes before it went to such a
 * function, and the function's CFA leaves them out. */
bool cfi_is_entered_from_plt(const struct cfi_program *program, struct cfi_machine *scratch);
#define CFI_PLT_PUSHED 16

#endif
