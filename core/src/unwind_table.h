/*
 * unwind_table.h: the format of an unwind table, and looking up in it.
 *
 * A table is one block of bytes without pointers, so that the same bytes serve anywhere:
 *
 *     struct unspool_table       header
 *     uint32_t rows[]            where each row starts, from `base`; ascending
 *     uint16_t row_rules[]       the rule of each row
 *     uint32_t pages[]           pages[p]: the first row that starts at or after page p
 *     struct rule rules[]        the distinct rules; rules[0] says "nothing known"
 *     struct saved_set saved[]   where callee-saved registers other than fp are
 *     struct exact_function f[]  functions with rows that no rule can say, ascending
 *     programs                   their CFI, each a struct kept_program and its bytes
 *
 * A file has 10,000s of rows but few distinct rules, hence 4 + 2 bytes a row. The page index makes a
 * lookup one load and a search among the few rows of a page. A block that passed
 * unspool_table_check can be used without further checks of its numbers.
 */
#ifndef UNSPOOL_UNWIND_TABLE_H
#define UNSPOOL_UNWIND_TABLE_H

#include "bytes.h"
#include "unspool.h"

#define TABLE_MAGIC 0x454c42544c505355u /* "USPLTBLE" */
#define TABLE_VERSION 4u
#define TABLE_NO_ENTRY UINT64_MAX
#define TABLE_GROWS UINT32_MAX /* as a row_count: growing_table.h */

/* Offsets from the CFA are kept in units of 8 bytes. */
#define SLOT_SIZE 8

/* Rule 12 bytes. `kind` packs the base of the CFA and where return address and fp are. */
struct rule {
    int32_t cfa_offset;
    int16_t ra_slot;
    int16_t fp_slot;
    uint16_t saved; /* index into saved[] */
    uint8_t kind;
    uint8_t flags; /* enum unspool_row_flag */
};
#define RULE_KIND(cfa_base, ra, fp) ((uint8_t)((cfa_base) | (ra) << 2 | (fp) << 4))
#define RULE_CFA_BASE(rule) ((rule)->kind & 3)
#define RULE_RA(rule) ((rule)->kind >> 2 & 3)
#define RULE_FP(rule) ((rule)->kind >> 4 & 3)
#define RULE_NONE 0u /* number of the rule that says nothing */

/* The callee-saved registers besides fp: rbx, r12..r15 or x19..x28. */
#define SAVED_REGISTERS 10
#define SAVED_SLOT_SAME 0
#define SAVED_SLOT_UNKNOWN INT16_MIN
struct saved_set {
    int16_t slot[SAVED_REGISTERS]; /* from the CFA */
};

struct exact_function {
    uint32_t start, end; /* from `base` */
    uint64_t program;    /* offset into the programs, multiple of 8 */
};

/* The exact evaluator runs a function's program anew for each frame, so that its length must be bounded.
 * Real ones have up to 22 KB. */
#define KEPT_PROGRAM_LIMIT (1u << 17)

/* What cfi_program.h's struct cfi_program says, kept. Followed by the initial instructions, then
 * the function's. */
struct kept_program {
    uint64_t start; /* relative address where the function starts (its rows may begin later) */
    uint64_t end;
    uint64_t code_alignment;
    int64_t data_alignment;
    uint64_t instructions_address; /* relative address of the function's instructions */
    uint32_t initial_size;
    uint32_t instructions_size;
    uint8_t return_address_register;
    uint8_t pointer_encoding;
    uint8_t flags; /* enum unspool_row_flag: SIGNAL, DEBUG_FRAME */
    uint8_t reserved[5];
};

struct unspool_table {
    uint64_t magic;
    uint32_t version;
    uint32_t arch;
    uint64_t size;
    uint64_t base; /* relative address that rows count from */
    uint64_t image_address;
    uint64_t entry; /* relative address of the file's entry point, or TABLE_NO_ENTRY */
    uint32_t row_count;
    uint32_t rule_count;
    uint32_t saved_count;
    uint32_t function_count;
    uint32_t page_count;
    uint32_t page_shift;
    uint64_t program_bytes;
    /* Where the parts start, from the header's first byte. */
    uint64_t rows, row_rules, pages, rules, saved, functions, programs;
};

#define TABLE_ALIGNMENT 8u /* of each part */

/* Fills in `size` and where the parts start, from the counts. False if the size overflows. */
bool table_place(struct unspool_table *header);

/* (A growing table's parts lie anywhere, hence the arithmetic is that of integers.) */
static inline const void *table_part(const struct unspool_table *table, uint64_t offset) {
    return (const void *)((uintptr_t)table + offset);
}

#ifdef UNSPOOL_HIDDEN /* the agent is given whole tables only */
static inline bool table_grows(const struct unspool_table *table) {
    (void)table;
    return false;
}
#else
static inline bool table_grows(const struct unspool_table *table) {
    return table->row_count == TABLE_GROWS;
}
#endif

/* What holds at a function's first instruction, as far as the stack goes. */
static inline bool rule_is_of_entry(const struct rule *rule, uint32_t arch) {
    return RULE_CFA_BASE(rule) == UNSPOOL_CFA_SP && rule->cfa_offset == (arch == UNSPOOL_AARCH64 ? 0 : 8) &&
           (arch != UNSPOOL_AARCH64 || RULE_RA(rule) == UNSPOOL_SAVED_SAME);
}

uint32_t growing_find_row(const struct unspool_table *table, uint64_t relative_address);

/* The number of the row that holds at a relative address, or row_count when none does. */
static inline uint32_t table_find_row(const struct unspool_table *table, uint64_t relative_address) {
    if (table_grows(table))
        return growing_find_row(table, relative_address);
    uint64_t from_base = relative_address - table->base;
    uint64_t page = from_base >> table->page_shift;
    if (page >= table->page_count) /* below base, too: the subtraction wrapped */
        return table->row_count;
    const uint32_t *pages = table_part(table, table->pages);
    const uint32_t *rows = table_part(table, table->rows);
    uint32_t low = pages[page];
    uint32_t high = pages[page + 1];
    __builtin_prefetch((const uint16_t *)table_part(table, table->row_rules) + low); /* for table_row_rule */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (rows[middle] <= from_base)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? low - 1 : table->row_count;
}

/* The rule of a row that table_find_row yielded. */
static inline const struct rule *table_row_rule(const struct unspool_table *table, uint32_t row) {
    const struct rule *rules = table_part(table, table->rules);
    if (row == table->row_count)
        return &rules[RULE_NONE];
    const uint16_t *row_rules = table_part(table, table->row_rules);
    return &rules[row_rules[row]];
}

/* Where the row that holds at a relative address starts; one does. */
static inline uint64_t table_row_start(const struct unspool_table *table, uint64_t relative_address) {
    const uint32_t *rows = table_part(table, table->rows);
    return table->base + rows[table_find_row(table, relative_address)];
}

/* Where the last row at or before that of a relative address, which has one, starts that is as at a
 * function's first instruction: the function's start, or else one from which no code leads here. False: there
 * is none. */
bool table_doubted_start(const struct unspool_table *table, uint64_t relative_address, uint64_t *start);

/* True when a row that table_find_row yielded ends at a relative address. */
static inline bool table_row_ends_at(const struct unspool_table *table, uint32_t row, uint64_t address) {
    const uint32_t *rows = table_part(table, table->rows);
    return row + 1 < table->row_count && rows[row + 1] == address - table->base;
}

struct cfi_program;
/* The kept CFI of the function that holds at a relative address. */
bool table_find_program(const struct unspool_table *table, uint64_t relative_address,
                        struct cfi_program *program);

#endif
