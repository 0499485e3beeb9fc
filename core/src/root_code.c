/*
 * root_code.c: code that nobody called, where no file says so: the end of a stack.
 */
#include "analysis.h"
#include "walk.h"

/* How far behind a file's entry point its start-up code is looked for. */
#define ENTRY_CODE_SIZE 256

/* Where musl's __clone calls a thread's first function, by a register, and ends the thread with the result.
 * The call's register is cleared here. */
static const uint8_t x86_64_exit[] = {0xff, 0xd0, 0x89, 0xc7, 0x31, 0xc0, 0xb0, 60, 0x0f, 0x05};
/* call *%r..; mov %eax,%edi; xor %eax,%eax; mov $60,%al; syscall */
static const uint8_t aarch64_exit[] = {0, 0, 0x3f, 0xd6, 0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4};
/* blr x..; mov x8,#93; svc #0 */

/* The code that a program's first thread starts with. */
static bool is_entry_code(const struct code *code, const struct unspool_module *module, uint64_t lookup) {
    if (!module->table || module->table->entry == TABLE_NO_ENTRY)
        return false;
    uint64_t entry = module->image_base + module->table->entry;
    return lookup - entry < ENTRY_CODE_SIZE && code_reaches(code, entry, lookup);
}

static bool is_thread_exit(const struct code *code, uint64_t pc) {
    bool is_aarch64 = code->unwinder->arch == UNSPOOL_AARCH64;
    const uint8_t *expected = is_aarch64 ? aarch64_exit : x86_64_exit;
    size_t size = is_aarch64 ? sizeof aarch64_exit : sizeof x86_64_exit;
    uint8_t bytes[sizeof aarch64_exit];
    if (code_read(code, pc - (is_aarch64 ? 4 : 2), bytes, size) != size)
        return false;
    if (is_aarch64) { /* any register */
        bytes[0] &= 0x1f;
        bytes[1] &= 0xfc;
    } else {
        bytes[1] &= 0xf8;
    }
    return memcmp(bytes, expected, size) == 0;
}

bool is_root_code(const struct code *code, const struct unspool_module *module, const struct frame *frame) {
    return is_entry_code(code, module, frame->pc) || is_thread_exit(code, frame->pc);
}
