/*
 * x86_64.c: PLT stubs, direct calls and signal-return code of x86_64, matched byte for byte.
 */
#include "instruction.h"
#include "machine_code.h"
#include "memory.h"

/* ------------------------------------------------------------------ PLT stubs */

enum { STUB_INSTRUCTIONS = 3, LONGEST_STUB = 16 };

/* A stub as ld and lld make it: hexadecimal digits, dots for any byte. Each of its instructions, by
 * offset, with how many bytes lie on the stack between sp and the return address. */
struct stub {
    const char *bytes;
    uint8_t alignment;
    uint8_t count;
    struct {
        uint8_t offset, depth;
    } instructions[STUB_INSTRUCTIONS];
};

static const struct stub stubs[] = {
    /* jmp *slot; push index; jmp PLT0 */
    {"ff25........68........e9........", 16, 3, {{0, 0}, {6, 0}, {11, 8}}},
    /* endbr64; push index; bnd jmp PLT0; nop */
    {"f30f1efa68........f2e9........90", 16, 3, {{0, 0}, {4, 0}, {9, 8}}},
    /* endbr64; push index; jmp PLT0; nop */
    {"f30f1efa68........e9........6690", 16, 3, {{0, 0}, {4, 0}, {9, 8}}},
    /* push index; bnd jmp PLT0; nop */
    {"68........f2e9........0f1f440000", 16, 2, {{0, 0}, {5, 8}}},
    /* endbr64; bnd jmp *slot; nop */
    {"f30f1efaf2ff25........0f1f440000", 16, 2, {{0, 0}, {4, 0}}},
    /* endbr64; jmp *slot; nop */
    {"f30f1efaff25........660f1f440000", 16, 2, {{0, 0}, {4, 0}}},
    /* bnd jmp *slot; nop */
    {"f2ff25........90", 8, 1, {{0, 0}}},
    /* jmp *slot; nop */
    {"ff25........6690", 8, 1, {{0, 0}}},
    /* PLT0: push GOT+8; jmp *GOT+16; nop */
    {"ff35........ff25........0f1f4000", 16, 2, {{0, 8}, {6, 16}}},
    {"ff35........f2ff25........0f1f00", 16, 2, {{0, 8}, {6, 16}}},
};

static unsigned hex_digit(char digit) {
    return (unsigned)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

static bool matches(const struct stub *stub, const uint8_t *bytes, size_t size) {
    for (size_t i = 0; stub->bytes[2 * i]; i++) {
        const char *digits = stub->bytes + 2 * i;
        if (i >= size || (digits[0] != '.' && bytes[i] != hex_digit(digits[0]) * 16 + hex_digit(digits[1])))
            return false;
    }
    return true;
}

/* The stub that pc is in, and where in it. */
static const struct stub *find_stub(const struct code *code, uint64_t pc, uint64_t *offset) {
    uint8_t bytes[LONGEST_STUB];
    uint64_t start = pc & ~(uint64_t)(LONGEST_STUB - 1);
    size_t size = code_read(code, start, bytes, sizeof bytes);
    uint64_t skipped = 0;
    if (size == 0) { /* code may begin in the middle */
        skipped = LONGEST_STUB / 2;
        size = code_read(code, start + skipped, bytes, sizeof bytes - skipped);
    }
    for (size_t i = 0; i < sizeof stubs / sizeof *stubs; i++) {
        uint64_t at = pc & (stubs[i].alignment - 1u);
        uint64_t first = (pc - at - start) - skipped; /* of the stub, in bytes */
        if (first < size && matches(&stubs[i], bytes + first, size - first)) {
            *offset = at;
            return &stubs[i];
        }
    }
    return NULL;
}

bool x86_64_plt_recipe(const struct code *code, uint64_t pc, struct frame_recipe *recipe) {
    uint64_t offset;
    const struct stub *stub = find_stub(code, pc, &offset);
    for (unsigned i = 0; stub && i < stub->count; i++) {
        if (stub->instructions[i].offset != offset)
            continue;
        *recipe = (struct frame_recipe){
            .return_address = {VALUE_AT_SP, stub->instructions[i].depth},
            .sp = {VALUE_SP, stub->instructions[i].depth + 8},
            .fp = {VALUE_FP, 0},
        };
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------ calls */

/* Where a call of address leads on to at once: through a jump, or a stub's slot. 0: it stays. */
static uint64_t next_hop(const struct code *code, uint64_t address) {
    static const uint8_t endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};
    uint8_t bytes[16];
    size_t size = code_read(code, address, bytes, sizeof bytes), at = 0;
    if (size >= 4 && memcmp(bytes, endbr64, 4) == 0)
        at = 4;
    struct instruction instruction;
    x86_64_decode(bytes + at, size - at, address + at, &instruction);
    if (instruction.flow == FLOW_JUMP)
        return instruction.target;
    if (at < size && bytes[at] == 0xf2) /* bnd */
        at++;
    if (instruction.flow != FLOW_INDIRECT_JUMP || size - at < 6 || bytes[at] != 0xff || bytes[at + 1] != 0x25)
        return 0;
    int32_t displacement;
    uint64_t target;
    memcpy(&displacement, bytes + at + 2, sizeof displacement);
    uint64_t slot = address + at + 6 + (uint64_t)(int64_t)displacement;
    return memory_read_slot(code->memory, slot, &target) ? target : 0;
}

/* Where a call through a slot of the global offset table (-fno-plt) leads; 0: it is no such call. */
static uint64_t called_through_slot(const struct code *code, uint64_t return_address) {
    uint8_t bytes[6]; /* call *disp32(%rip) */
    int32_t displacement;
    uint64_t target;
    if (code_read(code, return_address - 6, bytes, sizeof bytes) != sizeof bytes || bytes[0] != 0xff ||
        bytes[1] != 0x15)
        return 0;
    memcpy(&displacement, bytes + 2, sizeof displacement);
    uint64_t slot = return_address + (uint64_t)(int64_t)displacement;
    return memory_read_slot(code->memory, slot, &target) ? target : 0;
}

uint64_t x86_64_called_function(const struct code *code, uint64_t return_address) {
    uint8_t bytes[5];
    struct instruction call;
    if (code_read(code, return_address - 5, bytes, sizeof bytes) != sizeof bytes)
        return 0;
    x86_64_decode(bytes, sizeof bytes, return_address - 5, &call);
    if (call.flow != FLOW_CALL || call.length != 5 || !call.has_target)
        return called_through_slot(code, return_address);
    uint64_t function = call.target;
    for (int i = 0; i < CALL_HOPS; i++) {
        uint64_t next = next_hop(code, function);
        if (!next)
            break;
        function = next;
    }
    return function;
}

/* ------------------------------------------------------------------ signals */

bool x86_64_is_signal_return(const struct code *code, uint64_t pc, bool interrupted) {
    static const uint8_t wide[9] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    static const uint8_t narrow[7] = {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};
    uint8_t bytes[9];
    size_t size = code_read(code, pc, bytes, sizeof bytes);
    if ((size == sizeof wide && memcmp(bytes, wide, sizeof wide) == 0) ||
        (size >= sizeof narrow && memcmp(bytes, narrow, sizeof narrow) == 0))
        return true;
    if (!interrupted)
        return false;
    return (code_read(code, pc - 7, bytes, sizeof wide) == sizeof wide &&
            memcmp(bytes, wide, sizeof wide) == 0) ||
           (code_read(code, pc - 5, bytes, sizeof narrow) == sizeof narrow &&
            memcmp(bytes, narrow, sizeof narrow) == 0);
}
