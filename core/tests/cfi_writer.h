/*
 * cfi_writer.h: writes unwind sections for tests, byte for byte as the test says, also invalid ones.
 *
 *     struct writer section = {0};
 *     uint64_t cie = write_cie(&section, &x86_64_cie);
 *     write_fde(&section, cie, 0x1000, 0x20, CFI(ADVANCE(1), DEF_CFA_OFFSET(16), OFFSET(6, 2)));
 *
 * Addresses are written as 8-byte absolute values, so that a section may stand anywhere. Numbers in
 * the instruction macros are single LEB128 bytes (0..127, or -64..63 by SLEB) unless ULEB2 makes two.
 * Formats: DWARF 5, 6.4.1 and 7.24; LSB Core 5.0, 10.6.
 */
#ifndef UNSPOOL_CFI_WRITER_H
#define UNSPOOL_CFI_WRITER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unspool.h"

#define CFI(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})
#define NO_CFI (const uint8_t *)"", 0

#define ULEB2(n) (uint8_t)(((n) & 0x7f) | 0x80), (uint8_t)((n) >> 7)
#define ULEB3(n) (uint8_t)(((n) & 0x7f) | 0x80), (uint8_t)(((n) >> 7 & 0x7f) | 0x80), (uint8_t)((n) >> 14)
#define SLEB(n) (uint8_t)(n) & 0x7f
#define U16(n) (uint8_t)(n), (uint8_t)((n) >> 8)
#define U32(n) U16(n), U16((uint32_t)(n) >> 16)
#define U64(n) U32(n), U32((uint64_t)(n) >> 32)

#define NOP 0x00
#define SET_LOC(address) 0x01, U64(address)
#define ADVANCE(delta) (0x40 | (delta))
#define ADVANCE1(delta) 0x02, (delta)
#define ADVANCE2(delta) 0x03, U16(delta)
#define ADVANCE4(delta) 0x04, U32(delta)
#define OFFSET(number, factored) (0x80 | (number)), factored
#define OFFSET_EXTENDED(number, factored) 0x05, number, factored
#define OFFSET_EXTENDED_SF(number, factored) 0x11, number, SLEB(factored)
#define NEGATIVE_OFFSET(number, factored) 0x2f, number, factored
#define VAL_OFFSET(number, factored) 0x14, number, factored
#define VAL_OFFSET_SF(number, factored) 0x15, number, SLEB(factored)
#define RESTORE(number) (0xc0 | (number))
#define RESTORE_EXTENDED(number) 0x06, number
#define UNDEFINED(number) 0x07, number
#define SAME_VALUE(number) 0x08, number
#define IN_REGISTER(number, other) 0x09, number, other
#define REMEMBER 0x0a
#define RESTORE_STATE 0x0b
#define DEF_CFA(number, offset) 0x0c, number, offset
#define DEF_CFA_SF(number, factored) 0x12, number, SLEB(factored)
#define DEF_CFA_REGISTER(number) 0x0d, number
#define DEF_CFA_OFFSET(offset) 0x0e, offset
#define DEF_CFA_OFFSET_SF(factored) 0x13, SLEB(factored)
#define DEF_CFA_EXPRESSION(size) 0x0f, size
#define EXPRESSION(number, size) 0x10, number, size
#define VAL_EXPRESSION(number, size) 0x16, number, size
#define GNU_ARGS_SIZE(size) 0x2e, size
#define NEGATE_RA_STATE 0x2d

/* DWARF numbers of registers. */
enum { RAX = 0, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15, RIP };
enum { X0 = 0, X16 = 16, X19 = 19, X20 = 20, X28 = 28, X29 = 29, X30 = 30, ARM_SP = 31 };

/* Operations of expressions. */
enum {
    OP_ADDR = 0x03,
    OP_DEREF = 0x06,
    OP_DUP = 0x12,
    OP_AND = 0x1a,
    OP_MINUS = 0x1c,
    OP_PLUS = 0x22,
    OP_PLUS_UCONST = 0x23,
    OP_SHL = 0x24,
    OP_GE = 0x2a,
    OP_SKIP = 0x2f,
    OP_LIT0 = 0x30,
    OP_BREG0 = 0x70,
};

struct writer {
    uint8_t *bytes;
    size_t size, capacity;
};

static inline void write_bytes(struct writer *writer, const void *bytes, size_t size) {
    if (writer->size + size > writer->capacity) {
        writer->capacity = 2 * (writer->size + size);
        writer->bytes = realloc(writer->bytes, writer->capacity);
        if (!writer->bytes)
            abort();
    }
    if (size)
        memcpy(writer->bytes + writer->size, bytes, size);
    writer->size += size;
}

static inline void write_u8(struct writer *writer, uint8_t value) {
    write_bytes(writer, &value, sizeof value);
}

static inline void write_u32(struct writer *writer, uint32_t value) {
    write_bytes(writer, &value, sizeof value);
}

static inline void write_u64(struct writer *writer, uint64_t value) {
    write_bytes(writer, &value, sizeof value);
}

static inline void write_uleb(struct writer *writer, uint64_t value) {
    do {
        uint8_t more = value > 0x7f ? 0x80 : 0;
        write_u8(writer, (uint8_t)((value & 0x7f) | more));
        value >>= 7;
    } while (value);
}

/* A signed number of one byte: -64..63. */
static inline void write_sleb(struct writer *writer, int8_t value) {
    write_u8(writer, (uint8_t)value & 0x7f);
}

/* The 4-byte length of the entry that began at `start` becomes what it is now. */
static inline void finish_entry(struct writer *writer, size_t start) {
    uint32_t length = (uint32_t)(writer->size - start - 4);
    memcpy(writer->bytes + start, &length, sizeof length);
}

static inline void writer_free(struct writer *writer) {
    free(writer->bytes);
    *writer = (struct writer){0};
}

/* What a CIE may say. Addresses in its FDEs are absolute: no 'R', or 'R' with 0 or 4. */
struct cie_shape {
    const char *augmentation;    /* NULL: "" */
    const uint8_t *data;         /* of the augmentation, without its size */
    size_t data_size;            /* with 'z' */
    const uint8_t *instructions; /* initial ones */
    size_t instructions_size;
    uint32_t kind;          /* enum unspool_section_kind; 0: .eh_frame */
    uint8_t version;        /* 0: 1 */
    uint8_t code_alignment; /* 0: 1 */
    int8_t data_alignment;  /* 0: -8 */
    uint8_t return_address_register;
};

/* The usual ones: CFA = rsp + 8 with the return address there; CFA = sp, return address in x30. */
static const uint8_t x86_64_initial[] = {DEF_CFA(RSP, 8), OFFSET(RIP, 1)};
static const uint8_t aarch64_initial[] = {DEF_CFA(ARM_SP, 0)};
static const struct cie_shape x86_64_cie = {.instructions = x86_64_initial,
                                            .instructions_size = sizeof x86_64_initial,
                                            .return_address_register = RIP};
static const struct cie_shape aarch64_cie = {.instructions = aarch64_initial,
                                             .instructions_size = sizeof aarch64_initial,
                                             .code_alignment = 4,
                                             .return_address_register = X30};

/* Returns the CIE's offset in the section. */
static inline uint64_t write_cie(struct writer *writer, const struct cie_shape *shape) {
    size_t start = writer->size;
    const char *augmentation = shape->augmentation ? shape->augmentation : "";
    uint8_t version = shape->version ? shape->version : 1;
    write_u32(writer, 0);
    write_u32(writer, shape->kind == UNSPOOL_DEBUG_FRAME ? UINT32_MAX : 0);
    write_u8(writer, version);
    write_bytes(writer, augmentation, strlen(augmentation) + 1);
    if (version == 4) {
        write_u8(writer, 8); /* address size */
        write_u8(writer, 0); /* segment selector size */
    }
    write_uleb(writer, shape->code_alignment ? shape->code_alignment : 1);
    write_sleb(writer, shape->data_alignment ? shape->data_alignment : -8);
    write_uleb(writer, shape->return_address_register);
    if (augmentation[0] == 'z')
        write_uleb(writer, shape->data_size);
    write_bytes(writer, shape->data, shape->data_size);
    write_bytes(writer, shape->instructions, shape->instructions_size);
    finish_entry(writer, start);
    return start;
}

/* An FDE of .eh_frame with a CIE that has no augmentation data. Returns its offset. */
static inline uint64_t write_fde(struct writer *writer, uint64_t cie, uint64_t start, uint64_t size,
                                 const uint8_t *instructions, size_t instructions_size) {
    size_t entry = writer->size;
    write_u32(writer, 0);
    write_u32(writer, (uint32_t)(writer->size - cie));
    write_u64(writer, start);
    write_u64(writer, size);
    write_bytes(writer, instructions, instructions_size);
    finish_entry(writer, entry);
    return entry;
}

/* The same in .debug_frame, where the CIE is named by its offset. */
static inline uint64_t write_debug_fde(struct writer *writer, uint64_t cie, uint64_t start, uint64_t size,
                                       const uint8_t *instructions, size_t instructions_size) {
    size_t entry = writer->size;
    write_u32(writer, 0);
    write_u32(writer, (uint32_t)cie);
    write_u64(writer, start);
    write_u64(writer, size);
    write_bytes(writer, instructions, instructions_size);
    finish_entry(writer, entry);
    return entry;
}

/* A section of a writer's bytes, which must outlive it. */
static inline struct unspool_section as_section(const struct writer *writer, uint32_t kind) {
    return (struct unspool_section){.bytes = writer->bytes, .size = writer->size, .kind = kind};
}

#endif
