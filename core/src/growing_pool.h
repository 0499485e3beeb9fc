/*
 * growing_pool.h: the room that growing tables share, and what is known of the rules of all.
 *
 * Files have most rules in common, and most files that are mapped are in few stacks: with parts of its own
 * each table would take a dozen pages for a function or two.
 */
#ifndef UNSPOOL_GROWING_POOL_H
#define UNSPOOL_GROWING_POOL_H

#include <pthread.h>

#include "table_builder.h"

/* What is compiled at once: of the addresses between two entries of .eh_frame_hdr, the FDE of the first, or
 * what is behind it. */
struct part {
    uint32_t start, end; /* relative addresses */
    uint32_t first_row, row_count;
    uint32_t first_function, function_count; /* exact ones */
    uint32_t key;
    uint32_t next; /* of those with the same hash: its number, or 0 */
};

struct unspool_pool {
    pthread_mutex_t growing; /* held while anything below changes */
    struct builder *builder; /* of rows from relative address 0, whatever the file */
    struct part *parts;
    uint32_t part_count; /* the first is none */
    uint8_t *block;      /* of everything: reserved, but not there before it is written */
    uint64_t block_size;
};

/* Where the table's parts are. */
void pool_place(const struct unspool_pool *pool, struct unspool_table *table);
/* The next part, not counted yet; NULL: there is no room. */
struct part *pool_next_part(struct unspool_pool *pool);

#endif
