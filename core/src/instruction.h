/*
 * instruction.h: what one machine instruction does to the stack and to the flow of control.
 *
 * Code analysis needs only this much of an instruction: its length, where control goes, and how sp,
 * fp (rbp, x29) and lr (x30) change. Decoders say INVALID for what they do not know and CLOBBER for
 * a register whose new value they can't express; they never guess.
 */
#ifndef UNSPOOL_INSTRUCTION_H
#define UNSPOOL_INSTRUCTION_H

#include <stddef.h>
#include <stdint.h>

enum instruction_flow {
    FLOW_NEXT = 0,      /* on to the next instruction (system calls too) */
    FLOW_CALL,          /* direct or indirect; comes back with sp, fp kept and lr clobbered */
    FLOW_RETURN,        /* x86_64: to [sp]; aarch64: to lr. Effects apply before the return */
    FLOW_JUMP,          /* unconditional, to target */
    FLOW_BRANCH,        /* conditional, to target or on */
    FLOW_INDIRECT_JUMP, /* through a register or memory */
    FLOW_STOP,          /* does not go on: ud2, hlt, int3, brk, udf */
    FLOW_INVALID,       /* not an instruction that we know, or cut off */
};

enum stack_register { REGISTER_SP = 0, REGISTER_FP, REGISTER_LR, STACK_REGISTERS };

enum effect_kind {
    EFFECT_SET,     /* to = from + offset */
    EFFECT_LOAD,    /* to = [from + offset] */
    EFFECT_STORE,   /* [to + offset] = from */
    EFFECT_CLOBBER, /* to = unknown */
    EFFECT_ALIGN,   /* to = to & offset (offset is the mask, sign-extended) */
};

struct stack_effect {
    uint8_t kind; /* enum effect_kind */
    uint8_t to;   /* enum stack_register */
    uint8_t from;
    int64_t offset;
};

#define INSTRUCTION_EFFECTS 4
struct instruction {
    uint32_t length;
    uint8_t flow; /* enum instruction_flow */
    uint8_t effect_count;
    uint8_t has_target;                               /* target is known: direct calls, jumps, branches */
    uint64_t target;                                  /* address */
    struct stack_effect effects[INSTRUCTION_EFFECTS]; /* in order */
};

/* Decode the instruction at address. bytes may hold less than a whole instruction: INVALID then. */
void x86_64_decode(const uint8_t *bytes, size_t size, uint64_t address, struct instruction *out);
void aarch64_decode(const uint8_t *bytes, size_t size, uint64_t address, struct instruction *out);

#endif
