/*
 * fuzz_growing.c: a table that grows, of an index and a section of any bytes, finds rows that hold where they
 * are asked, and says the same again.
 *
 * Input: choices, how many entries, the entry point; the entries, two numbers of two bytes each (an address,
 * an offset in the section); then the section, which is the code, too.
 */
#include <string.h>

#include "input.h"

enum { AARCH64 = 1, HAS_CODE = 2, BACKWARDS = 4, SECTION_AT = 0x10000, HEADER_SIZE = 12, MOST = 0x3000 };

/* The index: its entries are made ascending, or few inputs would have one that serves. */
static uint8_t *make_index(struct cursor *input, uint32_t count, uint64_t *size) {
    static const uint8_t beginning[] = {1, 0x1b, 3, 0x3b};
    uint8_t *index = calloc(1, HEADER_SIZE + 8 * (size_t)count);
    check(index != NULL);
    memcpy(index, beginning, sizeof beginning);
    memcpy(index + 8, &count, sizeof count);
    uint32_t start = 0;
    for (uint32_t i = 0; i < count; i++) {
        start += 1 + cursor_u16(input) % 0x200;
        uint32_t offset = SECTION_AT + cursor_u16(input);
        memcpy(index + HEADER_SIZE + 8 * (size_t)i, &start, sizeof start);
        memcpy(index + HEADER_SIZE + 8 * (size_t)i + 4, &offset, sizeof offset);
    }
    *size = HEADER_SIZE + 8 * (uint64_t)count;
    return index;
}

static void ask(const struct unspool_table *table, uint64_t address) {
    static struct unspool_exact_row exact;
    struct unspool_row row, again;
    if (unspool_table_lookup(table, address, &row) != UNSPOOL_OK)
        return;
    check(row.start <= address && address < row.end);
    check(row.ra != UNSPOOL_SAVED_UNKNOWN || (row.flags & UNSPOOL_ROW_END));
    if (row.flags & UNSPOOL_ROW_EXACT) {
        check(unspool_table_exact(table, address, &exact) == UNSPOOL_OK);
        check(exact.start <= address && address < exact.end);
    }
    check(unspool_table_lookup(table, address, &again) == UNSPOOL_OK);
    check(memcmp(&row, &again, sizeof row) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cursor input = cursor_over(data, size);
    uint8_t choices = cursor_u8(&input);
    uint32_t count = cursor_u8(&input) % 32u;
    uint32_t entry = cursor_u16(&input);
    uint64_t index_size;
    uint8_t *index = make_index(&input, count, &index_size);
    uint8_t *bytes = copy_of(&input);
    const struct unspool_section section = {bytes, cursor_left(&input), SECTION_AT, UNSPOOL_EH_FRAME, 0};
    const struct unspool_section header = {index, index_size, 0, 0, 0};
    const struct unspool_section code = {.bytes = bytes, .size = cursor_left(&input)};
    const struct unspool_compile_input compile = {
        .arch = choices & AARCH64 ? UNSPOOL_AARCH64 : UNSPOOL_X86_64,
        .section_count = 1,
        .sections = &section,
        .entry_address = entry,
        .code = &code,
        .code_count = choices & HAS_CODE ? 1 : 0,
    };
    struct unspool_table *table;
    struct unspool_pool *pool;
    check(unspool_pool_new(&pool) == UNSPOOL_OK);
    if (!input.failed && unspool_table_begin(pool, &compile, &header, &table) == UNSPOOL_OK) {
        for (uint64_t address = 0; address < MOST; address += 5)
            ask(table, choices & BACKWARDS ? MOST - address : address);
        unspool_table_end(table);
    }
    unspool_pool_free(pool);
    free(index);
    free(bytes);
    return 0;
}
