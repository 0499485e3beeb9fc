/*
 * table_builder.h: a table while it is compiled: table_build.c gathers its parts, table_assemble.c puts them
 * into one block.
 */
#ifndef UNSPOOL_TABLE_BUILDER_H
#define UNSPOOL_TABLE_BUILDER_H

#include "cfi_program.h"
#include "code_rows.h"
#include "pieces.h"
#include "unwind_table.h"

struct built_row {
    uint32_t from_base;
    uint16_t rule;
};

struct builder {
    struct cfi_reader reader;
    struct unspool_problems *problems;
    struct vector fdes;      /* struct fde */
    struct vector pieces;    /* struct piece, ascending */
    struct vector rows;      /* struct built_row */
    struct vector rules;     /* struct rule */
    struct vector saved;     /* struct saved_set */
    struct vector functions; /* struct exact_function */
    struct vector programs;  /* bytes */
    struct vector code_rows; /* struct code_row: of the code between two pieces */
    uint16_t *rule_slots;    /* hash of rules: number + 1, 0 = empty */
    uint16_t *saved_slots;
    uint64_t base;
    uint64_t work_left; /* bytes of instructions that may still be run */
    struct rule last;   /* of the row before: what has not changed is taken from it */
    struct saved_set last_set;
    struct cfi_machine machine;
};

/* Puts the parts into one block. NULL when memory is out. */
struct unspool_table *table_assemble(const struct builder *builder);

#endif
