/*
 * code_scan.h: what a file's own code says of its unwind information, when a table is compiled.
 */
#ifndef UNSPOOL_CODE_SCAN_H
#define UNSPOOL_CODE_SCAN_H

#include <stdbool.h>

#include "unspool.h"

/* True when an instruction in start <= relative address < end moves sp, or changes lr on aarch64, or
 * makes a thread there that goes on with the same code.
 * Instructions are decoded one after the other; what can't be decoded, or is not there, ends the search. */
bool code_changes_frame(const struct unspool_compile_input *input, uint64_t start, uint64_t end);

/* True when the code moves sp in start .. first_end before the last instruction, or leaves start .. end by a
 * return or a jump. */
bool code_outruns_rows(const struct unspool_compile_input *input, uint64_t start, uint64_t first_end,
                       uint64_t end);

/* True when start .. end is the code that a context of makecontext returns to when it is done. */
bool code_ends_context(const struct unspool_compile_input *input, uint64_t start, uint64_t end);

#endif
