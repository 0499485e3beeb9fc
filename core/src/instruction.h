/*
 * instruction.h: what one machine instruction does to the stack and to the flow of control.
 *
 * Code analysis needs only this much of an instruction: its length, where control goes, how sp, fp
 * (rbp, x29) and lr (x30) change, and what it stores relative to sp and fp. Decoders say INVALID for
 * what they do not know and CLOBBER for a register whose new value they can't express; they never
 * guess. Stores through any other register are not told: see analysis.c for what that assumes.
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
    FLOW_INVALID,       /* not an instruction that we know, or cut off; length is 0 */
};

/* BX (rbx) is told for code_rows.c alone; the others are followed wherever code is analysed. */
enum stack_register {
    REGISTER_SP = 0,
    REGISTER_FP,
    REGISTER_LR,
    STACK_REGISTERS,
    REGISTER_BX = STACK_REGISTERS,
    REGISTER_OTHER,
};

enum effect_kind {
    EFFECT_SET,     /* to = from + offset */
    EFFECT_LOAD,    /* to = the 8 bytes at [from + offset] */
    EFFECT_STORE,   /* size bytes at [to + offset] = from; from may be REGISTER_OTHER: any value */
    EFFECT_CLOBBER, /* to = unknown */
};

struct stack_effect {
    uint8_t kind; /* enum effect_kind */
    uint8_t to;   /* enum stack_register */
    uint8_t from;
    uint32_t size; /* EFFECT_STORE: at most that many bytes; 8 when from is a stack register */
    int64_t offset;
};

#define INSTRUCTION_EFFECTS 4
struct instruction {
    uint32_t length;
    uint8_t flow; /* enum instruction_flow */
    uint8_t effect_count;
    uint8_t has_target;                               /* target is known: direct calls, jumps, branches */
    uint32_t popped;                                  /* what a return takes off the stack, in bytes */
    uint64_t target;                                  /* address */
    struct stack_effect effects[INSTRUCTION_EFFECTS]; /* in order */
};

/* Decode the instruction at address. bytes may hold less than a whole instruction: INVALID then. */
void x86_64_decode(const uint8_t *bytes, size_t size, uint64_t address, struct instruction *out);
void aarch64_decode(const uint8_t *bytes, size_t size, uint64_t address, struct instruction *out);

#define X86_64_LONGEST 15
/* How many bytes the instructions take that the code begins with and that are quickly seen not to write sp,
 * as x86_64_decode would say: what follows is to be decoded. They lie in the first `size` bytes; up to
 * `readable` bytes, `size` or more, may be looked at. */
size_t x86_64_plain_bytes(const uint8_t *bytes, size_t size, size_t readable);
/* The length of an instruction that is quickly seen to go on to the next one and to have no effects; 0:
 * x86_64_decode tells. X86_64_LONGEST bytes must be readable. */
size_t x86_64_idle_length(const uint8_t *bytes);

/* For the decoders: appends an effect. What does not fit makes the instruction INVALID. */
static inline void instruction_effect(struct instruction *out, struct stack_effect effect) {
    if (out->effect_count == INSTRUCTION_EFFECTS) {
        out->flow = FLOW_INVALID;
        return;
    }
    out->effects[out->effect_count++] = effect;
}

#endif
