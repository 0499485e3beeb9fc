/* in_process_libunwind.c: libunwind's fast walk. (Linked alone: libunwind takes libgcc's place, too.) */
#include "in_process.h"
#define UNW_LOCAL_ONLY
#include <libunwind.h>

void set_up(void) {
}

size_t walk_here(uintptr_t *addresses, size_t capacity) {
    int count = unw_backtrace((void **)addresses, (int)capacity);
    return count > 0 ? (size_t)count : 0;
}

size_t walk_context(const ucontext_t *context, uintptr_t *addresses, size_t capacity) {
    (void)context;
    return walk_here(addresses, capacity);
}
