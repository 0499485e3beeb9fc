/* samples.h: the file that bench/walk/samples.py writes, and the loop of every walker over it.
 *
 * A walker gets one word a line on standard input: "cold" (nothing is known from earlier passes) or "warm".
 * It answers with a line: nanoseconds of one pass over all samples; frames, the interrupted ones included;
 * stacks that it calls complete; nanoseconds in which tables were built before that; kilobytes of anonymous
 * memory that it holds more than at first. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include <stddef.h>
#include <stdint.h>

enum section_kind { EH_FRAME = 1, DEBUG_FRAME, TEXT, EH_FRAME_HDR, CODE, UNCOVERED_CODE };

struct section {
    uint64_t kind, address, is_open_ended, size;
    const uint8_t *bytes;
};

struct module {
    uint64_t start, end, image_base, image_size, image_address, entry, text_address, data_address;
    char *path; /* "": no file is known */
    uint64_t section_count;
    struct section *sections;
};

struct samples {
    uint64_t module_count, count;
    struct module *modules;
    const uint64_t *registers; /* [count][4]: pc, sp, fp, lr */
    const uint64_t *offsets;   /* [count + 1], into stacks */
    const uint8_t *stacks;
};

struct counts {
    uint64_t frames, complete;
};

const struct section *find_section(const struct module *module, enum section_kind kind);
/* The module of an address, or NULL. */
const struct module *find_module_of(const struct samples *samples, uint64_t address);
/* Copies a word of a stack copy or, failing that, of the unwind sections and code of modules; 0: there is
 * none. */
int read_word(const struct samples *samples, uint64_t sample, uint64_t address, uint64_t *word);

/* What a walker is. prepare: forgets all earlier passes; its time does not count. build: makes tables of all
 * files, if the walker does that. walk_all: one pass. */
void prepare(const struct samples *samples);
void build(const struct samples *samples);
void walk_all(const struct samples *samples, struct counts *counts);

#endif
