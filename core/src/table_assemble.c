/*
 * table_assemble.c: from the parts of a table to one block of bytes (unwind_table.h has its format).
 */
#include <stdlib.h>

#include "table_builder.h"

/* Pages of 256 bytes or more, about as many as a third of the rows: 1.3 bytes a row at most. */
static void choose_pages(struct unspool_table *header, uint32_t last_row) {
    header->page_shift = 8;
    while ((uint64_t)(last_row >> header->page_shift) * 3 > (uint64_t)header->row_count + 64)
        header->page_shift++;
    header->page_count = header->row_count ? (last_row >> header->page_shift) + 1 : 0;
}

static void fill_rows(struct unspool_table *table, const struct built_row *built) {
    uint32_t *rows = (uint32_t *)((uint8_t *)table + table->rows);
    uint16_t *row_rules = (uint16_t *)((uint8_t *)table + table->row_rules);
    for (uint32_t i = 0; i < table->row_count; i++) {
        rows[i] = built[i].from_base;
        row_rules[i] = built[i].rule;
    }
}

static void fill_pages(struct unspool_table *table) {
    const uint32_t *rows = table_part(table, table->rows);
    uint32_t *pages = (uint32_t *)((uint8_t *)table + table->pages);
    uint32_t row = 0;
    for (uint32_t page = 0; page < table->page_count; page++) {
        while (row < table->row_count && rows[row] >> table->page_shift < page)
            row++;
        pages[page] = row;
    }
    pages[table->page_count] = table->row_count;
}

static void copy_part(struct unspool_table *table, uint64_t part, const struct vector *vector, size_t size) {
    if (vector->count)
        memcpy((uint8_t *)table + part, vector->items, vector->count * size);
}

struct unspool_table *table_assemble(const struct builder *builder) {
    const struct unspool_compile_input *input = builder->reader.input;
    const struct built_row *rows = builder->rows.items;
    struct unspool_table header = {
        .magic = TABLE_MAGIC,
        .version = TABLE_VERSION,
        .arch = input->arch,
        .base = builder->base,
        .image_address = input->image_address,
        .entry = input->entry_address ? input->entry_address - input->image_address : TABLE_NO_ENTRY,
        .row_count = (uint32_t)builder->rows.count,
        .rule_count = (uint32_t)builder->rules.count,
        .saved_count = (uint32_t)builder->saved.count,
        .function_count = (uint32_t)builder->functions.count,
        .program_bytes = builder->programs.count,
    };
    choose_pages(&header, header.row_count ? rows[header.row_count - 1].from_base : 0);
    if (!table_place(&header))
        return NULL;
    struct unspool_table *table = calloc(1, header.size);
    if (!table)
        return NULL;
    *table = header;
    fill_rows(table, rows);
    copy_part(table, table->rules, &builder->rules, sizeof(struct rule));
    copy_part(table, table->saved, &builder->saved, sizeof(struct saved_set));
    copy_part(table, table->functions, &builder->functions, sizeof(struct exact_function));
    copy_part(table, table->programs, &builder->programs, 1);
    fill_pages(table);
    return table;
}
