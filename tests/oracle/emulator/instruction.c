/* instruction.c: see instruction.h. Arm Architecture Reference Manual, C4: unconditional branch (register),
 * with and without pointer authentication, and add (immediate). */
#include "instruction.h"

#include <stddef.h>

static const struct {
    uint32_t mask, word, kind;
} forms[] = {
    {0xfc000000, 0x94000000, INSTRUCTION_CALL},          /* bl */
    {0xfffffc1f, 0xd63f0000, INSTRUCTION_CALL},          /* blr */
    {0xfefff800, 0xd63f0800, INSTRUCTION_CALL},          /* blraa, blraaz, blrab, blrabz */
    {0xfffffc1f, 0xd65f0000, INSTRUCTION_RETURN},        /* ret */
    {0xfffffbff, 0xd65f0bff, INSTRUCTION_RETURN},        /* retaa, retab */
    {0xfffffc1f, 0xd61f0000, INSTRUCTION_INDIRECT_JUMP}, /* br */
    {0xfefff800, 0xd61f0800, INSTRUCTION_INDIRECT_JUMP}, /* braa, braaz, brab, brabz */
    {0xffffffff, 0xd4000001, INSTRUCTION_SYSCALL},       /* svc #0 */
};

enum instruction_kind instruction_kind(uint32_t word) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if ((word & forms[i].mask) == forms[i].word)
            return forms[i].kind;
    uint32_t from = word >> 5 & 31;
    if ((word & 0xfffffc1f) == 0x9100001f && from != 29 && from != 31)
        return INSTRUCTION_SET_SP;
    return INSTRUCTION_OTHER;
}
