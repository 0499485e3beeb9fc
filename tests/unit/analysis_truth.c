/*
 * analysis_truth.c: code analysis against unwind tables, for test_analysis_truth.py.
 *
 * At every instruction of functions that have unwind information, the table is hidden, the code
 * analysed, and what it claims is compared with the row.
 */
#include "analysis.h"
#include "dwarf_cfi.h"
#include "instruction.h"

#include <stdlib.h>
#include <string.h>

enum truth_mode {
    INTERRUPTED = 0,  /* analyse_code at every instruction */
    AFTER_CALLS = 1,  /* analyse_code at return addresses, as a caller's pc */
    FROM_ENTRIES = 2, /* recipe_from_entry at every instruction */
};

/* Must match the fields in test_analysis_truth.py. */
struct truth_counts {
    uint64_t places;       /* instructions with an ordinary row */
    uint64_t claims;       /* where the analysis found a caller */
    uint64_t equal;        /* CFA and return address equal the row's */
    uint64_t incomparable; /* one by sp, the other by fp */
    uint64_t fp_lost;      /* equal, but the analysis does not know fp */
    uint64_t wrong;
    uint64_t stale;          /* rows that leave out a change of sp: not compared from there on */
    uint64_t unproved;       /* claims that rest on calls to return */
    uint64_t unproved_wrong; /* of these, included in wrong */
};

struct truth_difference {
    uint64_t relative_address;
    int64_t claimed[6], expected[6]; /* kind, offset of return address, sp, fp */
};

struct truth_input {
    const uint8_t *code; /* of the executable segment */
    uint64_t code_size, code_address;
    const uint8_t *eh_frame;
    uint64_t eh_frame_size, eh_frame_address;
    uint64_t image_address;
    uint32_t arch;
    uint32_t mode;   /* enum truth_mode */
    uint64_t stride; /* every how many rows */
};

struct truth {
    const struct truth_input *input;
    const struct code *code;
    struct truth_counts *counts;
    struct truth_difference *differences;
    uint64_t capacity; /* of differences */
    const struct unspool_table *table;
    uint64_t *entries; /* relative addresses where FDEs start, ascending */
    size_t entry_count, entry_capacity;
};

static void expect_row(const struct unspool_row *row, struct frame_recipe *expected) {
    bool by_sp = row->cfa_base == UNSPOOL_CFA_SP;
    uint8_t memory = by_sp ? VALUE_AT_SP : VALUE_AT_FP;
    *expected = (struct frame_recipe){.sp = {by_sp ? VALUE_SP : VALUE_FP, row->cfa_offset}};
    if (row->ra == UNSPOOL_SAVED_SAME)
        expected->return_address.kind = VALUE_LR;
    else
        expected->return_address = (struct frame_value){memory, (int64_t)row->cfa_offset + row->ra_offset};
    if (row->fp == UNSPOOL_SAVED_SAME)
        expected->fp.kind = VALUE_FP;
    else if (row->fp == UNSPOOL_SAVED_AT_CFA)
        expected->fp = (struct frame_value){memory, (int64_t)row->cfa_offset + row->fp_offset};
    /* A slot below sp has been popped: the register holds the caller's value again. */
    if (expected->fp.kind == VALUE_AT_SP && expected->fp.offset < 0)
        expected->fp = (struct frame_value){VALUE_FP, 0};
}

static bool equal(struct frame_value a, struct frame_value b) {
    return a.kind == b.kind && a.offset == b.offset;
}

static void keep(int64_t *out, const struct frame_recipe *recipe) {
    const struct frame_value *values[3] = {&recipe->return_address, &recipe->sp, &recipe->fp};
    for (int i = 0; i < 3; i++) {
        out[2 * i] = values[i]->kind;
        out[2 * i + 1] = values[i]->offset;
    }
}

/* True for aarch64 code after lr was loaded from, or stored to, the place at sp + offset: then lr and
 * that place hold the same, and both answers are right. */
static bool lr_equals_slot(const struct code *code, uint64_t pc, int64_t offset) {
    struct instruction instruction;
    uint8_t bytes[4];
    int64_t sp = 0; /* before the instruction, from sp at pc */
    for (uint64_t at = pc - 4; code_read(code, at, bytes, 4) == 4; at -= 4) {
        aarch64_decode(bytes, 4, at, &instruction);
        if (instruction.flow != FLOW_NEXT)
            return false;
        for (unsigned i = instruction.effect_count; i-- > 0;) {
            const struct stack_effect *effect = &instruction.effects[i];
            if (effect->kind == EFFECT_LOAD && effect->to == REGISTER_LR)
                return effect->from == REGISTER_SP && sp + effect->offset == offset;
            if (effect->kind == EFFECT_STORE && effect->from == REGISTER_LR)
                return effect->to == REGISTER_SP && sp + effect->offset == offset;
            if (effect->to == REGISTER_SP && effect->kind == EFFECT_SET && effect->from == REGISTER_SP)
                sp -= effect->offset;
        }
    }
    return false;
}

static bool is_equal_by_lr(const struct code *code, uint64_t pc, const struct frame_recipe *a,
                           const struct frame_recipe *b) {
    return a->return_address.kind == VALUE_LR && b->return_address.kind == VALUE_AT_SP &&
           equal(a->sp, b->sp) && lr_equals_slot(code, pc, b->return_address.offset);
}

/* True when the row starts just behind a push of rbp: the register and the place hold the same. */
static bool fp_equals_slot(const struct truth *truth, const struct unspool_row *row,
                           const struct frame_recipe *claimed, const struct frame_recipe *expected) {
    uint8_t byte;
    return truth->input->arch == UNSPOOL_X86_64 && claimed->fp.kind == VALUE_AT_SP &&
           claimed->fp.offset == 0 && expected->fp.kind == VALUE_FP &&
           code_read(truth->code, truth->input->image_address + row->start - 1, &byte, 1) == 1 &&
           byte == 0x55;
}

static bool is_right(const struct truth *truth, uint64_t pc, const struct unspool_row *row,
                     const struct frame_recipe *claimed, const struct frame_recipe *expected) {
    if (is_equal_by_lr(truth->code, pc, claimed, expected) ||
        is_equal_by_lr(truth->code, pc, expected, claimed))
        return true;
    return equal(claimed->sp, expected->sp) && equal(claimed->return_address, expected->return_address) &&
           (equal(claimed->fp, expected->fp) || claimed->fp.kind == VALUE_UNKNOWN ||
            fp_equals_slot(truth, row, claimed, expected));
}

static void compare(const struct truth *truth, uint64_t pc, const struct unspool_row *row, bool is_proved,
                    const struct frame_recipe *claimed) {
    struct truth_counts *counts = truth->counts;
    struct frame_recipe expected;
    expect_row(row, &expected);
    counts->claims++;
    counts->unproved += !is_proved;
    if (claimed->sp.kind != expected.sp.kind) {
        counts->incomparable++;
        return;
    }
    if (is_right(truth, pc, row, claimed, &expected)) {
        counts->equal++;
        counts->fp_lost += claimed->fp.kind == VALUE_UNKNOWN && expected.fp.kind != VALUE_UNKNOWN;
        return;
    }
    counts->unproved_wrong += !is_proved;
    if (counts->wrong < truth->capacity) {
        struct truth_difference *difference = &truth->differences[counts->wrong];
        difference->relative_address = pc - truth->input->image_address;
        keep(difference->claimed, claimed);
        keep(difference->expected, &expected);
    }
    counts->wrong++;
}

/* Padding that fills up to a jump's target; nobody gets to it. */
static bool is_padding(const struct code *code, uint64_t pc, uint32_t length, uint32_t arch) {
    uint8_t b[16];
    if (arch == UNSPOOL_AARCH64 || code_read(code, pc, b, sizeof b) != sizeof b)
        return false;
    uint32_t at = 0;
    while (at + 1 < length && (b[at] == 0x66 || b[at] == 0x2e))
        at++;
    return (b[at] == 0x90 && at + 1 == length) || (b[at] == 0x0f && b[at + 1] == 0x1f);
}

static bool changes_sp(const struct instruction *instruction) {
    for (unsigned i = 0; i < instruction->effect_count; i++)
        if (instruction->effects[i].kind != EFFECT_STORE && instruction->effects[i].to == REGISTER_SP)
            return true;
    return false;
}

static uint64_t entry_of(const struct truth *truth, uint64_t relative_address) {
    size_t low = 0, high = truth->entry_count; /* the last entry at or before the address */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (truth->entries[middle] <= relative_address)
            low = middle + 1;
        else
            high = middle;
    }
    return truth->input->image_address + (low ? truth->entries[low - 1] : 0);
}

/* True for a function's entry; false for a part that was split off, and for PLT0. */
static bool is_entry(const struct truth *truth, uint64_t address) {
    struct unspool_row row;
    bool is_aarch64 = truth->input->arch == UNSPOOL_AARCH64;
    return unspool_table_lookup(truth->table, address - truth->input->image_address, &row) == UNSPOOL_OK &&
           row.cfa_base == UNSPOOL_CFA_SP && row.cfa_offset == (is_aarch64 ? 0 : 8) &&
           row.ra == (is_aarch64 ? UNSPOOL_SAVED_SAME : UNSPOOL_SAVED_AT_CFA);
}

static void ask(const struct truth *truth, uint64_t pc, const struct unspool_row *row,
                const struct instruction *instruction) {
    struct frame_recipe claimed;
    uint32_t mode = truth->input->mode;
    if (mode == AFTER_CALLS && instruction->flow != FLOW_CALL)
        return;
    uint64_t entry = entry_of(truth, row->start);
    if (mode == FROM_ENTRIES && !is_entry(truth, entry))
        return;
    truth->counts->places++;
    if (mode == FROM_ENTRIES) {
        if (recipe_from_entry(truth->code, entry, pc, &claimed) && claimed.sp.kind != VALUE_UNKNOWN &&
            claimed.return_address.kind != VALUE_UNKNOWN)
            compare(truth, pc, row, true, &claimed);
        return;
    }
    if (mode == AFTER_CALLS)
        pc += instruction->length;
    enum analysis_result result =
        analyse_code(truth->code, pc, mode == INTERRUPTED, mode == INTERRUPTED, &claimed);
    if (result != CALLER_NOT_FOUND)
        compare(truth, pc, row, result == CALLER_PROVED, &claimed);
}

static void check_row(const struct truth *truth, const struct unspool_row *row) {
    struct instruction instruction;
    bool is_reached = true, is_stale = false;
    for (uint64_t at = row->start; at < row->end; at += instruction.length) {
        uint64_t pc = truth->input->image_address + at;
        uint8_t bytes[16];
        size_t size = code_read(truth->code, pc, bytes, sizeof bytes);
        if (truth->input->arch == UNSPOOL_AARCH64)
            aarch64_decode(bytes, size, pc, &instruction);
        else
            x86_64_decode(bytes, size, pc, &instruction);
        if (instruction.flow == FLOW_INVALID)
            return;
        if (is_stale) { /* the row can't hold before and after a change of sp */
            truth->counts->stale++;
            return;
        }
        if (!is_reached && is_padding(truth->code, pc, instruction.length, truth->input->arch))
            continue;
        /* Padding after a call is taken to follow one that never returns. */
        is_reached = instruction.flow == FLOW_NEXT || instruction.flow == FLOW_BRANCH;
        is_stale = changes_sp(&instruction) && row->cfa_base == UNSPOOL_CFA_SP;
        ask(truth, pc, row, &instruction);
    }
}

static bool add_entry(void *context, const struct fde *fde) {
    struct truth *truth = context;
    if (truth->entry_count == truth->entry_capacity) {
        truth->entry_capacity = 2 * truth->entry_capacity + 1024;
        truth->entries = realloc(truth->entries, truth->entry_capacity * sizeof *truth->entries);
        if (!truth->entries)
            abort();
    }
    truth->entries[truth->entry_count++] = fde->start;
    return true;
}

static int ascending(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void find_entries(struct truth *truth, const struct unspool_compile_input *input) {
    struct unspool_problems problems = {0};
    struct cfi_reader reader;
    cfi_reader_begin(&reader, input, &problems);
    read_fdes(&reader, 0, add_entry, truth);
    if (truth->entry_count)
        qsort(truth->entries, truth->entry_count, sizeof *truth->entries, ascending);
}

static void check_rows(const struct truth *truth) {
    const uint32_t special = UNSPOOL_ROW_NONE | UNSPOOL_ROW_EXACT | UNSPOOL_ROW_END | UNSPOOL_ROW_SIGNAL;
    uint64_t count = unspool_table_row_count(truth->table);
    for (uint64_t i = 0; i < count; i += truth->input->stride) {
        struct unspool_row row;
        if (unspool_table_rows(truth->table, i, &row, 1) == 1 && (row.flags & special) == 0)
            check_row(truth, &row);
    }
}

int truth_compare(const struct truth_input *input, struct truth_counts *counts,
                  struct truth_difference *differences, uint64_t capacity);

int truth_compare(const struct truth_input *input, struct truth_counts *counts,
                  struct truth_difference *differences, uint64_t capacity) {
    struct unspool_section section = {input->eh_frame, input->eh_frame_size, input->eh_frame_address,
                                      UNSPOOL_EH_FRAME, 0};
    struct unspool_compile_input compile = {
        .arch = input->arch, .section_count = 1, .sections = &section, .image_address = input->image_address};
    struct unspool_table *table;
    struct unspool_problems problems;
    int status = unspool_table_compile(&compile, &table, &problems);
    if (status != UNSPOOL_OK)
        return status;
    struct unspool_module module = {
        .start = input->code_address,
        .end = input->code_address + input->code_size,
        .image_base = input->image_address,
        .code = input->code,
        .code_size = input->code_size,
    };
    struct unspool_unwinder unwinder = {
        .arch = input->arch, .address_bits = 48, .modules = &module, .module_count = 1};
    struct unspool_memory memory;
    memset(&memory, 0, sizeof memory);
    struct code code = {&unwinder, &memory};
    struct truth truth = {
        .input = input, .code = &code, .counts = counts, .differences = differences, .capacity = capacity};
    find_entries(&truth, &compile);
    truth.table = table;
    check_rows(&truth);
    free(truth.entries);
    unspool_table_free(table);
    return UNSPOOL_OK;
}
