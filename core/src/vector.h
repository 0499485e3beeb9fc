/*
 * vector.h: a growing array, for compiling only (it allocates).
 */
#ifndef UNSPOOL_VECTOR_H
#define UNSPOOL_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "huge_pages.h"

struct vector {
    void *items;
    size_t count, capacity;
    bool is_fixed; /* the items are another's, and stay where they are */
};

/* Makes room for `count` more items, at least; false when memory is out. */
static inline bool vector_reserve(struct vector *vector, size_t count, size_t item_size) {
    if (vector->count + count <= vector->capacity)
        return true;
    if (vector->is_fixed)
        return false;
    size_t capacity =
        vector->capacity * 2 > vector->count + count ? vector->capacity * 2 : vector->count + count + 64;
    void *items =
        vector->items ? realloc(vector->items, capacity * item_size) : huge_malloc(capacity * item_size);
    if (!items)
        return false;
    vector->items = items;
    vector->capacity = capacity;
    return true;
}

/* Adds `count` items, which are to be filled in: the first; NULL when memory is out. */
static inline void *vector_add(struct vector *vector, size_t count, size_t item_size) {
    if (!vector_reserve(vector, count, item_size))
        return NULL;
    void *added = (uint8_t *)vector->items + vector->count * item_size;
    vector->count += count;
    return added;
}

static inline void vector_free(struct vector *vector) {
    if (!vector->is_fixed)
        free(vector->items);
}

#endif
