/*
 * x86_64_plain.c: quickly over x86_64 instructions that do nothing to the stack.
 *
 * A length is told only where x86_64_decode tells the same one, and nothing (0) wherever more than a look at
 * the opcode and its ModRM byte is needed: x86_64_decode is to be asked then. Reads no more than 15 bytes.
 */
#include "x86_64_classes.h"

#define CLASS(c) ((c) % 8 == IMMEDIATE ? AA : (c))

/* By opcode map, and for vector instructions by map again. */
enum { VECTOR_MAPS = 4 };
static const uint8_t classes[][256] = {
    [MAP_ONE_BYTE] = {ONE_BYTE_CLASSES(CLASS)},
    [MAP_0F] = {CLASSES_0F(CLASS)},
    [MAP_0F38] = {CLASSES_0F38(CLASS)},
    [MAP_0F3A] = {CLASSES_0F3A(CLASS)},
    [VECTOR_MAPS] = {SIXTY_FOUR(AA), SIXTY_FOUR(AA), SIXTY_FOUR(AA), SIXTY_FOUR(AA)},
    [VECTOR_MAPS | MAP_0F] = {VECTOR_CLASSES_0F(CLASS)},
    [VECTOR_MAPS | MAP_0F38] = {VECTOR_CLASSES_0F38(CLASS)},
    [VECTOR_MAPS | MAP_0F3A] = {CLASSES_0F3A(CLASS)},
};

/* Each way through an instruction has branches of its own, so that the processor learns what follows what. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { NUMBER_BH = 7 }; /* without REX, of an 8-bit register */

#define STACK_REGISTER_SET (1u << NUMBER_RBX | 1u << NUMBER_RSP | 1u << NUMBER_RBP)

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
    case 0xff: /* inc, dec, call, jmp */
        return group <= 1 ? W0 : group == 2 || group == 4 ? BM : AA;
    default:
        return AA;
    }
}

/* After a VEX or EVEX prefix of `size` bytes. */
static uint8_t vector_class(const uint8_t *prefix, size_t size) {
    unsigned map = size == 2 ? MAP_0F : size == 3 ? prefix[1] & 0x1fu : prefix[1] & 0x0fu;
    if (map > MAP_0F3A)
        return AA;
    uint8_t class = classes[VECTOR_MAPS | map][prefix[size]];
    if (size == 4 && (!(prefix[2] & 4) || !(class & MODRM) || CLASS_FORM(class) == CLASS_FORM(G0)))
        return AA;
    return class;
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
    uint8_t class = classes[MAP_0F][byte];
    if (class != AA)
        return class;
    if (byte == 0x38)
        return classes[MAP_0F38][*(*at)++];
    if (byte == 0x3a)
        return classes[MAP_0F3A][*(*at)++];
    return byte == 0x1e && **at == 0xfa ? L0 : AA; /* endbr64 */
}

/* Behind prefixes. */
ALWAYS_INLINE struct opcode legacy_opcode(const uint8_t *at, uint8_t rex) {
    uint8_t byte = *at++;
    struct opcode opcode = {.class = classes[MAP_ONE_BYTE][byte],
                            .has_rex = rex != 0,
                            .extend_reg = rex & 4 ? 8 : 0,
                            .extend_rm = rex & 1 ? 8 : 0};
    if (byte == 0x0f)
        opcode.class = longer_class(&at);
    else if (class_is_by_operand(opcode.class))
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
