/*
 * table_builder.h: a table while it is compiled: table_build.c gathers its parts, table_assemble.c puts them
 * into one block.
 */
#ifndef UNSPOOL_TABLE_BUILDER_H
#define UNSPOOL_TABLE_BUILDER_H

#include "cfi_program.h"
#include "code_rows.h"
#include "memo.h"
#include "pieces.h"
#include "unwind_table.h"
#include "usual_cfi.h"

/* How many of the rules of usual rows are found at once. */
#define USUAL_SLOTS 2048u

/* The rule of a usual row. */
struct usual_rule {
    uint64_t slots;
    uint32_t cfa;
    uint32_t number_plus_1; /* 0: nothing is kept here */
};

struct builder {
    struct vector fdes;      /* struct fde */
    struct vector pieces;    /* struct piece, ascending */
    uint8_t *scans;          /* of each piece: enum piece_scan; NULL: its code was not looked through */
    struct vector rows;      /* uint32_t: where each row starts, from base; before them room for the header */
    struct vector row_rules; /* uint16_t: its rule */
    struct memo rules;       /* struct rule */
    struct memo saved;       /* struct saved_set */
    struct vector functions; /* struct exact_function */
    struct vector programs;  /* bytes */
    struct vector code_rows; /* struct code_row: of the code between two pieces */
    struct followed_code *followed;
    uint64_t base;
    uint64_t work_left; /* bytes of instructions that may still be run */
    struct rule last;   /* of the row before: what has not changed is taken from it */
    struct saved_set last_set;
    struct usual_rule usual_rules[USUAL_SLOTS];
    struct cfi_reader *reader;  /* another's */
    struct cfi_machine machine; /* which is not zero at first */
};

#define HEADER_ROWS (sizeof(struct unspool_table) / sizeof(uint32_t))

static inline uint32_t *builder_rows(const struct builder *builder) {
    return (uint32_t *)builder->rows.items + HEADER_ROWS;
}

/* table_build.c: a builder that has nothing yet, nor work_left; NULL when memory is out. */
struct builder *builder_new(struct cfi_reader *reader);
/* How many bytes of instructions may be run for a file. */
uint64_t compile_work(const struct unspool_compile_input *input);
/* Before anything else is memoized: rule 0, set 0, and the EXACT rules that overflow falls back to. */
bool builder_begin_rules(struct builder *builder);
/* Adds the rows of one piece, and a row that says nothing behind it. */
bool builder_add_piece(struct builder *builder, const struct piece *piece);
/* What no FDE covers: adds the rows that its code says. */
bool builder_add_code(struct builder *builder, uint64_t start, uint64_t end);
void builder_free(struct builder *builder);

/* usual_pieces.c: adds the rows of a piece, and one that says nothing behind it. False: nothing was added,
 * since the piece is no whole function whose call frame information is usual, or it holds the file's entry or
 * has code that outruns its rows; or there is no room. */
bool add_usual_piece(struct builder *builder, const struct piece *piece, const struct fde *fde,
                     struct cie *cie);

/* Makes one block of the parts, from that of the rows, which the builder has no more. NULL when memory is
 * out.
 */
struct unspool_table *table_assemble(struct builder *builder);

#endif
