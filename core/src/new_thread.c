/*
 * new_thread.c: x86_64: a thread or process between the system call that made it and code that is known to be
 * the first of its stack.
 */
#include "instruction.h"
#include "walk.h"

/* The row at address says that nobody called the code there, or the code itself. */
static bool begins_thread(const struct code *code, uint64_t address) {
    struct unspool_row row;
    const struct unspool_module *module = find_module(code->unwinder, address);
    bool ends = module && module->table &&
                unspool_table_lookup(module->table, address - module->image_base, &row) == UNSPOOL_OK &&
                (row.flags & UNSPOOL_ROW_END);
    const struct frame behind_call = {.pc = address + 2}, behind_rex_call = {.pc = address + 3};
    return ends || (module && (is_root_code(code, module, &behind_call) ||
                               is_root_code(code, module, &behind_rex_call)));
}

/* Which way a conditional jump goes where rax is 0, and has just been compared with 0. */
static bool is_taken_at_zero(const uint8_t *bytes, bool *is_known) {
    uint8_t condition = bytes[0] == 0x0f ? bytes[1] & 0x0f : bytes[0] & 0x0f;
    *is_known = bytes[0] == 0x0f || (bytes[0] & 0xf0) == 0x70;
    return condition == 4 || condition == 9 || condition == 13 || condition == 14; /* e, ns, ge, le */
}

/* x86_64: how many bytes may be between the system call that makes a thread and its first row, and how many
 * instructions. */
enum { CLONE_BYTES = 8, CLONE_INSTRUCTIONS = 6 };

enum thread_start is_new_thread(const struct code *code, const struct frame *frame) {
    static const uint8_t system_call[] = {0x0f, 0x05};
    uint8_t bytes[15];
    struct instruction instruction;
    enum thread_start result = THREAD_OTHER;
    if (code->unwinder->arch != UNSPOOL_X86_64 || !frame->is_interrupted)
        return THREAD_OTHER;
    size_t size = code_read(code, frame->pc - CLONE_BYTES - 2, bytes, CLONE_BYTES + 2);
    for (size_t i = 0; i + 2 <= size && result == THREAD_OTHER; i++)
        if (memcmp(bytes + i, system_call, 2) == 0)
            result = THREAD_IS_NEW;
    uint64_t address = frame->pc;
    for (int i = 0; i < CLONE_INSTRUCTIONS && result != THREAD_OTHER; i++) {
        if (begins_thread(code, address))
            return result;
        size = code_read(code, address, bytes, sizeof bytes);
        x86_64_decode(bytes, size, address, &instruction);
        bool is_known = true, is_taken = false;
        if (instruction.flow == FLOW_BRANCH) {
            is_taken = is_taken_at_zero(bytes, &is_known);
            if (!frame->all)
                result = THREAD_NEEDS_REGISTERS;
            else if (!(frame->all->known & 1) || frame->all->value[0] != 0)
                is_known = false;
        }
        if (!is_known || !instruction.length ||
            (instruction.flow != FLOW_NEXT && instruction.flow != FLOW_BRANCH))
            return THREAD_OTHER;
        address = is_taken ? instruction.target : address + instruction.length;
    }
    return THREAD_OTHER;
}
