/*
 * growing_table.h: a table that is compiled function by function, when walks ask for it.
 *
 * For who walks stacks once: most functions of a file are in none of them. It is found by .eh_frame_hdr
 * which function holds an address; its rows are compiled as for any table and stay. Such a table is the
 * header that all tables have, with parts elsewhere, in which only the rows of one function lie together and
 * ascend. Where it grows it may allocate and lock: not for signal handlers, which are given whole tables.
 */
#ifndef UNSPOOL_GROWING_TABLE_H
#define UNSPOOL_GROWING_TABLE_H

#include "unwind_table.h"

/* The number of the row that holds at a relative address; TABLE_GROWS: none does. */
uint32_t growing_find_row(const struct unspool_table *table, uint64_t relative_address);

/* Which of the table's exact functions holds at a relative address; false: none. */
bool growing_find_function(const struct unspool_table *table, uint64_t relative_address, uint32_t *function);

#endif
