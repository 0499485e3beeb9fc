/*
 * fuzz_compile.c: unwind sections of any bytes become a table that is consistent, of a size in proportion,
 * and spelled out as it is looked up.
 *
 * Input: choices, where to split the rest into two sections, the first section's address (a multiple of
 * 16), the entry point; then the sections. The second one is the code, too.
 */
#include "input.h"

enum choices {
    AARCH64 = 1,
    FIRST_IS_DEBUG = 2,
    SECOND_IS_DEBUG = 4,
    FIRST_IS_OPEN_ENDED = 8,
    SECOND_IS_OPEN_ENDED = 16,
    HAS_IMAGE_ADDRESS = 32,
    HAS_BASES = 64,
    HAS_CODE = 128,
};

static void check_inside(const struct unspool_table *table, const uint8_t *bytes, uint64_t size) {
    const uint8_t *first = (const uint8_t *)table;
    check(bytes >= first && size <= unspool_table_size(table) &&
          (uint64_t)(bytes - first) <= unspool_table_size(table) - size);
}

static void check_exact(const struct unspool_table *table, const struct unspool_row *row) {
    static struct unspool_exact_row exact;
    check(unspool_table_exact(table, row->start, &exact) == UNSPOOL_OK);
    check(exact.start <= row->start && row->start < exact.end);
    if (exact.cfa_expression_size)
        check_inside(table, exact.cfa_expression, exact.cfa_expression_size);
    for (size_t i = 0; i < UNSPOOL_REGISTERS; i++) {
        check(exact.rules[i].kind <= UNSPOOL_EXACT_UNSPECIFIED);
        if (exact.rules[i].expression_size)
            check_inside(table, exact.rules[i].expression, exact.rules[i].expression_size);
    }
}

/* Exact rows are checked from the first to the last in as many steps as this, at most: each check runs
 * the function's whole program. */
enum { EXACT_CHECKS = 64 };

static void check_row(const struct unspool_table *table, const struct unspool_row *row, uint64_t number) {
    struct unspool_row found;
    check(row->start < row->end);
    check(unspool_table_lookup(table, row->start, &found) == UNSPOOL_OK && found.start == row->start);
    check(unspool_table_lookup(table, row->end - 1, &found) == UNSPOOL_OK && found.start == row->start);
    check(row->ra != UNSPOOL_SAVED_UNKNOWN || (row->flags & UNSPOOL_ROW_END));
    if ((row->flags & UNSPOOL_ROW_EXACT) && number % (unspool_table_row_count(table) / EXACT_CHECKS + 1) == 0)
        check_exact(table, row);
}

static void check_table(const struct unspool_table *table) {
    struct unspool_row rows[64];
    uint64_t end = 0;
    size_t count;
    check(unspool_table_check(table, unspool_table_size(table)) == UNSPOOL_OK);
    for (uint64_t first = 0; (count = unspool_table_rows(table, first, rows, 64)) > 0; first += count)
        for (size_t i = 0; i < count; i++) {
            check(first + i == 0 || rows[i].start == end);
            end = rows[i].end;
            check_row(table, &rows[i], first + i);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    struct cursor input = cursor_over(data, size);
    uint8_t choices = cursor_u8(&input);
    uint8_t split = cursor_u8(&input);
    uint64_t address = (uint64_t)cursor_u16(&input) * 16;
    uint32_t entry = cursor_u32(&input);
    if (input.failed)
        return 0;
    struct cursor first = take_up_to(&input, cursor_left(&input) * (split + 1u) / 256);
    uint8_t *bytes[] = {copy_of(&first), copy_of(&input)};
    const struct unspool_section sections[] = {
        {bytes[0], cursor_left(&first), address,
         choices & FIRST_IS_DEBUG ? UNSPOOL_DEBUG_FRAME : UNSPOOL_EH_FRAME,
         (choices & FIRST_IS_OPEN_ENDED) != 0},
        {bytes[1], cursor_left(&input), address + cursor_left(&first),
         choices & SECOND_IS_DEBUG ? UNSPOOL_DEBUG_FRAME : UNSPOOL_EH_FRAME,
         (choices & SECOND_IS_OPEN_ENDED) != 0},
    };
    uint64_t half = cursor_left(&input) / 2;
    const struct unspool_section code[] = {
        {.bytes = bytes[1] + half, .size = cursor_left(&input) - half, .address = 0x2000 + half},
        {.bytes = bytes[1], .size = cursor_left(&input), .address = 0x2000}, /* before it, and over it */
    };
    const struct unspool_compile_input compile = {
        .arch = choices & AARCH64 ? UNSPOOL_AARCH64 : UNSPOOL_X86_64,
        .section_count = 2,
        .sections = sections,
        .image_address = choices & HAS_IMAGE_ADDRESS ? 0x1000 : 0,
        .text_address = choices & HAS_BASES ? 0x2000 : 0,
        .data_address = choices & HAS_BASES ? 0x3000 : 0,
        .entry_address = entry,
        .code = code,
        .code_count = choices & HAS_CODE ? 2 : 0,
    };
    struct unspool_table *table;
    struct unspool_problems problems;
    check(unspool_table_compile(&compile, &table, &problems) == UNSPOOL_OK);
    check(unspool_table_size(table) <= 64 * size + 4096);
    check_table(table);
    unspool_table_free(table);
    free(bytes[0]);
    free(bytes[1]);
    return 0;
}
