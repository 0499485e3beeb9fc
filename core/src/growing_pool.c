/*
 * growing_pool.c: room for growing tables (growing_pool.h). It never moves, since walks read it while it
 * grows.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include <stdlib.h>
#include <sys/mman.h>

#include "growing_pool.h"

/* 130 MB of addresses, of which pages are used as they are needed: a function takes 150 bytes or so. */
enum { MOST_PARTS = 1 << 20, MOST_ROWS = 1 << 23, MOST_FUNCTIONS = 1 << 17, PROGRAM_BYTES = 1 << 25 };

/* Takes the next part of the block, of so many items; without a block it only counts. */
static void *take(const struct unspool_pool *pool, uint64_t *taken, size_t count, size_t size) {
    void *items = pool->block ? pool->block + *taken : NULL;
    *taken += (count * size + TABLE_ALIGNMENT - 1) & ~(uint64_t)(TABLE_ALIGNMENT - 1);
    return items;
}

static struct vector take_vector(const struct unspool_pool *pool, uint64_t *taken, size_t count,
                                 size_t size) {
    return (struct vector){.items = take(pool, taken, count, size), .capacity = count, .is_fixed = true};
}

/* Where everything is in the block; how large it is. */
static uint64_t place_all(struct unspool_pool *pool) {
    struct builder *builder = pool->builder;
    uint64_t taken = 0;
    pool->parts = take(pool, &taken, MOST_PARTS, sizeof *pool->parts);
    builder->rows = take_vector(pool, &taken, MOST_ROWS, sizeof(uint32_t));
    builder->rows.count = HEADER_ROWS;
    builder->row_rules = take_vector(pool, &taken, MOST_ROWS, sizeof(uint16_t));
    builder->rules.items = take_vector(pool, &taken, MAX_RULES, sizeof(struct rule));
    builder->saved.items = take_vector(pool, &taken, MAX_RULES, sizeof(struct saved_set));
    builder->functions = take_vector(pool, &taken, MOST_FUNCTIONS, sizeof(struct exact_function));
    builder->programs = take_vector(pool, &taken, PROGRAM_BYTES, 1);
    return taken;
}

static bool reserve(struct unspool_pool *pool) {
    pool->builder = builder_new(NULL);
    if (!pool->builder)
        return false;
    pool->block_size = place_all(pool);
    void *block = mmap(NULL, pool->block_size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED)
        return false;
    pool->block = block;
    place_all(pool);
    return vector_add(&pool->builder->fdes, 1, sizeof(struct fde)) && builder_begin_rules(pool->builder);
}

int unspool_pool_new(struct unspool_pool **pool) {
    *pool = calloc(1, sizeof **pool);
    if (!*pool)
        return UNSPOOL_NO_MEMORY;
    pthread_mutex_init(&(*pool)->growing, NULL);
    (*pool)->part_count = 1;
    if (reserve(*pool))
        return UNSPOOL_OK;
    unspool_pool_free(*pool);
    *pool = NULL;
    return UNSPOOL_NO_MEMORY;
}

void unspool_pool_free(struct unspool_pool *pool) {
    if (!pool)
        return;
    if (pool->builder)
        builder_free(pool->builder);
    if (pool->block)
        munmap(pool->block, pool->block_size);
    pthread_mutex_destroy(&pool->growing);
    free(pool);
}

static uint64_t offset_of(const struct unspool_table *table, const void *items) {
    return (uintptr_t)items - (uintptr_t)table;
}

void pool_place(const struct unspool_pool *pool, struct unspool_table *table) {
    const struct builder *builder = pool->builder;
    table->rows = offset_of(table, builder_rows(builder));
    table->row_rules = offset_of(table, builder->row_rules.items);
    table->rules = offset_of(table, builder->rules.items.items);
    table->saved = offset_of(table, builder->saved.items.items);
    table->functions = offset_of(table, builder->functions.items);
    table->programs = offset_of(table, builder->programs.items);
}

struct part *pool_next_part(struct unspool_pool *pool) {
    return pool->part_count < MOST_PARTS ? &pool->parts[pool->part_count] : NULL;
}
