/*
 * aarch64.c: PLT stubs, direct calls and signal-return code of aarch64, matched word for word.
 */
#include "instruction.h"
#include "machine_code.h"
#include "memory.h"

static bool read_word(const struct code *code, uint64_t address, uint32_t *word) {
    uint8_t bytes[4];
    if (code_read(code, address, bytes, sizeof bytes) != sizeof bytes)
        return false;
    *word =
        (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    return true;
}

/* ------------------------------------------------------------------ PLT stubs */

/* The instructions of a stub in the order in which they stand; all but three may be missing:
 * bti c; stp x16, x30, [sp, #-16]! (PLT0); adrp x16; ldr x17, [x16, #]; add x16, x16, #;
 * autia1716; br x17 */
enum stub_part { BTI, SAVE, PAGE, LOAD, ADD, AUTHENTICATE, JUMP, STUB_PARTS };

static const struct {
    uint32_t mask, word;
} stub_parts[STUB_PARTS] = {
    {0xffffffff, 0xd503245f}, {0xffffffff, 0xa9bf7bf0}, {0x9f00001f, 0x90000010}, {0xffc003ff, 0xf9400211},
    {0xffc003ff, 0x91000210}, {0xffffffff, 0xd503219f}, {0xffffffff, 0xd61f0220},
};

static int stub_part(const struct code *code, uint64_t address, uint32_t *word) {
    if (!read_word(code, address, word))
        return -1;
    for (int part = 0; part < STUB_PARTS; part++)
        if ((*word & stub_parts[part].mask) == stub_parts[part].word)
            return part;
    return -1;
}

/* Whether the stub that begins at address is whole; its page, slot and length. */
struct plt_stub {
    uint64_t start, slot;
    bool saves[STUB_PARTS]; /* by index of instruction: the save has been done */
    uint32_t count;
};

static bool parse_stub(const struct code *code, uint64_t start, struct plt_stub *stub) {
    uint32_t word = 0, seen = 0, load_offset = 0, add_offset = 0;
    uint64_t page = 0;
    bool saved = false;
    int last = -1;
    *stub = (struct plt_stub){.start = start};
    while (last != JUMP) {
        uint64_t address = start + 4 * (uint64_t)stub->count;
        int part = stub_part(code, address, &word);
        if (part <= last)
            return false;
        stub->saves[stub->count++] = saved;
        saved |= part == SAVE;
        seen |= 1u << part;
        last = part;
        if (part == PAGE) {
            uint64_t pages = (word >> 5 & 0x7ffff) << 2 | (word >> 29 & 3);
            page = (address & ~(uint64_t)0xfff) + (((pages ^ 0x100000) - 0x100000) << 12);
        }
        if (part == LOAD)
            load_offset = (word >> 10 & 0xfff) * 8;
        if (part == ADD)
            add_offset = word >> 10 & 0xfff;
    }
    stub->slot = page + load_offset;
    uint32_t needed = 1u << PAGE | 1u << LOAD | 1u << ADD;
    return (seen & needed) == needed && load_offset == add_offset;
}

/* The stub that pc is in: its parts stand in order, so its start is where the order breaks. */
static bool find_stub(const struct code *code, uint64_t pc, struct plt_stub *stub) {
    uint32_t word;
    int part = stub_part(code, pc, &word);
    uint64_t start = pc;
    for (int before; part > 0; part = before, start -= 4) {
        before = stub_part(code, start - 4, &word);
        if (before < 0 || before >= part)
            break;
    }
    return part >= 0 && parse_stub(code, start, stub);
}

/* What gcc writes on the stack to call a nested function: ldr x17, #; ldr x18, #; br x17. */
static bool is_trampoline(const struct code *code, uint64_t start) {
    uint32_t function, chain, jump;
    return read_word(code, start, &function) && read_word(code, start + 4, &chain) &&
           read_word(code, start + 8, &jump) && (function & 0xff00001f) == 0x58000011 &&
           (chain & 0xff00001f) == 0x58000012 && jump == stub_parts[JUMP].word;
}

static bool is_in_trampoline(const struct code *code, uint64_t pc) {
    uint32_t word;
    if (read_word(code, pc, &word) && word == stub_parts[BTI].word) /* may be before it */
        pc += 4;
    return is_trampoline(code, pc) || is_trampoline(code, pc - 4) || is_trampoline(code, pc - 8);
}

bool aarch64_plt_recipe(const struct code *code, uint64_t pc, struct frame_recipe *recipe) {
    struct plt_stub stub;
    bool is_stub = pc % 4 == 0 && find_stub(code, pc, &stub);
    if (!is_stub && (pc % 4 != 0 || !is_in_trampoline(code, pc)))
        return false;
    bool is_saved = is_stub && stub.saves[(pc - stub.start) / 4];
    *recipe = (struct frame_recipe){
        .return_address = {VALUE_LR, 0},
        .sp = {VALUE_SP, is_saved ? 16 : 0},
        .fp = {VALUE_FP, 0},
    };
    return true;
}

/* ------------------------------------------------------------------ calls */

/* Linkers reach far with adrp x16; add x16, x16, #; br x16. */
static uint64_t veneer_target(const struct code *code, uint64_t address) {
    uint32_t page, add, jump;
    if (!read_word(code, address, &page) || !read_word(code, address + 4, &add) ||
        !read_word(code, address + 8, &jump) || (page & 0x9f00001f) != 0x90000010 ||
        (add & 0xffc003ff) != 0x91000210 || jump != 0xd61f0200)
        return 0;
    uint64_t pages = (page >> 5 & 0x7ffff) << 2 | (page >> 29 & 3);
    return (address & ~(uint64_t)0xfff) + (((pages ^ 0x100000) - 0x100000) << 12) + (add >> 10 & 0xfff);
}

/* Where a call of address leads on to at once: through a jump, a veneer, or a stub's slot. */
static uint64_t next_hop(const struct code *code, uint64_t address) {
    uint32_t word;
    uint8_t bytes[4];
    struct plt_stub stub;
    struct instruction instruction;
    uint64_t target;
    if (parse_stub(code, address, &stub))
        return memory_read_slot(code->memory, stub.slot, &target) ? target : 0;
    if (read_word(code, address, &word) && word == stub_parts[BTI].word)
        address += 4;
    if (code_read(code, address, bytes, sizeof bytes) != sizeof bytes)
        return 0;
    aarch64_decode(bytes, sizeof bytes, address, &instruction);
    return instruction.flow == FLOW_JUMP ? instruction.target : veneer_target(code, address);
}

uint64_t aarch64_called_function(const struct code *code, uint64_t return_address) {
    uint8_t bytes[4];
    struct instruction call;
    if (code_read(code, return_address - 4, bytes, sizeof bytes) != sizeof bytes)
        return 0;
    aarch64_decode(bytes, sizeof bytes, return_address - 4, &call);
    if (call.flow != FLOW_CALL || !call.has_target)
        return 0;
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

bool aarch64_is_signal_return(const struct code *code, uint64_t pc, bool interrupted) {
    uint32_t move, call; /* movz x8, #139; svc #0 */
    for (uint64_t start = pc; start == pc || (interrupted && start == pc - 4); start -= 4)
        if (read_word(code, start, &move) && read_word(code, start + 4, &call) && move == 0xd2801168 &&
            call == 0xd4000001)
            return true;
    return false;
}
