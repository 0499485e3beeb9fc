/*
 * pieces.c: cutting FDEs into pieces of which no two claim an address. May allocate.
 */
#include "pieces.h"

/* The wanted FDEs as (start << 32 | index), ascending by a stable radix sort. NULL when memory is out. */
static uint64_t *sort_by_start(const struct vector *fdes, const bool *wanted, size_t *count) {
    const struct fde *fde = fdes->items;
    uint64_t *keys = malloc((fdes->count + 1) * sizeof *keys);
    uint64_t *other = malloc((fdes->count + 1) * sizeof *other);
    size_t n = 0;
    bool ascending = true;
    for (size_t i = 0; keys && i < fdes->count; i++) {
        if (!wanted[i])
            continue;
        keys[n] = fde[i].start << 32 | i;
        ascending = ascending && (n == 0 || keys[n - 1] < keys[n]);
        n++;
    }
    for (unsigned shift = 32; keys && other && !ascending && shift < 64; shift += 8) {
        size_t starts[257] = {0};
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
        *piece = (struct piece){start, end, fde};
    return piece != NULL;
}

/* The FDE that starts last claims an address, as the binary search of every unwinder has it. Wanted
 * afterwards are the FDEs that lost a part of their range to another. */
static bool claim_by_last_start(const struct vector *fdes, bool *wanted, struct unspool_problems *problems,
                                struct vector *pieces) {
    const struct fde *all = fdes->items;
    size_t count = 0;
    uint64_t *order = sort_by_start(fdes, wanted, &count);
    bool ok = order != NULL;
    for (size_t i = 0; ok && i < count; i++) {
        uint32_t number = (uint32_t)order[i];
        const struct fde *fde = &all[number];
        struct piece *last = pieces->count ? (struct piece *)pieces->items + pieces->count - 1 : NULL;
        wanted[number] = false;
        if (last && last->end > fde->start) {
            bool is_same = all[last->fde].start == fde->start && all[last->fde].end == fde->end;
            if (is_same) /* folded code has two FDEs that say the same */
                continue;
            add_problem(problems, UNSPOOL_PROBLEM_OVERLAP, fde->section, fde->offset);
            wanted[last->fde] = true;
            last->end = fde->start;
            pieces->count -= last->start == last->end;
        }
        ok = add_piece(pieces, fde->start, fde->end, number);
    }
    free(order);
    return ok;
}

/* Gives the wanted FDEs what no piece claims yet; among themselves, the first keeps it. */
static bool fill_gaps(const struct vector *fdes, const bool *wanted, struct vector *pieces) {
    const struct fde *all = fdes->items;
    struct vector old = *pieces;
    const struct piece *old_pieces = old.items;
    size_t count = 0;
    uint64_t *order = sort_by_start(fdes, wanted, &count);
    bool ok = order != NULL;
    size_t next = 0;
    uint64_t claimed = 0; /* everything below is decided */
    *pieces = (struct vector){0};
    for (size_t i = 0; ok && i < count; i++) {
        uint32_t number = (uint32_t)order[i];
        const struct fde *fde = &all[number];
        for (; ok && next < old.count && old_pieces[next].start < fde->end; next++) {
            const struct piece *piece = &old_pieces[next];
            uint64_t from = fde->start > claimed ? fde->start : claimed;
            ok = add_piece(pieces, from, piece->start, number) &&
                 add_piece(pieces, piece->start, piece->end, piece->fde);
            claimed = piece->end;
        }
        uint64_t from = fde->start > claimed ? fde->start : claimed;
        ok = ok && add_piece(pieces, from, fde->end, number);
        claimed = claimed > fde->end ? claimed : fde->end;
    }
    for (; ok && next < old.count; next++)
        ok = add_piece(pieces, old_pieces[next].start, old_pieces[next].end, old_pieces[next].fde);
    free(order);
    free(old.items);
    return ok;
}

bool cut_into_pieces(const struct vector *fdes, const struct unspool_section *sections,
                     struct unspool_problems *problems, struct vector *pieces) {
    const struct fde *all = fdes->items;
    bool *wanted = calloc(fdes->count + 1, sizeof *wanted);
    bool some_left = false;
    for (size_t i = 0; wanted && i < fdes->count; i++)
        wanted[i] = sections[all[i].section].kind == UNSPOOL_EH_FRAME;
    bool ok = wanted && claim_by_last_start(fdes, wanted, problems, pieces);
    for (size_t i = 0; ok && i < fdes->count; i++) {
        wanted[i] = wanted[i] || sections[all[i].section].kind != UNSPOOL_EH_FRAME;
        some_left = some_left || wanted[i];
    }
    ok = ok && (!some_left || fill_gaps(fdes, wanted, pieces));
    free(wanted);
    return ok;
}
