/*
 * unwind_table.c: checking a table, looking up in it, spelling out its rows.
 *
 * A table may come from a damaged cache file: unspool_table_check establishes everything that the
 * inline lookups of unwind_table.h rely on.
 */
#include "unwind_table.h"
#include "cfi_program.h"
#include "growing_table.h"

/* Reserves count items of size bytes at the end, 8-byte aligned. */
static bool reserve(uint64_t *end, uint64_t *part, uint64_t count, uint64_t size) {
    *part = *end;
    if (count > (UINT64_MAX / 4 - *end) / size)
        return false;
    *end = (*end + count * size + TABLE_ALIGNMENT - 1) & ~(uint64_t)(TABLE_ALIGNMENT - 1);
    return true;
}

bool table_place(struct unspool_table *header) {
    header->size = sizeof *header;
    return reserve(&header->size, &header->rows, header->row_count, sizeof(uint32_t)) &&
           reserve(&header->size, &header->row_rules, header->row_count, sizeof(uint16_t)) &&
           reserve(&header->size, &header->pages, (uint64_t)header->page_count + 1, sizeof(uint32_t)) &&
           reserve(&header->size, &header->rules, header->rule_count, sizeof(struct rule)) &&
           reserve(&header->size, &header->saved, header->saved_count, sizeof(struct saved_set)) &&
           reserve(&header->size, &header->functions, header->function_count,
                   sizeof(struct exact_function)) &&
           reserve(&header->size, &header->programs, header->program_bytes, 1);
}

uint64_t unspool_table_size(const struct unspool_table *table) {
    return table->size;
}

static bool header_is_valid(const struct unspool_table *table, uint64_t size) {
    if (size < sizeof *table || ((uintptr_t)table & 7) || table->magic != TABLE_MAGIC ||
        table->version != TABLE_VERSION || (table->arch != UNSPOOL_X86_64 && table->arch != UNSPOOL_AARCH64))
        return false;
    struct unspool_table placed = *table;
    if (!table_place(&placed) || placed.size > size || memcmp(&placed, table, sizeof placed) != 0)
        return false;
    return table->rule_count >= 1 && table->saved_count >= 1 && table->page_shift >= 8 &&
           table->page_shift <= 31 && (uint64_t)table->page_count << table->page_shift <= (uint64_t)1 << 33;
}

static bool rows_are_valid(const struct unspool_table *table) {
    const uint32_t *rows = table_part(table, table->rows);
    const uint16_t *row_rules = table_part(table, table->row_rules);
    const uint32_t *pages = table_part(table, table->pages);
    for (uint32_t i = 0; i < table->row_count; i++) {
        if (row_rules[i] >= table->rule_count || (i && rows[i] <= rows[i - 1]))
            return false;
        if (rows[i] >> table->page_shift >= table->page_count)
            return false;
    }
    uint32_t row = 0;
    for (uint32_t page = 0; page < table->page_count; page++) {
        while (row < table->row_count && rows[row] >> table->page_shift < page)
            row++;
        if (pages[page] != row)
            return false;
    }
    return pages[table->page_count] == table->row_count;
}

static bool rules_are_valid(const struct unspool_table *table) {
    const struct rule *rules = table_part(table, table->rules);
    for (uint32_t i = 0; i < table->rule_count; i++) {
        const struct rule *rule = &rules[i];
        if (rule->saved >= table->saved_count ||
            RULE_CFA_BASE(rule) > (table->arch == UNSPOOL_X86_64 ? UNSPOOL_CFA_RBX : UNSPOOL_CFA_FP) ||
            RULE_RA(rule) > UNSPOOL_SAVED_UNKNOWN || RULE_FP(rule) > UNSPOOL_SAVED_UNKNOWN)
            return false;
    }
    return (rules[RULE_NONE].flags & UNSPOOL_ROW_NONE) != 0;
}

static bool programs_are_valid(const struct unspool_table *table) {
    const struct exact_function *functions = table_part(table, table->functions);
    for (uint32_t i = 0; i < table->function_count; i++) {
        const struct exact_function *function = &functions[i];
        if (function->start >= function->end || (i && function->start < functions[i - 1].end))
            return false;
        if (function->program % 8 || function->program > table->program_bytes ||
            table->program_bytes - function->program < sizeof(struct kept_program))
            return false;
        const struct kept_program *kept = table_part(table, table->programs + function->program);
        uint64_t left = table->program_bytes - function->program - sizeof *kept;
        if (kept->initial_size > left || kept->instructions_size > left - kept->initial_size ||
            (uint64_t)kept->initial_size + kept->instructions_size > KEPT_PROGRAM_LIMIT ||
            kept->start > kept->end || kept->return_address_register > UNSPOOL_REGISTERS)
            return false;
    }
    return true;
}

int unspool_table_check(const void *block, uint64_t size) {
    const struct unspool_table *table = block;
    bool valid = header_is_valid(table, size) && rows_are_valid(table) && rules_are_valid(table) &&
                 programs_are_valid(table);
    return valid ? UNSPOOL_OK : UNSPOOL_BAD_TABLE;
}

/* Which of the functions that no rule can say holds at a relative address. False: none. */
static bool find_function(const struct unspool_table *table, uint64_t relative_address, uint32_t *number) {
    if (table_grows(table))
        return growing_find_function(table, relative_address, number);
    const struct exact_function *functions = table_part(table, table->functions);
    uint64_t from_base = relative_address - table->base;
    uint32_t low = 0;
    uint32_t high = table->function_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (functions[middle].end <= from_base)
            low = middle + 1;
        else
            high = middle;
    }
    *number = low;
    return low < table->function_count && functions[low].start <= from_base;
}

bool table_find_program(const struct unspool_table *table, uint64_t relative_address,
                        struct cfi_program *program) {
    const struct exact_function *functions;
    uint32_t number;
    if (!find_function(table, relative_address, &number))
        return false;
    functions = table_part(table, table->functions);
    const struct kept_program *kept = table_part(table, table->programs + functions[number].program);
    const uint8_t *bytes = (const uint8_t *)(kept + 1);
    *program = (struct cfi_program){
        .initial = bytes,
        .initial_size = kept->initial_size,
        .instructions = bytes + kept->initial_size,
        .instructions_size = kept->instructions_size,
        .start = kept->start,
        .end = kept->end,
        .code_alignment = kept->code_alignment,
        .data_alignment = kept->data_alignment,
        .image_address = table->image_address,
        .instructions_address = kept->instructions_address,
        .arch = (uint8_t)table->arch,
        .return_address_register = kept->return_address_register,
        .pointer_encoding = kept->pointer_encoding,
        .flags = kept->flags,
    };
    return true;
}

uint64_t unspool_table_row_count(const struct unspool_table *table) {
    return table->row_count;
}

/* From base. */
static uint64_t row_end(const struct unspool_table *table, uint32_t row) {
    const uint32_t *rows = table_part(table, table->rows);
    return row + 1 < table->row_count ? rows[row + 1] : (uint64_t)table->page_count << table->page_shift;
}

static void spell_out(const struct unspool_table *table, uint32_t row, struct unspool_row *out) {
    const uint32_t *rows = table_part(table, table->rows);
    const uint16_t *row_rules = table_part(table, table->row_rules);
    const struct rule *rules = table_part(table, table->rules);
    const struct rule *rule = &rules[row_rules[row]];
    *out = (struct unspool_row){
        .start = table->base + rows[row],
        .end = table->base + row_end(table, row),
        .cfa_offset = rule->cfa_offset,
        .ra_offset = rule->ra_slot * SLOT_SIZE,
        .fp_offset = rule->fp_slot * SLOT_SIZE,
        .cfa_base = (uint8_t)RULE_CFA_BASE(rule),
        .ra = (uint8_t)RULE_RA(rule),
        .fp = (uint8_t)RULE_FP(rule),
        .flags = rule->flags,
    };
}

size_t unspool_table_rows(const struct unspool_table *table, uint64_t first, struct unspool_row *rows,
                          size_t capacity) {
    size_t written = 0;
    for (uint64_t row = first; row < table->row_count && written < capacity; row++)
        spell_out(table, (uint32_t)row, &rows[written++]);
    return written;
}

size_t unspool_table_gaps(const struct unspool_table *table, uint64_t least, struct unspool_row *rows,
                          size_t capacity) {
    const uint32_t *starts = table_part(table, table->rows);
    const uint16_t *row_rules = table_part(table, table->row_rules);
    const struct rule *rules = table_part(table, table->rules);
    uint32_t row_count = table->row_count;
    size_t count = 0;
    for (uint32_t row = 0; row < row_count; row++) {
        uint64_t end = row + 1 < row_count ? starts[row + 1] : row_end(table, row);
        unsigned is_long = end - starts[row] >= least, flags = rules[row_rules[row]].flags;
        if (!(is_long * UNSPOOL_ROW_NONE & flags)) /* of the two, each is often true */
            continue;
        if (count < capacity)
            spell_out(table, row, &rows[count]);
        count++;
    }
    return count;
}

int unspool_table_lookup(const struct unspool_table *table, uint64_t relative_address,
                         struct unspool_row *row) {
    uint32_t number = table_find_row(table, relative_address);
    if (number == table->row_count)
        return UNSPOOL_NOT_FOUND;
    spell_out(table, number, row);
    return UNSPOOL_OK;
}

/* A function's first rows. */
enum { FIRST_ROWS = 8 };

bool table_doubted_start(const struct unspool_table *table, uint64_t relative_address, uint64_t *start) {
    const uint32_t *rows = table_part(table, table->rows);
    const uint16_t *row_rules = table_part(table, table->row_rules);
    uint32_t row = table_find_row(table, relative_address);
    for (int i = 0; i < FIRST_ROWS && row > 0 && !rule_is_of_entry(table_row_rule(table, row), table->arch);
         i++) {
        if (table_grows(table) && row_rules[row - 1] == RULE_NONE) /* the row before is another function's */
            break;
        row--;
    }
    *start = table->base + rows[row];
    return rule_is_of_entry(table_row_rule(table, row), table->arch);
}

static const uint8_t *expression_bytes(const struct cfi_program *program, const uint8_t *block,
                                       uint32_t *size) {
    struct cursor cursor = cfi_block(program, block);
    *size = (uint32_t)cursor_left(&cursor);
    return cursor.at;
}

int unspool_table_exact(const struct unspool_table *table, uint64_t relative_address,
                        struct unspool_exact_row *row) {
    struct cfi_program program;
    struct cfi_machine machine;
    if (!table_find_program(table, relative_address, &program) || cfi_begin(&machine, &program) != CFI_ROW)
        return UNSPOOL_NOT_FOUND;
    do {
        if (cfi_next_row(&machine) != CFI_ROW)
            return UNSPOOL_NOT_FOUND;
    } while (machine.row_end <= relative_address);
    const struct cfi_rules *rules = &machine.rules;
    *row = (struct unspool_exact_row){
        .start = machine.row_start,
        .end = machine.row_end,
        .cfa_register = rules->cfa_register,
        .cfa_offset = rules->cfa_offset,
        .return_address_register = program.return_address_register,
    };
    if (rules->cfa_is_expression)
        row->cfa_expression = expression_bytes(&program, rules->cfa_expression, &row->cfa_expression_size);
    for (uint32_t i = 0; i < UNSPOOL_REGISTERS; i++) {
        struct unspool_exact_rule *out = &row->rules[i];
        out->kind = rules->kind[i];
        if (out->kind == UNSPOOL_EXACT_EXPRESSION || out->kind == UNSPOOL_EXACT_VAL_EXPRESSION)
            out->expression = expression_bytes(&program, rules->value[i].expression, &out->expression_size);
        else if (out->kind != UNSPOOL_EXACT_UNSPECIFIED)
            out->value = rules->value[i].number;
    }
    return UNSPOOL_OK;
}
