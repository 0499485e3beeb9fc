/*
 * x86_64_quick.h: over the code of several functions at a time, which takes a third of the time.
 */
#ifndef UNSPOOL_X86_64_QUICK_H
#define UNSPOOL_X86_64_QUICK_H

#include <stdbool.h>
#include <stdint.h>

/* So many bytes must be readable from each place before the end of a lane's code. */
#define QUICK_MARGIN 256

enum { CODE_LANES = 8 };

/* One of several functions whose code is passed over. */
struct code_lane {
    const uint8_t *at, *end; /* at < end: an instruction begins at `at` */
    bool is_stopped;
};

/* Passes over instructions that x86_64_decode says not to write sp, in all lanes, until one of them is at its
 * end or behind it, or is stopped: before an instruction that is to be decoded, or may be after the end. */
void x86_64_pass_quickly(struct code_lane lanes[CODE_LANES]);

#endif
