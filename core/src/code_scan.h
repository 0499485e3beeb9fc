/*
 * code_scan.h: what a file's own code says of its unwind information, when a table is compiled.
 */
#ifndef UNSPOOL_CODE_SCAN_H
#define UNSPOOL_CODE_SCAN_H

#include <stdbool.h>

#include "cfi_program.h"
#include "pieces.h"

/* True when the code does more to the stack than the unwind information of its function says: it moves sp, or
 * (aarch64) changes lr or makes a thread that goes on with the same code, where there is but one row; or it
 * moves sp before the first row ends, or leaves, where none but the way in is told. Instructions are decoded
 * one after the other; what can't be decoded, or is not there, ends the search. */
bool code_outruns_cfi(const struct unspool_compile_input *input, const struct cfi_program *program);

/* The same of a function start .. end that has but one row. */
bool code_outruns_row(const struct unspool_compile_input *input, uint64_t start, uint64_t end);

enum piece_scan { SCAN_NOT_DONE, SCAN_WANTED, SCAN_FITS, SCAN_OUTRUNS };

/* The same of those pieces that are whole functions with one row, several at a time: where scans[i] is
 * SCAN_WANTED, sets it to SCAN_FITS or SCAN_OUTRUNS. x86_64 only. */
void code_scan_pieces(const struct unspool_compile_input *input, const struct piece *pieces, uint8_t *scans,
                      size_t count);

/* aarch64: true when lr is in memory by the row that starts at row_start, the function's first such, and none
 * of the instructions before it puts it there. */
bool code_saves_late(const struct unspool_compile_input *input, const struct cfi_program *program,
                     uint64_t row_start);

/* True when start .. end is the code that a context of makecontext returns to when it is done. */
bool code_ends_context(const struct unspool_compile_input *input, uint64_t start, uint64_t end);

#endif
