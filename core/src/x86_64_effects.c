/*
 * x86_64_effects.c: flow of control and stack effects of an x86_64 instruction taken apart.
 *
 * Every instruction that may write rsp, rbp or rbx says so: exactly where that can be said, else by
 * EFFECT_CLOBBER, which follows from the operand byte alone.
 */
#include "x86_64_parts.h"

#include <string.h>

enum { UNBOUNDED_STORE = 16384 };

/* rsp's, rbp's or rbx's place among the stack registers; anything else is REGISTER_OTHER. */
static uint8_t stack_register(unsigned number) {
    static const uint8_t places[] = {REGISTER_BX, REGISTER_SP, REGISTER_FP};
    return number >= NUMBER_RBX && number <= NUMBER_RBP ? places[number - NUMBER_RBX] : REGISTER_OTHER;
}

static void set(struct instruction *out, uint8_t to, uint8_t from, int64_t offset) {
    instruction_effect(out,
                       (struct stack_effect){.kind = EFFECT_SET, .to = to, .from = from, .offset = offset});
}

static void load(struct instruction *out, uint8_t to, uint8_t from, int64_t offset) {
    instruction_effect(out,
                       (struct stack_effect){.kind = EFFECT_LOAD, .to = to, .from = from, .offset = offset});
}

static void store(struct instruction *out, uint8_t to, int64_t offset, uint8_t from, uint32_t size) {
    instruction_effect(
        out,
        (struct stack_effect){.kind = EFFECT_STORE, .to = to, .from = from, .size = size, .offset = offset});
}

static void clobber(struct instruction *out, unsigned number) {
    if (stack_register(number) != REGISTER_OTHER)
        instruction_effect(out, (struct stack_effect){.kind = EFFECT_CLOBBER, .to = stack_register(number)});
}

/* Numbers 4 to 7 of 8-bit registers mean ah, ch, dh, bh unless there is a REX prefix. */
static void clobber_operand(struct instruction *out, const struct x86_64_parts *p, unsigned number) {
    if ((p->operands & IS_BYTE) == 0 || p->has_rex)
        clobber(out, number);
    else if (number < 4 || number == 7)
        clobber(out, number & 3);
}

static uint32_t x87_store_size(const struct x86_64_parts *p) {
    static const uint8_t sizes[4][8] = {
        /* by d9, db, dd, df and group; 0: no store */
        {0, 0, 4, 4, 0, 0, 28, 2},
        {0, 4, 4, 4, 0, 0, 0, 10},
        {0, 8, 8, 8, 0, 0, 108, 2},
        {0, 2, 2, 2, 0, 0, 10, 8},
    };
    return p->opcode & 1 ? sizes[(p->opcode - 0xd9) / 2][p->reg & 7] : 0;
}

/* 0F AE and 0F C7: fxsave and its kin. */
static uint32_t save_area_size(const struct x86_64_parts *p) {
    unsigned group = p->reg & 7;
    if (p->opcode == 0xc7)
        return group == 1 ? 16 : group == 3 || group == 4 || group == 5 ? UNBOUNDED_STORE : 0;
    return group == 0 ? 512 : group == 3 ? 4 : group == 4 || group == 6 ? UNBOUNDED_STORE : 0;
}

/* How many bytes at most an instruction stores to its memory operand. */
static uint32_t store_size(const struct x86_64_parts *p) {
    if (p->map == MAP_ONE_BYTE && p->opcode >= 0xd8 && p->opcode <= 0xdf && (p->operands & WRITES_RM) == 0)
        return x87_store_size(p);
    if (p->encoding == ENCODING_LEGACY && p->map == MAP_0F) {
        if (p->opcode == 0xae || p->opcode == 0xc7)
            return save_area_size(p);
        if (p->opcode == 0x01 || p->opcode == 0x00) /* sgdt, sidt, smsw; sldt, str */
            return 10;
    }
    if ((p->operands & WRITES_RM) == 0)
        return 0;
    if (p->operands & IS_VECTOR) {
        if (p->map == MAP_0F && p->opcode == 0x11 && p->pp >= 0xf2) /* movss, movsd */
            return p->pp == 0xf3 ? 4 : 8;
        return p->vector_size;
    }
    if (p->operands & IS_BYTE)
        return 1;
    return p->map != MAP_ONE_BYTE || p->wide ? 8 : p->operand16 ? 2 : 4;
}

/* EVEX scales an 8-bit displacement by the size of its memory operand. That size is plain for whole
 * vectors; of anything else only the range that can be hit is told. */
static void store_evex(struct instruction *out, const struct x86_64_parts *p) {
    bool whole = p->map == MAP_0F && (p->opcode == 0x29 || p->opcode == 0x2b || p->opcode == 0x7f ||
                                      p->opcode == 0xe7 || (p->opcode == 0x11 && p->pp < 0xf2));
    int64_t scaled = p->displacement * (int64_t)p->vector_size;
    int64_t low = p->displacement < 0 ? scaled : p->displacement;
    int64_t high = p->displacement < 0 ? p->displacement : scaled;
    if (!p->displacement8)
        low = high = p->displacement;
    if (whole && p->displacement8)
        low = high = scaled;
    store(out, p->base, low, REGISTER_OTHER, (uint32_t)(high - low) + p->vector_size);
}

static void store_operand(struct instruction *out, const struct x86_64_parts *p) {
    uint32_t size = store_size(p);
    if (p->base == REGISTER_OTHER || size == 0)
        return;
    if (p->encoding == ENCODING_EVEX) {
        store_evex(out, p);
        return;
    }
    store(out, p->base, p->displacement, REGISTER_OTHER, size);
}

/* What follows from the operand byte alone. */
static void plain_effects(struct instruction *out, const struct x86_64_parts *p) {
    if ((p->operands & HAS_MODRM) == 0) {
        if (p->operands & WRITES_REG)
            clobber_operand(out, p, (p->opcode & 7u) | p->extend_rm);
        return;
    }
    if (p->operands & WRITES_REG)
        clobber_operand(out, p, p->reg);
    if (p->mod != 3)
        store_operand(out, p);
    else if ((p->operands & (WRITES_RM | IS_VECTOR)) == WRITES_RM)
        clobber_operand(out, p, p->rm);
}

static void push(struct instruction *out, const struct x86_64_parts *p, uint8_t from) {
    int64_t size = p->operand16 && !p->wide ? 2 : 8;
    store(out, REGISTER_SP, -size, size == 8 ? from : REGISTER_OTHER, (uint32_t)size);
    set(out, REGISTER_SP, REGISTER_SP, -size);
}

static void pop(struct instruction *out, const struct x86_64_parts *p, unsigned number) {
    int64_t size = p->operand16 && !p->wide ? 2 : 8;
    if (size == 8 && (number == NUMBER_RBP || number == NUMBER_RBX))
        load(out, stack_register(number), REGISTER_SP, 0);
    if (size == 8 && number == NUMBER_RSP) {
        load(out, REGISTER_SP, REGISTER_SP, 0);
        return;
    }
    set(out, REGISTER_SP, REGISTER_SP, size);
    if (size != 8)
        clobber(out, number);
}

/* 80, 81, 83: add, sub and others with an immediate; 80 for bytes. */
static void add_immediate(struct instruction *out, const struct x86_64_parts *p) {
    unsigned group = p->reg & 7;
    if (group == 7) /* cmp */
        return;
    uint8_t to = p->mod == 3 ? stack_register(p->rm) : REGISTER_OTHER;
    bool is_whole = p->wide && p->opcode != 0x80;
    if (is_whole && to != REGISTER_OTHER && (group == 0 || group == 5))
        set(out, to, to, group == 0 ? p->immediate : -p->immediate);
    else
        plain_effects(out, p);
}

/* 89, 8b: mov between a register and a register or memory. */
static void move(struct instruction *out, const struct x86_64_parts *p) {
    bool from_rm = p->opcode == 0x8b;
    uint8_t reg = stack_register(p->reg);
    uint8_t rm = p->mod == 3 ? stack_register(p->rm) : p->base;
    if (!p->wide || reg == REGISTER_OTHER || rm == REGISTER_OTHER)
        plain_effects(out, p);
    else if (p->mod != 3 && from_rm)
        load(out, reg, rm, p->displacement);
    else if (p->mod != 3)
        store(out, rm, p->displacement, reg, 8);
    else
        set(out, from_rm ? reg : rm, from_rm ? rm : reg, 0);
}

static void enter(struct instruction *out, const struct x86_64_parts *p) {
    push(out, p, REGISTER_FP);
    if ((p->immediate >> 16 & 0x1f) != 0 || p->operand16) { /* nested frames: nobody uses them */
        clobber(out, NUMBER_RSP);
        clobber(out, NUMBER_RBP);
        return;
    }
    set(out, REGISTER_FP, REGISTER_SP, 0);
    set(out, REGISTER_SP, REGISTER_SP, -(p->immediate & 0xffff));
}

static void leave(struct instruction *out, const struct x86_64_parts *p) {
    set(out, REGISTER_SP, REGISTER_FP, 0);
    pop(out, p, NUMBER_RBP);
}

/* Near branches. A 16-bit operand size means different things to different makers' processors. */
static void branch(struct instruction *out, const struct x86_64_parts *p, uint8_t flow, bool direct) {
    if (p->operand16 && !p->wide) {
        out->flow = FLOW_INVALID;
        return;
    }
    out->flow = flow;
    out->has_target = direct;
    if (direct)
        out->target += (uint64_t)p->immediate; /* it holds the next instruction's address so far */
}

static void call(struct instruction *out, const struct x86_64_parts *p) {
    branch(out, p, FLOW_CALL, true);
    if (out->flow == FLOW_CALL && p->immediate == 0) { /* the way to push the own address */
        out->flow = FLOW_NEXT;
        out->has_target = 0;
        push(out, p, REGISTER_OTHER);
    }
}

/* ff */
static void group5(struct instruction *out, const struct x86_64_parts *p) {
    switch (p->reg & 7) {
    case 2:
        branch(out, p, FLOW_CALL, false);
        break;
    case 4:
        branch(out, p, FLOW_INDIRECT_JUMP, false);
        break;
    case 6:
        push(out, p, p->mod == 3 ? stack_register(p->rm) : REGISTER_OTHER);
        break;
    default:
        plain_effects(out, p);
    }
}

/* 8f: the address is computed after sp has moved. */
static void pop_operand(struct instruction *out, const struct x86_64_parts *p) {
    if (p->mod == 3) {
        pop(out, p, p->rm);
        return;
    }
    set(out, REGISTER_SP, REGISTER_SP, p->operand16 ? 2 : 8);
    if (p->base != REGISTER_OTHER)
        store(out, p->base, p->displacement, REGISTER_OTHER, 8);
}

static void control_effects(struct instruction *out, const struct x86_64_parts *p) {
    switch (p->opcode) {
    case 0xc2:
    case 0xc3:
        branch(out, p, FLOW_RETURN, false);
        out->popped = 8 + (p->opcode == 0xc2 ? (uint32_t)(p->immediate & 0xffff) : 0);
        break;
    case 0xc7: /* xbegin: an abort continues at its target */
        if ((p->reg & 7) == 7)
            branch(out, p, FLOW_BRANCH, true);
        else
            plain_effects(out, p);
        break;
    case 0xcc:
    case 0xf1:
    case 0xf4:
        out->flow = FLOW_STOP;
        break;
    case 0xcd: /* only Linux's 32-bit system call comes back */
        out->flow = (p->immediate & 0xff) == 0x80 ? FLOW_NEXT : FLOW_STOP;
        break;
    case 0xe8:
        call(out, p);
        break;
    case 0xe9:
    case 0xeb:
        branch(out, p, FLOW_JUMP, true);
        break;
    case 0xff:
        group5(out, p);
        break;
    default: /* jcc, loop, jrcxz */
        branch(out, p, FLOW_BRANCH, true);
    }
}

static bool is_control(uint8_t opcode) {
    static const uint8_t others[] = {0xc2, 0xc3, 0xc7, 0xcc, 0xcd, 0xe8, 0xe9, 0xeb, 0xf1, 0xf4, 0xff};
    bool is_one = (opcode >= 0x70 && opcode <= 0x7f) || (opcode >= 0xe0 && opcode <= 0xe3); /* conditional */
    for (size_t i = 0; i < sizeof others; i++)
        is_one = is_one || opcode == others[i];
    return is_one;
}

static void load_address(struct instruction *out, const struct x86_64_parts *p) {
    if (p->wide && p->base != REGISTER_OTHER && stack_register(p->reg) != REGISTER_OTHER)
        set(out, stack_register(p->reg), p->base, p->displacement);
    else
        plain_effects(out, p);
}

static void one_byte_effects(struct instruction *out, const struct x86_64_parts *p) {
    unsigned number = (p->opcode & 7u) | p->extend_rm;
    if (p->opcode >= 0x50 && p->opcode <= 0x57) {
        push(out, p, stack_register(number));
        return;
    }
    if (p->opcode >= 0x58 && p->opcode <= 0x5f) {
        pop(out, p, number);
        return;
    }
    if (is_control(p->opcode)) {
        control_effects(out, p);
        return;
    }
    switch (p->opcode) {
    case 0x68: /* push immediate, pushf */
    case 0x6a:
    case 0x9c:
        push(out, p, REGISTER_OTHER);
        break;
    case 0x9d: /* popf */
        pop(out, p, 0);
        break;
    case 0x80:
    case 0x81:
    case 0x83:
        add_immediate(out, p);
        break;
    case 0x89:
    case 0x8b:
        move(out, p);
        break;
    case 0x8d:
        load_address(out, p);
        break;
    case 0x8f:
        pop_operand(out, p);
        break;
    case 0xc8:
        enter(out, p);
        break;
    case 0xc9:
        leave(out, p);
        break;
    default:
        plain_effects(out, p);
    }
}

static void two_byte_effects(struct instruction *out, const struct x86_64_parts *p) {
    unsigned group = p->reg & 7;
    bool system_group = p->opcode <= 0x01;
    switch (p->opcode) {
    case 0x0b: /* ud2, ud1, ud0 */
    case 0xb9:
    case 0xff:
        out->flow = FLOW_STOP;
        return;
    case 0xa0: /* push fs, push gs */
    case 0xa8:
        push(out, p, REGISTER_OTHER);
        return;
    case 0xa1: /* pop fs, pop gs */
    case 0xa9:
        pop(out, p, 0);
        return;
    case 0xa2: /* cpuid */
        clobber(out, NUMBER_RBX);
        return;
    case 0xa3:
        return;
    case 0xba: /* bt */
        if (group == 4)
            return;
        break;
    case 0x1e: /* rdssp */
        if (p->pp == 0xf3 && group == 1 && p->mod == 3)
            clobber(out, p->rm);
        return;
    case 0xae: /* rdfsbase, rdgsbase */
        if (p->pp == 0xf3 && group <= 1 && p->mod == 3)
            clobber(out, p->rm);
        break;
    case 0xc7: /* rdrand, rdseed, rdpid */
        if (group >= 6 && p->mod == 3)
            clobber(out, p->rm);
        break;
    }
    if (system_group && p->mod == 3 && (p->opcode == 0 ? group <= 1 : group == 4)) /* sldt, str, smsw */
        clobber(out, p->rm);
    if (p->opcode >= 0x80 && p->opcode <= 0x8f)
        branch(out, p, FLOW_BRANCH, true);
    else
        plain_effects(out, p);
}

static void vector_effects(struct instruction *out, const struct x86_64_parts *p) {
    if (p->encoding == ENCODING_VEX && p->map == MAP_0F38 && (p->opcode == 0xf3 || p->opcode == 0xf6))
        clobber(out, p->vvvv); /* blsr, blsmsk, blsi; mulx */
    if (p->encoding == ENCODING_XOP && p->map == MAP_XOP9 && (p->opcode == 1 || p->opcode == 2))
        clobber(out, p->vvvv); /* blcfill and the like */
    plain_effects(out, p);
}

void x86_64_effects(struct instruction *out, const struct x86_64_parts *p) {
    if (p->encoding != ENCODING_LEGACY)
        vector_effects(out, p);
    else if (p->map == MAP_ONE_BYTE)
        one_byte_effects(out, p);
    else if (p->map == MAP_0F)
        two_byte_effects(out, p);
    else
        plain_effects(out, p);
}
