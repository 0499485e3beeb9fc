/*
 * x86_64_decode.c: takes an x86_64 instruction apart and finds its length.
 *
 * Works on untrusted bytes: every read is bounded by the size given and by the 15 bytes that an
 * instruction may have. It knows no far calls and returns, no moves of control registers, no 3DNow or
 * APX: these are INVALID. Undefined vector opcodes are not told from defined ones, since they write no
 * general register. After the Intel Software Developer's Manual, volume 2, chapters 2 to 6.
 */
#include <string.h>

#include "x86_64_parts.h"

enum { LONGEST_INSTRUCTION = 15 };

static uint64_t take(struct x86_64_parts *p, unsigned count) {
    uint64_t value = 0;
    if (p->size - p->used < count) {
        p->bad = true;
        return 0;
    }
    const uint8_t *at = p->bytes + p->used;
    p->used += count;
    uint32_t four;
    switch (count) {
    case 0:
        return 0;
    case 1:
        return *at;
    case 4:
        memcpy(&four, at, sizeof four);
        return four;
    default:
        for (unsigned i = 0; i < count; i++)
            value |= (uint64_t)at[i] << (8 * i);
        return value;
    }
}

static uint8_t take_byte(struct x86_64_parts *p) {
    return (uint8_t)take(p, 1);
}

static int64_t take_signed(struct x86_64_parts *p, unsigned count) {
    uint64_t value = take(p, count);
    if (count == 0 || count == 8)
        return (int64_t)value;
    uint64_t sign = (uint64_t)1 << (8 * count - 1);
    return (int64_t)((value ^ sign) - sign);
}

static void set_rex(struct x86_64_parts *p, uint8_t rex) {
    p->has_rex = rex != 0;
    p->wide = rex & 8;
    p->extend_reg = rex & 4 ? 8 : 0;
    p->extend_index = rex & 2 ? 8 : 0;
    p->extend_rm = rex & 1 ? 8 : 0;
}

/* Legacy prefixes and REX; returns the first byte after them. A REX that another prefix follows does
 * not count. */
static uint8_t parse_prefixes(struct x86_64_parts *p) {
    while (!p->bad) {
        uint8_t byte = take_byte(p);
        switch (byte) {
        case 0x66:
            p->operand16 = true;
            break;
        case 0x67:
            p->address32 = true;
            break;
        case 0xf2:
        case 0xf3:
            p->repeat = byte;
            break;
        case 0x64:
        case 0x65:
            p->other_segment = true;
            break;
        case 0x26:
        case 0x2e:
        case 0x36:
        case 0x3e:
        case 0xf0:
            break;
        default:
            if ((byte & 0xf0) != 0x40)
                return byte;
            set_rex(p, byte);
            continue;
        }
        set_rex(p, 0);
    }
    return 0;
}

static const uint8_t mandatory_prefixes[4] = {0, 0x66, 0xf3, 0xf2};

/* The last payload byte of VEX and the second of EVEX: W vvvv L pp. */
static void parse_vector_byte(struct x86_64_parts *p, uint8_t byte) {
    p->wide = byte & 0x80;
    p->vvvv = (uint8_t)(~byte >> 3 & 0x0f);
    p->pp = mandatory_prefixes[byte & 3];
}

/* The inverted extension bits R, X, B at the top of a payload byte. */
static void parse_extensions(struct x86_64_parts *p, uint8_t byte) {
    p->extend_reg = byte & 0x80 ? 0 : 8;
    p->extend_index = byte & 0x40 ? 0 : 8;
    p->extend_rm = byte & 0x20 ? 0 : 8;
}

static void parse_vex(struct x86_64_parts *p, uint8_t first) {
    p->encoding = ENCODING_VEX;
    if (p->has_rex || p->operand16 || p->repeat != 0)
        p->bad = true;
    uint8_t byte = take_byte(p);
    if (first == 0xc5) {
        p->extend_reg = byte & 0x80 ? 0 : 8;
        p->map = MAP_0F;
        parse_vector_byte(p, byte & 0x7f);
    } else {
        parse_extensions(p, byte);
        p->map = byte & 0x1f;
        byte = take_byte(p);
        parse_vector_byte(p, byte);
        if (p->map < MAP_0F || p->map > MAP_0F3A)
            p->bad = true;
    }
    p->vector_size = byte & 4 ? 32 : 16;
}

static void parse_xop(struct x86_64_parts *p) {
    p->encoding = ENCODING_XOP;
    if (p->has_rex || p->operand16 || p->repeat != 0)
        p->bad = true;
    uint8_t first = take_byte(p), second = take_byte(p);
    parse_extensions(p, first);
    p->map = first & 0x1f;
    parse_vector_byte(p, second);
    p->vector_size = second & 4 ? 32 : 16;
    if (p->pp != 0)
        p->bad = true;
}

static void parse_evex(struct x86_64_parts *p) {
    p->encoding = ENCODING_EVEX;
    uint8_t first = take_byte(p), second = take_byte(p), third = take_byte(p);
    if (p->has_rex || p->operand16 || p->repeat != 0 || (first & 8) != 0 || (second & 4) == 0)
        p->bad = true;
    parse_extensions(p, first);
    p->map = first & 7;
    if (p->map == MAP_ONE_BYTE || p->map == 4 || p->map > MAP_EVEX6)
        p->bad = true;
    parse_vector_byte(p, second);
    p->vector_size = 16u << (third >> 5 & 3);
    if (p->vector_size > 64) /* with a register operand L'L is a rounding mode */
        p->vector_size = 64;
}

static void parse_opcode(struct x86_64_parts *p) {
    uint8_t byte = parse_prefixes(p);
    p->vector_size = 16;
    p->pp = p->repeat != 0 ? p->repeat : p->operand16 ? 0x66 : 0;
    if (byte == 0xc4 || byte == 0xc5) {
        parse_vex(p, byte);
        byte = take_byte(p);
    } else if (byte == 0x62) {
        parse_evex(p);
        byte = take_byte(p);
    } else if (byte == 0x8f && p->used < p->size && (p->bytes[p->used] & 0x1f) >= MAP_XOP8) {
        parse_xop(p); /* a pop has less there */
        byte = take_byte(p);
    } else if (byte == 0x0f) {
        p->map = MAP_0F;
        byte = take_byte(p);
        if (byte == 0x38 || byte == 0x3a) {
            p->map = byte == 0x38 ? MAP_0F38 : MAP_0F3A;
            byte = take_byte(p);
        }
    }
    p->opcode = byte;
    p->operands = x86_64_operands(p->map, p->opcode, p->pp, p->encoding);
    if (OPERAND_IMMEDIATE(p->operands) == IMM_INVALID)
        p->bad = true;
}

static void parse_modrm(struct x86_64_parts *p) {
    uint8_t byte = take_byte(p);
    p->mod = byte >> 6;
    p->reg = (uint8_t)((byte >> 3 & 7) | p->extend_reg);
    p->rm = (uint8_t)((byte & 7) | p->extend_rm);
    p->base = REGISTER_OTHER;
    if (p->mod == 3)
        return;
    unsigned base = p->rm;
    bool plain = !p->other_segment && !p->address32;
    bool no_base = (byte & 7) == 5 && p->mod == 0; /* rip-relative */
    if ((byte & 7) == 4) {
        uint8_t sib = take_byte(p);
        base = (sib & 7u) | p->extend_rm;
        no_base = (sib & 7) == 5 && p->mod == 0;
        if (((sib >> 3 & 7u) | p->extend_index) != 4) /* 4: no index */
            plain = false;
    }
    p->displacement8 = p->mod == 1;
    p->displacement = take_signed(p, p->mod == 1 ? 1 : p->mod == 2 || no_base ? 4 : 0);
    if (plain && !no_base && base == NUMBER_RSP)
        p->base = REGISTER_SP;
    if (plain && !no_base && base == NUMBER_RBP)
        p->base = REGISTER_FP;
    if (plain && !no_base && base == NUMBER_RBX)
        p->base = REGISTER_BX;
}

/* Opcodes whose ModRM byte decides what follows, or whether they exist. */
static void adjust_group(struct x86_64_parts *p) {
    unsigned group = p->reg & 7;
    if (p->map != MAP_ONE_BYTE)
        return;
    switch (p->opcode) {
    case 0x8d: /* lea needs memory */
        p->bad |= p->mod == 3;
        break;
    case 0x8f:
        p->bad |= group != 0;
        break;
    case 0xc6: /* mov; xabort */
    case 0xc7: /* mov; xbegin */
        p->bad |= group != 0 && !(group == 7 && p->mod == 3 && (p->rm & 7) == 0);
        if (group == 7)
            p->operands = p->opcode == 0xc6 ? M1 : MZ;
        break;
    case 0xf6: /* test; not, neg; mul and div write rax and rdx only */
    case 0xf7:
        if (group <= 1)
            p->operands = p->opcode == 0xf6 ? M1 : MZ;
        else if (group >= 4)
            p->operands = MM;
        break;
    case 0xfe:
        p->bad |= group > 1;
        break;
    case 0xff: /* far calls and jumps */
        p->bad |= group == 3 || group == 5 || group == 7;
        if (group >= 2)
            p->operands = MM;
        break;
    }
}

static void parse_immediate(struct x86_64_parts *p) {
    unsigned count = 0;
    switch (OPERAND_IMMEDIATE(p->operands)) {
    case IMM_8:
        count = 1;
        break;
    case IMM_Z:
        count = p->operand16 && !p->wide ? 2 : 4;
        break;
    case IMM_16:
        count = 2;
        break;
    case IMM_16_8:
        count = 3;
        break;
    case IMM_V:
        count = p->wide ? 8 : p->operand16 ? 2 : 4;
        break;
    case IMM_OFFSET:
        count = p->address32 ? 4 : 8;
        break;
    }
    p->immediate = take_signed(p, count);
}

void x86_64_decode(const uint8_t *bytes, size_t size, uint64_t address, struct instruction *out) {
    struct x86_64_parts p = {.bytes = bytes, .size = size < LONGEST_INSTRUCTION ? size : LONGEST_INSTRUCTION};
    out->length = 0; /* effects beyond their count are left as they are */
    out->flow = FLOW_INVALID;
    out->effect_count = 0;
    out->has_target = 0;
    out->popped = 0;
    out->target = 0;
    parse_opcode(&p);
    if (!p.bad && (p.operands & HAS_MODRM) != 0) {
        parse_modrm(&p);
        adjust_group(&p);
    }
    if (!p.bad)
        parse_immediate(&p);
    if (p.bad)
        return;
    out->flow = FLOW_NEXT;
    out->target = address + p.used;
    x86_64_effects(out, &p);
    if (!out->has_target)
        out->target = 0;
    if (out->flow == FLOW_INVALID)
        *out = (struct instruction){.flow = FLOW_INVALID};
    else
        out->length = (uint32_t)p.used;
}
