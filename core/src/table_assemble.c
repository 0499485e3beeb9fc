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

/* Backwards, so that the first row of each page stays, and with few branches: no processor could guess them.
 */
static void fill_pages(struct unspool_table *table) {
    const uint32_t *rows = table_part(table, table->rows);
    uint32_t *pages = (uint32_t *)((uint8_t *)table + table->pages);
    for (uint32_t page = 0; page <= table->page_count; page++)
        pages[page] = table->row_count;
    for (uint32_t row = table->row_count; row-- > 0;)
        pages[rows[row] >> table->page_shift] = row;
    uint32_t next = table->row_count;
    for (uint32_t page = table->page_count; page-- > 0;)
        pages[page] = next = pages[page] < next ? pages[page] : next;
}

/* A part ends here: zeros up to where the next one starts. */
static void fill_up(struct unspool_table *table, uint64_t end) {
    for (; end % TABLE_ALIGNMENT; end++)
        ((uint8_t *)table)[end] = 0;
}

static void copy_part(struct unspool_table *table, uint64_t part, const struct vector *vector, size_t size) {
    if (vector->count)
        memcpy((uint8_t *)table + part, vector->items, vector->count * size);
    fill_up(table, part + vector->count * size);
}

struct unspool_table *table_assemble(struct builder *builder) {
    const struct unspool_compile_input *input = builder->reader->input;
    const uint32_t *rows = builder_rows(builder);
    struct unspool_table header = {
        .magic = TABLE_MAGIC,
        .version = TABLE_VERSION,
        .arch = input->arch,
        .base = builder->base,
        .image_address = input->image_address,
        .entry = input->entry_address ? input->entry_address - input->image_address : TABLE_NO_ENTRY,
        .row_count = (uint32_t)builder->row_rules.count,
        .rule_count = (uint32_t)builder->rules.items.count,
        .saved_count = (uint32_t)builder->saved.items.count,
        .function_count = (uint32_t)builder->functions.count,
        .program_bytes = builder->programs.count,
    };
    choose_pages(&header, header.row_count ? rows[header.row_count - 1] : 0);
    if (!table_place(&header))
        return NULL;
    struct unspool_table *table = realloc(builder->rows.items, header.size);
    if (!table)
        return NULL;
    builder->rows.items = NULL;
    *table = header;
    fill_up(table, table->rows + table->row_count * sizeof(uint32_t));
    copy_part(table, table->row_rules, &builder->row_rules, sizeof(uint16_t));
    copy_part(table, table->rules, &builder->rules.items, sizeof(struct rule));
    copy_part(table, table->saved, &builder->saved.items, sizeof(struct saved_set));
    copy_part(table, table->functions, &builder->functions, sizeof(struct exact_function));
    copy_part(table, table->programs, &builder->programs, 1);
    fill_pages(table);
    fill_up(table, table->pages + (table->page_count + (uint64_t)1) * sizeof(uint32_t));
    return table;
}
