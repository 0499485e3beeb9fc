/*
 * x86_64_quick.c: over the code of several functions at a time, for what nearly all instructions are.
 *
 * Where an instruction ends depends on bytes that lie one behind the other, and no processor can guess them.
 * So there are no branches: a state and a byte yield the next state and where the next byte is that tells
 * something. While one function's byte is waited for, those of others are. Passed over is only what
 * x86_64_decode says the same length of, and that it does not write sp. Registers are told apart by three
 * bits: what writes r12 is not passed over, either.
 */
#include "x86_64_quick.h"
#include "x86_64_classes.h"

/* What the next byte is. */
enum state {
    BEGINNING,
    STOPPED, /* for good: an instruction that is not passed over */
    OPCODE,
    OPCODE_W,  /* after REX.W */
    OPCODE_16, /* after 66 and REX */
    AFTER_66,  /* a prefix or an opcode */
    AFTER_66_TWICE,
    AFTER_66_THRICE, /* or cs instead */
    AFTER_PREFIX,
    OPCODE_0F,
    OPCODE_0F_16,
    OPCODE_0F38,
    OPCODE_0F3A,
    VEX_MAP, /* the bytes of prefixes */
    EVEX_MAP,
    EVEX_FIXED_0F,
    EVEX_FIXED_0F38,
    EVEX_FIXED_0F3A,
    VEX_0F, /* an opcode */
    VEX_0F38,
    VEX_0F3A,
    EVEX_0F,
    EVEX_0F38,
    EVEX_0F3A,
    CALL_1, /* the distance of a call: if all of it is 0, the call pushes */
    CALL_2,
    CALL_3,
    CALL_4,
    ENDBR,
    SIB, /* of a ModRM byte without displacement; an immediate may follow */
    SIB_1,
    SIB_4,
    MODRM_STATES,
    /* And one for each class with a ModRM byte. */
    STATES = MODRM_STATES + 48,
};
#define MODRM_OF(class) (MODRM_STATES + CLASS_FORM(class) * 3 + (((class) & IMMEDIATE) + 1) / 2)

/* Each step passes by so many bytes at most, a displacement and an immediate among them. */
enum { LONGEST_STEP = 10, STEPS = 16 };
_Static_assert(QUICK_MARGIN >= STEPS * LONGEST_STEP, "what is read lies in the margin");

/* The next state, and how far on its byte is. */
#define TO(state, bytes) ((uint16_t)((state) << 8 | (bytes)))
#define STOP TO(STOPPED, 0)

/* By the class of the byte: that of the opcode; with REX.W; with 66; and without a prefix. */
#define OPCODE_TO(c)                                                                                         \
    ((c) == E0                                    ? TO(OPCODE_0F, 1)                                         \
     : (c) == E8                                  ? TO(OPCODE_0F38, 1)                                       \
     : (c) == EA                                  ? TO(OPCODE_0F3A, 1)                                       \
     : (c) == NB                                  ? TO(ENDBR, 1)                                             \
     : (c) == CA                                  ? TO(CALL_1, 1)                                            \
     : (c) == I4                                  ? TO(BEGINNING, 5)                                         \
     : (c) % 8 == IMMEDIATE                       ? STOP                                                     \
     : (c) & (MODRM | TO_REG | TO_RM | TO_MEMORY) ? TO(MODRM_OF(c), 1)                                       \
                                                  : TO(BEGINNING, 1 + (c) % 8))
#define OPCODE_W_TO(c) ((c) == I4 ? STOP : OPCODE_TO(c))
#define OPCODE_16_TO(c)                                                                                      \
    ((c) == E0                                                               ? TO(OPCODE_0F_16, 1)           \
     : (c) % 8 != IMMEDIATE && ((c) & BRANCHES || (c) % 8 == 4 || (c) == T4) ? STOP                          \
                                                                             : OPCODE_TO(c))
#define AFTER_PREFIX_TO(c) ((c) == RX ? TO(OPCODE, 1) : (c) == RW ? TO(OPCODE_W, 1) : OPCODE_TO(c))
#define AFTER_66_THRICE_TO(c) ((c) == RX || (c) == RW ? TO(OPCODE_16, 1) : OPCODE_16_TO(c))
#define AFTER_66_TWICE_TO(c) ((c) == P6 || (c) == PC ? TO(AFTER_66_THRICE, 1) : AFTER_66_THRICE_TO(c))
#define AFTER_66_TO(c) ((c) == P6 || (c) == PC ? TO(AFTER_66_TWICE, 1) : AFTER_66_THRICE_TO(c))
#define BEGINNING_TO(c)                                                                                      \
    ((c) == P6                ? TO(AFTER_66, 1)                                                              \
     : (c) == PC || (c) == PX ? TO(AFTER_PREFIX, 1)                                                          \
     : (c) == V2              ? TO(VEX_0F, 2)                                                                \
     : (c) == V3              ? TO(VEX_MAP, 1)                                                               \
     : (c) == V4              ? TO(EVEX_MAP, 1)                                                              \
                              : AFTER_PREFIX_TO(c))
#define EVEX_TO(c) (!((c) & MODRM) || CLASS_FORM(c) == CLASS_FORM(G0) ? STOP : OPCODE_TO(c))

/* By a ModRM byte of a class: `no` adds to where it is not to be passed over. imm: bytes of an immediate; by
 * reg: m0 to m7 of instructions with memory, d0 to d7 with a register, sp with sp; NO: not passed over. */
#define NO 100
#define ON(imm, bytes) ((imm) >= NO ? STOP : TO(BEGINNING, (bytes) + (imm)))
#define TO_SIB(imm) ((imm) >= NO ? STOP : (imm) == 4 ? TO(SIB_4, 1) : (imm) == 1 ? TO(SIB_1, 1) : TO(SIB, 1))
#define MOD_0(i) ON(i, 1), ON(i, 1), ON(i, 1), ON(i, 1), TO_SIB(i), ON(i, 5), ON(i, 1), ON(i, 1)
#define MOD_1(i) ON(i, 2), ON(i, 2), ON(i, 2), ON(i, 2), ON(i, 3), ON(i, 2), ON(i, 2), ON(i, 2)
#define MOD_2(i) ON(i, 5), ON(i, 5), ON(i, 5), ON(i, 5), ON(i, 6), ON(i, 5), ON(i, 5), ON(i, 5)
#define MOD_3(sp, i) ON(i, 1), ON(i, 1), ON(i, 1), ON(i, 1), ON((i) + (sp), 1), ON(i, 1), ON(i, 1), ON(i, 1)
#define MEMORY(m0, m1, m2, m3, m4, m5, m6, m7)                                                               \
    MOD_0(m0), MOD_0(m1), MOD_0(m2), MOD_0(m3), MOD_0(m4), MOD_0(m5), MOD_0(m6), MOD_0(m7), MOD_1(m0),       \
        MOD_1(m1), MOD_1(m2), MOD_1(m3), MOD_1(m4), MOD_1(m5), MOD_1(m6), MOD_1(m7), MOD_2(m0), MOD_2(m1),   \
        MOD_2(m2), MOD_2(m3), MOD_2(m4), MOD_2(m5), MOD_2(m6), MOD_2(m7)
#define REGISTER(sp, d0, d1, d2, d3, d4, d5, d6, d7)                                                         \
    MOD_3(sp, d0), MOD_3(sp, d1), MOD_3(sp, d2), MOD_3(sp, d3), MOD_3(sp, d4), MOD_3(sp, d5), MOD_3(sp, d6), \
        MOD_3(sp, d7)
/* Classes that write nothing, reg, rm, or both; and those of groups, by reg. */
#define READS(i) {MEMORY(i, i, i, i, i, i, i, i), REGISTER(0, i, i, i, i, i, i, i, i)}
#define CHANGES_REG(i) {MEMORY(i, i, i, i, NO, i, i, i), REGISTER(0, i, i, i, i, NO, i, i, i)}
#define CHANGES_RM(i) {MEMORY(i, i, i, i, i, i, i, i), REGISTER(NO, i, i, i, i, i, i, i, i)}
#define GROUP(sp, ...) {MEMORY(__VA_ARGS__), REGISTER(sp, __VA_ARGS__)}

/* test, but for not and neg, writes nothing that matters. */
#define TEST(i)                                                                                              \
    {MEMORY(i, i, 0, 0, 0, 0, 0, 0),                                                                         \
     MOD_3(0, i),                                                                                            \
     MOD_3(0, i),                                                                                            \
     MOD_3(NO, 0),                                                                                           \
     MOD_3(NO, 0),                                                                                           \
     MOD_3(0, 0),                                                                                            \
     MOD_3(0, 0),                                                                                            \
     MOD_3(0, 0),                                                                                            \
     MOD_3(0, 0)}

#define EIGHT(a) a, a, a, a, a, a, a, a
/* By a SIB byte: with rbp or r13 as its base a displacement follows. */
#define FOUR_BYTES_MORE(i)                                                                                   \
    TO(BEGINNING, 1 + (i)), TO(BEGINNING, 1 + (i)), TO(BEGINNING, 1 + (i)), TO(BEGINNING, 1 + (i)),          \
        TO(BEGINNING, 1 + (i)), TO(BEGINNING, 5 + (i)), TO(BEGINNING, 1 + (i)), TO(BEGINNING, 1 + (i))
#define BY_SIB(i)                                                                                            \
    {EIGHT(FOUR_BYTES_MORE(i)), EIGHT(FOUR_BYTES_MORE(i)), EIGHT(FOUR_BYTES_MORE(i)),                        \
     EIGHT(FOUR_BYTES_MORE(i))}
/* By the low five or four bits of a byte, the opcode map. */
#define BY_MAP(a, b, c) STOP, a, b, c, STOP, STOP, STOP, STOP, EIGHT(STOP)
#define VEX_MAPS BY_MAP(TO(VEX_0F, 2), TO(VEX_0F38, 2), TO(VEX_0F3A, 2)), SIXTEEN(STOP)
#define EVEX_MAPS BY_MAP(TO(EVEX_FIXED_0F, 1), TO(EVEX_FIXED_0F38, 1), TO(EVEX_FIXED_0F3A, 1))
/* By a byte in which 4 is set. */
#define FIXED(to) STOP, STOP, STOP, STOP, to, to, to, to
#define BY_FIXED(to) {EIGHT(FIXED(to)), EIGHT(FIXED(to)), EIGHT(FIXED(to)), EIGHT(FIXED(to))}
#define BY_FA(to)                                                                                            \
    {SIXTY_FOUR(STOP),                                                                                       \
     SIXTY_FOUR(STOP),                                                                                       \
     SIXTY_FOUR(STOP),                                                                                       \
     SIXTEEN(STOP),                                                                                          \
     SIXTEEN(STOP),                                                                                          \
     SIXTEEN(STOP),                                                                                          \
     EIGHT(STOP),                                                                                            \
     STOP,                                                                                                   \
     STOP,                                                                                                   \
     to,                                                                                                     \
     STOP,                                                                                                   \
     STOP,                                                                                                   \
     STOP,                                                                                                   \
     STOP,                                                                                                   \
     STOP}
/* By whether it is 0. */
#define BY_ZERO(zero, other)                                                                                 \
    {zero,                                                                                                   \
     other,                                                                                                  \
     other,                                                                                                  \
     other,                                                                                                  \
     EIGHT(other),                                                                                           \
     other,                                                                                                  \
     other,                                                                                                  \
     other,                                                                                                  \
     other,                                                                                                  \
     SIXTEEN(other),                                                                                         \
     SIXTEEN(other),                                                                                         \
     SIXTEEN(other),                                                                                         \
     SIXTY_FOUR(other),                                                                                      \
     SIXTY_FOUR(other),                                                                                      \
     SIXTY_FOUR(other)}

static const uint16_t next[STATES][256] = {
    [BEGINNING] = {ONE_BYTE_CLASSES(BEGINNING_TO)},
    [STOPPED] = {SIXTY_FOUR(STOP), SIXTY_FOUR(STOP), SIXTY_FOUR(STOP), SIXTY_FOUR(STOP)},
    [OPCODE] = {ONE_BYTE_CLASSES(OPCODE_TO)},
    [OPCODE_W] = {ONE_BYTE_CLASSES(OPCODE_W_TO)},
    [OPCODE_16] = {ONE_BYTE_CLASSES(OPCODE_16_TO)},
    [AFTER_66] = {ONE_BYTE_CLASSES(AFTER_66_TO)},
    [AFTER_66_TWICE] = {ONE_BYTE_CLASSES(AFTER_66_TWICE_TO)},
    [AFTER_66_THRICE] = {ONE_BYTE_CLASSES(AFTER_66_THRICE_TO)},
    [AFTER_PREFIX] = {ONE_BYTE_CLASSES(AFTER_PREFIX_TO)},
    [OPCODE_0F] = {CLASSES_0F(OPCODE_TO)},
    [OPCODE_0F_16] = {CLASSES_0F(OPCODE_16_TO)},
    [OPCODE_0F38] = {CLASSES_0F38(OPCODE_TO)},
    [OPCODE_0F3A] = {CLASSES_0F3A(OPCODE_TO)},
    [VEX_MAP] = {EIGHT(VEX_MAPS)},
    [EVEX_MAP] = {SIXTEEN(EVEX_MAPS)},
    [EVEX_FIXED_0F] = BY_FIXED(TO(EVEX_0F, 2)),
    [EVEX_FIXED_0F38] = BY_FIXED(TO(EVEX_0F38, 2)),
    [EVEX_FIXED_0F3A] = BY_FIXED(TO(EVEX_0F3A, 2)),
    [VEX_0F] = {VECTOR_CLASSES_0F(OPCODE_TO)},
    [VEX_0F38] = {VECTOR_CLASSES_0F38(OPCODE_TO)},
    [VEX_0F3A] = {CLASSES_0F3A(OPCODE_TO)},
    [EVEX_0F] = {VECTOR_CLASSES_0F(EVEX_TO)},
    [EVEX_0F38] = {VECTOR_CLASSES_0F38(EVEX_TO)},
    [EVEX_0F3A] = {CLASSES_0F3A(EVEX_TO)},
    [CALL_1] = BY_ZERO(TO(CALL_2, 1), TO(BEGINNING, 4)),
    [CALL_2] = BY_ZERO(TO(CALL_3, 1), TO(BEGINNING, 3)),
    [CALL_3] = BY_ZERO(TO(CALL_4, 1), TO(BEGINNING, 2)),
    [CALL_4] = BY_ZERO(STOP, TO(BEGINNING, 1)),
    [ENDBR] = BY_FA(TO(BEGINNING, 1)),
    [SIB] = BY_SIB(0),
    [SIB_1] = BY_SIB(1),
    [SIB_4] = BY_SIB(4),
    [MODRM_OF(L0)] = READS(0),
    [MODRM_OF(L1)] = READS(1),
    [MODRM_OF(S0)] = READS(0),
    [MODRM_OF(G0)] = CHANGES_REG(0),
    [MODRM_OF(G1)] = CHANGES_REG(1),
    [MODRM_OF(G4)] = CHANGES_REG(4),
    [MODRM_OF(W0)] = CHANGES_RM(0),
    [MODRM_OF(W1)] = CHANGES_RM(1),
    [MODRM_OF(W4)] = CHANGES_RM(4),
    [MODRM_OF(X0)] = {MEMORY(0, 0, 0, 0, NO, 0, 0, 0), REGISTER(NO, 0, 0, 0, 0, NO, 0, 0, 0)},
    [MODRM_OF(LE)] = {MEMORY(0, 0, 0, 0, NO, 0, 0, 0), REGISTER(0, NO, NO, NO, NO, NO, NO, NO, NO)},
    [MODRM_OF(C6)] = GROUP(NO, 1, NO, NO, NO, NO, NO, NO, NO),
    [MODRM_OF(C7)] = GROUP(NO, 4, NO, NO, NO, NO, NO, NO, NO),
    [MODRM_OF(T1)] = TEST(1),
    [MODRM_OF(T4)] = TEST(4),
    [MODRM_OF(CJ)] = GROUP(NO, 0, 0, 0, NO, 0, NO, NO, NO),
};

/* (The loops over lanes are unrolled, so that these stay in registers.) */
void x86_64_pass_quickly(struct code_lane lanes[CODE_LANES]) {
    const uint8_t *at[CODE_LANES], *begin[CODE_LANES];
    const uint16_t *steps = &next[0][0];
    unsigned state[CODE_LANES], done = 0; /* state << 8 */
    for (int i = 0; i < CODE_LANES; i++) {
        at[i] = begin[i] = lanes[i].at;
        state[i] = BEGINNING << 8;
    }
    while (!done) {
        for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 8
            for (int i = 0; i < CODE_LANES; i++) {
                unsigned to = steps[state[i] | *at[i]];
                at[i] += to & 0xff;
                state[i] = to & 0xff00;
                begin[i] = state[i] == BEGINNING << 8 ? at[i] : begin[i];
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < CODE_LANES; i++)
            done |= (unsigned)(begin[i] >= lanes[i].end) | (unsigned)(state[i] == STOPPED << 8);
    }
    for (int i = 0; i < CODE_LANES; i++) {
        lanes[i].at = begin[i];
        lanes[i].is_stopped = state[i] == STOPPED << 8;
    }
}
