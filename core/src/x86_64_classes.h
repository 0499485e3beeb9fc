/*
 * x86_64_classes.h: what is known of x86_64 instructions by their opcode alone, for passing over them quickly
 * (x86_64_plain.c one at a time, x86_64_quick.c several).
 */
#ifndef UNSPOOL_X86_64_CLASSES_H
#define UNSPOOL_X86_64_CLASSES_H

#include "x86_64_parts.h"

/* What is known of an opcode: the size of its immediate, and flags. Some say more than is true of every
 * instruction with the opcode, never less. */
enum opcode_class {
    IMMEDIATE = 7,
    MODRM = 0x08,
    TO_REG = 0x10,    /* writes the register that the ModRM byte has in reg */
    TO_RM = 0x20,     /* or in rm, if that is a register, */
    TO_MEMORY = 0x40, /* or is memory */
    BRANCHES = 0x80,

    /* The classes by short names, for the opcode grids: what it writes, then the size of the immediate. */
    AA = MODRM | TO_RM | IMMEDIATE, /* to be asked */
    N0 = 0,                         /* without a ModRM byte */
    N1 = 1,
    N4 = 4,
    B0 = BRANCHES,
    B1 = BRANCHES | 1,
    B4 = BRANCHES | 4,
    BM = BRANCHES | MODRM,
    L0 = MODRM, /* writes nothing that matters */
    L1 = MODRM | 1,
    L4 = MODRM | 4,
    G0 = MODRM | TO_REG,
    G1 = MODRM | TO_REG | 1,
    G4 = MODRM | TO_REG | 4,
    W0 = MODRM | TO_RM | TO_MEMORY,
    W1 = MODRM | TO_RM | TO_MEMORY | 1,
    W4 = MODRM | TO_RM | TO_MEMORY | 4,
    X0 = MODRM | TO_REG | TO_RM | TO_MEMORY,
    S0 = MODRM | TO_MEMORY, /* vector stores */

    /* The ModRM byte or the operand tells the class. */
    LE = TO_REG,    /* lea */
    C6 = TO_RM | 1, /* mov of an immediate, as a group has it */
    C7 = TO_RM | 4,
    T4 = TO_REG | TO_RM, /* test of an immediate, not, neg, mul... */
    T1 = TO_MEMORY,
    CJ = TO_REG | TO_MEMORY | BRANCHES,             /* inc, dec, call, jmp */
    I4 = TO_RM | TO_MEMORY | 4,                     /* mov of an immediate to a register */
    CA = TO_REG | TO_RM | TO_MEMORY | BRANCHES | 4, /* call */

    /* Not the last of an opcode, and so to be asked: prefixes... */
    P6 = IMMEDIATE | 0x80, /* 66 */
    PC = IMMEDIATE | 0x90, /* cs */
    PX = IMMEDIATE | 0xa0, /* others that don't change the length */
    RX = IMMEDIATE | 0xb0, /* REX */
    RW = IMMEDIATE | 0xc0, /* REX.W */
    V2 = IMMEDIATE | 0xd0, /* VEX, of two bytes and of three */
    V3 = IMMEDIATE | 0xe0,
    V4 = IMMEDIATE | 0xf0, /* EVEX */
    /* ... and escapes: 0f, 0f 38, 0f 3a, and endbr64. */
    E0 = IMMEDIATE | 0x88,
    E8 = IMMEDIATE | 0x98,
    EA = IMMEDIATE | 0xa8,
    NB = IMMEDIATE | 0xb8,
};

/* The registers and memory that it writes: what a row of the table of x86_64_quick.c is for. */
#define CLASS_FORM(class) ((class) >> 3 & 15)

static inline bool class_is_by_operand(uint8_t class) {
    return !(class & MODRM) && (class & (TO_REG | TO_RM | TO_MEMORY));
}

/* The classes of all opcodes of a map, e() of each. (Not aligned by clang-format.) */
/* clang-format off */
#define ONE_BYTE_CLASSES(e)                                                                                                \
    /*       0      1      2      3      4      5      6      7      8      9      a      b      c      d      e      f */ \
    /* 0 */ e(W0), e(W0), e(G0), e(G0), e(N1), e(N4), e(AA), e(AA), e(W0), e(W0), e(G0), e(G0), e(N1), e(N4), e(AA), e(E0),\
    /* 1 */ e(W0), e(W0), e(G0), e(G0), e(N1), e(N4), e(AA), e(AA), e(W0), e(W0), e(G0), e(G0), e(N1), e(N4), e(AA), e(AA),\
    /* 2 */ e(W0), e(W0), e(G0), e(G0), e(N1), e(N4), e(AA), e(AA), e(W0), e(W0), e(G0), e(G0), e(N1), e(N4), e(PC), e(AA),\
    /* 3 */ e(W0), e(W0), e(G0), e(G0), e(N1), e(N4), e(AA), e(AA), e(L0), e(L0), e(L0), e(L0), e(N1), e(N4), e(AA), e(AA),\
    /* 4 */ e(RX), e(RX), e(RX), e(RX), e(RX), e(RX), e(RX), e(RX), e(RW), e(RW), e(RW), e(RW), e(RW), e(RW), e(RW), e(RW),\
    /* 5 */ e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA),\
    /* 6 */ e(AA), e(AA), e(V4), e(G0), e(PX), e(AA), e(P6), e(AA), e(AA), e(G4), e(AA), e(G1), e(N0), e(N0), e(N0), e(N0),\
    /* 7 */ e(B1), e(B1), e(B1), e(B1), e(B1), e(B1), e(B1), e(B1), e(B1), e(B1), e(B1), e(B1), e(B1), e(B1), e(B1), e(B1),\
    /* 8 */ e(W1), e(W4), e(AA), e(W1), e(L0), e(L0), e(X0), e(X0), e(W0), e(W0), e(G0), e(G0), e(W0), e(LE), e(L0), e(AA),\
    /* 9 */ e(N0), e(N0), e(N0), e(AA), e(AA), e(AA), e(N0), e(N0), e(N0), e(N0), e(AA), e(N0), e(AA), e(AA), e(N0), e(N0),\
    /* a */ e(AA), e(AA), e(AA), e(AA), e(N0), e(N0), e(N0), e(N0), e(N1), e(N4), e(N0), e(N0), e(N0), e(N0), e(N0), e(N0),\
    /* b */ e(N1), e(N1), e(N1), e(AA), e(AA), e(AA), e(N1), e(AA), e(I4), e(I4), e(I4), e(AA), e(AA), e(AA), e(I4), e(I4),\
    /* c */ e(W1), e(W1), e(AA), e(B0), e(V3), e(V2), e(C6), e(C7), e(AA), e(AA), e(AA), e(AA), e(B0), e(AA), e(AA), e(AA),\
    /* d */ e(W0), e(W0), e(W0), e(W0), e(AA), e(AA), e(AA), e(AA), e(L0), e(S0), e(L0), e(S0), e(L0), e(S0), e(L0), e(S0),\
    /* e */ e(B1), e(B1), e(B1), e(B1), e(AA), e(AA), e(AA), e(AA), e(CA), e(B4), e(AA), e(B1), e(AA), e(AA), e(AA), e(AA),\
    /* f */ e(AA), e(AA), e(PX), e(PX), e(AA), e(N0), e(T1), e(T4), e(N0), e(N0), e(N0), e(N0), e(N0), e(N0), e(AA), e(CJ)

#define CLASSES_0F(e)                                                                                                      \
    /*       0      1      2      3      4      5      6      7      8      9      a      b      c      d      e      f */ \
    /* 0 */ e(AA), e(AA), e(AA), e(AA), e(AA), e(B0), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA),\
    /* 1 */ e(L0), e(S0), e(L0), e(S0), e(L0), e(L0), e(L0), e(S0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(NB), e(L0),\
    /* 2 */ e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(L0), e(S0), e(L0), e(S0), e(G0), e(G0), e(L0), e(L0),\
    /* 3 */ e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(E8), e(AA), e(EA), e(AA), e(AA), e(AA), e(AA), e(AA),\
    /* 4 */ e(G0), e(G0), e(G0), e(G0), e(G0), e(G0), e(G0), e(G0), e(G0), e(G0), e(G0), e(G0), e(G0), e(G0), e(G0), e(G0),\
    /* 5 */ e(G0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0),\
    /* 6 */ e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0),\
    /* 7 */ e(L1), e(L1), e(L1), e(L1), e(L0), e(L0), e(L0), e(N0), e(AA), e(AA), e(AA), e(AA), e(L0), e(L0), e(W0), e(S0),\
    /* 8 */ e(B4), e(B4), e(B4), e(B4), e(B4), e(B4), e(B4), e(B4), e(B4), e(B4), e(B4), e(B4), e(B4), e(B4), e(B4), e(B4),\
    /* 9 */ e(W0), e(W0), e(W0), e(W0), e(W0), e(W0), e(W0), e(W0), e(W0), e(W0), e(W0), e(W0), e(W0), e(W0), e(W0), e(W0),\
    /* a */ e(AA), e(AA), e(AA), e(L0), e(W1), e(W0), e(AA), e(AA), e(AA), e(AA), e(AA), e(W0), e(W1), e(W0), e(AA), e(G0),\
    /* b */ e(W0), e(W0), e(AA), e(W0), e(AA), e(AA), e(G0), e(G0), e(AA), e(AA), e(W1), e(W0), e(G0), e(G0), e(G0), e(G0),\
    /* c */ e(X0), e(X0), e(L1), e(W0), e(L1), e(G1), e(L1), e(AA), e(N0), e(N0), e(N0), e(AA), e(AA), e(AA), e(N0), e(N0),\
    /* d */ e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(S0), e(G0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0),\
    /* e */ e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(S0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0),\
    /* f */ e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(AA)

/* Of VEX and EVEX. */
#define VECTOR_CLASSES_0F(e)                                                                                               \
    /*       0      1      2      3      4      5      6      7      8      9      a      b      c      d      e      f */ \
    /* 0 */ e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA),\
    /* 1 */ e(L0), e(S0), e(L0), e(S0), e(L0), e(L0), e(L0), e(S0), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA),\
    /* 2 */ e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(L0), e(S0), e(L0), e(S0), e(G0), e(G0), e(L0), e(L0),\
    /* 3 */ e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA),\
    /* 4 */ e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0),\
    /* 5 */ e(G0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0),\
    /* 6 */ e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0),\
    /* 7 */ e(L1), e(L1), e(L1), e(L1), e(L0), e(L0), e(L0), e(N0), e(AA), e(AA), e(AA), e(AA), e(L0), e(L0), e(W0), e(S0),\
    /* 8 */ e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA),\
    /* 9 */ e(X0), e(X0), e(X0), e(X0), e(X0), e(X0), e(X0), e(X0), e(X0), e(X0), e(X0), e(X0), e(X0), e(X0), e(X0), e(X0),\
    /* a */ e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA),\
    /* b */ e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA),\
    /* c */ e(AA), e(AA), e(L1), e(AA), e(L1), e(G1), e(L1), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA), e(AA),\
    /* d */ e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(S0), e(G0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0),\
    /* e */ e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(S0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0),\
    /* f */ e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(L0), e(AA)
/* clang-format on */

#define SIXTEEN(c) c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c
#define SIXTY_FOUR(c) SIXTEEN(c), SIXTEEN(c), SIXTEEN(c), SIXTEEN(c)
#define CLASSES_TO_0F38E0(e)                                                                                 \
    SIXTY_FOUR(e(S0)), SIXTY_FOUR(e(S0)), SIXTEEN(e(S0)), SIXTY_FOUR(e(L0)), SIXTEEN(e(L0)), SIXTEEN(e(AA))
#define CLASSES_0F38(e) CLASSES_TO_0F38E0(e), SIXTEEN(e(AA))
#define VECTOR_CLASSES_0F38(e) /* andn, bzhi, shlx... */                                                     \
    CLASSES_TO_0F38E0(e), e(AA), e(AA), e(G0), e(AA), e(AA), e(G0), e(AA), e(G0), e(AA), e(AA), e(AA),       \
        e(AA), e(AA), e(AA), e(AA), e(AA)
#define CLASSES_0F3A(e)                                                                                      \
    SIXTY_FOUR(e(W1)), SIXTY_FOUR(e(L1)), SIXTY_FOUR(e(L1)), SIXTEEN(e(L1)), SIXTEEN(e(L1)), SIXTEEN(e(L1)), \
        SIXTEEN(e(G1))

#endif
