/*
 * code_scan.c: looks through a function's instructions once, when its table is compiled.
 */
#include "code_scan.h"
#include "instruction.h"
#include "x86_64_quick.h"

#include <string.h>

static bool moves_sp(const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++) {
        const struct stack_effect *effect = &instruction->effects[i];
        if (effect->to == REGISTER_SP && effect->kind != EFFECT_STORE)
            return true;
    }
    return false;
}

static bool changes_lr(const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++) {
        const struct stack_effect *effect = &instruction->effects[i];
        if (effect->to == REGISTER_LR && effect->kind != EFFECT_STORE)
            return true;
    }
    return instruction->flow == FLOW_CALL;
}

/* The bytes at a virtual address, and how many follow; NULL: none. */
static const uint8_t *code_bytes(const struct unspool_compile_input *input, uint64_t address,
                                 uint64_t *size) {
    for (uint64_t i = 0; i < input->code_count; i++) {
        uint64_t offset = address - input->code[i].address;
        if (offset < input->code[i].size) {
            *size = input->code[i].size - offset;
            return input->code[i].bytes + offset;
        }
    }
    return NULL;
}

/* The code of start <= relative address < end, decoded one instruction after the other. */
struct scan {
    const uint8_t *bytes;
    uint64_t address, size; /* what is left */
    uint64_t readable;      /* bytes, beyond the end too */
    uint32_t arch;
};

static struct scan begin_scan(const struct unspool_compile_input *input, uint64_t start, uint64_t end) {
    struct scan scan = {.address = start + input->image_address, .arch = input->arch};
    scan.bytes = code_bytes(input, scan.address, &scan.readable);
    if (!scan.bytes)
        scan.readable = 0;
    scan.size = scan.readable < end - start ? scan.readable : end - start;
    return scan;
}

static inline void pass(struct scan *scan, uint64_t length) {
    scan->bytes += length;
    scan->address += length;
    scan->size -= length;
    scan->readable -= length;
}

/* False where the code ends, or what there is can't be decoded. */
static bool next_instruction(struct scan *scan, struct instruction *instruction) {
    if (!scan->size)
        return false;
    if (scan->arch == UNSPOOL_AARCH64)
        aarch64_decode(scan->bytes, scan->size, scan->address, instruction);
    else
        x86_64_decode(scan->bytes, scan->size, scan->address, instruction);
    pass(scan, instruction->length);
    return instruction->length != 0;
}

/* svc #0, then cmp x0, #0 or cbz x0: of two threads only one goes on here. */
static bool may_make_thread(const struct scan *scan) {
    static const uint8_t call[] = {0x01, 0x00, 0x00, 0xd4}, compare[] = {0x1f, 0x00, 0x00, 0xf1};
    return scan->arch == UNSPOOL_AARCH64 && scan->size >= 4 && memcmp(scan->bytes - 4, call, 4) == 0 &&
           (memcmp(scan->bytes, compare, 4) == 0 || (scan->bytes[3] == 0xb4 && !(scan->bytes[0] & 0x1f)));
}

/* Goes to the next instruction that may write sp. */
static void skip_plain(struct scan *scan) {
    if (scan->arch == UNSPOOL_X86_64 && scan->size != 0)
        pass(scan, x86_64_plain_bytes(scan->bytes, scan->size, scan->readable));
}

/* True when the instruction does more to the stack than one row can say. */
static bool outruns(const struct scan *scan, const struct instruction *instruction) {
    return moves_sp(instruction) || (scan->arch == UNSPOOL_AARCH64 && changes_lr(instruction)) ||
           may_make_thread(scan);
}

static bool rest_outruns_row(struct scan *scan) {
    struct instruction instruction;
    skip_plain(scan);
    for (; next_instruction(scan, &instruction); skip_plain(scan))
        if (outruns(scan, &instruction))
            return true;
    return false;
}

bool code_outruns_row(const struct unspool_compile_input *input, uint64_t start, uint64_t end) {
    struct scan scan = begin_scan(input, start, end);
    return rest_outruns_row(&scan);
}

/* Pieces of which some are to be looked through, and their `scans`. */
struct wanted {
    const struct unspool_compile_input *input;
    const struct piece *pieces;
    uint8_t *scans;
    size_t at, count;
};

/* The one that is looked through in a lane. */
struct lane_scan {
    struct scan scan;
    uint8_t *found;
};

/* Begins the next; false: there is none. */
static bool begin_lane(struct wanted *wanted, struct lane_scan *lane) {
    while (wanted->at < wanted->count) {
        const struct piece *piece = &wanted->pieces[wanted->at];
        lane->found = &wanted->scans[wanted->at++];
        if (*lane->found != SCAN_WANTED)
            continue;
        lane->scan = begin_scan(wanted->input, piece->start, piece->end);
        if (lane->scan.size != 0 && lane->scan.readable - lane->scan.size >= QUICK_MARGIN)
            return true;
        *lane->found = rest_outruns_row(&lane->scan) ? SCAN_OUTRUNS : SCAN_FITS;
    }
    return false;
}

/* Goes on from where a lane was left. True when that was all of it. */
static bool end_lane(struct lane_scan *lane, const struct code_lane *left) {
    struct instruction instruction;
    struct scan *scan = &lane->scan;
    uint64_t passed = (uint64_t)(left->at - scan->bytes);
    *lane->found = SCAN_FITS;
    if (passed >= scan->size)
        return true;
    pass(scan, passed);
    if (!left->is_stopped)
        return false;
    if (!next_instruction(scan, &instruction))
        return true;
    if (outruns(scan, &instruction))
        *lane->found = SCAN_OUTRUNS;
    return *lane->found == SCAN_OUTRUNS || scan->size == 0;
}

void code_scan_pieces(const struct unspool_compile_input *input, const struct piece *pieces, uint8_t *scans,
                      size_t count) {
    struct wanted wanted = {input, pieces, scans, 0, count};
    struct lane_scan open[CODE_LANES];
    struct code_lane lanes[CODE_LANES];
    size_t open_count = 0;
    while (open_count < CODE_LANES && begin_lane(&wanted, &open[open_count]))
        open_count++;
    while (open_count == CODE_LANES) {
        for (size_t i = 0; i < CODE_LANES; i++) {
            const struct scan *scan = &open[i].scan;
            lanes[i] = (struct code_lane){scan->bytes, scan->bytes + scan->size, false};
        }
        x86_64_pass_quickly(lanes);
        for (size_t i = 0; i < open_count; i++)
            if (end_lane(&open[i], &lanes[i]) && !begin_lane(&wanted, &open[i])) {
                open[i] = open[--open_count];
                lanes[i--] = lanes[open_count];
            }
    }
    for (size_t i = 0; i < open_count; i++)
        *open[i].found = rest_outruns_row(&open[i].scan) ? SCAN_OUTRUNS : SCAN_FITS;
}

static bool code_outruns_rows(const struct unspool_compile_input *input, uint64_t start, uint64_t first_end,
                              uint64_t end) {
    struct scan scan = begin_scan(input, start, end);
    uint64_t low = scan.address, high = scan.address + (end - start), first = low + (first_end - start);
    struct instruction instruction;
    while (next_instruction(&scan, &instruction)) {
        bool leaves =
            instruction.flow == FLOW_RETURN ||
            (instruction.flow == FLOW_JUMP && (instruction.target < low || instruction.target >= high));
        if (leaves || (scan.address < first && moves_sp(&instruction)))
            return true;
    }
    return false;
}

bool code_outruns_cfi(const struct unspool_compile_input *input, const struct cfi_program *program) {
    uint64_t first_end;
    if (cfi_is_one_row(program->instructions, program->instructions_size))
        return code_outruns_row(input, program->start, program->end);
    return cfi_tells_no_epilogue(program, &first_end) &&
           code_outruns_rows(input, program->start, first_end, program->end);
}

/* How many bytes of code before a row are looked at. */
enum { SAVING_CODE = 64 };

bool code_saves_late(const struct unspool_compile_input *input, const struct cfi_program *program,
                     uint64_t row_start) {
    uint64_t size = row_start - program->start < SAVING_CODE ? row_start - program->start : SAVING_CODE;
    struct instruction instruction;
    if (input->arch != UNSPOOL_AARCH64)
        return false;
    struct scan scan = begin_scan(input, row_start - size, row_start);
    if (scan.size == 0)
        return false;
    while (next_instruction(&scan, &instruction))
        for (uint32_t i = 0; i < instruction.effect_count; i++)
            if (instruction.effects[i].kind == EFFECT_STORE && instruction.effects[i].from == REGISTER_LR)
                return false;
    return true;
}

/* glibc's __startcontext on aarch64: mov x0, x19; cbnz x0, setcontext; b exit. A hint may be before it. */
bool code_ends_context(const struct unspool_compile_input *input, uint64_t start, uint64_t end) {
    static const struct {
        uint32_t mask, word;
    } ending[] = {{0xffffffff, 0xaa1303e0}, {0xff00001f, 0xb5000000}, {0xfc000000, 0x14000000}};
    uint64_t size = 0;
    const uint8_t *bytes = code_bytes(input, start + input->image_address, &size);
    if (input->arch != UNSPOOL_AARCH64 || !bytes || end - start < sizeof ending / 2 || size < end - start)
        return false;
    uint64_t skipped = end - start - sizeof ending / 2;
    if (skipped != 0 && (skipped != 4 || bytes[3] != 0xd5)) /* system instructions, hints among them */
        return false;
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        const uint8_t *at = bytes + skipped + 4 * i;
        uint32_t word =
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        if ((word & ending[i].mask) != ending[i].word)
            return false;
    }
    return true;
}
