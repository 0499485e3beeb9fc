/*
 * x86_64_opcodes.c: which operands each x86_64 opcode has, as far as lengths and writes to general
 * registers and memory need it. One-byte and 0F opcodes as 16 x 16 grids, the sparse maps as code.
 * After the Intel Software Developer's Manual, volume 2, appendix A, for 64-bit mode.
 */
#include "x86_64_parts.h"

static const uint8_t one_byte_operands[256] = {
    /*       0   1   2   3   4   5   6   7   8   9   a   b   c   d   e   f */
    /* 0 */ EB, EE, RB, RR, I1, IZ, XX, XX, EB, EE, RB, RR, I1, IZ, XX, XX,
    /* 1 */ EB, EE, RB, RR, I1, IZ, XX, XX, EB, EE, RB, RR, I1, IZ, XX, XX,
    /* 2 */ EB, EE, RB, RR, I1, IZ, XX, XX, EB, EE, RB, RR, I1, IZ, XX, XX,
    /* 3 */ EB, EE, RB, RR, I1, IZ, XX, XX, MM, MM, MM, MM, I1, IZ, XX, XX,
    /* 4 */ XX, XX, XX, XX, XX, XX, XX, XX, XX, XX, XX, XX, XX, XX, XX, XX,
    /* 5 */ NN, NN, NN, NN, NN, NN, NN, NN, NN, NN, NN, NN, NN, NN, NN, NN,
    /* 6 */ XX, XX, XX, RR, XX, XX, XX, XX, IZ, RZ, I1, R1, NN, NN, NN, NN,
    /* 7 */ I1, I1, I1, I1, I1, I1, I1, I1, I1, I1, I1, I1, I1, I1, I1, I1,
    /* 8 */ F1, EZ, XX, E1, MM, MM, XB, XE, EB, EE, RB, RR, EE, RR, MM, MM,
    /* 9 */ NN, OO, OO, OO, OO, OO, OO, OO, NN, NN, XX, NN, NN, NN, NN, NN,
    /* a */ MO, MO, MO, MO, NN, NN, NN, NN, I1, IZ, NN, NN, NN, NN, NN, NN,
    /* b */ OB, OB, OB, OB, OB, OB, OB, OB, OV, OV, OV, OV, OV, OV, OV, OV,
    /* c */ F1, E1, I2, NN, XX, XX, F1, EZ, I3, NN, XX, XX, NN, I1, XX, XX,
    /* d */ EB, EE, EB, EE, XX, XX, XX, NN, MM, MM, MM, MM, MM, MM, MM, MM,
    /* e */ I1, I1, I1, I1, I1, I1, I1, I1, IZ, IZ, XX, I1, NN, NN, NN, NN,
    /* f */ XX, NN, XX, XX, NN, NN, EB, EE, NN, NN, NN, NN, NN, NN, EB, EE,
};

static const uint8_t two_byte_operands[256] = {
    /*       0   1   2   3   4   5   6   7   8   9   a   b   c   d   e   f */
    /* 0 */ MM, MM, RR, RR, XX, NN, NN, XX, NN, NN, XX, NN, XX, MM, XX, XX,
    /* 1 */ MM, VV, MM, VV, MM, MM, MM, VV, MM, MM, MM, MM, MM, MM, MM, MM,
    /* 2 */ XX, XX, XX, XX, XX, XX, XX, XX, MM, VV, MM, VV, RR, RR, MM, MM,
    /* 3 */ NN, NN, NN, NN, NN, XX, XX, XX, XX, XX, XX, XX, XX, XX, XX, XX,
    /* 4 */ RR, RR, RR, RR, RR, RR, RR, RR, RR, RR, RR, RR, RR, RR, RR, RR,
    /* 5 */ RR, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM,
    /* 6 */ MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM,
    /* 7 */ M1, M1, M1, M1, MM, MM, MM, NN, XX, XX, XX, XX, MM, MM, EE, VV,
    /* 8 */ IZ, IZ, IZ, IZ, IZ, IZ, IZ, IZ, IZ, IZ, IZ, IZ, IZ, IZ, IZ, IZ,
    /* 9 */ EB, EB, EB, EB, EB, EB, EB, EB, EB, EB, EB, EB, EB, EB, EB, EB,
    /* a */ NN, NN, NN, MM, E1, EE, MM, MM, NN, NN, XX, EE, E1, EE, MM, RR,
    /* b */ EB, EE, RR, EE, RR, RR, RR, RR, RR, MM, E1, EE, RR, RR, RR, RR,
    /* c */ XB, XE, M1, EE, M1, R1, M1, MM, OO, OO, OO, OO, OO, OO, OO, OO,
    /* d */ MM, MM, MM, MM, MM, MM, VV, RR, MM, MM, MM, MM, MM, MM, MM, MM,
    /* e */ MM, MM, MM, MM, MM, MM, MM, VV, MM, MM, MM, MM, MM, MM, MM, MM,
    /* f */ MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM, MM,
};

/* pp: the mandatory prefix, 0, 0x66, 0xf3 or 0xf2, as VEX has it too. */
static uint8_t legacy_0f_operands(uint8_t opcode, uint8_t pp) {
    switch (opcode) {
    case 0x2c: /* cvttss2si and the like; without F2 or F3 to an MMX register */
    case 0x2d:
        return pp >= 0xf2 ? RR : MM;
    case 0x7e: /* movd to a general register; with F3 a load of a vector register */
        return pp == 0xf3 ? MM : EE;
    case 0xb8: /* popcnt */
        return pp == 0xf3 ? RR : XX;
    default:
        return two_byte_operands[opcode];
    }
}

static uint8_t legacy_0f38_operands(uint8_t opcode, uint8_t pp) {
    switch (opcode) {
    case 0xf0: /* movbe load, crc32 */
        return RR;
    case 0xf1: /* movbe store; F2: crc32 */
        return pp == 0xf2 ? RR : EE;
    case 0xf6: /* adcx, adox; wrss stores */
        return pp == 0 ? EE : RR;
    case 0xf9: /* movdiri */
    case 0xfc: /* aadd and the like */
        return EE;
    case 0xfa: /* encodekey128, encodekey256 */
    case 0xfb:
        return RR;
    default:
        return MM;
    }
}

static uint8_t vector_0f_operands(uint8_t opcode, uint8_t pp, enum opcode_encoding encoding) {
    switch (opcode) {
    case 0x77: /* vzeroupper */
        return encoding == ENCODING_VEX ? NN : XX;
    case 0x78: /* vcvttss2usi and the like; otherwise to a vector register */
    case 0x79:
        return encoding == ENCODING_EVEX && pp >= 0xf2 ? RR : MM;
    case 0x7a:
    case 0x7b:
        return MM;
    case 0x7e:
        return pp == 0x66 ? EE : MM;
    case 0x91: /* kmov to memory */
        return VV;
    case 0x93: /* kmov to a general register */
        return RR;
    case 0xae: /* vstmxcsr, vldmxcsr */
        return VV;
    default:
        if (opcode >= 0x40 && opcode <= 0x4f) /* mask instructions, cmov's places */
            return MM;
        if (opcode >= 0x90 && opcode <= 0x9f)
            return MM;
        return legacy_0f_operands(opcode, pp);
    }
}

static uint8_t vector_0f38_operands(uint8_t opcode, uint8_t pp, enum opcode_encoding encoding) {
    if (encoding == ENCODING_EVEX) {
        if (opcode >= 0xe0) /* general registers, in APX only */
            return XX;
        if (opcode >= 0x10 && opcode <= 0x35 && (opcode & 0x0f) <= 5 && pp == 0xf3) /* vpmov down */
            return VV;
        if (opcode == 0x63 || opcode == 0x8a || opcode == 0x8b) /* compressing stores */
            return VV;
        return MM;
    }
    switch (opcode) {
    case 0x2e: /* masked stores */
    case 0x2f:
    case 0x8e:
        return VV;
    case 0xf2: /* andn */
    case 0xf5: /* bzhi, pext, pdep */
    case 0xf6: /* mulx, its second destination in vvvv */
    case 0xf7: /* bextr, shlx, ... */
        return RR;
    default:
        return opcode >= 0xe0 && opcode <= 0xef ? XE : MM; /* cmpccxadd */
    }
}

static uint8_t vector_0f3a_operands(uint8_t opcode) {
    switch (opcode) {
    case 0x14: /* pextrb, pextrw, pextrd, extractps */
    case 0x15:
    case 0x16:
    case 0x17:
        return E1;
    case 0x19: /* extraction of vectors, vcvtps2ph */
    case 0x1b:
    case 0x1d:
    case 0x39:
    case 0x3b:
        return V1;
    case 0xf0: /* rorx */
        return R1;
    default:
        return M1;
    }
}

static uint8_t evex_map5_operands(uint8_t opcode, uint8_t pp) {
    switch (opcode) {
    case 0x11:
        return VV;
    case 0x2c:
    case 0x2d:
    case 0x78:
    case 0x79:
        return pp == 0xf3 ? RR : MM;
    case 0x7e:
        return pp == 0x66 ? EE : MM;
    default:
        return MM;
    }
}

static uint8_t xop_operands(unsigned map, uint8_t opcode) {
    switch (map) {
    case MAP_XOP8:
        return M1;
    case MAP_XOP9: /* 12: slwpcb */
        return opcode == 0x12 ? EE : MM;
    case MAP_XOP10: /* bextr, lwpins */
        return RZ;
    default:
        return XX;
    }
}

uint8_t x86_64_operands(unsigned map, uint8_t opcode, uint8_t pp, enum opcode_encoding encoding) {
    if (encoding == ENCODING_XOP)
        return xop_operands(map, opcode);
    switch (map) {
    case MAP_ONE_BYTE:
        return one_byte_operands[opcode];
    case MAP_0F:
        return encoding == ENCODING_LEGACY ? legacy_0f_operands(opcode, pp)
                                           : vector_0f_operands(opcode, pp, encoding);
    case MAP_0F38:
        return encoding == ENCODING_LEGACY ? legacy_0f38_operands(opcode, pp)
                                           : vector_0f38_operands(opcode, pp, encoding);
    case MAP_0F3A:
        return vector_0f3a_operands(opcode);
    case MAP_EVEX5:
        return encoding == ENCODING_EVEX ? evex_map5_operands(opcode, pp) : XX;
    case MAP_EVEX6:
        return encoding == ENCODING_EVEX ? MM : XX;
    default:
        return XX;
    }
}
