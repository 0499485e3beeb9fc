/* instruction.c: see instruction.h. Intel SDM volume 2: legacy prefixes, REX, opcode, ModRM. */
#include "instruction.h"

#include <stdbool.h>

static bool is_prefix(uint8_t byte) {
    switch (byte) {
    case 0x26:
    case 0x2e:
    case 0x36:
    case 0x3e:
    case 0x64:
    case 0x65: /* segment, branch hint, notrack */
    case 0x66:
    case 0x67: /* operand and address size */
    case 0xf0:
    case 0xf2:
    case 0xf3: /* lock, bnd, rep */
        return true;
    default:
        return false;
    }
}

enum instruction_kind instruction_kind(const uint8_t *bytes, size_t size) {
    size_t at = 0;
    while (at < size && is_prefix(bytes[at]))
        at++;
    if (at < size && (bytes[at] & 0xf0) == 0x40) /* REX */
        at++;
    if (at >= size)
        return INSTRUCTION_OTHER;
    uint8_t opcode = bytes[at];
    uint8_t next = at + 1 < size ? bytes[at + 1] : 0;
    if (opcode == 0xe8)
        return INSTRUCTION_CALL;
    if (opcode == 0xc3 || opcode == 0xc2)
        return INSTRUCTION_RETURN;
    if (opcode == 0xff && (next >> 3 & 7) == 2)
        return INSTRUCTION_CALL;
    if (opcode == 0xff && (next >> 3 & 7) == 4)
        return INSTRUCTION_INDIRECT_JUMP;
    if (opcode == 0x0f && next == 0x05)
        return INSTRUCTION_SYSCALL;
    return INSTRUCTION_OTHER;
}
