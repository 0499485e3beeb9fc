/*
 * pieces.c: cutting FDEs into pieces of which no two claim an address. May allocate.
 */
#include "pieces.h"

/* The wanted FDEs as (start << 32 | index), ascending by a stable radix sort. NULL when memory is out. */
static uint64_t *sort_by_start(const struct vector *fdes, const bool *wanted, size_t *count) {
    const struct fde *fde = fdes->items;
    uint64_t *keys = huge_malloc((fdes->count + 1) * sizeof *keys);
    uint64_t *other = huge_malloc((fdes->count + 1) * sizeof *other);
    size_t n = 0;
    bool ascending = true;
    uint64_t differing = 0; /* bits */
    for (size_t i = 0; keys && i < fdes->count; i++) {
        if (!wanted[i])
            continue;
        keys[n] = (uint64_t)fde[i].start << 32 | i;
        ascending = ascending && (n == 0 || keys[n - 1] < keys[n]);
        differing |= keys[n] ^ keys[0];
        n++;
    }
    for (unsigned shift = 32; keys && other && !ascending && shift < 64; shift += 8) {
        size_t starts[257] = {0};
        if (!(differing >> shift & 0xff))
            continue;
        for (size_t i = 0; i < n; i++)
            starts[(keys[i] >> shift & 0xff) + 1]++;
        for (size_t i = 1; i < 257; i++)
            starts[i] += starts[i - 1];
        for (size_t i = 0; i < n; i++)
            other[starts[keys[i] >> shift & 0xff]++] = keys[i];
        uint64_t *swapped = keys;
        keys = other;
        other = swapped;
    }
    bool allocated = keys && other;
    free(other);
    if (!allocated) {
        free(keys);
        return NULL;
    }
    *count = n;
    return keys;
}

static bool add_piece(struct vector *pieces, uint64_t start, uint64_t end, uint32_t fde) {
    if (start >= end)
        return true;
    struct piece *piece = vector_add(pieces, 1, sizeof *piece);
    if (piece)
        *piece = (struct piece){(uint32_t)start, (uint32_t)end, fde};
    return piece != NULL;
}

/* Sweeps over the wanted FDEs: of those that hold an address, the one that starts last claims it, as the
 * binary search of every unwinder has it; where it ends, the one around it holds again. */
static bool sweep(const struct vector *fdes, const bool *wanted, struct unspool_problems *problems,
                  struct vector *pieces) {
    const struct fde *all = fdes->items;
    size_t count = 0;
    uint64_t *order = sort_by_start(fdes, wanted, &count);
    uint32_t *open = malloc((count + 1) * sizeof *open); /* FDEs begun and not ended, the last on top */
    size_t depth = 0;
    uint64_t at = 0; /* everything below is decided */
    bool ok = order && open;
    for (size_t i = 0; ok && i <= count; i++) {
        const struct fde *next = i < count ? &all[(uint32_t)order[i]] : NULL;
        uint64_t start = next ? next->start : UINT64_MAX;
        while (ok && depth && at < start) {
            const struct fde *top = &all[open[depth - 1]];
            uint64_t end = top->end < start ? top->end : start;
            ok = add_piece(pieces, at, end, open[depth - 1]);
            at = end > at ? end : at;
            depth -= top->end <= start;
        }
        if (!next)
            break;
        if (depth && all[open[depth - 1]].end > start) {
            const struct fde *top = &all[open[depth - 1]];
            if (top->start == start && top->end == next->end) /* folded code has two that say the same */
                continue;
            add_problem(problems, UNSPOOL_PROBLEM_OVERLAP, next->section, next->offset);
        }
        open[depth++] = (uint32_t)order[i];
        at = start;
    }
    free(open);
    free(order);
    return ok;
}

/* All of `first`, and what of `second` lies in its gaps. */
static bool merge(const struct vector *first, const struct vector *second, struct vector *merged) {
    const struct piece *fixed = first->items;
    const struct piece *filler = second->items;
    size_t next = 0;
    bool ok = true;
    for (size_t i = 0; ok && i < second->count; i++) {
        uint64_t at = filler[i].start;
        if (next && fixed[next - 1].end > at)
            at = fixed[next - 1].end;
        for (; ok && next < first->count && fixed[next].start < filler[i].end; next++) {
            ok = add_piece(merged, at, fixed[next].start, filler[i].fde) &&
                 add_piece(merged, fixed[next].start, fixed[next].end, fixed[next].fde);
            at = fixed[next].end > at ? fixed[next].end : at;
        }
        ok = ok && add_piece(merged, at, filler[i].end, filler[i].fde);
    }
    for (; ok && next < first->count; next++)
        ok = add_piece(merged, fixed[next].start, fixed[next].end, fixed[next].fde);
    return ok;
}

bool cut_into_pieces(const struct vector *fdes, const struct unspool_section *sections,
                     struct unspool_problems *problems, struct vector *pieces) {
    const struct fde *all = fdes->items;
    struct vector eh_frame = {0};
    struct vector debug_frame = {0};
    bool *wanted = calloc(fdes->count + 1, sizeof *wanted);
    size_t count = 0; /* of those in .eh_frame */
    for (size_t i = 0; wanted && i < fdes->count; i++) {
        wanted[i] = sections[all[i].section].kind == UNSPOOL_EH_FRAME;
        count += wanted[i];
    }
    bool is_all = count == fdes->count;
    bool ok = wanted && vector_reserve(pieces, fdes->count, sizeof(struct piece)) &&
              sweep(fdes, wanted, problems, is_all ? pieces : &eh_frame);
    for (size_t i = 0; ok && i < fdes->count; i++)
        wanted[i] = !wanted[i];
    ok = ok &&
         (is_all || (sweep(fdes, wanted, problems, &debug_frame) && merge(&eh_frame, &debug_frame, pieces)));
    free(wanted);
    free(eh_frame.items);
    free(debug_frame.items);
    return ok;
}
