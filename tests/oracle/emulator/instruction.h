/*
 * instruction.h: what an aarch64 instruction does to the stack of calls, as far as the truth needs it.
 *
 * Deliberately not the product's decoder: the truth must not share its mistakes.
 */
#ifndef ORACLE_EMULATOR_INSTRUCTION_H
#define ORACLE_EMULATOR_INSTRUCTION_H

#include <stdint.h>

enum instruction_kind {
    INSTRUCTION_OTHER,
    INSTRUCTION_CALL,
    INSTRUCTION_RETURN,
    INSTRUCTION_INDIRECT_JUMP,
    INSTRUCTION_SYSCALL,
    INSTRUCTION_SET_SP, /* mov sp from another register than the frame pointer */
};

enum instruction_kind instruction_kind(uint32_t word);

#endif
