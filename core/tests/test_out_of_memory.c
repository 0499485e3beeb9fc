/*
 * test_out_of_memory.c: compiling when memory runs out: each allocation in turn fails, and nothing is lost,
 * leaked or half done. The compiler is built into this program once more, with an allocator that fails.
 */
#define _GNU_SOURCE /* as growing_pool.c */
#include <stdbool.h>
#include <stdlib.h>

static size_t allocations_left;

static bool may_allocate(void) {
    if (!allocations_left)
        return false;
    allocations_left--;
    return true;
}

static void *limited_malloc(size_t size) {
    return may_allocate() ? malloc(size) : NULL;
}

static void *limited_calloc(size_t count, size_t size) {
    return may_allocate() ? calloc(count, size) : NULL;
}

static void *limited_realloc(void *block, size_t size) {
    return may_allocate() ? realloc(block, size) : NULL;
}

static void *limited_aligned_alloc(size_t alignment, size_t size) {
    return may_allocate() ? aligned_alloc(alignment, size) : NULL;
}

#define aligned_alloc limited_aligned_alloc
#define malloc limited_malloc
#define calloc limited_calloc
#define realloc limited_realloc
#define unspool_table_compile limited_compile
#define unspool_table_free limited_free
#define unspool_table_begin limited_begin
#define unspool_table_end limited_end
#define unspool_pool_new limited_pool_new
#define unspool_pool_free limited_pool_free
#define builder_new limited_builder_new
#define builder_begin_rules limited_begin_rules
#define builder_add_piece limited_add_piece
#define builder_add_code limited_add_code
#define builder_free limited_builder_free
#define compile_work limited_work
#define growing_find_row limited_find_row
#define growing_find_function limited_find_function
#define pool_place limited_place
#define pool_next_part limited_next_part
#define cut_into_pieces limited_cut_into_pieces
#define add_piece add_cut_piece
#include "../src/pieces.c"
#undef add_piece
#define add_usual_piece limited_add_usual_piece
#define table_assemble limited_table_assemble
#include "../src/table_assemble.c"
#include "../src/table_build.c"
#include "../src/usual_pieces.c"
#define offset_of pool_offset_of
#define reserve reserve_pool
#include "../src/growing_pool.c"
#include "../src/growing_table.c"
#undef aligned_alloc
#undef malloc
#undef calloc
#undef realloc

#include "cfi_writer.h"
#include "check.h"

/* Enough functions that every part of the table grows, with both sections, nested and exact ones. */
static void write_sections(struct writer *eh_frame, struct writer *debug_frame) {
    struct cie_shape debug_cie = x86_64_cie;
    debug_cie.kind = UNSPOOL_DEBUG_FRAME;
    uint64_t cie = write_cie(eh_frame, &x86_64_cie), other = write_cie(debug_frame, &debug_cie);
    for (uint64_t i = 0; i < 200; i++) {
        const uint8_t instructions[] = {ADVANCE(1), DEF_CFA_OFFSET(ULEB2(8 * i)), OFFSET(RBX, ULEB2(2 + i)),
                                        ADVANCE(4), DEF_CFA(R10, 0)};
        write_fde(eh_frame, cie, 0x1000 + 0x40 * i, 0x30, instructions, sizeof instructions);
        write_debug_fde(debug_frame, other, 0x1020 + 0x40 * i, 0x40, NO_CFI);
    }
    write_fde(eh_frame, cie, 0x1000, 0x100, NO_CFI);
}

static void each_allocation_may_fail(void) {
    struct writer eh_frame = {0}, debug_frame = {0};
    write_sections(&eh_frame, &debug_frame);
    const struct unspool_section sections[] = {as_section(&eh_frame, UNSPOOL_EH_FRAME),
                                               as_section(&debug_frame, UNSPOOL_DEBUG_FRAME)};
    const struct unspool_compile_input input = {
        .arch = UNSPOOL_X86_64, .section_count = 2, .sections = sections};
    struct unspool_problems problems;
    struct unspool_table *table;
    int status = UNSPOOL_NO_MEMORY;
    size_t allowed = 0;
    for (; status == UNSPOOL_NO_MEMORY && allowed < 1000; allowed++) {
        allocations_left = allowed;
        table = (struct unspool_table *)&input; /* must not stay */
        status = limited_compile(&input, &table, &problems);
        CHECK_EQUAL(table == NULL, status != UNSPOOL_OK);
    }
    CHECK_EQUAL(status, UNSPOOL_OK);
    CHECK(allowed > 10); /* so many allocations failed in turn */
    CHECK_EQUAL(unspool_table_check(table, unspool_table_size(table)), UNSPOOL_OK);
    limited_free(table);
    writer_free(&eh_frame);
    writer_free(&debug_frame);
}

/* A table that grows knows nothing where it has no memory, and goes on when there is some again. */
static void a_growing_table_may_be_short_of_memory(void) {
    struct writer eh_frame = {0}, debug_frame = {0}, index = {0};
    write_sections(&eh_frame, &debug_frame);
    write_bytes(&index, (const uint8_t[]){1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 1, 0, 0, 0}, 12);
    write_u32(&index, 0x1000);
    write_u32(&index, (uint32_t)eh_frame.size - 4 - 20); /* the last, without instructions */
    const struct unspool_section section = as_section(&eh_frame, UNSPOOL_EH_FRAME),
                                 header = as_section(&index, 0);
    const struct unspool_compile_input input = {
        .arch = UNSPOOL_X86_64, .section_count = 1, .sections = &section};
    struct unspool_pool *pool = NULL;
    struct unspool_table *table = NULL;
    size_t failed = 0;
    for (size_t allowed = 0; !table && allowed < 100; allowed++) {
        allocations_left = allowed;
        if (limited_pool_new(&pool) != UNSPOOL_OK)
            CHECK(pool == NULL);
        else if (limited_begin(pool, &input, &header, &table) != UNSPOOL_OK)
            CHECK(table == NULL);
        failed += table == NULL;
        if (!table)
            limited_pool_free(pool);
    }
    CHECK(failed > 5);
    CHECK(table != NULL);
    uint32_t row = TABLE_GROWS;
    for (size_t allowed = 0; table && row == TABLE_GROWS && allowed < 100; allowed++) {
        allocations_left = allowed;
        row = limited_find_row(table, 0x1004);
    }
    CHECK(row != TABLE_GROWS);
    limited_end(table);
    limited_pool_free(pool);
    writer_free(&eh_frame);
    writer_free(&debug_frame);
    writer_free(&index);
}

int main(void) {
    RUN(each_allocation_may_fail);
    RUN(a_growing_table_may_be_short_of_memory);
    return check_result();
}
