/*
 * table_build.c: compiling a file's unwind sections into one table.
 *
 * FDEs are collected and sorted; they are cut into pieces so that no two claim an address; each
 * piece's program is run and its rows become (address, rule number). Rules are few and memoized.
 * This may allocate and is never called in a signal handler.
 */
#include <stdlib.h>

#include "code_scan.h"
#include "table_builder.h"

#define ADDRESS_LIMIT ((uint64_t)UINT32_MAX)
/* Running programs may take this many times the sections' size: real files stay below once. More is
 * a file made to be slow: pieces of one huge FDE, or a huge CIE, run again and again. */
#define WORK_FACTOR 16
/* What an EXACT rule keeps of the rule that it stands for. */
#define EXACT_KEEPS (UNSPOOL_ROW_SIGNAL | UNSPOOL_ROW_END | UNSPOOL_ROW_DEBUG_FRAME)

/* Of most files: how much larger at most a table is than the unwind sections, and how many bytes of these
 * there are at least to a row and to an FDE. */
#define TABLE_GROWTH 2
#define LEAST_ROW 4
#define LEAST_FDE 24
#define MOST_RESERVED ((uint64_t)64 << 20)

/* What is asked of no code. */
#define NEVER_DOUBTED (UNSPOOL_ROW_SIGNAL | UNSPOOL_ROW_END | UNSPOOL_ROW_EXACT | UNSPOOL_ROW_NONE)

static bool add_fde(void *context, const struct fde *fde) {
    struct builder *builder = context;
    if (builder->fdes.count == UINT32_MAX)
        return false;
    struct fde *added = vector_add(&builder->fdes, 1, sizeof *fde);
    if (added)
        *added = *fde;
    return added != NULL;
}

/* Where a callee-saved register stands in a struct saved_set (unwind_table.h), or -1. */
static int32_t saved_index(uint32_t arch, uint32_t number) {
    if (arch == UNSPOOL_AARCH64)
        return number >= 19 && number <= 28 ? (int32_t)number - 19 : -1;
    if (number == 3)
        return 0;
    return number >= 12 && number <= 15 ? (int32_t)number - 11 : -1;
}

/* An offset in slots; false when it does not fit. 0 and INT16_MIN mean something else in a set. */
static bool to_slot(int64_t offset, int16_t *slot) {
    if (offset % SLOT_SIZE || offset / SLOT_SIZE <= INT16_MIN || offset / SLOT_SIZE > INT16_MAX)
        return false;
    *slot = (int16_t)(offset / SLOT_SIZE);
    return true;
}

/* Where a callee-saved register is, as a rule can say it. */
static bool to_saved(const struct cfi_rules *rules, uint32_t number, enum unspool_saved *saved,
                     int16_t *slot) {
    *slot = 0;
    switch (rules->kind[number]) {
    case UNSPOOL_EXACT_UNSPECIFIED:
    case UNSPOOL_EXACT_SAME:
        *saved = UNSPOOL_SAVED_SAME;
        return true;
    case UNSPOOL_EXACT_UNDEFINED:
        *saved = UNSPOOL_SAVED_UNKNOWN;
        return true;
    case UNSPOOL_EXACT_OFFSET:
        *saved = UNSPOOL_SAVED_AT_CFA;
        return to_slot(rules->value[number].number, slot);
    default:
        return false;
    }
}

/* Brings the set up to date with the rules of some registers other than pc, sp, fp. False: one of them
 * needs the exact evaluator. */
static bool update_saved_set(const struct cfi_rules *rules, uint32_t arch, uint64_t registers,
                             struct saved_set *set) {
    for (; registers; registers &= registers - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(registers);
        int32_t index = saved_index(arch, number);
        enum unspool_saved saved;
        int16_t slot;
        uint8_t kind = rules->kind[number];
        if (index < 0 && kind == UNSPOOL_EXACT_UNSPECIFIED)
            continue;
        if (index < 0 && kind == UNSPOOL_EXACT_UNDEFINED && number != sp_register(arch))
            continue; /* caller-saved: lost by default anyway */
        if (index < 0 || !to_saved(rules, number, &saved, &slot))
            return false;
        if (saved == UNSPOOL_SAVED_AT_CFA && slot == SAVED_SLOT_SAME)
            return false;
        set->slot[index] = saved == UNSPOOL_SAVED_UNKNOWN ? SAVED_SLOT_UNKNOWN : slot;
    }
    return true;
}

static bool to_return_address(const struct cfi_rules *rules, uint32_t arch, uint32_t ra, struct rule *rule,
                              uint32_t *kind) {
    enum unspool_saved saved;
    uint32_t expected = arch == UNSPOOL_AARCH64 ? UNSPOOL_AARCH64_LR : UNSPOOL_X86_64_PC;
    if (ra != expected || !to_saved(rules, ra, &saved, &rule->ra_slot))
        return false;
    if (saved == UNSPOOL_SAVED_UNKNOWN)
        rule->flags |= UNSPOOL_ROW_END;
    if (saved == UNSPOOL_SAVED_SAME && arch == UNSPOOL_X86_64)
        return false; /* no register could hold it: the exact evaluator says that it is not known */
    *kind = saved;
    return true;
}

static bool cfa_fits(const struct cfi_rules *rules, uint32_t arch) {
    return !rules->cfa_is_expression && rules->cfa_offset >= INT32_MIN && rules->cfa_offset <= INT32_MAX &&
           (rules->cfa_register == sp_register(arch) || rules->cfa_register == fp_register(arch));
}

/* Brings a rule up to date with everything but the CFA. False: it needs the exact evaluator. */
static bool update_rule(struct builder *builder, const struct cfi_program *program, uint64_t changed,
                        struct rule *rule) {
    const struct cfi_rules *rules = &builder->machine.rules;
    uint32_t arch = program->arch;
    uint32_t ra = program->return_address_register;
    uint32_t ra_kind = 0;
    enum unspool_saved fp_kind;
    *rule = (struct rule){.flags = program->flags | (rules->ra_signed ? UNSPOOL_ROW_SIGNED : 0)};
    if (!to_return_address(rules, arch, ra, rule, &ra_kind) ||
        !to_saved(rules, fp_register(arch), &fp_kind, &rule->fp_slot))
        return false;
    bool is_first = changed == CFI_ALL_CHANGED;
    if (is_first)
        memset(&builder->last_set, 0, sizeof builder->last_set);
    uint64_t others = is_first ? rules->specified : changed;
    others &= ~((uint64_t)1 << ra | (uint64_t)1 << fp_register(arch));
    if (!update_saved_set(rules, arch, others, &builder->last_set))
        return false;
    int32_t saved = builder->last.saved;
    if (others || is_first)
        saved = memoize(&builder->saved, &builder->last_set, sizeof(struct saved_set));
    if (saved < 0)
        return false;
    rule->saved = (uint16_t)saved;
    rule->kind = RULE_KIND(0, ra_kind, (uint32_t)fp_kind);
    return true;
}

/* The rule that says what the machine's row says, or an EXACT one. */
static struct rule to_rule(struct builder *builder, const struct cfi_program *program) {
    struct cfi_machine *machine = &builder->machine;
    const struct cfi_rules *rules = &machine->rules;
    uint64_t changed = machine->changed;
    machine->changed = CFI_ALL_CHANGED; /* what is not an ordinary rule says nothing for the next row */
    if (!rules->cfa_defined)
        return (struct rule){.flags = UNSPOOL_ROW_NONE};
    struct rule rule = builder->last;
    if (!cfa_fits(rules, program->arch) || (changed && !update_rule(builder, program, changed, &rule))) {
        uint32_t ra = program->return_address_register;
        bool ends = ra < UNSPOOL_REGISTERS && rules->kind[ra] == UNSPOOL_EXACT_UNDEFINED;
        uint8_t flags = UNSPOOL_ROW_EXACT | (ends ? UNSPOOL_ROW_END : 0);
        return (struct rule){.flags = program->flags | flags};
    }
    bool by_fp = rules->cfa_register == fp_register(program->arch);
    rule.kind = (uint8_t)((rule.kind & ~3) | (by_fp ? UNSPOOL_CFA_FP : UNSPOOL_CFA_SP));
    rule.cfa_offset = (int32_t)rules->cfa_offset;
    machine->changed = 0;
    return rule;
}

static bool add_row(struct builder *builder, uint64_t address, uint16_t number) {
    uint32_t *rows = builder_rows(builder);
    uint16_t *row_rules = builder->row_rules.items;
    size_t count = builder->row_rules.count;
    uint32_t from_base = (uint32_t)(address - builder->base);
    /* Where a function starts matters when its rows are doubted. */
    bool is_doubted = ((const struct rule *)builder->rules.items.items)[number].flags & UNSPOOL_ROW_DOUBTED;
    if (count && row_rules[count - 1] == number && !is_doubted)
        return true;
    if (count && rows[count - 1] == from_base) {
        row_rules[count - 1] = number;
        return true;
    }
    rows = vector_add(&builder->rows, 1, sizeof *rows);
    row_rules = vector_add(&builder->row_rules, 1, sizeof *row_rules);
    if (!rows || !row_rules)
        return false;
    *rows = from_base;
    *row_rules = number;
    return true;
}

static bool keep_program(struct builder *builder, const struct piece *piece,
                         const struct cfi_program *program) {
    struct kept_program kept = {
        .start = program->start,
        .end = program->end,
        .code_alignment = program->code_alignment,
        .data_alignment = program->data_alignment,
        .instructions_address = program->instructions_address,
        .initial_size = program->initial_size,
        .instructions_size = program->instructions_size,
        .return_address_register = program->return_address_register,
        .pointer_encoding = program->pointer_encoding,
        .flags = program->flags,
    };
    size_t offset = builder->programs.count;
    size_t size = sizeof kept + kept.initial_size + kept.instructions_size;
    struct exact_function *function = vector_add(&builder->functions, 1, sizeof *function);
    uint8_t *bytes = function ? vector_add(&builder->programs, (size + 7) & ~(size_t)7, 1) : NULL;
    if (!bytes)
        return false;
    *function = (struct exact_function){(uint32_t)(piece->start - builder->base),
                                        (uint32_t)(piece->end - builder->base), offset};
    memset(bytes, 0, (size + 7) & ~(size_t)7);
    memcpy(bytes, &kept, sizeof kept);
    memcpy(bytes + sizeof kept, program->initial, kept.initial_size);
    if (kept.instructions_size)
        memcpy(bytes + sizeof kept + kept.initial_size, program->instructions, kept.instructions_size);
    return true;
}

/* The rule's number; out of numbers, that of the EXACT rule, which says everything more slowly. */
static int32_t rule_number(struct builder *builder, const struct rule *rule) {
    int32_t number = memoize(&builder->rules, rule, sizeof *rule);
    if (number >= 0)
        return number;
    struct rule exact = {.flags = (uint8_t)((rule->flags & EXACT_KEEPS) | UNSPOOL_ROW_EXACT)};
    return memoize(&builder->rules, &exact, sizeof exact);
}

/* The row start .. end. The very first instruction of a program has no caller, though its CFI may not
 * say so yet: a row of one byte ends the stack there. (No return address is looked up at that byte.) */
static bool add_rows(struct builder *builder, uint64_t start, uint64_t end, struct rule rule,
                     bool can_keep_program, bool *needs_program) {
    uint64_t entry = builder->reader->input->entry_address - builder->reader->input->image_address;
    int32_t number = rule_number(builder, &rule);
    if (number < 0)
        return false;
    if (((const struct rule *)builder->rules.items.items)[number].flags & UNSPOOL_ROW_EXACT) {
        *needs_program = true;
        if (!can_keep_program)
            return add_row(builder, start, RULE_NONE);
    }
    if (!add_row(builder, start, (uint16_t)number))
        return false;
    if (entry < start || entry >= end || (rule.flags & UNSPOOL_ROW_NONE) ||
        !builder->reader->input->entry_address)
        return true;
    rule.flags |= UNSPOOL_ROW_END;
    int32_t first = rule_number(builder, &rule);
    return first >= 0 && add_row(builder, entry, (uint16_t)first) &&
           (entry + 1 == end || add_row(builder, entry + 1, (uint16_t)number));
}

/* The return address is still in the link register, or again. */
static bool is_in_lr(const struct rule *rule, uint32_t arch) {
    return arch == UNSPOOL_AARCH64 && !(rule->flags & UNSPOOL_ROW_EXACT) &&
           RULE_RA(rule) == UNSPOOL_SAVED_SAME;
}

/* Runs a program and adds the rows of one piece. */
static bool add_program(struct builder *builder, const struct piece *piece, const struct fde *fde,
                        const struct cfi_program *program) {
    struct cfi_machine *machine = &builder->machine;
    const struct unspool_compile_input *input = builder->reader->input;
    bool needs_program = false, ok = true;
    bool can_keep_program =
        program->initial_size + (uint64_t)program->instructions_size <= KEPT_PROGRAM_LIMIT;
    bool is_whole = piece->start == program->start && piece->end == program->end;
    bool is_doubted = is_whole && code_outruns_cfi(input, program);
    bool ends_context = is_whole && cfi_is_one_row(program->instructions, program->instructions_size) &&
                        code_ends_context(input, program->start, program->end);
    bool is_exact = cfi_is_entered_from_plt(program, machine), passes_exceptions = false;
    bool is_saved = !is_whole;
    enum cfi_status status = cfi_begin(machine, program);
    uint64_t start = piece->start;
    while (ok && status == CFI_ROW && (status = cfi_next_row(machine)) == CFI_ROW) {
        builder->last = to_rule(builder, program);
        if (is_doubted && !(builder->last.flags & NEVER_DOUBTED))
            builder->last.flags |= UNSPOOL_ROW_DOUBTED;
        struct rule rule = builder->last;
        if (!is_saved && RULE_RA(&rule) == UNSPOOL_SAVED_AT_CFA && !(rule.flags & NEVER_DOUBTED)) {
            is_saved = true;
            if (code_saves_late(input, program, machine->row_start))
                rule.flags |= UNSPOOL_ROW_DOUBTED;
        }
        passes_exceptions |= cfi_passes_exceptions(&machine->rules, program->arch);
        if (!(rule.flags & (UNSPOOL_ROW_NONE | UNSPOOL_ROW_END)) &&
            (is_exact || (passes_exceptions && is_in_lr(&rule, program->arch))))
            rule = (struct rule){.flags = program->flags | UNSPOOL_ROW_EXACT};
        if (ends_context)
            rule.flags |= UNSPOOL_ROW_END;
        if (machine->row_end <= start)
            continue;
        uint64_t end = machine->row_end < piece->end ? machine->row_end : piece->end;
        ok = start >= end || add_rows(builder, start, end, rule, can_keep_program, &needs_program);
        start = end;
    }
    if (status == CFI_MALFORMED || (needs_program && !can_keep_program))
        add_problem(builder->reader->problems, UNSPOOL_PROBLEM_INSTRUCTION, fde->section, fde->offset);
    if (status == CFI_MALFORMED)
        ok = ok && (start >= piece->end || add_row(builder, start, RULE_NONE));
    if (ok && needs_program && can_keep_program)
        ok = keep_program(builder, piece, program);
    return ok;
}

bool builder_add_piece(struct builder *builder, const struct piece *piece) {
    const struct fde *fde = (const struct fde *)builder->fdes.items + piece->fde;
    struct cie *cie = fde_cie(builder->reader, fde);
    struct cfi_program program;
    uint64_t work = cie ? (uint64_t)cie->instructions_size + fde->instructions_size : 0;
    bool has_room = work <= builder->work_left;
    builder->work_left -= has_room ? work : 0;
    if (cie && has_room && add_usual_piece(builder, piece, fde, cie))
        return true;
    if (!add_row(builder, piece->start, RULE_NONE))
        return false;
    if (!cie || !fde_program(builder->reader, fde, &program))
        return true;
    if (!has_room)
        add_problem(builder->reader->problems, UNSPOOL_PROBLEM_OVERLAP, fde->section, fde->offset);
    else if (!add_program(builder, piece, fde, &program))
        return false;
    return add_row(builder, piece->end, RULE_NONE);
}

bool builder_begin_rules(struct builder *builder) {
    struct saved_set same = {{0}};
    if (memoize(&builder->saved, &same, sizeof same) != 0)
        return false;
    struct rule none = {.flags = UNSPOOL_ROW_NONE};
    if (memoize(&builder->rules, &none, sizeof none) != RULE_NONE)
        return false;
    for (uint8_t flags = 0; flags <= EXACT_KEEPS; flags++) {
        if (flags & ~EXACT_KEEPS)
            continue;
        struct rule exact = {.flags = flags | UNSPOOL_ROW_EXACT};
        if (memoize(&builder->rules, &exact, sizeof exact) < 0)
            return false;
    }
    return true;
}

bool builder_add_code(struct builder *builder, uint64_t start, uint64_t end) {
    builder->code_rows.count = 0;
    if (!code_rows(builder->reader->input, start, end, &builder->followed, &builder->code_rows))
        return false;
    struct code_row *rows = builder->code_rows.items;
    for (size_t i = 0; i < builder->code_rows.count; i++) {
        int32_t saved = memoize(&builder->saved, &rows[i].set, sizeof rows[i].set);
        rows[i].rule.saved = saved < 0 ? 0 : (uint16_t)saved;
        int32_t number = memoize(&builder->rules, &rows[i].rule, sizeof rows[i].rule);
        if (!add_row(builder, rows[i].start, saved < 0 || number < 0 ? RULE_NONE : (uint16_t)number))
            return false;
    }
    return true;
}

/* Finds out which functions with one row have code that does more than it says. False: memory is out. */
static bool scan_pieces(struct builder *builder) {
    const struct unspool_compile_input *input = builder->reader->input;
    const struct fde *fdes = builder->fdes.items;
    const struct piece *pieces = builder->pieces.items;
    size_t count = builder->pieces.count;
    if (input->arch != UNSPOOL_X86_64 || !input->code_count)
        return true;
    builder->scans = malloc(count + 1);
    for (size_t i = 0; builder->scans && i < count; i++) {
        const struct fde *fde = &fdes[pieces[i].fde];
        const uint8_t *instructions = input->sections[fde->section].bytes + fde->instructions;
        bool is_wanted = pieces[i].start == fde->start && pieces[i].end == fde->end &&
                         cfi_is_one_row(instructions, fde->instructions_size);
        builder->scans[i] = is_wanted ? SCAN_WANTED : SCAN_NOT_DONE;
    }
    if (builder->scans)
        code_scan_pieces(input, pieces, builder->scans, count);
    return builder->scans != NULL;
}

static bool add_pieces(struct builder *builder) {
    const struct piece *pieces = builder->pieces.items;
    size_t count = builder->pieces.count;
    builder->base = count ? pieces[0].start & ~(uint32_t)0xff : 0;
    if (!scan_pieces(builder) || !builder_begin_rules(builder))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!builder_add_piece(builder, &pieces[i]))
            return false;
        uint64_t next = i + 1 < count ? pieces[i + 1].start : ADDRESS_LIMIT;
        if (pieces[i].end < next && !builder_add_code(builder, pieces[i].end, next))
            return false;
    }
    return true;
}

/* Room for what most files have, in the rows' block for the whole table, so that nothing is copied as it
 * grows. What is not used is never touched. */
static bool reserve(struct builder *builder, const struct unspool_compile_input *input) {
    uint64_t size = 0;
    for (uint32_t i = 0; i < input->section_count; i++)
        size += input->sections[i].size < MOST_RESERVED ? input->sections[i].size : MOST_RESERVED;
    size = size < MOST_RESERVED ? size : MOST_RESERVED;
    builder->rows.count = HEADER_ROWS;
    return vector_reserve(&builder->rows, size * TABLE_GROWTH / sizeof(uint32_t), sizeof(uint32_t)) &&
           vector_reserve(&builder->row_rules, size / LEAST_ROW, sizeof(uint16_t)) &&
           vector_reserve(&builder->fdes, size / LEAST_FDE, sizeof(struct fde));
}

void builder_free(struct builder *builder) {
    struct vector *vectors[] = {&builder->fdes,      &builder->pieces,    &builder->rows,
                                &builder->row_rules, &builder->functions, &builder->programs,
                                &builder->code_rows};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        vector_free(vectors[i]);
    free(builder->scans);
    free_memo(&builder->rules);
    free_memo(&builder->saved);
    free_followed_code(builder->followed);
    free(builder);
}

uint64_t compile_work(const struct unspool_compile_input *input) {
    uint64_t work = 1 << 16;
    for (uint32_t i = 0; i < input->section_count; i++)
        work += input->sections[i].size * WORK_FACTOR;
    return work;
}

struct builder *builder_new(struct cfi_reader *reader) {
    struct builder *builder = malloc(sizeof *builder);
    if (!builder)
        return NULL;
    memset(builder, 0, offsetof(struct builder, machine));
    builder->reader = reader;
    return builder;
}

int unspool_table_compile(const struct unspool_compile_input *input, struct unspool_table **table,
                          struct unspool_problems *problems) {
    *table = NULL;
    problems->count = 0;
    if (input->arch != UNSPOOL_X86_64 && input->arch != UNSPOOL_AARCH64)
        return UNSPOOL_BAD_ARGUMENT;
    struct cfi_reader reader;
    struct builder *builder = builder_new(&reader);
    if (!builder)
        return UNSPOOL_NO_MEMORY;
    cfi_reader_begin(&reader, input, problems);
    builder->work_left = compile_work(input);
    bool ok = reserve(builder, input);
    for (uint32_t i = 0; ok && i < input->section_count; i++)
        ok = read_fdes(&reader, i, add_fde, builder);
    ok = ok && cut_into_pieces(&builder->fdes, input->sections, problems, &builder->pieces) &&
         add_pieces(builder);
    *table = ok ? table_assemble(builder) : NULL;
    builder_free(builder);
    return *table ? UNSPOOL_OK : UNSPOOL_NO_MEMORY;
}

void unspool_table_free(struct unspool_table *table) {
    free(table);
}
