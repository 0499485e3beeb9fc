/*
 * analysis_truth.c: code analysis against unwind tables, for test_analysis_truth.py.
 *
 * At every instruction of functions that have unwind information, the table is hidden, the code
 * analysed, and what it claims is compared with the row.
 */
#include "analysis.h"
#include "instruction.h"

#include <string.h>

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
    uint32_t after_calls; /* 1: only at return addresses, as a caller's pc */
    uint64_t stride;      /* every how many rows */
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

static void compare(const struct code *code, uint64_t image_address, uint64_t relative_address,
                    bool is_proved, const struct frame_recipe *claimed, const struct frame_recipe *expected,
                    struct truth_counts *counts, struct truth_difference *differences, uint64_t capacity) {
    uint64_t pc = image_address + relative_address;
    counts->claims++;
    counts->unproved += !is_proved;
    if (claimed->sp.kind != expected->sp.kind) {
        counts->incomparable++;
        return;
    }
    bool same_fp = equal(claimed->fp, expected->fp) || claimed->fp.kind == VALUE_UNKNOWN;
    if (is_equal_by_lr(code, pc, claimed, expected) || is_equal_by_lr(code, pc, expected, claimed)) {
        counts->equal++;
        return;
    }
    if (equal(claimed->sp, expected->sp) && equal(claimed->return_address, expected->return_address) &&
        same_fp) {
        counts->equal++;
        counts->fp_lost += claimed->fp.kind == VALUE_UNKNOWN && expected->fp.kind != VALUE_UNKNOWN;
        return;
    }
    counts->unproved_wrong += !is_proved;
    if (counts->wrong < capacity) {
        struct truth_difference *difference = &differences[counts->wrong];
        difference->relative_address = relative_address;
        keep(difference->claimed, claimed);
        keep(difference->expected, expected);
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

static void check_row(const struct code *code, const struct truth_input *input, const struct unspool_row *row,
                      struct truth_counts *counts, struct truth_difference *differences, uint64_t capacity) {
    struct frame_recipe claimed, expected;
    struct instruction instruction;
    bool is_reached = true, is_stale = false;
    expect_row(row, &expected);
    for (uint64_t at = row->start; at < row->end; at += instruction.length) {
        uint64_t pc = input->image_address + at;
        uint8_t bytes[16];
        size_t size = code_read(code, pc, bytes, sizeof bytes);
        if (input->arch == UNSPOOL_AARCH64)
            aarch64_decode(bytes, size, pc, &instruction);
        else
            x86_64_decode(bytes, size, pc, &instruction);
        if (instruction.flow == FLOW_INVALID)
            return;
        bool goes_on = instruction.flow == FLOW_NEXT || instruction.flow == FLOW_BRANCH;
        if (is_stale) { /* the row can't hold before and after a change of sp */
            counts->stale++;
            return;
        }
        if (!is_reached && is_padding(code, pc, instruction.length, input->arch))
            continue;
        is_reached = goes_on; /* padding after a call: the call never returns */
        if (input->after_calls)
            pc += instruction.length;
        if (input->after_calls && instruction.flow != FLOW_CALL)
            continue;
        counts->places++;
        is_stale = changes_sp(&instruction) && row->cfa_base == UNSPOOL_CFA_SP;
        enum analysis_result result =
            analyse_code(code, pc, !input->after_calls, !input->after_calls, &claimed);
        if (result != CALLER_NOT_FOUND)
            compare(code, input->image_address, pc - input->image_address, result == CALLER_PROVED, &claimed,
                    &expected, counts, differences, capacity);
    }
}

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
    uint64_t count = unspool_table_row_count(table);
    for (uint64_t i = 0; i < count; i += input->stride) {
        struct unspool_row row;
        if (unspool_table_rows(table, i, &row, 1) != 1)
            break;
        if ((row.flags & (UNSPOOL_ROW_NONE | UNSPOOL_ROW_EXACT | UNSPOOL_ROW_END | UNSPOOL_ROW_SIGNAL)) == 0)
            check_row(&code, input, &row, counts, differences, capacity);
    }
    unspool_table_free(table);
    return UNSPOOL_OK;
}
