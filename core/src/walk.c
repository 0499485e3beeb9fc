/*
 * walk.c: from one frame to its caller, and from there to a whole stack.
 *
 * The main path is step_once: look up the rule, compute the CFA, read return address and fp. What a
 * rule can't say goes to exact.c, where no rule is to fallback.c.
 */
#include "walk.h"
#include "analysis.h"
#include "cfi_program.h"
#include "exact.h"
#include "rule_cache.h"

/* What stands before pc, perhaps in another function or in no module at all, says nothing about it: a handler
 * returns there, to code that nothing called. */
static bool returns_from_signal(const struct code *code, uint64_t pc) {
    return is_signal_return(code, pc, false);
}

/* True when a caller stands at the first byte of a function that has no caller of its own or gives up its
 * stack for good, and no call is before it: its address was put on the stack by hand, as makecontext puts
 * __start_context. */
static bool begins_a_stack(const struct code *code, const struct unspool_module *module, uint64_t pc) {
    uint64_t relative_address = pc - module->image_base;
    const struct rule *rule = table_row_rule(module->table, table_find_row(module->table, relative_address));
    if (!(rule->flags & (UNSPOOL_ROW_END | UNSPOOL_ROW_DOUBTED)) || follows_call(code, pc))
        return false;
    return (rule->flags & UNSPOOL_ROW_END) || code_never_returns(code, pc);
}

/* The rule that holds at a frame's lookup address, from the tables; NULL: no module is there. */
static const struct rule *look_up_rule(const struct code *code, const struct frame *frame) {
    static const struct rule none = {.flags = UNSPOOL_ROW_NONE}, end = {.flags = UNSPOOL_ROW_END};
    uint64_t lookup = lookup_address(frame), behind = lookup + 1;
    const struct unspool_module *module = find_module(code->unwinder, lookup);
    if (!module)
        return !frame->is_interrupted && returns_from_signal(code, behind) ? &none : NULL;
    const struct rule *rule = &none;
    if (module->table) {
        uint32_t row = table_find_row(module->table, lookup - module->image_base);
        rule = table_row_rule(module->table, row);
        if (table_row_ends_at(module->table, row, behind - module->image_base)) {
            /* What is cached must hold for a return address, too. No memory is read only to find that out. */
            if (frame->is_interrupted && !module->code)
                return rule;
            if (returns_from_signal(code, behind))
                return frame->is_interrupted ? rule : &none;
            if (begins_a_stack(code, module, behind))
                return frame->is_interrupted ? rule : &end;
        }
    }
    if (code->unwinder->cache)
        cache_rule(code->unwinder->cache, lookup, rule);
    return rule;
}

/* The same, perhaps from the cache; *unpacked is where an ordinary rule is put that is cached whole. */
static inline const struct rule *find_rule(const struct code *code, const struct frame *frame,
                                           struct rule *unpacked) {
    if (code->unwinder->cache) {
        uint64_t entry = cached_rule(code->unwinder->cache, lookup_address(frame));
        if (is_packed(entry)) {
            if (frame->all) /* it lacks what such a walk needs */
                return look_up_rule(code, frame);
            *unpacked = unpack_rule(entry);
            return unpacked;
        }
        if (entry)
            return rule_of_entry(entry);
    }
    return look_up_rule(code, frame);
}

static uint64_t callee_saved_mask(uint32_t arch) {
    if (arch == UNSPOOL_AARCH64)
        return (uint64_t)0x7ff << 19; /* x19..x29 */
    return (uint64_t)1 << 3 | (uint64_t)1 << UNSPOOL_X86_64_RBP | (uint64_t)0xf << 12;
}

/* A slot below sp in the interrupted frame: an epilogue has popped it, and the register holds the
 * value again. (In an epilogue CFI may still say "rbp at CFA - 16".) A signal frame has no epilogue. */
static inline bool is_popped(const struct frame *frame, const struct rule *rule, uint64_t slot_address) {
    return frame->is_interrupted && slot_address < frame->sp && !(rule->flags & UNSPOOL_ROW_SIGNAL);
}

/* With all registers: what the rule says of the callee-saved ones. */
static void apply_saved_set(const struct code *code, const struct frame *frame, const struct rule *rule,
                            uint64_t cfa) {
    static const uint8_t x86_64[] = {3, 12, 13, 14, 15};
    static const uint8_t aarch64[] = {19, 20, 21, 22, 23, 24, 25, 26, 27, 28};
    bool is_aarch64 = code->unwinder->arch == UNSPOOL_AARCH64;
    const uint8_t *numbers = is_aarch64 ? aarch64 : x86_64;
    size_t count = is_aarch64 ? sizeof aarch64 : sizeof x86_64;
    struct unspool_registers *all = frame->all;
    const struct unspool_module *module = find_module(code->unwinder, lookup_address(frame));
    const struct saved_set *set =
        (const struct saved_set *)table_part(module->table, module->table->saved) + rule->saved;
    all->known &= callee_saved_mask(code->unwinder->arch);
    for (size_t i = 0; i < count; i++) {
        int16_t slot = set->slot[i];
        uint64_t address = cfa + (uint64_t)((int64_t)slot * SLOT_SIZE);
        if (slot == SAVED_SLOT_SAME || (slot != SAVED_SLOT_UNKNOWN && is_popped(frame, rule, address)))
            continue;
        uint64_t bit = (uint64_t)1 << numbers[i];
        all->known &= ~bit;
        if (slot != SAVED_SLOT_UNKNOWN && memory_read_u64(code->memory, address, &all->value[numbers[i]]))
            all->known |= bit;
    }
}

/* Keeps the full register set in step with the frame. */
static void update_all(uint32_t arch, struct frame *frame) {
    struct unspool_registers *all = frame->all;
    all->value[pc_register(arch)] = frame->pc;
    all->value[sp_register(arch)] = frame->sp;
    all->value[fp_register(arch)] = frame->fp;
    all->known &= ~((uint64_t)1 << fp_register(arch));
    all->known |= (uint64_t)1 << pc_register(arch) | (uint64_t)1 << sp_register(arch) |
                  (uint64_t)frame->fp_is_known << fp_register(arch);
    all->pc_is_return_address = !frame->is_interrupted;
}

enum step_result become_caller(struct frame *frame, const struct caller *caller, struct step *step,
                               enum unspool_how how) {
    bool is_progress = caller->sp > frame->sp ||
                       (caller->sp == frame->sp &&
                        (caller->may_keep_sp || (frame->is_interrupted && caller->pc != frame->pc)));
    if (!is_progress)
        return end_stack(step, UNSPOOL_END_LOOP);
    frame->pc = caller->pc;
    frame->sp = caller->sp;
    frame->fp = caller->fp;
    frame->fp_is_known = caller->fp_is_known;
    frame->lr_is_live = false;
    frame->is_interrupted = false;
    step->how = (uint8_t)how;
    return STEP_CALLER;
}

static inline enum step_result step_by_rule(const struct code *code, const struct rule *rule,
                                            struct frame *frame, struct step *step) {
    const struct unspool_unwinder *unwinder = code->unwinder;
    struct caller caller = {.fp = frame->fp, .fp_is_known = frame->fp_is_known};
    uint64_t base = frame->sp;
    if (RULE_CFA_BASE(rule) == UNSPOOL_CFA_FP) {
        if (!frame->fp_is_known)
            return end_stack(step, UNSPOOL_END_NO_UNWIND_INFO);
        base = frame->fp;
    } else if (RULE_CFA_BASE(rule) == UNSPOOL_CFA_RBX) {
        if (!frame->all)
            return STEP_NEEDS_REGISTERS;
        if (!(frame->all->known >> UNSPOOL_X86_64_RBX & 1))
            return end_stack(step, UNSPOOL_END_NO_UNWIND_INFO);
        base = frame->all->value[UNSPOOL_X86_64_RBX];
    }
    uint64_t cfa = base + (uint64_t)(int64_t)rule->cfa_offset;
    uint64_t ra_address = cfa + (uint64_t)((int64_t)rule->ra_slot * SLOT_SIZE);
    if (RULE_RA(rule) == UNSPOOL_SAVED_SAME ||
        (unwinder->arch == UNSPOOL_AARCH64 && is_popped(frame, rule, ra_address))) {
        if (!frame->lr_is_live)
            return end_stack(step, UNSPOOL_END_NO_UNWIND_INFO);
        caller.pc = frame->lr;
        caller.may_keep_sp =
            strip_pac(unwinder, frame->lr) == frame->pc && called_function(code, frame->pc) == frame->pc;
    } else if (!memory_read_u64(code->memory, ra_address, &caller.pc)) {
        return end_stack(step, memory_end(code->memory, ra_address));
    }
    if (RULE_FP(rule) == UNSPOOL_SAVED_AT_CFA) {
        uint64_t fp_address = cfa + (uint64_t)((int64_t)rule->fp_slot * SLOT_SIZE);
        if (!is_popped(frame, rule, fp_address)) {
            if (!memory_read_u64(code->memory, fp_address, &caller.fp))
                return end_stack(step, memory_end(code->memory, fp_address));
            caller.fp_is_known = true;
        }
    } else if (RULE_FP(rule) == UNSPOOL_SAVED_UNKNOWN) {
        caller.fp_is_known = false;
    }
    caller.pc = strip_pac(unwinder, caller.pc);
    caller.sp = cfa;
    if (frame->all)
        apply_saved_set(code, frame, rule, cfa);
    return become_caller(frame, &caller, step,
                         rule->flags & UNSPOOL_ROW_CODE ? UNSPOOL_HOW_CODE_ANALYSIS : UNSPOOL_HOW_CFI);
}

enum step_result step_as_row_says(const struct code *code, const struct rule *rule, struct frame *frame,
                                  struct step *step) {
    return step_by_rule(code, rule, frame, step);
}

/* The registers that a frame has, as the exact evaluator takes them. */
static struct unspool_registers frame_registers(uint32_t arch, const struct frame *frame) {
    if (frame->all)
        return *frame->all;
    struct unspool_registers registers;
    registers.value[pc_register(arch)] = frame->pc;
    registers.value[sp_register(arch)] = frame->sp;
    registers.value[fp_register(arch)] = frame->fp;
    registers.known = (uint64_t)1 << pc_register(arch) | (uint64_t)1 << sp_register(arch) |
                      (uint64_t)frame->fp_is_known << fp_register(arch);
    if (arch == UNSPOOL_AARCH64 && frame->lr_is_live) {
        registers.value[UNSPOOL_AARCH64_LR] = frame->lr;
        registers.known |= (uint64_t)1 << UNSPOOL_AARCH64_LR;
    }
    registers.pc_is_return_address = !frame->is_interrupted;
    return registers;
}

static void set_frame(uint32_t arch, const struct unspool_registers *registers, struct frame *frame) {
    frame->pc = registers->value[pc_register(arch)];
    frame->sp = registers->value[sp_register(arch)];
    frame->fp = registers->value[fp_register(arch)];
    frame->lr = registers->value[UNSPOOL_AARCH64_LR];
    frame->fp_is_known = registers->known >> fp_register(arch) & 1;
    frame->is_interrupted = !registers->pc_is_return_address;
    frame->lr_is_live =
        arch == UNSPOOL_AARCH64 && frame->is_interrupted && (registers->known >> UNSPOOL_AARCH64_LR & 1);
}

/* The address where a frame's function starts that has a row. */
static uint64_t frame_function(const struct unspool_module *module, const struct frame *frame) {
    struct cfi_program program = {0};
    table_find_program(module->table, lookup_address(frame) - module->image_base, &program);
    return module->image_base + program.start;
}

/* The step that an EXACT row describes, by what an earlier one from the same place has shown. False: it is
 * not taken; *is_new: nothing is known of the place yet. */
static bool step_as_before(const struct code *code, const struct unspool_module *module, struct frame *frame,
                           struct step *step, bool *is_new, enum step_result *result) {
    struct frame_recipe recipe;
    struct caller caller = {.fp = frame->fp, .fp_is_known = frame->fp_is_known};
    enum known_step known = frame->all ? STEP_NEVER_KNOWN : known_step(code, frame, &recipe);
    *is_new = known == STEP_NOT_KNOWN;
    if (known == STEP_NOT_KNOWN || known == STEP_NEVER_KNOWN)
        return false;
    uint64_t base = recipe.sp.kind == VALUE_FP ? frame->fp : frame->sp;
    bool has_slot = recipe.fp.kind == VALUE_AT_SP || recipe.fp.kind == VALUE_AT_FP;
    if (!memory_read_u64(code->memory, base + (uint64_t)recipe.return_address.offset, &caller.pc) ||
        (has_slot && !memory_read_u64(code->memory, base + (uint64_t)recipe.fp.offset, &caller.fp)))
        return false;
    caller.fp_is_known = has_slot || (recipe.fp.kind == VALUE_FP && frame->fp_is_known);
    caller.pc = strip_pac(code->unwinder, caller.pc);
    caller.sp = base + (uint64_t)recipe.sp.offset;
    uint32_t how = UNSPOOL_HOW_CFI_EXACT;
    if (known == STEP_KNOWN_IF_CALLED) {
        how |= UNSPOOL_HOW_GUESS;
        caller.fp_is_known = false;
        if (match_call(code, caller.pc, frame_function(module, frame)) != CALL_MATCHES)
            known = STEP_KNOWN_LOST;
    }
    *result = known == STEP_KNOWN_LOST ? end_stack(step, UNSPOOL_END_BAD_RETURN_ADDRESS)
                                       : become_caller(frame, &caller, step, how);
    return true;
}

static enum step_result step_exactly(const struct code *code, const struct unspool_module *module,
                                     struct frame *frame, struct step *step) {
    const struct unspool_unwinder *unwinder = code->unwinder;
    enum step_result as_before;
    bool is_new;
    if (step_as_before(code, module, frame, step, &is_new, &as_before))
        return as_before;
    const struct exact_input input = {
        .arch = unwinder->arch,
        .table = module->table,
        .lookup_address = lookup_address(frame) - module->image_base,
        .image_base = module->image_base,
        .memory = code->memory,
        .has_all_registers = frame->all != NULL,
    };
    struct unspool_registers registers = frame_registers(unwinder->arch, frame);
    struct exact_result result = {0};
    const uint32_t slots_read = code->memory->slots_read;
    enum exact_status status = exact_step(&input, &registers, &result);
    if (result.is_context)
        return step_by_other_register(code, &result, frame, step);
    switch (status) {
    case EXACT_OK:
        break;
    case EXACT_REGISTER_UNKNOWN:
        return frame->all ? end_stack(step, UNSPOOL_END_NO_UNWIND_INFO) : STEP_NEEDS_REGISTERS;
    case EXACT_UNREADABLE:
        return end_stack(step, memory_end(code->memory, result.bad_address));
    case EXACT_NO_RULE:
        return step_without_rule(code, module, frame, step);
    }
    uint64_t *pc = &registers.value[pc_register(unwinder->arch)];
    *pc = strip_pac(unwinder, *pc);
    /* Such code may switch stacks, so sp may go anywhere; the depth limit ends a cycle. */
    if (*pc == frame->pc && registers.value[sp_register(unwinder->arch)] == frame->sp)
        return end_stack(step, UNSPOOL_END_LOOP);
    enum known_step known = result.replaces_registers ? STEP_NEVER_KNOWN : STEP_KNOWN;
    if (result.may_overwrite_itself)
        known = trust_own_frame(code, frame, &result);
    if (is_new && result.cfa > frame->sp && known != STEP_NEVER_KNOWN)
        keep_step(code, module, frame, known, slots_read);
    bool is_guess = known == STEP_NEVER_KNOWN || known == STEP_KNOWN_IF_CALLED;
    if (known == STEP_KNOWN_IF_CALLED) {
        registers.known &= ~callee_saved_mask(unwinder->arch);
        if (match_call(code, *pc, result.function) != CALL_MATCHES)
            known = STEP_KNOWN_LOST;
    }
    if (known == STEP_KNOWN_LOST)
        return end_stack(step, UNSPOOL_END_BAD_RETURN_ADDRESS);
    set_frame(unwinder->arch, &registers, frame);
    if (frame->all)
        *frame->all = registers;
    step->how = frame->is_interrupted ? UNSPOOL_HOW_SIGNAL_FRAME : UNSPOOL_HOW_CFI_EXACT;
    if (is_guess)
        step->how |= UNSPOOL_HOW_GUESS;
    return STEP_CALLER;
}

/* Rules that are not just arithmetic. */
static enum step_result step_special(const struct code *code, const struct rule *rule, struct frame *frame,
                                     struct step *step) {
    const struct unspool_module *module = find_module(code->unwinder, lookup_address(frame));
    if ((rule->flags & (UNSPOOL_ROW_NONE | UNSPOOL_ROW_SIGNAL)) &&
        is_signal_return(code, frame->pc, frame->is_interrupted))
        return step_signal_frame(code, frame, step);
    if (rule->flags & UNSPOOL_ROW_END)
        return step_by_tail_jump(code, frame, step);
    if (rule->flags & UNSPOOL_ROW_EXACT)
        return step_exactly(code, module, frame, step);
    if (rule->flags & UNSPOOL_ROW_NONE)
        return step_without_rule(code, module, frame, step);
    if (rule->flags & UNSPOOL_ROW_DOUBTED)
        return step_doubted(code, module, rule, frame, step);
    enum step_result result = step_by_rule(code, rule, frame, step);
    if (result == STEP_CALLER) { /* a signal frame that its CFI describes by offsets alone */
        frame->is_interrupted = true;
        step->how = UNSPOOL_HOW_SIGNAL_FRAME;
    }
    return result;
}

/* Why a stack ends at an address that no module holds. */
static enum unspool_end end_without_code(const struct code *code, const struct frame *frame) {
    return frame->pc == 0 && is_initial_stack(code, frame->sp) ? UNSPOOL_END_ROOT
                                                               : UNSPOOL_END_BAD_RETURN_ADDRESS;
}

/* The step from a frame to its caller. Whether the caller's pc is mapped shows at the next step. */
static inline enum step_result step_once(const struct code *code, struct frame *frame, struct step *step) {
    struct rule unpacked;
    const struct rule *rule = find_rule(code, frame, &unpacked);
    const uint8_t special =
        UNSPOOL_ROW_SIGNAL | UNSPOOL_ROW_END | UNSPOOL_ROW_EXACT | UNSPOOL_ROW_NONE | UNSPOOL_ROW_DOUBTED;
    const uint64_t known = frame->all && frame->is_interrupted ? frame->all->known : 0;
    enum step_result result;
    if (!rule)
        result = frame->is_interrupted ? step_unmapped(code, frame, step)
                                       : end_stack(step, end_without_code(code, frame));
    else if (rule->flags & special)
        result = step_special(code, rule, frame, step);
    else if (RULE_RA(rule) == UNSPOOL_SAVED_SAME && rule->cfa_offset != 0 && frame->lr_is_live)
        result = step_leaf(code, rule, frame, step);
    else
        result = step_by_rule(code, rule, frame, step);
    if (frame->all && result == STEP_CALLER) {
        bool is_kept = known && step->how != UNSPOOL_HOW_CFI_EXACT && step->how != UNSPOOL_HOW_SIGNAL_FRAME;
        frame->untouched = is_kept ? known & ~frame->all->known : 0;
        update_all(code->unwinder->arch, frame);
    }
    return result;
}

enum step_result take_step(const struct code *code, struct frame *frame, struct step *step) {
    return step_once(code, frame, step);
}

void finish_stack(const struct code *code, const struct frame *frame, const struct step *step,
                  struct unspool_stack *stack) {
    stack->end = step->end;
    if (stack->count > 1 && !frame->is_interrupted && !look_up_rule(code, frame))
        stack->count--; /* what is no code is no frame */
}

uint64_t look_up_entry(const struct code *code, const struct frame *frame) {
    look_up_rule(code, frame);
    return cached_rule(code->unwinder->cache, lookup_address(frame));
}

static void add_frame(struct unspool_stack *stack, uint64_t pc, uint8_t how) {
    stack->addresses[stack->count] = pc;
    stack->how[stack->count++] = how;
}

/* Goes on from the stack's last frame, to the stack's end (STEP_END) or until there are `enough` frames
 * (STEP_CALLER). STEP_NEEDS_REGISTERS: the last frame needs them. */
static enum step_result walk_on(const struct code *code, struct frame *frame, struct unspool_stack *stack,
                                uint64_t enough) {
    struct step step = {0};
    while (stack->count < enough) {
        if (walk_by_cache(code, frame, stack))
            return stack->end = UNSPOOL_END_ROOT, STEP_END;
        enum step_result result = step_once(code, frame, &step);
        if (result == STEP_END)
            finish_stack(code, frame, &step, stack);
        if (result != STEP_CALLER)
            return result;
        if (stack->count == stack->capacity)
            return stack->end = UNSPOOL_END_DEPTH_LIMIT, STEP_END;
        add_frame(stack, frame->pc, step.how);
    }
    return STEP_CALLER;
}

void unspool_walk(const struct unspool_unwinder *unwinder, const struct unspool_registers *registers,
                  struct unspool_memory *memory, struct unspool_stack *stack) {
    const struct code code = {unwinder, memory};
    struct frame frame = {0};
    set_frame(unwinder->arch, registers, &frame);
    stack->count = 0;
    stack->end = UNSPOOL_END_DEPTH_LIMIT;
    if (stack->capacity == 0)
        return;
    add_frame(stack, frame.pc, UNSPOOL_HOW_INTERRUPTED);
    struct unspool_registers all = *registers; /* of `kept`, the stack's last frame when there were so many */
    struct frame kept = frame;
    uint64_t count = stack->count;
    while (walk_on(&code, &frame, stack, UINT64_MAX) == STEP_NEEDS_REGISTERS) {
        uint64_t enough = stack->count + 1;
        stack->count = count; /* once more from there, with every register, as far as that is needed */
        frame = kept;
        frame.all = &all;
        if (walk_on(&code, &frame, stack, enough) != STEP_CALLER)
            return;
        frame.all = NULL;
        kept = frame;
        count = stack->count;
    }
}

int unspool_step(const struct unspool_unwinder *unwinder, struct unspool_registers *registers,
                 struct unspool_memory *memory, uint32_t *how, uint32_t *end) {
    const struct code code = {unwinder, memory};
    struct unspool_registers all = *registers;
    struct frame frame = {.all = &all};
    struct step step = {0};
    set_frame(unwinder->arch, registers, &frame);
    enum step_result result = step_once(&code, &frame, &step);
    if (result == STEP_CALLER && !frame.is_interrupted && !look_up_rule(&code, &frame))
        result = end_stack(&step, end_without_code(&code, &frame));
    *how = step.how;
    *end = step.end;
    if (result == STEP_CALLER)
        *registers = all;
    return result == STEP_CALLER;
}
