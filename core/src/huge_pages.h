/*
 * huge_pages.h: memory of which much is touched at once: where there are huge pages, in these, for at each
 * ordinary page the kernel is called first. For compiling only (it allocates).
 */
#ifndef UNSPOOL_HUGE_PAGES_H
#define UNSPOOL_HUGE_PAGES_H

#include <stdint.h>
#include <stdlib.h>

#include "system.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define MADV_HUGEPAGE 14

/* As malloc. Pages that are not touched take no memory. */
static inline void *huge_malloc(size_t size) {
    if (size < HUGE_PAGE || size > SIZE_MAX / 2)
        return malloc(size);
    void *memory = aligned_alloc(HUGE_PAGE, (size + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
    if (memory) /* which may say that there are none: then ordinary ones serve */
        system_call(SYSTEM_madvise, (long)memory, (long)size, MADV_HUGEPAGE, 0, 0, 0);
    return memory;
}

#endif
