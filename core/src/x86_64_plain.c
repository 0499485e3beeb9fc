/*
 * x86_64_plain.c: quickly over x86_64 instructions that do nothing to the stack.
 *
 * A length is told only where x86_64_decode tells the same one, and nothing (0) wherever more than a look at
 * the opcode and its ModRM byte is needed: x86_64_decode is to be asked then. Reads no more than 15 bytes.
 */
#include "x86_64_parts.h"

/* What is known of an opcode: the size of its immediate, and flags. Some say more than is true of every
 * instruction with the opcode, never less. */
enum class_bits {
    IMMEDIATE = 7,
    MODRM = 0x08,
    TO_REG = 0x10,    /* writes the register that the ModRM byte has in reg */
    TO_RM = 0x20,     /* or in rm, if that is a register, */
    TO_MEMORY = 0x40, /* or is memory */
    BRANCHES = 0x80,
};

/* Each way through an instruction has branches of its own, so that the processor learns what follows what. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { NUMBER_BH = 7 }; /* without REX, of an 8-bit register */

#define STACK_REGISTER_SET (1u << NUMBER_RBX | 1u << NUMBER_RSP | 1u << NUMBER_RBP)

/* The classes by short names, for the opcode grids: what it writes, then the size of the immediate. */
enum opcode_class {
    AA = IMMEDIATE, /* to be asked */
    N0 = 0,         /* without a ModRM byte */
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
};

static const uint8_t one_byte_classes[256] = {
    /*       0   1   2   3   4   5   6   7   8   9   a   b   c   d   e   f */
    /* 0 */ W0, W0, G0, G0, N1, N4, AA, AA, W0, W0, G0, G0, N1, N4, AA, AA,
    /* 1 */ W0, W0, G0, G0, N1, N4, AA, AA, W0, W0, G0, G0, N1, N4, AA, AA,
    /* 2 */ W0, W0, G0, G0, N1, N4, AA, AA, W0, W0, G0, G0, N1, N4, AA, AA,
    /* 3 */ W0, W0, G0, G0, N1, N4, AA, AA, L0, L0, L0, L0, N1, N4, AA, AA,
    /* 4 */ AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* 5 */ AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* 6 */ AA, AA, AA, G0, AA, AA, AA, AA, AA, G4, AA, G1, N0, N0, N0, N0,
    /* 7 */ B1, B1, B1, B1, B1, B1, B1, B1, B1, B1, B1, B1, B1, B1, B1, B1,
    /* 8 */ W1, W4, AA, W1, L0, L0, X0, X0, W0, W0, G0, G0, W0, AA, L0, AA,
    /* 9 */ N0, N0, N0, AA, AA, AA, N0, N0, N0, N0, AA, N0, AA, AA, N0, N0,
    /* a */ AA, AA, AA, AA, N0, N0, N0, N0, N1, N4, N0, N0, N0, N0, N0, N0,
    /* b */ N1, N1, N1, AA, AA, AA, N1, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* c */ W1, W1, AA, B0, AA, AA, AA, AA, AA, AA, AA, AA, B0, AA, AA, AA,
    /* d */ W0, W0, W0, W0, AA, AA, AA, AA, L0, S0, L0, S0, L0, S0, L0, S0,
    /* e */ B1, B1, B1, B1, AA, AA, AA, AA, AA, B4, AA, B1, AA, AA, AA, AA,
    /* f */ AA, AA, AA, AA, AA, N0, AA, AA, N0, N0, N0, N0, N0, N0, AA, AA,
};

static const uint8_t two_byte_classes[256] = {
    /*       0   1   2   3   4   5   6   7   8   9   a   b   c   d   e   f */
    /* 0 */ AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* 1 */ L0, S0, L0, S0, L0, L0, L0, S0, L0, L0, L0, L0, L0, L0, AA, L0,
    /* 2 */ AA, AA, AA, AA, AA, AA, AA, AA, L0, S0, L0, S0, G0, G0, L0, L0,
    /* 3 */ AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* 4 */ G0, G0, G0, G0, G0, G0, G0, G0, G0, G0, G0, G0, G0, G0, G0, G0,
    /* 5 */ G0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0,
    /* 6 */ L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0,
    /* 7 */ L1, L1, L1, L1, L0, L0, L0, N0, AA, AA, AA, AA, L0, L0, W0, S0,
    /* 8 */ B4, B4, B4, B4, B4, B4, B4, B4, B4, B4, B4, B4, B4, B4, B4, B4,
    /* 9 */ W0, W0, W0, W0, W0, W0, W0, W0, W0, W0, W0, W0, W0, W0, W0, W0,
    /* a */ AA, AA, AA, L0, W1, W0, AA, AA, AA, AA, AA, W0, W1, W0, AA, G0,
    /* b */ W0, W0, AA, W0, AA, AA, G0, G0, AA, AA, W1, W0, G0, G0, G0, G0,
    /* c */ X0, X0, L1, W0, L1, G1, L1, AA, N0, N0, N0, AA, AA, AA, N0, N0,
    /* d */ L0, L0, L0, L0, L0, L0, S0, G0, L0, L0, L0, L0, L0, L0, L0, L0,
    /* e */ L0, L0, L0, L0, L0, L0, L0, S0, L0, L0, L0, L0, L0, L0, L0, L0,
    /* f */ L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, AA,
};

static const uint8_t vector_classes[256] = {
    /*       0   1   2   3   4   5   6   7   8   9   a   b   c   d   e   f */
    /* 0 */ AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* 1 */ L0, S0, L0, S0, L0, L0, L0, S0, AA, AA, AA, AA, AA, AA, AA, AA,
    /* 2 */ AA, AA, AA, AA, AA, AA, AA, AA, L0, S0, L0, S0, G0, G0, L0, L0,
    /* 3 */ AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* 4 */ L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0,
    /* 5 */ G0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0,
    /* 6 */ L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0,
    /* 7 */ L1, L1, L1, L1, L0, L0, L0, AA, AA, AA, AA, AA, L0, L0, W0, S0,
    /* 8 */ AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* 9 */ X0, X0, X0, X0, X0, X0, X0, X0, X0, X0, X0, X0, X0, X0, X0, X0,
    /* a */ AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* b */ AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* c */ AA, AA, L1, AA, L1, G1, L1, AA, AA, AA, AA, AA, AA, AA, AA, AA,
    /* d */ L0, L0, L0, L0, L0, L0, S0, G0, L0, L0, L0, L0, L0, L0, L0, L0,
    /* e */ L0, L0, L0, L0, L0, L0, L0, S0, L0, L0, L0, L0, L0, L0, L0, L0,
    /* f */ L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, L0, AA,
};

/* Opcodes of one byte whose ModRM byte or operand tells what they are. */
static uint8_t class_by_operand(uint8_t opcode, uint8_t rex, const uint8_t *operand) {
    unsigned group = operand[0] >> 3 & 7;
    switch (opcode) {
    case 0x8d: /* lea needs memory */
        return operand[0] < 0xc0 ? G0 : AA;
    case 0xb8: /* mov of an immediate to a register */
    case 0xb9:
    case 0xba:
    case 0xbe:
    case 0xbf:
        return rex & 8 ? AA : N4;
    case 0xc6:
        return group == 0 ? W1 : AA;
    case 0xc7:
        return group == 0 ? W4 : AA;
    case 0xe8: /* a call of what follows pushes */
        return operand[0] | operand[1] | operand[2] | operand[3] ? B4 : AA;
    case 0xf6:
        return group <= 1 ? L1 : group <= 3 ? W0 : L0;
    case 0xf7:
        return group <= 1 ? L4 : group <= 3 ? W0 : L0;
    case 0xff: /* call, jmp */
        return group == 2 || group == 4 ? BM : AA;
    default:
        return AA;
    }
}

static uint8_t class_0f38(uint8_t opcode, bool is_vex) {
    if (opcode < 0xe0)
        return opcode < 0x90 ? S0 : L0;
    return is_vex && (opcode == 0xf2 || opcode == 0xf5 || opcode == 0xf7) ? G0 : AA; /* andn, bzhi, shlx... */
}

static uint8_t class_0f3a(uint8_t opcode) {
    return opcode < 0x40 ? W1 : opcode < 0xf0 ? L1 : G1;
}

/* After a VEX or EVEX prefix of `size` bytes. *opcode: behind it. */
static uint8_t vector_class(const uint8_t *prefix, size_t size) {
    uint8_t opcode = prefix[size];
    unsigned map = size == 2 ? MAP_0F : size == 3 ? prefix[1] & 0x1fu : prefix[1] & 0x0fu;
    if (size == 4 && !(prefix[2] & 4))
        return AA;
    switch (map) {
    case MAP_0F:
        return opcode == 0x77 && size < 4 ? N0 : vector_classes[opcode]; /* vzeroupper */
    case MAP_0F38:
        return class_0f38(opcode, size < 4);
    case MAP_0F3A:
        return class_0f3a(opcode);
    default:
        return AA;
    }
}

/* Bytes of a ModRM byte and what belongs to it. */
static inline size_t modrm_size(const uint8_t *at) {
#define EIGHT_TIMES(...)                                                                                     \
    __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
    static const uint8_t sizes[256] = {
        EIGHT_TIMES(1, 1, 1, 1, 2, 5, 1, 1),
        EIGHT_TIMES(2, 2, 2, 2, 3, 2, 2, 2),
        EIGHT_TIMES(5, 5, 5, 5, 6, 5, 5, 5),
        EIGHT_TIMES(1, 1, 1, 1, 1, 1, 1, 1),
    };
    return (at[0] & 0xc7) == 4 && (at[1] & 7) == 5 ? 6 : sizes[at[0]];
}

/* An opcode taken apart: its class, what extends reg and rm in a ModRM byte, and where that is. */
struct opcode {
    uint8_t class;
    bool has_rex;
    uint8_t extend_reg, extend_rm; /* 0 or 8 */
    const uint8_t *operand;
};

/* From behind a VEX or EVEX prefix of `size` bytes. */
ALWAYS_INLINE struct opcode vector_opcode(const uint8_t *prefix, size_t size) {
    return (struct opcode){.class = vector_class(prefix, size),
                           .has_rex = true,
                           .extend_reg = prefix[1] & 0x80 ? 0 : 8,
                           .extend_rm = size == 2 || prefix[1] & 0x20 ? 0 : 8,
                           .operand = prefix + size + 1};
}

/* Behind 0f. */
static inline uint8_t longer_class(const uint8_t **at) {
    uint8_t byte = *(*at)++;
    uint8_t class = two_byte_classes[byte];
    if (class != AA)
        return class;
    if (byte == 0x38)
        return class_0f38(*(*at)++, false);
    if (byte == 0x3a)
        return class_0f3a(*(*at)++);
    return byte == 0x1e && **at == 0xfa ? L0 : AA; /* endbr64 */
}

/* Behind prefixes. */
ALWAYS_INLINE struct opcode legacy_opcode(const uint8_t *at, uint8_t rex) {
    uint8_t byte = *at++;
    struct opcode opcode = {.class = one_byte_classes[byte],
                            .has_rex = rex != 0,
                            .extend_reg = rex & 4 ? 8 : 0,
                            .extend_rm = rex & 1 ? 8 : 0};
    if (byte == 0x0f)
        opcode.class = longer_class(&at);
    else if (opcode.class == AA)
        opcode.class = class_by_operand(byte, rex, at);
    opcode.operand = at;
    return opcode;
}

static bool is_rex(uint8_t byte) {
    return (byte & 0xf0) == 0x40;
}

/* Prefixes that change neither the length nor the registers, but where that is seen to. */
static bool is_prefix(uint8_t byte) {
    return byte == 0x66 || byte == 0xf2 || byte == 0xf3 || byte == 0x2e || byte == 0x64;
}

ALWAYS_INLINE struct opcode prefixed_opcode(const uint8_t *at) {
    bool operand16 = *at == 0x66;
    at++;
    for (unsigned count = 1; count < 3 && is_prefix(*at); count++)
        operand16 |= *at++ == 0x66;
    struct opcode opcode = is_rex(*at) ? legacy_opcode(at + 1, *at) : legacy_opcode(at, 0);
    if (operand16 && (opcode.class & BRANCHES || (opcode.class & IMMEDIATE) == 4))
        opcode.class = AA;
    return opcode;
}

/* True when one of the registers in a set is written, or, if it says so, memory by one of sp, fp and bx.
 * Without branches: they could not be guessed. */
ALWAYS_INLINE bool may_write(const struct opcode *opcode, uint32_t registers, bool memory_too) {
    const uint8_t *modrm = opcode->operand;
    uint32_t reg = (modrm[0] >> 3 & 7u) | opcode->extend_reg, rm = (modrm[0] & 7u) | opcode->extend_rm;
    uint32_t is_register = modrm[0] >= 0xc0;
    uint32_t writes = opcode->class / TO_REG & registers >> reg;
    writes |= opcode->class / TO_RM & registers >> rm & is_register;
    if (memory_too) {
        uint32_t base = (modrm[0] & 7) == 4 ? (modrm[1] & 7u) | opcode->extend_rm : rm;
        writes |= opcode->class / TO_MEMORY & STACK_REGISTER_SET >> base & (is_register ^ 1);
    }
    return writes & 1;
}

/* registers: those not to be written; is_idle: nor is memory by a stack register, and it does not branch. */
ALWAYS_INLINE size_t length_of(const uint8_t *bytes, struct opcode opcode, uint32_t registers, bool is_idle) {
    if (opcode.class == AA || (is_idle && opcode.class & BRANCHES))
        return 0;
    size_t length = (size_t)(opcode.operand - bytes) + (opcode.class & IMMEDIATE);
    if (!(opcode.class & MODRM))
        return length;
    if (is_idle && !opcode.has_rex)
        registers |= 1u << NUMBER_BH;
    return may_write(&opcode, registers, is_idle) ? 0 : length + modrm_size(opcode.operand);
}

ALWAYS_INLINE size_t plain_length(const uint8_t *bytes, uint32_t registers, bool is_idle) {
    if (is_rex(*bytes))
        return length_of(bytes, legacy_opcode(bytes + 1, *bytes), registers, is_idle);
    switch (*bytes) {
    case 0xc5:
        return length_of(bytes, vector_opcode(bytes, 2), registers, is_idle);
    case 0xc4:
        return length_of(bytes, vector_opcode(bytes, 3), registers, is_idle);
    case 0x62:
        return length_of(bytes, vector_opcode(bytes, 4), registers, is_idle);
    case 0x2e:
    case 0x64:
    case 0x66:
    case 0xf2:
    case 0xf3:
        return length_of(bytes, prefixed_opcode(bytes), registers, is_idle);
    default:
        return length_of(bytes, legacy_opcode(bytes, 0), registers, is_idle);
    }
}

size_t x86_64_plain_bytes(const uint8_t *bytes, size_t size, size_t readable) {
    size_t passed = 0;
    while (passed < size && readable - passed >= X86_64_LONGEST) {
        size_t length = plain_length(bytes + passed, 1u << NUMBER_RSP, false);
        if (length == 0 || length > size - passed)
            break;
        passed += length;
    }
    return passed;
}

size_t x86_64_idle_length(const uint8_t *bytes) {
    return plain_length(bytes, STACK_REGISTER_SET, true);
}
