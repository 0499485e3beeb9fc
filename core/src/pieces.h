/*
 * pieces.h: deciding which FDE holds where several claim an address.
 */
#ifndef UNSPOOL_PIECES_H
#define UNSPOOL_PIECES_H

#include "dwarf_cfi.h"
#include "vector.h"

/* The part of an FDE's range that no better one claims. */
struct piece {
    uint32_t start, end; /* relative addresses */
    uint32_t fde;        /* index into the FDEs */
};

/* Fills pieces (of struct piece; ascending, not overlapping) from fdes (of struct fde, any order, at
 * most UINT32_MAX of them). .eh_frame goes before .debug_frame; within a kind,
 * of the FDEs that hold an address the one that starts last. False when memory is out. */
bool cut_into_pieces(const struct vector *fdes, const struct unspool_section *sections,
                     struct unspool_problems *problems, struct vector *pieces);

#endif
