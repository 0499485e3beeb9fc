/*
 * root_code.c: code that nobody called, where no file says so: the end of a stack.
 */
#include "analysis.h"
#include "instruction.h"
#include "walk.h"

/* How far behind a file's entry point its start-up code is looked for. */
#define ENTRY_CODE_SIZE 256

/* Where musl's __clone calls a thread's first function, by a register, and ends the thread with the result.
 * The call's register is cleared here. */
static const uint8_t x86_64_exit[] = {0xff, 0xd0, 0x89, 0xc7, 0x31, 0xc0, 0xb0, 60, 0x0f, 0x05};
/* call *%r..; mov %eax,%edi; xor %eax,%eax; mov $60,%al; syscall */
static const uint8_t aarch64_exit[] = {0, 0, 0x3f, 0xd6, 0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4};
/* blr x..; mov x8,#93; svc #0 */

/* Most programs have fewer arguments. */
enum { ARGUMENTS = 1 << 16 };

/* What the kernel gave to a program lies at sp: argc, argv. */
static bool has_arguments(const struct code *code, uint64_t sp) {
    uint64_t count, first, end;
    return memory_read_u64(code->memory, sp, &count) && count != 0 && count < ARGUMENTS &&
           memory_read_u64(code->memory, sp + 8, &first) && first > sp + 8 * count + 16 &&
           memory_read_u64(code->memory, sp + 8 + 8 * count, &end) && end == 0;
}

bool is_initial_stack(const struct code *code, uint64_t sp) {
    return code->unwinder->arch == UNSPOOL_AARCH64 && has_arguments(code, sp);
}

/* The code that a program's first thread starts with: what the entry point leads to before a call comes back,
 * which it may never do. Where the code tells where sp was at the entry point, the arguments must be there.
 */
static bool is_entry_code(const struct code *code, const struct unspool_module *module,
                          const struct frame *frame) {
    struct frame_recipe recipe;
    uint64_t lookup = lookup_address(frame);
    if (!module->table || module->table->entry == TABLE_NO_ENTRY)
        return false;
    uint64_t entry = module->image_base + module->table->entry;
    if (code->unwinder->arch == UNSPOOL_AARCH64)
        return frame->pc - entry < ENTRY_CODE_SIZE && code_reaches(code, entry, frame->pc);
    if (lookup - entry >= ENTRY_CODE_SIZE)
        return false;
    bool is_at_once = recipe_before_calls(code, entry, lookup, &recipe);
    if (!is_at_once && !recipe_from_entry(code, entry, lookup, &recipe))
        return false;
    uint64_t popped = (uint64_t)recipe.sp.offset - 8; /* the recipe takes a return address off, too */
    if (recipe.sp.kind == VALUE_SP)
        return has_arguments(code, frame->sp + popped);
    if (recipe.sp.kind == VALUE_FP && frame->fp_is_known)
        return has_arguments(code, frame->fp + popped);
    return is_at_once || has_arguments(code, frame->sp); /* ld.so aligns sp, which is aligned */
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

/* Straight on to the call of a thread's first function, behind which the thread ends. */
static bool begins_thread(const struct code *code, uint64_t pc) {
    for (uint64_t address = pc; address < pc + 16; address += 4) {
        struct instruction instruction;
        uint8_t bytes[4];
        if (is_thread_exit(code, address + 4))
            return true;
        if (code_read(code, address, bytes, sizeof bytes) != sizeof bytes)
            return false;
        aarch64_decode(bytes, sizeof bytes, address, &instruction);
        if (instruction.flow != FLOW_NEXT)
            return false;
    }
    return false;
}

/* The call before lr leads to the function that pc is in. */
static bool is_called_by_lr(const struct code *code, const struct frame *frame) {
    uint64_t target;
    if (!frame->lr_is_live || !(target = called_function(code, strip_pac(code->unwinder, frame->lr))))
        return false;
    return code_reaches(code, target, frame->pc);
}

enum step_result step_by_tail_jump(const struct code *code, struct frame *frame, struct step *step) {
    uint8_t bytes[4];
    struct instruction instruction = {.flow = FLOW_NEXT};
    uint64_t lr = strip_pac(code->unwinder, frame->lr), address = frame->pc;
    if (!frame->lr_is_live || !follows_call(code, lr) ||
        (called_function(code, lr) && !is_called_by_lr(code, frame)))
        return end_stack(step, UNSPOOL_END_ROOT);
    for (int i = 0; i < 2 && instruction.flow == FLOW_NEXT; i++, address += 4) {
        if (code_read(code, address, bytes, sizeof bytes) != sizeof bytes)
            break;
        aarch64_decode(bytes, sizeof bytes, address, &instruction);
        if (instruction.effect_count)
            break;
    }
    if (instruction.flow != FLOW_JUMP || !is_function_entry(code, instruction.target))
        return end_stack(step, UNSPOOL_END_ROOT);
    const struct caller caller = {lr, frame->sp, frame->fp, frame->fp_is_known, false};
    if (frame->all)
        frame->all->known = 0;
    return become_caller(frame, &caller, step, UNSPOOL_HOW_CODE_ANALYSIS);
}

bool tells_new_thread(const struct code *code, uint64_t pc) {
    static const uint32_t call = 0xd4000001, compare = 0xf100001f; /* svc #0; cmp x0, #0 */
    struct unspool_row row;
    struct instruction branch;
    uint8_t bytes[16];
    uint32_t word[4], at = 2; /* those from pc - 8 on */
    if (code->unwinder->arch != UNSPOOL_AARCH64 ||
        code_read(code, pc - 8, bytes, sizeof bytes) != sizeof bytes)
        return false;
    for (size_t i = 0; i < 4; i++)
        word[i] = (uint32_t)bytes[4 * i] | (uint32_t)bytes[4 * i + 1] << 8 |
                  (uint32_t)bytes[4 * i + 2] << 16 | (uint32_t)bytes[4 * i + 3] << 24;
    if (word[1] == call && word[2] == compare)
        at = 3;
    bool is_by_flags = at == 3 || (word[0] == call && word[1] == compare);
    bool is_branch = is_by_flags ? (word[at] & 0xff00001f) == 0x54000000                    /* b.eq */
                                 : word[1] == call && (word[2] & 0xff00001f) == 0xb4000000; /* cbz x0 */
    if (!is_branch)
        return false;
    aarch64_decode(bytes + 4 * (size_t)at, 4, pc + 4 * (uint64_t)at - 8, &branch);
    const struct unspool_module *module = find_module(code->unwinder, branch.target);
    bool is_end =
        module && module->table &&
        unspool_table_lookup(module->table, branch.target - module->image_base, &row) == UNSPOOL_OK &&
        (row.flags & UNSPOOL_ROW_END);
    return is_end || begins_thread(code, branch.target);
}

bool step_new_thread(const struct frame *frame, struct step *step, enum step_result *result) {
    if (!frame->all) {
        *result = STEP_NEEDS_REGISTERS;
        return true;
    }
    bool is_known = frame->all->known & 1; /* x0 */
    *result = end_stack(step, is_known ? UNSPOOL_END_ROOT : UNSPOOL_END_NO_UNWIND_INFO);
    return !is_known || frame->all->value[0] == 0;
}

bool is_root_code(const struct code *code, const struct unspool_module *module, const struct frame *frame) {
    return (is_entry_code(code, module, frame) && !is_called_by_lr(code, frame)) ||
           is_thread_exit(code, frame->pc) ||
           (frame->is_interrupted && code->unwinder->arch == UNSPOOL_AARCH64 &&
            begins_thread(code, frame->pc));
}
