/*
 * test_table_check.c: untrusted blocks. Whatever unspool_table_check accepts must be safe to look up in
 * and to walk with; a damaged block, copied to memory of exactly its size, shows it under ASan.
 */
#include "cfi_writer.h"
#include "check.h"
#include "unspool.h"
#include "unwind_table.h"

static uint8_t *block; /* a valid table with every part in it */
static uint64_t block_size;

static void make_block(uint32_t arch) {
    const struct cie_shape *shape = arch == UNSPOOL_AARCH64 ? &aarch64_cie : &x86_64_cie;
    uint8_t fp = arch == UNSPOOL_AARCH64 ? X29 : RBP, saved = arch == UNSPOOL_AARCH64 ? X19 : RBX;
    struct writer section = {0};
    uint64_t cie = write_cie(&section, shape);
    write_fde(&section, cie, 0x1000, 0x40,
              CFI(ADVANCE(1), DEF_CFA_OFFSET(16), OFFSET(fp, 2), ADVANCE(2), DEF_CFA_REGISTER(fp),
                  OFFSET(saved, 3)));
    write_fde(&section, cie, 0x1040, 0x40,
              CFI(ADVANCE(2), DEF_CFA_EXPRESSION(3), OP_BREG0 + fp, SLEB(-8), OP_DEREF, ADVANCE(2),
                  DEF_CFA(R10, 0), EXPRESSION(fp, 2), OP_BREG0 + fp, 0));
    write_fde(&section, cie, 0x1800, 0x40, CFI(ADVANCE(2), DEF_CFA(R12, 0)));
    const struct unspool_section sections[] = {as_section(&section, UNSPOOL_EH_FRAME)};
    const struct unspool_compile_input input = {.arch = arch, .section_count = 1, .sections = sections};
    struct unspool_table *table;
    struct unspool_problems problems;
    CHECK_EQUAL(unspool_table_compile(&input, &table, &problems), UNSPOOL_OK);
    CHECK_EQUAL(problems.count, 0);
    free(block);
    block_size = unspool_table_size(table);
    block = malloc(block_size);
    memcpy(block, table, block_size);
    unspool_table_free(table);
    writer_free(&section);
    CHECK_EQUAL(unspool_table_check(block, block_size), UNSPOOL_OK);
}

/* Everything that can be asked of a table that was accepted. */
static void use(const struct unspool_table *table, uint32_t arch) {
    struct unspool_row row;
    static struct unspool_row rows[64];
    static struct unspool_exact_row exact;
    unspool_table_rows(table, 0, rows, 64);
    const uint64_t bases[] = {0, table->base, 0x1000};
    uint64_t stack_words[32];
    for (uint64_t i = 0; i < 32; i++)
        stack_words[i] = 0x1000 + i * 0x51;
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
        for (uint64_t offset = 0; offset < 0x1900; offset += 0x11) {
            unspool_table_lookup(table, bases[b] + offset, &row);
            unspool_table_exact(table, bases[b] + offset, &exact);
        }
        struct unspool_module module = {
            .start = bases[b], .end = bases[b] + 0x2000, .image_base = 0, .table = table};
        const struct unspool_unwinder unwinder = {
            .arch = arch, .address_bits = 47, .modules = &module, .module_count = 1};
        struct unspool_memory memory = {
            .stack = {.address = 0x7000, .size = sizeof stack_words, .bytes = (const uint8_t *)stack_words}};
        for (uint64_t offset = 0; offset < 0x100; offset += 8) {
            uint64_t addresses[8];
            uint8_t how[8];
            struct unspool_stack stack = {.addresses = addresses, .how = how, .capacity = 8};
            struct unspool_registers registers = {.known = UINT64_MAX};
            for (size_t i = 0; i < UNSPOOL_REGISTERS; i++)
                registers.value[i] = 0x7000 + 8 * i;
            registers.value[arch == UNSPOOL_AARCH64 ? UNSPOOL_AARCH64_PC : UNSPOOL_X86_64_PC] =
                bases[b] + offset;
            unspool_walk(&unwinder, &registers, &memory, &stack);
        }
    }
}

/* Checks a changed copy of the block; a copy that is accepted is used. True when it was accepted. */
static bool try_copy(const uint8_t *changed, uint64_t size, uint32_t arch) {
    uint8_t *copy = malloc(size ? size : 1);
    if (size)
        memcpy(copy, changed, size);
    bool accepted = unspool_table_check(copy, size) == UNSPOOL_OK;
    if (accepted)
        use((const struct unspool_table *)copy, arch);
    free(copy);
    return accepted;
}

static void the_block_itself_is_usable(void) {
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        make_block(arch);
        CHECK(try_copy(block, block_size, arch));
        CHECK(try_copy(block, block_size, 3 - arch)); /* the wrong unwinder is merely wrong */
    }
}

static void every_truncation_is_refused(void) {
    make_block(UNSPOOL_X86_64);
    for (uint64_t size = 0; size < block_size; size++)
        CHECK(!try_copy(block, size, UNSPOOL_X86_64));
}

static void bytes_behind_the_block_are_not_its(void) {
    make_block(UNSPOOL_X86_64);
    uint8_t *longer = calloc(1, block_size + 64);
    memcpy(longer, block, block_size);
    CHECK_EQUAL(unspool_table_check(longer, block_size + 64), UNSPOOL_OK);
    free(longer);
}

static void an_unaligned_block_is_refused(void) {
    make_block(UNSPOOL_X86_64);
    uint8_t *moved = malloc(block_size + 8);
    for (size_t by = 1; by < 8; by++) {
        memcpy(moved + by, block, block_size);
        CHECK_EQUAL(unspool_table_check(moved + by, block_size), UNSPOOL_BAD_TABLE);
    }
    free(moved);
}

/* Values that a damaged or hostile field might have. */
static uint64_t damaged(uint64_t value, size_t way) {
    const uint64_t ways[] = {value ^ 1,
                             value + 8,
                             value - 8,
                             value ^ 0x80,
                             value << 8,
                             value >> 1,
                             0,
                             1,
                             UINT8_MAX,
                             UINT16_MAX,
                             INT32_MAX,
                             UINT32_MAX,
                             UINT64_MAX,
                             UINT64_MAX - 7,
                             INT64_MAX,
                             value * 2,
                             value | (uint64_t)1 << 63};
    return way < sizeof ways / sizeof *ways ? ways[way] : value;
}
enum { WAYS = 17 };

/* Every 1-, 2-, 4- and 8-byte field at every place of the block, damaged in every way. */
static void every_field_damaged(void) {
    uint64_t accepted = 0, refused = 0;
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        make_block(arch);
        for (uint64_t at = 0; at < block_size; at++)
            for (size_t size = 1; size <= 8 && at % size == 0 && at + size <= block_size; size *= 2)
                for (size_t way = 0; way < WAYS; way++) {
                    uint64_t value = 0;
                    memcpy(&value, block + at, size);
                    uint64_t changed = damaged(value, way);
                    memcpy(block + at, &changed, size);
                    if (try_copy(block, block_size, arch))
                        accepted++;
                    else
                        refused++;
                    memcpy(block + at, &value, size);
                }
    }
    CHECK(accepted > 1000); /* what rules say, for instance, is not for check to judge */
    CHECK(refused > 1000);
}

#define REFUSED(statement)                                                                                   \
    do {                                                                                                     \
        make_block(UNSPOOL_X86_64);                                                                          \
        struct unspool_table *table = (struct unspool_table *)block;                                         \
        uint32_t *rows = (uint32_t *)(block + table->rows);                                                  \
        uint16_t *row_rules = (uint16_t *)(block + table->row_rules);                                        \
        uint32_t *pages = (uint32_t *)(block + table->pages);                                                \
        struct rule *rules = (struct rule *)(block + table->rules);                                          \
        struct exact_function *functions = (struct exact_function *)(block + table->functions);              \
        struct kept_program *program = (struct kept_program *)(block + table->programs);                     \
        (void)rows, (void)row_rules, (void)pages, (void)rules, (void)functions, (void)program;               \
        statement;                                                                                           \
        CHECK(!try_copy(block, block_size, UNSPOOL_X86_64));                                                 \
    } while (0)

static void what_lookups_rely_on_is_checked(void) {
    REFUSED(table->magic++);
    REFUSED(table->version++);
    REFUSED(table->arch = 0);
    REFUSED(table->arch = 3);
    REFUSED(table->size += 8);
    REFUSED(table->size -= 8);
    REFUSED(table->row_count++);
    REFUSED(table->row_count = 0);
    REFUSED(table->rule_count = 0);
    REFUSED(table->rule_count--);
    REFUSED(table->saved_count--);
    REFUSED(table->function_count++);
    REFUSED(table->page_count++);
    REFUSED(table->page_count = 0);
    REFUSED(table->page_shift = 7);
    REFUSED(table->page_shift = 33);
    REFUSED(table->page_shift++);
    REFUSED(table->program_bytes = UINT64_MAX - 7);
    REFUSED(table->rows += 8);
    REFUSED(table->programs -= 8);
    REFUSED(rows[1] = rows[0]);
    REFUSED(rows[1] = rows[2] + 1);
    REFUSED(rows[table->row_count - 1] = UINT32_MAX);
    REFUSED(row_rules[0] = (uint16_t)table->rule_count);
    REFUSED(pages[0] = 1);
    REFUSED(pages[table->page_count]--);
    REFUSED(pages[1]++);
    REFUSED(rules[0].flags = 0);
    REFUSED(rules[1].saved = (uint16_t)table->saved_count);
    REFUSED(rules[1].kind = 3);
    REFUSED((table->arch = UNSPOOL_AARCH64, rules[1].kind = UNSPOOL_CFA_RBX));
    REFUSED(rules[1].kind = 3 << 2);
    REFUSED(rules[1].kind = 3 << 4);
    REFUSED(functions[0].end = functions[0].start);
    REFUSED(functions[1].start = functions[0].end - 1);
    REFUSED(functions[0].program += 4);
    REFUSED(functions[0].program = table->program_bytes);
    REFUSED(functions[0].program = UINT64_MAX - 7);
    REFUSED(program->initial_size = UINT32_MAX);
    REFUSED(program->instructions_size = UINT32_MAX);
    REFUSED(program->initial_size = (uint32_t)(table->program_bytes - sizeof *program) + 1);
    REFUSED(program->instructions_size =
                (uint32_t)(table->program_bytes - sizeof *program - program->initial_size) + 1);
    REFUSED(program->end = program->start - 1);
    REFUSED(program->return_address_register = UNSPOOL_REGISTERS + 1);
}

/* Rows are 32-bit numbers, which can't be shifted by 32. */
static void a_page_is_smaller_than_all_addresses(void) {
    struct unspool_table header = {
        .magic = TABLE_MAGIC,
        .version = TABLE_VERSION,
        .arch = UNSPOOL_X86_64,
        .row_count = 1,
        .rule_count = 1,
        .saved_count = 1,
        .page_count = 1,
        .page_shift = 31,
    };
    CHECK(table_place(&header));
    struct unspool_table *table = calloc(1, header.size);
    *table = header;
    ((struct rule *)((uint8_t *)table + table->rules))->flags = UNSPOOL_ROW_NONE;
    ((uint32_t *)((uint8_t *)table + table->pages))[1] = 1;
    CHECK_EQUAL(unspool_table_check(table, table->size), UNSPOOL_OK);
    table->page_shift = 32;
    CHECK_EQUAL(unspool_table_check(table, table->size), UNSPOOL_BAD_TABLE);
    free(table);
}

int main(void) {
    RUN(the_block_itself_is_usable);
    RUN(every_truncation_is_refused);
    RUN(bytes_behind_the_block_are_not_its);
    RUN(an_unaligned_block_is_refused);
    RUN(what_lookups_rely_on_is_checked);
    RUN(a_page_is_smaller_than_all_addresses);
    RUN(every_field_damaged);
    free(block);
    return check_result();
}
