/* in_process.h: what a walker of its own process does; see in_process.c. */
#ifndef IN_PROCESS_H
#define IN_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

void set_up(void);
/* The caller's stack: how many addresses were written. */
size_t walk_here(uintptr_t *addresses, size_t capacity);
/* In a signal's handler. context: what was interrupted; walkers that can't begin there begin at the handler.
 */
size_t walk_context(const ucontext_t *context, uintptr_t *addresses, size_t capacity);

#endif
