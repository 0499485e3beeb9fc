/*
 * test_growing_table.c: a table that grows says at every address what a whole one says, in whatever order it
 * is asked, by however many threads; and an index that does not serve is refused.
 */
#include <pthread.h>
#include <stdio.h>

#include "cfi_writer.h"
#include "check.h"
#include "unspool.h"

enum { FUNCTIONS = 300, SPACING = 0x40, FIRST = 0x1000, END = FIRST + FUNCTIONS * SPACING + 0x100 };
enum { HEADER_AT = 0x900000, SECTION_AT = 0x800000 };

struct file {
    struct writer eh_frame, index;
    uint64_t cie;
    struct unspool_section section, header;
    struct unspool_compile_input input;
    uint8_t code[END];
};

static void begin_index(struct file *f) {
    write_bytes(&f->index, (const uint8_t[]){1, 0x1b, 0x03, 0x3b}, 4);
    write_u32(&f->index, 0); /* where .eh_frame is: not asked */
    write_u32(&f->index, 0); /* the count */
}

static void add_entry(struct file *f, uint64_t start, uint64_t fde) {
    uint32_t count;
    write_u32(&f->index, (uint32_t)(start - HEADER_AT));
    write_u32(&f->index, (uint32_t)(SECTION_AT + fde - HEADER_AT));
    memcpy(&count, f->index.bytes + 8, sizeof count);
    count++;
    memcpy(f->index.bytes + 8, &count, sizeof count);
}

static void add_function(struct file *f, uint64_t start, uint64_t size, const uint8_t *cfi, size_t cfi_size) {
    add_entry(f, start, write_fde(&f->eh_frame, f->cie, start, size, cfi, cfi_size));
}

static void begin_file(struct file *f, uint32_t arch) {
    *f = (struct file){0};
    begin_index(f);
    f->cie = write_cie(&f->eh_frame, arch == UNSPOOL_AARCH64 ? &aarch64_cie : &x86_64_cie);
    f->input.arch = arch;
}

static void end_file(struct file *f) {
    writer_free(&f->eh_frame);
    writer_free(&f->index);
}

/* All kinds: usual ones, exact ones, one without a CFA, with and without a gap behind; nested ones; the
 * file's entry; code that moves sp though the function has one row. */
static void write_functions(struct file *f, uint32_t arch) {
    begin_file(f, arch);
    for (uint64_t i = 0; i < FUNCTIONS; i++) {
        uint64_t start = FIRST + SPACING * i, size = i % 3 ? SPACING : SPACING - 9;
        uint8_t grown = (uint8_t)(8 * (i % 12 + 1)), fp = arch == UNSPOOL_AARCH64 ? X29 : RBP;
        if (i % 7 == 3)
            add_function(f, start, size, CFI(ADVANCE(3), DEF_CFA(R10, 8), ADVANCE(5), DEF_CFA(RSP, 16)));
        else if (i % 7 == 5)
            add_function(f, start, size, NO_CFI);
        else if (i % 58 == 8) /* over the next, which ends first, both of them exact */
            add_function(f, start, 2 * SPACING + 8, CFI(ADVANCE(2), DEF_CFA(R11, 8)));
        else if (i % 29 == 4)
            add_function(f, start, 3 * SPACING + 20,
                         CFI(ADVANCE(2), DEF_CFA_OFFSET(120))); /* over the next */
        else
            add_function(
                f, start, size,
                CFI(ADVANCE(1), DEF_CFA_OFFSET(grown), OFFSET(fp, 2), ADVANCE(9), DEF_CFA_OFFSET(8)));
        f->code[start] = 0x55; /* push %rbp */
    }
    f->section = as_section(&f->eh_frame, UNSPOOL_EH_FRAME);
    f->section.address = SECTION_AT;
    f->header = as_section(&f->index, 0);
    f->header.address = HEADER_AT;
    static struct unspool_section code;
    code = (struct unspool_section){.bytes = f->code, .size = sizeof f->code};
    f->input = (struct unspool_compile_input){.arch = arch,
                                              .section_count = 1,
                                              .sections = &f->section,
                                              .entry_address = FIRST + 21 * SPACING + 4,
                                              .code = &code,
                                              .code_count = 1};
}

static struct unspool_table *whole_table(const struct file *f) {
    struct unspool_table *table;
    struct unspool_problems problems;
    CHECK_EQUAL(unspool_table_compile(&f->input, &table, &problems), UNSPOOL_OK);
    return table;
}

static struct unspool_pool *pool;

static struct unspool_table *growing_table(const struct file *f) {
    struct unspool_table *table;
    CHECK_EQUAL(unspool_table_begin(pool, &f->input, &f->header, &table), UNSPOOL_OK);
    return table;
}

/* Rows of two functions that say the same are one in a whole table. */
static void compare_at(const struct unspool_table *whole, const struct unspool_table *growing,
                       uint64_t address) {
    struct unspool_row expected = {.flags = UNSPOOL_ROW_NONE}, got = expected;
    struct unspool_exact_row exact, exact_expected;
    unspool_table_lookup(whole, address, &expected);
    if (unspool_table_lookup(growing, address, &got) == UNSPOOL_OK)
        CHECK(got.start <= address && address < got.end);
    got.start = expected.start;
    got.end = expected.end;
    CHECK_BYTES(&got, &expected, sizeof got);
    int status = unspool_table_exact(whole, address, &exact_expected);
    CHECK_EQUAL(unspool_table_exact(growing, address, &exact), status);
    if (status == UNSPOOL_OK) {
        CHECK_EQUAL(exact.start, exact_expected.start);
        CHECK_EQUAL(exact.end, exact_expected.end);
        CHECK_EQUAL(exact.cfa_register, exact_expected.cfa_register);
        CHECK_EQUAL(exact.cfa_offset, exact_expected.cfa_offset);
    }
}

static void each_address_in_any_order(void) {
    static struct file f;
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        write_functions(&f, arch);
        struct unspool_table *whole = whole_table(&f);
        /* 5 and 7919 have no divisor in common with the range, so that each address comes once */
        for (uint64_t step = 1; step < 8000; step = step == 1 ? 5 : step == 5 ? 7919 : 8000) {
            struct unspool_table *growing = growing_table(&f);
            for (uint64_t i = 0, address = step; i < END; i++, address = (address + step) % END)
                compare_at(whole, growing, address);
            compare_at(whole, growing, UINT32_MAX);
            compare_at(whole, growing, UINT64_MAX);
            compare_at(whole, growing, (uint64_t)1 << 32 | FIRST);
            unspool_table_end(growing);
        }
        unspool_table_free(whole);
        end_file(&f);
    }
}

/* ------------------------------------------------------------------ threads */

struct asker {
    const struct unspool_table *whole, *growing;
    uint64_t first;
    uint64_t wrong;
};

static void *ask(void *argument) {
    struct asker *asker = argument;
    for (uint64_t i = 0; i < END; i++) {
        struct unspool_row expected = {.flags = UNSPOOL_ROW_NONE}, got = expected;
        uint64_t address = (asker->first + i * 37) % END;
        unspool_table_lookup(asker->whole, address, &expected);
        unspool_table_lookup(asker->growing, address, &got);
        asker->wrong += got.cfa_offset != expected.cfa_offset || got.flags != expected.flags;
    }
    return NULL;
}

static void several_threads(void) {
    enum { THREADS = 4 };
    static struct file f;
    write_functions(&f, UNSPOOL_X86_64);
    struct unspool_table *whole = whole_table(&f);
    for (int round = 0; round < 20; round++) {
        struct unspool_table *growing = growing_table(&f);
        pthread_t threads[THREADS];
        struct asker askers[THREADS];
        for (uint64_t i = 0; i < THREADS; i++) {
            askers[i] = (struct asker){whole, growing, FIRST + (i % 2) * 977, 0};
            CHECK_EQUAL(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            CHECK_EQUAL(askers[i].wrong, 0);
        }
        unspool_table_end(growing);
    }
    unspool_table_free(whole);
    end_file(&f);
}

/* ------------------------------------------------------------------ what does not serve */

static void expect_refused(const struct file *f) {
    struct unspool_table *table;
    CHECK_EQUAL(unspool_table_begin(pool, &f->input, &f->header, &table), UNSPOOL_NOT_FOUND);
    CHECK(table == NULL);
}

static void an_index_that_does_not_serve(void) {
    static struct file f;
    struct unspool_table *table;
    write_functions(&f, UNSPOOL_X86_64);
    for (uint64_t size = 0; size < 12 + 8 * FUNCTIONS; size += size < 40 ? 1 : 97) {
        f.header.size = size;
        expect_refused(&f); /* cut short */
    }
    f.header.size = f.index.size;
    for (size_t i = 0; i < 4; i++) { /* version, encodings */
        f.index.bytes[i] ^= 2;
        expect_refused(&f);
        f.index.bytes[i] ^= 2;
    }
    uint8_t entry[8];
    memcpy(entry, f.index.bytes + 12 + 8 * 100, sizeof entry);
    memcpy(f.index.bytes + 12 + 8 * 100, f.index.bytes + 12 + 8 * 99, sizeof entry);
    expect_refused(&f); /* two for one address */
    memcpy(f.index.bytes + 12 + 8 * 100, f.index.bytes + 12 + 8 * 102, sizeof entry);
    expect_refused(&f); /* not sorted */
    memcpy(f.index.bytes + 12 + 8 * 100, entry, sizeof entry);
    memset(f.index.bytes + 8, 0, 4);
    expect_refused(&f); /* empty */
    f.index.bytes[8] = 1;
    f.section.kind = UNSPOOL_DEBUG_FRAME;
    expect_refused(&f);
    f.section.kind = UNSPOOL_EH_FRAME;
    f.input.section_count = 0;
    expect_refused(&f);
    f.input.section_count = 1;
    f.input.arch = 3;
    CHECK_EQUAL(unspool_table_begin(pool, &f.input, &f.header, &table), UNSPOOL_BAD_ARGUMENT);
    end_file(&f);
}

/* Entries that lead to no FDE, or to another function's: nothing is known there. */
static void entries_that_lead_astray(void) {
    static struct file f;
    write_functions(&f, UNSPOOL_X86_64);
    const uint32_t astray[] = {0, 5, UINT32_MAX, (uint32_t)(SECTION_AT - HEADER_AT), 0x80000000, 0x7fffffff};
    for (uint32_t i = 0; i < sizeof astray / sizeof *astray; i++)
        memcpy(f.index.bytes + 12 + 8 * (6 + i) + 4, &astray[i], 4);
    memcpy(f.index.bytes + 12 + 8 * 20 + 4, f.index.bytes + 12 + 8 * 22 + 4, 4);
    struct unspool_table *growing = growing_table(&f);
    for (uint64_t address = FIRST; address < FIRST + 30 * SPACING; address++) {
        uint64_t function = (address - FIRST) / SPACING;
        struct unspool_row row;
        CHECK_EQUAL(unspool_table_lookup(growing, address, &row), UNSPOOL_OK);
        if ((function >= 8 && function < 12) || function == 20) /* 4 reaches over 6 and 7 */
            CHECK_EQUAL(row.flags, UNSPOOL_ROW_NONE);
    }
    unspool_table_end(growing);
    end_file(&f);
}

/* Where the pool has no more room for a function's program, the table says that nothing is known, and goes
 * on. */
static void a_full_pool(void) {
    enum { PROGRAM = 120000, MANY = 290 };
    static struct file f;
    static const uint8_t exact[] = {DEF_CFA(R10, 8)};
    uint8_t *program = calloc(1, PROGRAM); /* DW_CFA_nop */
    memcpy(program, exact, sizeof exact);
    begin_file(&f, UNSPOOL_X86_64);
    for (uint64_t i = 0; i < MANY; i++)
        add_function(&f, FIRST + SPACING * i, SPACING, program, PROGRAM);
    add_function(&f, FIRST + SPACING * MANY, SPACING, CFI(ADVANCE(1), DEF_CFA_OFFSET(16)));
    f.section = as_section(&f.eh_frame, UNSPOOL_EH_FRAME);
    f.section.address = SECTION_AT;
    f.header = as_section(&f.index, 0);
    f.header.address = HEADER_AT;
    f.input =
        (struct unspool_compile_input){.arch = UNSPOOL_X86_64, .section_count = 1, .sections = &f.section};
    struct unspool_table *growing = growing_table(&f);
    uint64_t known = 0;
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 0; i < MANY; i++) {
            struct unspool_row row;
            CHECK_EQUAL(unspool_table_lookup(growing, FIRST + SPACING * i, &row), UNSPOOL_OK);
            known += row.flags == UNSPOOL_ROW_EXACT;
            CHECK(row.flags == UNSPOOL_ROW_EXACT || row.flags == UNSPOOL_ROW_NONE);
        }
    CHECK(known > 2 * 250 && known < 2 * MANY);
    struct unspool_row row;
    CHECK_EQUAL(unspool_table_lookup(growing, FIRST + SPACING * MANY + 1, &row), UNSPOOL_OK);
    CHECK_EQUAL(row.cfa_offset, 16);
    unspool_table_end(growing);
    end_file(&f);
    free(program);
}

/* Any bytes: lookups end, and find rows that hold. */
static void damaged_bytes(void) {
    static struct file f;
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 300; round++) {
        write_functions(&f, round % 2 ? UNSPOOL_X86_64 : UNSPOOL_AARCH64);
        for (int i = 0; i < 40; i++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            struct writer *damaged = random >> 60 < 4 ? &f.index : &f.eh_frame;
            damaged->bytes[random % damaged->size] = (uint8_t)(random >> 32);
        }
        struct unspool_table *growing;
        if (unspool_table_begin(pool, &f.input, &f.header, &growing) == UNSPOOL_OK) {
            for (uint64_t address = FIRST; address < END; address += 3) {
                struct unspool_row row;
                struct unspool_exact_row exact;
                if (unspool_table_lookup(growing, address, &row) == UNSPOOL_OK)
                    CHECK(row.start <= address && address < row.end);
                unspool_table_exact(growing, address, &exact);
            }
            unspool_table_end(growing);
        }
        end_file(&f);
    }
}

int main(void) {
    CHECK_EQUAL(unspool_pool_new(&pool), UNSPOOL_OK);
    RUN(each_address_in_any_order);
    RUN(several_threads);
    RUN(an_index_that_does_not_serve);
    RUN(entries_that_lead_astray);
    RUN(damaged_bytes);
    RUN(a_full_pool); /* the last, since it stays so */
    unspool_pool_free(pool);
    return check_result();
}
