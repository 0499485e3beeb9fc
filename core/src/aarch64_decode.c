/*
 * aarch64_decode.c: control flow and stack effects of aarch64 instructions.
 *
 * Instructions are told apart by class, as the Arm Architecture Reference Manual's chapter C4 lists
 * them. Within a class the decoder looks only at what it needs; unallocated encodings are INVALID
 * where that is cheap to see. Signing and authenticating a return address counts as no change: who
 * uses the value strips it.
 */
#include "instruction.h"

#include <stdbool.h>

enum {
    NUMBER_FP = 29,
    NUMBER_LR = 30,
    NUMBER_31 = 31, /* sp or the zero register, by instruction */
    UNBOUNDED_STORE = 65536,
};

static uint32_t bits(uint32_t word, unsigned low, unsigned count) {
    return word >> low & ((1u << count) - 1);
}

static int64_t signed_bits(uint32_t word, unsigned low, unsigned count) {
    int64_t sign = (int64_t)1 << (count - 1);
    return ((int64_t)bits(word, low, count) ^ sign) - sign;
}

/* A register number where 31 means sp. */
static uint8_t with_sp(uint32_t number) {
    return number == NUMBER_31   ? REGISTER_SP
           : number == NUMBER_FP ? REGISTER_FP
           : number == NUMBER_LR ? REGISTER_LR
                                 : REGISTER_OTHER;
}

/* A register number where 31 means the zero register. */
static uint8_t without_sp(uint32_t number) {
    return number == NUMBER_31 ? REGISTER_OTHER : with_sp(number);
}

static void set(struct instruction *out, uint8_t to, uint8_t from, int64_t offset) {
    instruction_effect(out,
                       (struct stack_effect){.kind = EFFECT_SET, .to = to, .from = from, .offset = offset});
}

static void clobber(struct instruction *out, uint8_t to) {
    if (to != REGISTER_OTHER)
        instruction_effect(out, (struct stack_effect){.kind = EFFECT_CLOBBER, .to = to});
}

static void load(struct instruction *out, uint8_t to, uint8_t from, int64_t offset) {
    if (to != REGISTER_OTHER)
        instruction_effect(
            out, (struct stack_effect){.kind = EFFECT_LOAD, .to = to, .from = from, .offset = offset});
}

static void store(struct instruction *out, uint8_t to, int64_t offset, uint8_t from, uint32_t size) {
    if (to == REGISTER_SP || to == REGISTER_FP)
        instruction_effect(out,
                           (struct stack_effect){
                               .kind = EFFECT_STORE, .to = to, .from = from, .size = size, .offset = offset});
}

static void invalid(struct instruction *out) {
    out->flow = FLOW_INVALID;
}

/* ------------------------------------------------------------------ data processing, immediate */

static void add_immediate(uint32_t word, struct instruction *out) {
    int64_t value = (int64_t)bits(word, 10, 12) << (bits(word, 22, 1) * 12);
    bool sets_flags = bits(word, 29, 1), wide = bits(word, 31, 1);
    uint8_t to = sets_flags ? without_sp(bits(word, 0, 5)) : with_sp(bits(word, 0, 5));
    uint8_t from = with_sp(bits(word, 5, 5));
    if (to == REGISTER_OTHER)
        return;
    if (!wide || from == REGISTER_OTHER)
        clobber(out, to);
    else
        set(out, to, from, bits(word, 30, 1) ? -value : value);
}

static void data_immediate(uint32_t word, struct instruction *out) {
    uint32_t rd = bits(word, 0, 5);
    switch (bits(word, 23, 3)) {
    case 2: /* add, sub */
        add_immediate(word, out);
        break;
    case 3: /* addg, subg to sp; smax and the like never */
        clobber(out, bits(word, 22, 1) ? without_sp(rd) : with_sp(rd));
        break;
    case 4: /* and, orr, eor to sp; ands never */
        clobber(out, bits(word, 29, 2) == 3 ? without_sp(rd) : with_sp(rd));
        break;
    default: /* adr, adrp, move wide, bitfield, extract */
        clobber(out, without_sp(rd));
    }
}

/* ------------------------------------------------------------------ branches, exceptions, system */

static void jump(struct instruction *out, uint8_t flow, uint64_t target) {
    out->flow = flow;
    out->has_target = 1;
    out->target = target;
}

static void branch_register(uint32_t word, struct instruction *out) {
    uint32_t rn = bits(word, 5, 5);
    uint32_t low = word & 0x1f;
    /* plain; with a key and zero modifier; with a key and the modifier in the low bits */
    bool plain = bits(word, 10, 6) == 0 && low == 0;
    bool signed_zero = bits(word, 11, 5) == 1 && low == 0x1f && bits(word, 24, 1) == 0;
    bool signed_modifier = bits(word, 11, 5) == 1 && bits(word, 24, 1) == 1;
    if (bits(word, 16, 5) != 0x1f || (!plain && !signed_zero && !signed_modifier)) {
        invalid(out);
        return;
    }
    switch (bits(word, 21, 4)) {
    case 0: /* br, braaz; braa has bit 24 set */
    case 8:
        out->flow = rn == NUMBER_LR && plain ? FLOW_RETURN : FLOW_INDIRECT_JUMP;
        break;
    case 1: /* blr, blraaz, blraa */
    case 9:
        out->flow = FLOW_CALL;
        break;
    case 2: /* ret; retaa and retab name no register */
        if (plain)
            out->flow = rn == NUMBER_LR ? FLOW_RETURN : FLOW_INDIRECT_JUMP;
        else
            out->flow = rn == NUMBER_31 ? FLOW_RETURN : FLOW_INVALID;
        break;
    default: /* eret, drps */
        invalid(out);
    }
}

static void exception(uint32_t word, struct instruction *out) {
    switch (word & 0xffe0001f) {
    case 0xd4000001: /* svc */
        break;
    case 0xd4200000: /* brk, hlt */
    case 0xd4400000:
        out->flow = FLOW_STOP;
        break;
    default:
        invalid(out);
    }
}

static void branches(uint32_t word, uint64_t address, struct instruction *out) {
    if (bits(word, 26, 5) == 0x05) { /* b, bl */
        uint64_t target = address + (uint64_t)(signed_bits(word, 0, 26) * 4);
        jump(out, bits(word, 31, 1) ? FLOW_CALL : FLOW_JUMP, target);
    } else if (bits(word, 25, 6) == 0x1a || bits(word, 24, 8) == 0x54) { /* cbz, cbnz; b.cond, bc.cond */
        jump(out, FLOW_BRANCH, address + (uint64_t)(signed_bits(word, 5, 19) * 4));
    } else if (bits(word, 25, 6) == 0x1b) { /* tbz, tbnz */
        jump(out, FLOW_BRANCH, address + (uint64_t)(signed_bits(word, 5, 14) * 4));
    } else if (bits(word, 24, 8) == 0xd4) {
        exception(word, out);
    } else if (bits(word, 22, 10) == 0x354) { /* system, hints; bit 21: reads into a register */
        if (bits(word, 21, 1))
            clobber(out, without_sp(bits(word, 0, 5)));
    } else if (bits(word, 25, 7) == 0x6b) {
        branch_register(word, out);
    } else {
        invalid(out);
    }
}

/* ------------------------------------------------------------------ loads and stores */

enum addressing { AT_OFFSET, AT_POST_INDEX, AT_PRE_INDEX };

struct access {
    uint8_t base;                          /* enum stack_register */
    uint8_t mode;                          /* enum addressing */
    int64_t offset;                        /* that the mode adds */
    uint8_t registers;                     /* 1 or 2 */
    uint32_t size;                         /* bytes a register */
    bool is_load, is_vector, is_wide_load; /* is_wide_load: 8 bytes into a general register */
    uint32_t number[2];
};

static void emit_stores(const struct access *a, int64_t at, struct instruction *out) {
    uint8_t from[2];
    bool exact = false;
    for (unsigned i = 0; i < a->registers; i++) {
        from[i] = a->is_vector || a->size != 8 ? REGISTER_OTHER : without_sp(a->number[i]);
        exact |= from[i] != REGISTER_OTHER;
    }
    if (!exact) {
        store(out, a->base, at, REGISTER_OTHER, a->size * a->registers);
        return;
    }
    for (unsigned i = 0; i < a->registers; i++)
        store(out, a->base, at + (int64_t)(i * a->size), from[i], a->size);
}

static void emit_loads(const struct access *a, int64_t at, struct instruction *out) {
    if (a->is_vector)
        return;
    /* A register that is also the base is loaded last. */
    bool reversed = a->registers == 2 && without_sp(a->number[0]) == a->base;
    for (unsigned k = 0; k < a->registers; k++) {
        unsigned i = reversed ? 1 - k : k;
        uint8_t to = without_sp(a->number[i]);
        if (a->is_wide_load && (a->base == REGISTER_SP || a->base == REGISTER_FP))
            load(out, to, a->base, at + (int64_t)(i * a->size));
        else
            clobber(out, to);
    }
}

static void emit_access(const struct access *a, struct instruction *out) {
    int64_t at = a->mode == AT_OFFSET ? a->offset : 0;
    if (a->mode == AT_PRE_INDEX && a->base != REGISTER_OTHER)
        set(out, a->base, a->base, a->offset);
    if (a->is_load)
        emit_loads(a, at, out);
    else
        emit_stores(a, at, out);
    if (a->mode == AT_POST_INDEX && a->base != REGISTER_OTHER)
        set(out, a->base, a->base, a->offset);
}

static void pair(uint32_t word, struct instruction *out) {
    uint32_t opc = bits(word, 30, 2), mode = bits(word, 23, 2);
    bool is_vector = bits(word, 26, 1), is_load = bits(word, 22, 1);
    if (opc == 3) {
        invalid(out);
        return;
    }
    bool tags = !is_vector && opc == 1 && !is_load; /* stgp: 8-byte registers, 16-byte granules */
    uint32_t size = is_vector ? 4u << opc : opc == 2 || tags ? 8 : 4;
    struct access a = {
        .base = with_sp(bits(word, 5, 5)),
        .mode = mode == 1   ? AT_POST_INDEX
                : mode == 3 ? AT_PRE_INDEX
                            : AT_OFFSET,
        .offset = signed_bits(word, 15, 7) * (int64_t)(tags ? 16 : size),
        .registers = 2,
        .size = size,
        .is_load = is_load,
        .is_vector = is_vector,
        .is_wide_load = opc == 2,
        .number = {bits(word, 0, 5), bits(word, 10, 5)},
    };
    emit_access(&a, out);
}

/* Atomic memory operations: ldadd, swp, ldapr and the like return the old value in Rt. */
static void atomic(uint32_t word, struct instruction *out) {
    bool swap = bits(word, 12, 4) == 8, ldapr = (word & 0x00fffc00) == 0x00bfc000;
    if (bits(word, 26, 1) || (bits(word, 15, 1) && !swap && !ldapr)) {
        invalid(out);
        return;
    }
    clobber(out, without_sp(bits(word, 0, 5)));
    if (!ldapr)
        store(out, with_sp(bits(word, 5, 5)), 0, REGISTER_OTHER, 8);
}

/* ldraa, ldrab: the address is authenticated, the rest is an ordinary load. */
static void load_authenticated(uint32_t word, struct instruction *out) {
    struct access a = {
        .base = with_sp(bits(word, 5, 5)),
        .mode = bits(word, 11, 1) ? AT_PRE_INDEX : AT_OFFSET,
        .offset = ((int64_t)bits(word, 12, 9) - (bits(word, 22, 1) ? 512 : 0)) * 8,
        .registers = 1,
        .size = 8,
        .is_load = true,
        .number = {bits(word, 0, 5)},
    };
    if (bits(word, 30, 2) != 3 || bits(word, 26, 1))
        invalid(out);
    else
        emit_access(&a, out);
}

/* Loads and stores of one register. */
static void single(uint32_t word, struct instruction *out) {
    uint32_t size = bits(word, 30, 2), opc = bits(word, 22, 2), form = bits(word, 10, 2);
    bool is_vector = bits(word, 26, 1), scaled = bits(word, 24, 1);
    bool register_offset = !scaled && bits(word, 21, 1);
    if (register_offset && form == 0) {
        atomic(word, out);
        return;
    }
    if (register_offset && form != 2) {
        load_authenticated(word, out);
        return;
    }
    bool prefetch = !is_vector && size == 3 && opc == 2 && (scaled || form == 0 || form == 2);
    if (prefetch)
        return;
    if ((!is_vector && size >= 2 && opc == 3) || (is_vector && opc >= 2 && size != 0)) {
        invalid(out);
        return;
    }
    uint32_t log_size = is_vector && opc >= 2 ? 4 : size;
    struct access a = {
        .base = with_sp(bits(word, 5, 5)),
        .mode = scaled || form == 0 || form == 2 ? AT_OFFSET
                : form == 1                      ? AT_POST_INDEX
                                                 : AT_PRE_INDEX,
        .offset = scaled ? (int64_t)bits(word, 10, 12) << log_size : signed_bits(word, 12, 9),
        .registers = 1,
        .size = 1u << log_size,
        .is_load = is_vector ? opc & 1 : opc != 0,
        .is_vector = is_vector,
        .is_wide_load = size == 3,
        .number = {bits(word, 0, 5)},
    };
    if (register_offset) { /* somewhere in an array */
        a.base = REGISTER_OTHER;
        a.mode = AT_OFFSET;
    }
    emit_access(&a, out);
}

/* Exclusive, ordered, compare and swap: which registers are written depends on three bits. */
static void exclusive(uint32_t word, struct instruction *out) {
    bool o2 = bits(word, 23, 1), is_load = bits(word, 22, 1), o1 = bits(word, 21, 1);
    bool swap = o1 && (o2 || bits(word, 31, 1) == 0); /* cas, casp */
    uint8_t rs = without_sp(bits(word, 16, 5)), rt = without_sp(bits(word, 0, 5));
    if (swap) {
        clobber(out, rs);
        if (!o2) /* casp */
            clobber(out, without_sp(bits(word, 16, 5) + 1));
    } else if (is_load) {
        clobber(out, rt);
        if (o1)
            clobber(out, without_sp(bits(word, 10, 5)));
    } else if (!o2) { /* stxr: the status */
        clobber(out, rs);
    }
    if (swap || !is_load)
        store(out, with_sp(bits(word, 5, 5)), 0, REGISTER_OTHER, 16);
}

/* ld1 to ld4, st1 to st4. */
static void vector_structures(uint32_t word, struct instruction *out) {
    static const uint8_t registers_by_opcode[16] = {4, 0, 4, 0, 3, 0, 3, 1, 2, 0, 2};
    bool single_structure = bits(word, 24, 1), post_index = bits(word, 23, 1), is_load = bits(word, 22, 1);
    uint32_t registers = single_structure ? 4 : registers_by_opcode[bits(word, 12, 4)];
    uint32_t size = registers * (bits(word, 30, 1) ? 16 : 8);
    uint8_t base = with_sp(bits(word, 5, 5));
    if (bits(word, 31, 1) || registers == 0) {
        invalid(out);
        return;
    }
    if (!is_load)
        store(out, base, 0, REGISTER_OTHER, size);
    if (!post_index || base == REGISTER_OTHER)
        return;
    if (bits(word, 16, 5) == 31 && !single_structure)
        set(out, base, base, size);
    else
        clobber(out, base);
}

/* 0x19, 0x1d: memory tags, release-consistent accesses without alignment, memory copy and set. */
static void tags_and_copies(uint32_t word, struct instruction *out) {
    uint32_t rt = bits(word, 0, 5), op2 = bits(word, 10, 2);
    uint8_t base = with_sp(bits(word, 5, 5));
    if (bits(word, 21, 1)) { /* stg, ldg and the like */
        int64_t offset = signed_bits(word, 12, 9) * 16;
        bool load_tag = op2 == 0 && bits(word, 22, 2) != 0; /* ldg, ldgm; stgm, stzgm write blocks */
        if (bits(word, 30, 2) != 3 || bits(word, 26, 1)) {
            invalid(out);
            return;
        }
        if (load_tag)
            clobber(out, without_sp(rt));
        else
            store(out, base, op2 == 1 || op2 == 3 ? 0 : offset, REGISTER_OTHER, UNBOUNDED_STORE);
        if (op2 == 1 || op2 == 3)
            clobber(out, base);
    } else if (op2 == 1) { /* cpyfp, setp, ...: all their registers change */
        clobber(out, without_sp(rt));
        clobber(out, without_sp(bits(word, 5, 5)));
        clobber(out, without_sp(bits(word, 16, 5)));
    } else if (op2 == 0 && !bits(word, 26, 1)) { /* stlur, ldapur */
        if (bits(word, 22, 2) != 0)
            clobber(out, without_sp(rt));
        else
            store(out, base, signed_bits(word, 12, 9), REGISTER_OTHER, 8);
    } else {
        invalid(out);
    }
}

static void loads_and_stores(uint32_t word, struct instruction *out) {
    bool is_vector = bits(word, 26, 1);
    switch (bits(word, 28, 2)) {
    case 0:
        if (is_vector)
            vector_structures(word, out);
        else if (bits(word, 24, 1) == 0)
            exclusive(word, out);
        else
            invalid(out); /* 128-bit atomics */
        break;
    case 1:
        if (bits(word, 24, 1))
            tags_and_copies(word, out);
        else if (!is_vector && bits(word, 30, 2) != 3) /* ldr literal; prfm writes nothing */
            clobber(out, without_sp(bits(word, 0, 5)));
        break;
    case 2:
        pair(word, out);
        break;
    default:
        single(word, out);
    }
}

/* ------------------------------------------------------------------ data processing, registers */

static void data_register(uint32_t word, struct instruction *out) {
    uint32_t rd = bits(word, 0, 5);
    bool extended_add = (word & 0x1f200000) == 0x0b200000 && bits(word, 29, 1) == 0;
    bool random_tag = (word & 0xffe0fc00) == 0x9ac01000; /* irg */
    bool signs_lr = (word & 0xffff0000) == 0xdac10000 && rd == NUMBER_LR;
    bool plain_move = (word & 0xffe0ffe0) == 0xaa0003e0; /* mov xd, xm */
    if (signs_lr)                                        /* pacia lr, sp and the like */
        return;
    if (extended_add || random_tag) {
        clobber(out, with_sp(rd));
    } else if (plain_move && without_sp(rd) != REGISTER_OTHER &&
               without_sp(bits(word, 16, 5)) != REGISTER_OTHER) {
        set(out, without_sp(rd), without_sp(bits(word, 16, 5)), 0);
    } else {
        clobber(out, without_sp(rd));
    }
}

/* Scalar floating point and vectors write general registers only in conversions and moves. */
static void data_vector(uint32_t word, struct instruction *out) {
    uint32_t rd = bits(word, 0, 5), opcode = bits(word, 16, 3), mode = bits(word, 19, 2);
    bool to_integer = opcode <= 1 || (opcode >= 4 && opcode <= 6);
    bool conversion = (word & 0x7f20fc00) == 0x1e200000;
    bool fixed_point = (word & 0x7f200000) == 0x1e000000;
    bool element_move = (word & 0xbfe0ec00) == 0x0e002c00;
    if ((conversion && to_integer) || (fixed_point && mode == 3 && opcode <= 1) || element_move)
        clobber(out, without_sp(rd));
}

/* SVE: integer instructions may write general registers, by no simple rule; taken to write all that
 * their lowest bits could mean. */
static void scalable_vector(uint32_t word, struct instruction *out) {
    uint32_t rd = bits(word, 0, 5), top = bits(word, 24, 8);
    if ((word & 0xffa0f000) == 0x04205000) /* addvl, addpl, addsvl, addspl */
        clobber(out, with_sp(rd));
    else if (top == 0x04 || top == 0x05 || top == 0x25)
        clobber(out, without_sp(rd));
    else if (bits(word, 29, 3) == 7) /* stores, in units of the vector length */
        store(out, with_sp(bits(word, 5, 5)), -UNBOUNDED_STORE / 2, REGISTER_OTHER, UNBOUNDED_STORE);
}

void aarch64_decode(const uint8_t *bytes, size_t size, uint64_t address, struct instruction *out) {
    *out = (struct instruction){.flow = FLOW_NEXT, .length = 4};
    if (size < 4) {
        *out = (struct instruction){.flow = FLOW_INVALID};
        return;
    }
    uint32_t word =
        (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    uint32_t class = bits(word, 25, 4);
    if ((word & 0xffff0000) == 0) /* udf */
        out->flow = FLOW_STOP;
    else if (class == 2)
        scalable_vector(word, out);
    else if (class == 8 || class == 9)
        data_immediate(word, out);
    else if (class == 10 || class == 11)
        branches(word, address, out);
    else if ((class & 5) == 4)
        loads_and_stores(word, out);
    else if ((class & 7) == 5)
        data_register(word, out);
    else if ((class & 7) == 7)
        data_vector(word, out);
    else
        invalid(out);
    if (out->flow == FLOW_INVALID)
        *out = (struct instruction){.flow = FLOW_INVALID};
}
