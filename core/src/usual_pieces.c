/*
 * usual_pieces.c: rows of functions whose call frame information is as compilers write it for nearly all of
 * them (usual_cfi.h), added quickly. table_build.c does the same for all others. May allocate.
 */
#include "code_scan.h"
#include "table_builder.h"

/* The number of an ordinary rule that says what a usual row says; -1: there is no more room for it. */
static int32_t make_usual_rule(struct builder *builder, const struct usual_row *row) {
    static const uint8_t saved[] = {USUAL_RBX, USUAL_R12, USUAL_R13, USUAL_R14, USUAL_R15};
    struct saved_set set = {{0}};
    for (size_t i = 0; i < sizeof saved; i++)
        set.slot[i] = (int16_t)-(int16_t)(row->slots >> 8 * saved[i] & 0xff);
    int32_t set_number = memoize(&builder->saved, &set, sizeof set);
    if (set_number < 0)
        return -1;
    int16_t fp_slot = (int16_t)-(int16_t)(row->slots >> 8 * USUAL_RBP & 0xff);
    struct rule rule = {
        .cfa_offset = (int32_t)(row->cfa >> 1),
        .ra_slot = -1,
        .fp_slot = fp_slot,
        .saved = (uint16_t)set_number,
        .kind = RULE_KIND(row->cfa & 1 ? UNSPOOL_CFA_FP : UNSPOOL_CFA_SP, UNSPOOL_SAVED_AT_CFA,
                          fp_slot ? UNSPOOL_SAVED_AT_CFA : UNSPOOL_SAVED_SAME),
    };
    return memoize(&builder->rules, &rule, sizeof rule);
}

static inline int32_t usual_rule_number(struct builder *builder, const struct usual_row *row) {
    uint64_t hash = (row->slots ^ (uint64_t)row->cfa << 40) * 0x9e3779b97f4a7c15u;
    struct usual_rule *kept = &builder->usual_rules[(hash ^ hash >> 32) >> 8 & (USUAL_SLOTS - 1)];
    if (kept->number_plus_1 && kept->slots == row->slots && kept->cfa == row->cfa)
        return (int32_t)kept->number_plus_1 - 1;
    int32_t number = make_usual_rule(builder, row);
    if (number >= 0)
        *kept = (struct usual_rule){row->slots, row->cfa, (uint32_t)number + 1};
    return number;
}

/* Whether programs with a CIE begin as nearly all do; its instructions are run once for many. */
static bool is_usual_cie(struct builder *builder, const struct fde *fde, struct cie *cie) {
    if (cie->usual == CIE_NOT_ASKED) {
        struct cfi_program program;
        bool is_usual = fde_program(builder->reader, fde, &program) &&
                        cfi_begin(&builder->machine, &program) == CFI_ROW &&
                        usual_beginning(&program, &builder->machine.rules);
        cie->usual = is_usual ? CIE_USUAL : CIE_UNUSUAL;
    }
    return cie->usual == CIE_USUAL;
}

/* Appends a function's rows, of which there is one or more, and one that says nothing behind them. False:
 * nothing was added, since there is no more room for rules or memory. */
static bool append_rows(struct builder *builder, const struct piece *piece, const struct usual_row *usual,
                        uint32_t count) {
    if (!vector_reserve(&builder->rows, count + 1, sizeof(uint32_t)) ||
        !vector_reserve(&builder->row_rules, count + 1, sizeof(uint16_t)))
        return false;
    uint32_t *rows = builder_rows(builder), start = (uint32_t)(piece->start - builder->base);
    uint16_t *row_rules = builder->row_rules.items;
    size_t at = builder->row_rules.count;
    if (at && rows[at - 1] == start)
        at--; /* it takes the place of the one that says nothing */
    int32_t last = RULE_NONE;
    for (uint32_t i = 0; i < count; i++) {
        int32_t number = usual_rule_number(builder, &usual[i]);
        if (number < 0)
            return false;
        rows[at] = start + usual[i].start;
        row_rules[at] = (uint16_t)number;
        at += number != last;
        last = number;
    }
    rows[at] = (uint32_t)(piece->end - builder->base);
    row_rules[at++] = RULE_NONE;
    builder->row_rules.count = at;
    builder->rows.count = HEADER_ROWS + at;
    return true;
}

/* Whether it is a function with one row that its code outruns. */
static bool has_doubted_row(const struct builder *builder, const struct piece *piece, const struct fde *fde) {
    const struct unspool_compile_input *input = builder->reader->input;
    if (builder->scans)
        return builder->scans[piece - (const struct piece *)builder->pieces.items] == SCAN_OUTRUNS;
    return cfi_is_one_row(input->sections[fde->section].bytes + fde->instructions, fde->instructions_size) &&
           code_outruns_row(input, fde->start, fde->end);
}

bool add_usual_piece(struct builder *builder, const struct piece *piece, const struct fde *fde,
                     struct cie *cie) {
    const struct unspool_compile_input *input = builder->reader->input;
    const uint8_t *instructions = input->sections[fde->section].bytes + fde->instructions;
    const uint16_t *row_rules = builder->row_rules.items;
    size_t row_count = builder->row_rules.count;
    uint64_t entry = input->entry_address - input->image_address;
    if (piece->start != fde->start || piece->end != fde->end || !is_usual_cie(builder, fde, cie) ||
        (row_count && row_rules[row_count - 1] != RULE_NONE) ||
        (input->entry_address && entry - fde->start < fde->end - fde->start))
        return false;
    if (has_doubted_row(builder, piece, fde))
        return false;
    struct usual_row rows[USUAL_ROWS];
    uint32_t count = usual_rows(instructions, fde->instructions_size, fde->end - fde->start, rows);
    return count != 0 && append_rows(builder, piece, rows, count);
}
