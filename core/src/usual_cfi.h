/*
 * usual_cfi.h: call frame instructions as compilers write them for nearly all functions on x86_64, run in two
 * machine words. For compiling tables; cfi_program.c runs all others, and says what each instruction means.
 */
#ifndef UNSPOOL_USUAL_CFI_H
#define UNSPOOL_USUAL_CFI_H

#include "cfi_program.h"

/* Registers that may be saved, each in a byte of a row: where, in slots below the CFA; 0: nowhere. */
enum usual_register { USUAL_RBX, USUAL_RBP, USUAL_R12, USUAL_R13, USUAL_R14, USUAL_R15, USUAL_REGISTERS };

/* The return address is the slot below the CFA. */
struct usual_row {
    uint64_t slots;
    uint32_t cfa;   /* offset << 1 | by rbp, not by rsp */
    uint32_t start; /* from the function's start */
};

#define USUAL_ROWS 1024

/* True for rules as the ABI has them at a function's entry, where the initial instructions of a program have
 * yielded them. */
bool usual_beginning(const struct cfi_program *program, const struct cfi_rules *rules);

/* The rows of a function of some bytes whose instructions follow such a beginning: how many, the last up to
 * its end. 0: it has something that is not usual, or too many rows. */
uint32_t usual_rows(const uint8_t *instructions, uint32_t instructions_size, uint32_t size,
                    struct usual_row rows[USUAL_ROWS]);

#endif
