/*
 * call_site.c: what the instructions around a call say of it: whether it comes back, where a register led it.
 */
#include "analysis.h"
#include "instruction.h"
#include "machine_code.h"
#include "walk.h"

/* How far before a call a jump over it is looked for. */
enum { REACH = 64 };

static void decode(const struct code *code, const uint8_t *bytes, size_t size, uint64_t address,
                   struct instruction *instruction) {
    if (code->unwinder->arch == UNSPOOL_AARCH64)
        aarch64_decode(bytes, size, address, instruction);
    else
        x86_64_decode(bytes, size, address, instruction);
}

static bool moves_frame(const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++)
        if (instruction->effects[i].kind != EFFECT_STORE && instruction->effects[i].to != REGISTER_LR)
            return true;
    return false;
}

/* One instruction after the other leads from here to the end, where a call is, and sp and fp stay. */
static bool leads_to_call(const struct code *code, const uint8_t *bytes, size_t size, uint64_t address) {
    struct instruction instruction = {0};
    while (size) {
        decode(code, bytes, size, address, &instruction);
        bool goes_on =
            instruction.flow == FLOW_NEXT || instruction.flow == FLOW_BRANCH || instruction.flow == FLOW_CALL;
        if (!instruction.length || !goes_on || moves_frame(&instruction))
            return false;
        bytes += instruction.length;
        size -= instruction.length;
        address += instruction.length;
    }
    return instruction.flow == FLOW_CALL;
}

bool call_is_jumped_over(const struct code *code, uint64_t return_address) {
    const struct unspool_module *module = find_module(code->unwinder, return_address - 1);
    uint8_t bytes[REACH];
    struct instruction instruction;
    if (!module)
        return false;
    uint64_t reach = return_address - module->start < REACH ? return_address - module->start : REACH;
    uint64_t first = return_address - reach;
    size_t step = code->unwinder->arch == UNSPOOL_AARCH64 ? 4 : 1;
    if (code_read(code, first, bytes, reach) != reach)
        return false;
    for (size_t at = reach % step; at < reach; at += step) {
        decode(code, bytes + at, reach - at, first + at, &instruction);
        if (instruction.flow == FLOW_BRANCH && instruction.target == return_address &&
            leads_to_call(code, bytes + at, reach - at, first + at))
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------ x86_64 */

/* DWARF's numbers of the registers in the order of machine code. */
static const uint8_t dwarf_numbers[16] = {0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15};

static bool register_value(const struct unspool_registers *registers, unsigned number, uint64_t sp,
                           uint64_t *value) {
    number = dwarf_numbers[number];
    *value = number == UNSPOOL_X86_64_RSP ? sp : registers->value[number];
    return number == UNSPOOL_X86_64_RSP || (registers->known >> number & 1);
}

/* The address of the memory operand that begins with its ModRM byte; false: a register is not known, or there
 * is no base. */
static bool operand_address(const uint8_t *modrm, uint8_t rex, const struct unspool_registers *registers,
                            uint64_t sp, uint64_t *address) {
    unsigned mod = modrm[0] >> 6, base = modrm[0] & 7u;
    const uint8_t *displacement = modrm + 1;
    uint64_t index = 0;
    if (base == 4) {
        uint8_t sib = *displacement++;
        unsigned number = (sib >> 3 & 7u) | (rex & 2u ? 8 : 0);
        if (number != 4 && !register_value(registers, number, sp, &index))
            return false;
        index <<= sib >> 6;
        base = sib & 7u;
    }
    if (mod == 3 || (mod == 0 && base == 5) ||
        !register_value(registers, base | (rex & 1u ? 8 : 0), sp, address))
        return false;
    int32_t offset = 0;
    if (mod == 1)
        offset = (int8_t)*displacement;
    else if (mod == 2)
        memcpy(&offset, displacement, sizeof offset);
    *address += index + (uint64_t)(int64_t)offset;
    return true;
}

bool called_by_register(const struct code *code, const struct unspool_registers *registers,
                        uint64_t return_address, uint32_t length, uint64_t sp, uint64_t *target) {
    uint8_t bytes[LONGEST_INDIRECT_CALL] = {0};
    struct instruction call;
    uint64_t address;
    if (code_read(code, return_address - length, bytes, length) != length)
        return false;
    if (code->unwinder->arch == UNSPOOL_AARCH64) {
        uint32_t word = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                        (uint32_t)bytes[3] << 24;
        uint32_t number = word >> 5 & 31;
        bool is_known = length == 4 && (word & 0xfffffc1f) == 0xd63f0000 && registers->known >> number & 1 &&
                        number < UNSPOOL_AARCH64_LR; /* blr x..; it has changed lr itself */
        *target = registers->value[number];
        return is_known;
    }
    x86_64_decode(bytes, length, return_address - length, &call);
    bool has_rex = (bytes[0] & 0xf0) == 0x40;
    if (call.flow != FLOW_CALL || call.length != length || bytes[has_rex] != 0xff)
        return false;
    const uint8_t *modrm = bytes + has_rex + 1;
    uint8_t rex = has_rex ? bytes[0] : 0;
    if (modrm[0] >> 6 == 3)
        return register_value(registers, (modrm[0] & 7u) | (rex & 1u ? 8 : 0), sp, target);
    return operand_address(modrm, rex, registers, sp, &address) &&
           memory_read_u64(code->memory, address, target);
}

uint64_t loaded_jump_target(const struct code *code, uint64_t address) {
    enum { LEA = 7, BEFORE = 24, JUMP = 2 };
    uint8_t bytes[BEFORE + JUMP];
    struct instruction instruction;
    int32_t displacement;
    if (code->unwinder->arch != UNSPOOL_X86_64 ||
        code_read(code, address - BEFORE, bytes, sizeof bytes) != sizeof bytes || bytes[BEFORE] != 0xff ||
        (bytes[BEFORE + 1] & 0xf8) != 0xe0) /* jmp *%rax and the like */
        return 0;
    unsigned number = bytes[BEFORE + 1] & 7u;
    for (size_t at = 0; at + LEA <= BEFORE; at++) {
        if (bytes[at] != 0x48 || bytes[at + 1] != 0x8d || bytes[at + 2] != (number << 3 | 5))
            continue;
        size_t next = at + LEA;
        while (next < BEFORE) { /* nothing but pops of others */
            x86_64_decode(bytes + next, BEFORE - next, address - BEFORE + next, &instruction);
            bool has_rex = bytes[next] == 0x41;
            uint8_t opcode = bytes[next + has_rex];
            if (!instruction.length || (opcode & 0xf8) != 0x58 || (!has_rex && (opcode & 7u) == number))
                break;
            next += instruction.length;
        }
        memcpy(&displacement, bytes + at + 3, sizeof displacement);
        if (next == BEFORE)
            return address - BEFORE + at + LEA + (uint64_t)(int64_t)displacement;
    }
    return 0;
}
