/*
 * instruction.h: what an x86_64 instruction does to the stack of calls, as far as the truth needs it.
 *
 * Deliberately not the product's decoder: the truth must not share its mistakes.
 */
#ifndef ORACLE_INSTRUCTION_H
#define ORACLE_INSTRUCTION_H

#include <stddef.h>
#include <stdint.h>

enum instruction_kind {
    INSTRUCTION_OTHER,
    INSTRUCTION_CALL,
    INSTRUCTION_RETURN,
    INSTRUCTION_INDIRECT_JUMP,
    INSTRUCTION_SYSCALL,
};

enum instruction_kind instruction_kind(const uint8_t *bytes, size_t size);

#endif
