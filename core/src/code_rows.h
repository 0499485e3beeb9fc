/*
 * code_rows.h: rows of an unwind table that a file's code says, where no unwind information does.
 */
#ifndef UNSPOOL_CODE_ROWS_H
#define UNSPOOL_CODE_ROWS_H

#include <stdbool.h>

#include "unwind_table.h"
#include "vector.h"

struct code_row {
    uint64_t start; /* relative address; it holds up to the next row's */
    struct rule rule;
    struct saved_set set; /* rule.saved is not filled in */
};

/* What is kept from one piece of code to the next: room, and what was seen there. Begins as NULL. */
struct followed_code;
void free_followed_code(struct followed_code *kept);

/* Appends the rows (of struct code_row) of start <= relative address < end, where no FDE is: of functions
 * that keep their frame by rbx alone for a while, up to a row that says nothing. Ascending, whatever the
 * order of the code's sections. False when memory is out. */
bool code_rows(const struct unspool_compile_input *input, uint64_t start, uint64_t end,
               struct followed_code **kept, struct vector *rows);

#endif
