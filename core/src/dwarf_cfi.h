/*
 * dwarf_cfi.h: the entries of .eh_frame and .debug_frame.
 *
 * Turns a section's untrusted bytes into FDEs (which function, which CIE) and an FDE into a
 * cfi_program. Understands CIE versions 1, 3 and 4, augmentations z R L P S B G and the ancient
 * "eh", 64-bit lengths, and zero terminators in the middle of a section.
 */
#ifndef UNSPOOL_DWARF_CFI_H
#define UNSPOOL_DWARF_CFI_H

#include "cfi_program.h"

/* One FDE: a function's address range and where its entry is. */
struct fde {
    uint32_t start, end;   /* relative addresses */
    uint64_t offset;       /* of the entry in its section */
    uint64_t instructions; /* offset in the section */
    uint64_t cie_offset;   /* offset in the section */
    uint32_t instructions_size;
    uint32_t section; /* index into the input's sections */
};

enum usual_cie { CIE_NOT_ASKED, CIE_USUAL, CIE_UNUSUAL };

struct cie {
    uint64_t offset; /* in its section */
    const uint8_t *instructions;
    uint32_t instructions_size;
    uint32_t section;
    uint64_t code_alignment;
    int64_t data_alignment;
    uint8_t return_address_register;
    uint8_t pointer_encoding; /* of addresses in FDEs: 'R' */
    bool has_augmentation_size;
    bool is_signal;
    bool usable;
    uint8_t usual; /* enum usual_cie: for usual_pieces.c */
};

/* CIEs read last, by offset: a file has few, and its FDEs name them again and again. */
#define CIE_CACHE 64
struct cfi_reader {
    const struct unspool_compile_input *input;
    struct unspool_problems *problems;
    struct cie cies[CIE_CACHE]; /* .instructions == NULL: empty */
};

void cfi_reader_begin(struct cfi_reader *reader, const struct unspool_compile_input *input,
                      struct unspool_problems *problems);

/* Calls add(fde, context) for every usable FDE of a section, all below 4 GiB; stops and returns false when
 * add does. */
bool read_fdes(struct cfi_reader *reader, uint32_t section, bool (*add)(void *context, const struct fde *fde),
               void *context);

/* The FDE at an offset of a section; false: there is none that can be used. */
bool read_fde(struct cfi_reader *reader, uint32_t section, uint64_t offset, struct fde *fde);

/* The FDE's CIE, until another one is read; NULL when it is gone (it was there when the FDE was read). */
struct cie *fde_cie(struct cfi_reader *reader, const struct fde *fde);

/* The FDE's program; false when its CIE is gone. */
bool fde_program(struct cfi_reader *reader, const struct fde *fde, struct cfi_program *program);

void add_problem(struct unspool_problems *problems, enum unspool_problem_kind kind, uint32_t section,
                 uint64_t offset);

#endif
