/* results.c: see results.h. */
#include "results.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 1 << 14, EXAMPLE_FRAMES = 48 };

/* Inexact stacks are of one kind when the same frame failed in the same way. */
struct inexact_kind {
    uint64_t count;
    uint64_t address; /* of the frame whose caller was not found, or the last true one */
    struct inexact example;
};

static const char *const verdict_names[VERDICTS] = {
    "exact", "rewritten", "destination", "guessed_right", "cut", "guessed_wrong", "wrong", "wrong_complete",
};
static const char *const reader_names[READERS] = {"process", "copy", "batch"};

/* ------------------------------------------------------------------ sets */

static uint64_t scatter(uint64_t value) {
    value *= 0x9e3779b97f4a7c15u;
    return value ^ (value >> 32);
}

static void grow(struct value_set *set) {
    struct value_set bigger = {.capacity = set->capacity ? set->capacity * 2 : 1 << 16};
    bigger.slot = calloc(bigger.capacity, sizeof *bigger.slot);
    if (!bigger.slot)
        abort();
    for (size_t i = 0; i < set->capacity; i++) {
        if (set->slot[i])
            value_set_add(&bigger, set->slot[i]);
    }
    free(set->slot);
    *set = bigger;
}

bool value_set_add(struct value_set *set, uint64_t value) {
    if (set->count * 2 >= set->capacity)
        grow(set);
    value += value == 0; /* 0 marks an empty slot */
    size_t at = scatter(value) & (set->capacity - 1);
    for (; set->slot[at]; at = (at + 1) & (set->capacity - 1)) {
        if (set->slot[at] == value)
            return false;
    }
    set->slot[at] = value;
    set->count++;
    return true;
}

/* ------------------------------------------------------------------ kinds */

static void *copy(const void *bytes, size_t size) {
    void *copied = malloc(size + 1);
    if (!copied)
        abort();
    return memcpy(copied, bytes, size);
}

static void keep_example(struct inexact_kind *kind, const struct inexact *inexact) {
    kind->example = *inexact;
    struct inexact *example = &kind->example;
    if (example->truth_count > EXAMPLE_FRAMES)
        example->truth_count = EXAMPLE_FRAMES;
    if (example->walked.count > EXAMPLE_FRAMES)
        example->walked.count = EXAMPLE_FRAMES;
    example->truth = copy(inexact->truth, example->truth_count * sizeof *example->truth);
    example->walked.address = copy(inexact->walked.address, example->walked.count * sizeof(uint64_t));
    example->walked.how = copy(inexact->walked.how, example->walked.count);
}

static uint32_t failing_how(const struct inexact *inexact) {
    return inexact->failed < inexact->walked.count ? inexact->walked.how[inexact->failed] : 0;
}

static bool same_kind(const struct inexact_kind *kind, const struct inexact *inexact, uint64_t address) {
    const struct inexact *example = &kind->example;
    return kind->address == address && example->reader == inexact->reader &&
           example->verdict == inexact->verdict && example->walked.end == inexact->walked.end &&
           failing_how(example) == failing_how(inexact);
}

void results_add(struct results *results, enum reader reader, enum verdict verdict, uint32_t end) {
    results->verdicts[reader][verdict]++;
    if (verdict == VERDICT_CUT)
        results->ends[reader][end & 7]++;
}

void results_add_inexact(struct results *results, const struct inexact *inexact) {
    if (!results->kinds)
        results->kinds = calloc(KINDS, sizeof *results->kinds);
    uint64_t last = inexact->failed < inexact->truth_count ? inexact->failed : inexact->truth_count;
    uint64_t address = inexact->truth[last ? last - 1 : 0];
    size_t at = scatter(address ^ inexact->verdict << 8 ^ inexact->walked.end << 16) % KINDS;
    for (size_t tries = 0; tries < 64; tries++, at = (at + 1) % KINDS) {
        struct inexact_kind *kind = &results->kinds[at];
        if (kind->count && !same_kind(kind, inexact, address))
            continue;
        if (!kind->count++) {
            kind->address = address;
            keep_example(kind, inexact);
        }
        return;
    }
    results->kinds_lost++;
}

/* ------------------------------------------------------------------ JSON */

static void write_addresses(FILE *out, const char *name, const uint64_t *address, uint64_t count) {
    fprintf(out, ", \"%s\": [", name);
    for (uint64_t i = 0; i < count; i++)
        fprintf(out, "%s%" PRIu64, i ? ", " : "", address[i]);
    fprintf(out, "]");
}

static void write_kind(FILE *out, const struct inexact_kind *kind) {
    const struct inexact *example = &kind->example;
    fprintf(out, "{\"reader\": \"%s\", \"verdict\": \"%s\"", reader_names[example->reader],
            verdict_names[example->verdict]);
    fprintf(out, ", \"count\": %" PRIu64 ", \"address\": %" PRIu64 ", \"failed\": %" PRIu64, kind->count,
            kind->address, example->failed);
    fprintf(out, ", \"end\": %u, \"step\": %" PRIu64 ", \"sp\": %" PRIu64 ", \"fp\": %" PRIu64,
            example->walked.end, example->step, example->sp, example->fp);
    write_addresses(out, "truth", example->truth, example->truth_count);
    write_addresses(out, "walked", example->walked.address, example->walked.count);
    fprintf(out, ", \"how\": [");
    for (uint64_t i = 0; i < example->walked.count; i++)
        fprintf(out, "%s%u", i ? ", " : "", example->walked.how[i]);
    fprintf(out, "]}");
}

static void write_reader(FILE *out, const struct results *results, enum reader reader) {
    fprintf(out, "\"%s\": {", reader_names[reader]);
    for (int verdict = 0; verdict < VERDICTS; verdict++)
        fprintf(out, "\"%s\": %" PRIu64 ", ", verdict_names[verdict], results->verdicts[reader][verdict]);
    fprintf(out, "\"cut_by_end\": [");
    for (int end = 0; end < 8; end++)
        fprintf(out, "%s%" PRIu64, end ? ", " : "", results->ends[reader][end]);
    fprintf(out, "]}");
}

void results_write(const struct results *results, FILE *out) {
    fprintf(out, "\"steps\": %" PRIu64 ", \"checks\": %" PRIu64 ", \"distinct_pcs\": %zu", results->steps,
            results->checks, results->pcs.count);
    for (int reader = 0; reader < READERS; reader++) {
        fprintf(out, ",\n");
        write_reader(out, results, (enum reader)reader);
    }
    fprintf(out, ",\n\"kinds_lost\": %" PRIu64 ", \"kinds\": [", results->kinds_lost);
    bool first = true;
    for (size_t i = 0; results->kinds && i < KINDS; i++) {
        if (!results->kinds[i].count)
            continue;
        fprintf(out, first ? "\n" : ",\n");
        write_kind(out, &results->kinds[i]);
        first = false;
    }
    fprintf(out, "]");
}

void results_write_truth(const struct truth_counts *counts, FILE *out) {
    fprintf(out, ",\n\"truth\": {\"calls\": %" PRIu64 ", \"returns_right\": %" PRIu64, counts->calls,
            counts->returns_right);
    fprintf(out, ", \"returns_rewritten\": %" PRIu64 ", \"returns_stray\": %" PRIu64,
            counts->returns_rewritten, counts->returns_stray);
    fprintf(out, ", \"signals\": %" PRIu64 ", \"signal_returns\": %" PRIu64, counts->signals,
            counts->signal_returns);
    fprintf(out, ", \"signal_returns_stray\": %" PRIu64 ", \"switches\": %" PRIu64,
            counts->signal_returns_stray, counts->switches);
    fprintf(out, ", \"switches_abandoned\": %" PRIu64 ", \"deepest\": %" PRIu64 "}",
            counts->switches_abandoned, counts->deepest);
}
