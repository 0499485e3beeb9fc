/*
 * x86_64_parts.h: an x86_64 instruction taken apart, between x86_64_decode.c, which parses it,
 * x86_64_opcodes.c, which knows its operands, and x86_64_effects.c, which tells what it does.
 */
#ifndef UNSPOOL_X86_64_PARTS_H
#define UNSPOOL_X86_64_PARTS_H

#include <stdbool.h>

#include "instruction.h"

enum opcode_map {
    MAP_ONE_BYTE,
    MAP_0F,
    MAP_0F38,
    MAP_0F3A,
    MAP_EVEX5 = 5,
    MAP_EVEX6 = 6,
    MAP_XOP8 = 8,
    MAP_XOP9 = 9,
    MAP_XOP10 = 10
};
enum opcode_encoding { ENCODING_LEGACY, ENCODING_VEX, ENCODING_EVEX, ENCODING_XOP };

/* An operand byte: the low three bits tell the immediate, the others are flags. */
enum operand_bits {
    IMM_NONE = 0,
    IMM_8,       /* also rel8 */
    IMM_Z,       /* 4 bytes, or 2 with a 16-bit operand size; also rel32 */
    IMM_16,      /* ret */
    IMM_16_8,    /* enter */
    IMM_V,       /* of the operand size: 2, 4 or 8 bytes */
    IMM_OFFSET,  /* an absolute address */
    IMM_INVALID, /* not an opcode, a prefix, or one that we leave alone */

    HAS_MODRM = 0x80,
    WRITES_RM = 0x40,
    WRITES_REG = 0x20, /* without HAS_MODRM: the register in the opcode's low three bits */
    IS_BYTE = 0x10,    /* the registers are 8-bit ones */
    IS_VECTOR = 0x08,  /* rm is a vector register or memory: WRITES_RM means memory only */
};
#define OPERAND_IMMEDIATE(operands) ((operands) & 7u)

/* The operand bytes by short names, for the opcode grids. */
enum opcode_operands {
    XX = IMM_INVALID,
    NN = IMM_NONE,
    I1 = IMM_8,
    IZ = IMM_Z,
    I2 = IMM_16,
    I3 = IMM_16_8,
    MO = IMM_OFFSET,
    OO = WRITES_REG,
    OB = WRITES_REG | IS_BYTE | IMM_8,
    OV = WRITES_REG | IMM_V,
    MM = HAS_MODRM,
    M1 = HAS_MODRM | IMM_8,
    MZ = HAS_MODRM | IMM_Z,
    RR = HAS_MODRM | WRITES_REG,
    RB = HAS_MODRM | WRITES_REG | IS_BYTE,
    R1 = HAS_MODRM | WRITES_REG | IMM_8,
    RZ = HAS_MODRM | WRITES_REG | IMM_Z,
    EE = HAS_MODRM | WRITES_RM,
    EB = HAS_MODRM | WRITES_RM | IS_BYTE,
    E1 = HAS_MODRM | WRITES_RM | IMM_8,
    EZ = HAS_MODRM | WRITES_RM | IMM_Z,
    F1 = HAS_MODRM | WRITES_RM | IS_BYTE | IMM_8,
    XE = HAS_MODRM | WRITES_RM | WRITES_REG, /* exchanges */
    XB = HAS_MODRM | WRITES_RM | WRITES_REG | IS_BYTE,
    VV = HAS_MODRM | WRITES_RM | IS_VECTOR,
    V1 = HAS_MODRM | WRITES_RM | IS_VECTOR | IMM_8,
};

enum { NUMBER_RBX = 3, NUMBER_RSP = 4, NUMBER_RBP = 5 };

struct x86_64_parts {
    const uint8_t *bytes;
    size_t size, used;
    bool bad; /* cut off, too long, or not known */

    bool operand16, address32, has_rex, wide;    /* wide: REX.W, VEX.W */
    bool other_segment;                          /* fs or gs: not the stack */
    uint8_t repeat;                              /* 0, 0xf2 or 0xf3 */
    uint8_t extend_reg, extend_index, extend_rm; /* 0 or 8 */
    uint8_t encoding;                            /* enum opcode_encoding */
    uint8_t map, opcode, pp, operands;
    uint8_t vvvv;
    uint32_t vector_size;

    uint8_t mod, reg, rm; /* reg and rm with their extensions */
    uint8_t base; /* of a memory operand: REGISTER_SP, REGISTER_FP, REGISTER_BX, else REGISTER_OTHER */
    bool displacement8;
    int64_t displacement;
    int64_t immediate;
};

/* The operand byte of an opcode. pp is the mandatory prefix: 0, 0x66, 0xf3 or 0xf2. */
uint8_t x86_64_operands(unsigned map, uint8_t opcode, uint8_t pp, enum opcode_encoding encoding);

/* Adds flow and effects. out->target holds the next instruction's address before. */
void x86_64_effects(struct instruction *out, const struct x86_64_parts *p);

#endif
