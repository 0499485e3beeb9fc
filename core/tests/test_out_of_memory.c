/*
 * test_out_of_memory.c: compiling when memory runs out: each allocation in turn fails, and nothing is lost,
 * leaked or half done. The compiler is built into this program once more, with an allocator that fails.
 */
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

#define malloc limited_malloc
#define calloc limited_calloc
#define realloc limited_realloc
#define unspool_table_compile limited_compile
#define unspool_table_free limited_free
#define cut_into_pieces limited_cut_into_pieces
#define add_piece add_cut_piece
#include "../src/pieces.c"
#undef add_piece
#define add_usual_piece limited_add_usual_piece
#define table_assemble limited_table_assemble
#include "../src/table_assemble.c"
#include "../src/table_build.c"
#include "../src/usual_pieces.c"
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

int main(void) {
    RUN(each_allocation_may_fail);
    return check_result();
}
