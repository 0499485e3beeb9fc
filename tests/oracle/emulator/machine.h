/*
 * machine.h: an aarch64 processor (libunicorn) and its memory, which the host can read in place.
 *
 * Memory is in pieces, each backed by host memory at the same distance from its arena. Knows nothing of
 * Linux, of stacks or of the product's tables.
 */
#ifndef ORACLE_MACHINE_H
#define ORACLE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unicorn/unicorn.h>

#include "unspool.h"

#define MACHINE_PAGE ((uint64_t)4096)

/* General registers as the emulator's users take them: x0..x30, sp, pc. */
enum { MACHINE_FP = 29, MACHINE_LR = 30, MACHINE_SP = 31, MACHINE_PC = 32, MACHINE_REGISTERS = 33 };

/* A range of guest addresses that may be mapped, and where the host has it. */
struct arena {
    uint64_t start, end;
    uint8_t *host;
};

struct machine {
    uc_engine *uc;
    struct arena arena[8];
    size_t arena_count;
    struct unspool_region *piece; /* mapped memory, ascending */
    uint32_t *protection;         /* UC_PROT_*, one a piece */
    size_t piece_count, piece_capacity;
    uint64_t generation; /* changes with the pieces */
};

/* A processor with pointer authentication: keys are set and enabled when `sign`. Ends the program when
 * the library can't do it. */
void machine_start(struct machine *machine, bool sign);
void machine_add_arena(struct machine *machine, uint64_t start, uint64_t size);

/* Addresses and sizes are whole pages. Mapping replaces what was there by zeros. False where no arena is. */
bool machine_map(struct machine *machine, uint64_t start, uint64_t size, uint32_t protection);
void machine_unmap(struct machine *machine, uint64_t start, uint64_t size);
void machine_protect(struct machine *machine, uint64_t start, uint64_t size, uint32_t protection);

/* The mapped piece that holds an address, or NULL; *protection may be NULL. */
const struct unspool_region *machine_find(const struct machine *machine, uint64_t address,
                                          uint32_t *protection);
/* Host address of guest memory; ends the program where it is not mapped. */
void *machine_at(const struct machine *machine, uint64_t address, uint64_t size);
/* As much as is mapped; returns the number of bytes. */
size_t machine_read(const struct machine *machine, uint64_t address, void *bytes, size_t size);

void machine_get(const struct machine *machine, uint64_t registers[MACHINE_REGISTERS]);
void machine_set(struct machine *machine, const uint64_t registers[MACHINE_REGISTERS]);
uint64_t machine_pstate(const struct machine *machine);
void machine_set_pstate(struct machine *machine, uint64_t pstate);
/* v0..v31, 16 bytes each, then fpsr and fpcr: as the kernel's fpsimd_context holds them. */
void machine_get_vectors(const struct machine *machine, uint8_t vectors[32 * 16], uint32_t status[2]);
void machine_set_vectors(struct machine *machine, const uint8_t vectors[32 * 16], const uint32_t status[2]);

#endif
