/*
 * results.h: what the checks found, counted and kept by kind, and written as JSON.
 */
#ifndef ORACLE_RESULTS_H
#define ORACLE_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "truth.h"

/* From right to worst. */
enum verdict {
    VERDICT_EXACT,         /* every address and the end are true, and nothing was guessed */
    VERDICT_REWRITTEN,     /* the same, where the program replaced a return address in its slot */
    VERDICT_DESTINATION,   /* while registers are replaced: the stack that control goes to */
    VERDICT_GUESSED_RIGHT, /* true, with a guess in it */
    VERDICT_CUT,           /* a true beginning of the stack, with a reason why it ends */
    VERDICT_GUESSED_WRONG, /* not true, but it says that it guessed */
    VERDICT_WRONG,         /* not true, and not called complete */
    VERDICT_WRONG_COMPLETE,
    VERDICTS,
};

/* How the walker got at the target. */
enum reader {
    READER_PROCESS, /* unspool_walk: all registers, the process's memory */
    READER_COPY,    /* unspool_walk: all registers, and a copy of the stack from sp to its end */
    READER_BATCH,   /* unspool_walk_many: pc, sp, fp (aarch64: lr, too), and such a copy */
    READERS,
};

struct walked {
    const uint64_t *address;
    const uint8_t *how;
    uint64_t count;
    uint32_t end; /* enum unspool_end */
};

/* One checked stack that is not exact. */
struct inexact {
    enum reader reader;
    enum verdict verdict;
    struct walked walked;
    const uint64_t *truth;
    uint64_t truth_count;
    uint64_t failed; /* index of the first frame that is missing, wrong or, if all are right, guessed */
    uint64_t step, sp, fp;
};

/* A growing set of 64-bit values. */
struct value_set {
    uint64_t *slot;
    size_t count, capacity;
};
bool value_set_add(struct value_set *set, uint64_t value); /* false when it was there */

struct results {
    uint64_t steps, checks;
    struct value_set pcs;
    uint64_t verdicts[READERS][VERDICTS];
    uint64_t ends[READERS][8];  /* of cut stacks, by enum unspool_end */
    struct inexact_kind *kinds; /* hash table */
    uint64_t kinds_lost;
};

void results_add(struct results *results, enum reader reader, enum verdict verdict, uint32_t end);
void results_add_inexact(struct results *results, const struct inexact *inexact);
void results_write(const struct results *results, FILE *out);           /* the members of a JSON object */
void results_write_truth(const struct truth_counts *counts, FILE *out); /* one more */

#endif
