/*
 * test_dwarf_cfi.c: the entries of .eh_frame and .debug_frame (dwarf_cfi.c): CIE versions and
 * augmentations, pointer encodings, 64-bit lengths, terminators, and entries that can't be used.
 */
#include "cfi_writer.h"
#include "check.h"
#include "dwarf_cfi.h"

static struct writer writer;
static struct unspool_section section;
static struct unspool_compile_input input;
static struct unspool_problems problems;
static struct cfi_reader reader;
static struct fde fdes[8];
static size_t fde_count;

static bool add(void *context, const struct fde *fde) {
    (void)context;
    CHECK(fde_count < sizeof fdes / sizeof *fdes);
    if (fde_count < sizeof fdes / sizeof *fdes)
        fdes[fde_count++] = *fde;
    return true;
}

static void begin(void) {
    writer_free(&writer);
    input = (struct unspool_compile_input){.arch = UNSPOOL_X86_64, .section_count = 1, .sections = &section};
    section = (struct unspool_section){.kind = UNSPOOL_EH_FRAME};
}

/* Reads what was written; what begin set up may have been changed. */
static void read_section(void) {
    section.bytes = writer.bytes;
    section.size = writer.size;
    problems.count = 0;
    fde_count = 0;
    cfi_reader_begin(&reader, &input, &problems);
    CHECK(read_fdes(&reader, 0, add, NULL));
}

static void expect_one_fde(uint64_t start, uint64_t end) {
    CHECK_EQUAL(problems.count, 0);
    if (CHECK_EQUAL(fde_count, 1)) {
        CHECK_EQUAL(fdes[0].start, start);
        CHECK_EQUAL(fdes[0].end, end);
    }
}

static void expect_problem(enum unspool_problem_kind kind, uint64_t offset) {
    CHECK_EQUAL(problems.count, 1);
    CHECK_EQUAL(problems.first[0].kind, kind);
    CHECK_EQUAL(problems.first[0].offset, offset);
    CHECK_EQUAL(problems.first[0].section, 0);
}

static struct cie_shape shape(const char *augmentation, const uint8_t *data, size_t size) {
    struct cie_shape cie = x86_64_cie;
    cie.augmentation = augmentation;
    cie.data = data;
    cie.data_size = size;
    return cie;
}

/* An FDE whose body after the CIE pointer is given. Returns its offset. */
static uint64_t write_raw_fde(uint64_t cie, const uint8_t *body, size_t size) {
    size_t entry = writer.size;
    write_u32(&writer, 0);
    write_u32(&writer, (uint32_t)(writer.size - cie));
    write_bytes(&writer, body, size);
    finish_entry(&writer, entry);
    return entry;
}

static void an_fde_and_its_program(void) {
    begin();
    uint64_t cie = write_cie(&writer, &x86_64_cie);
    uint64_t offset = write_fde(&writer, cie, 0x401000, 0x20, CFI(ADVANCE(1), DEF_CFA_OFFSET(16)));
    input.image_address = 0x400000;
    section.address = 0x480000;
    read_section();
    expect_one_fde(0x1000, 0x1020);
    CHECK_EQUAL(fdes[0].offset, offset);
    struct cfi_program program;
    CHECK(fde_program(&reader, &fdes[0], &program));
    CHECK_EQUAL(program.initial_size, sizeof x86_64_initial);
    CHECK_BYTES(program.initial, x86_64_initial, sizeof x86_64_initial);
    CHECK_EQUAL(program.instructions_size, 3);
    CHECK_EQUAL(program.instructions[0], ADVANCE(1));
    CHECK_EQUAL(program.instructions_address, 0x80000 + writer.size - 3);
    CHECK_EQUAL(program.start, 0x1000);
    CHECK_EQUAL(program.end, 0x1020);
    CHECK_EQUAL(program.code_alignment, 1);
    CHECK_EQUAL(program.data_alignment, -8);
    CHECK_EQUAL(program.return_address_register, RIP);
    CHECK_EQUAL(program.flags, 0);
}

static void cie_versions(void) {
    for (uint8_t version = 0; version < 7; version++) {
        struct cie_shape cie = x86_64_cie;
        cie.version = version;
        begin();
        uint64_t at = write_cie(&writer, &cie);
        if (version == 0)
            writer.bytes[8] = 0; /* the writer takes 0 for 1 */
        uint64_t fde = write_fde(&writer, at, 0x1000, 0x20, NO_CFI);
        read_section();
        if (version == 1 || version == 3 || version == 4)
            expect_one_fde(0x1000, 0x1020);
        else
            expect_problem(UNSPOOL_PROBLEM_CIE_UNSUPPORTED, fde);
    }
}

static void version_4_is_for_flat_64_bit_addresses_only(void) {
    for (size_t at = 10; at < 12; at++) { /* address size, segment selector size */
        struct cie_shape cie = x86_64_cie;
        cie.version = 4;
        begin();
        write_cie(&writer, &cie);
        writer.bytes[at] = 4;
        uint64_t fde = write_fde(&writer, 0, 0x1000, 0x20, NO_CFI);
        read_section();
        expect_problem(UNSPOOL_PROBLEM_CIE_UNSUPPORTED, fde);
    }
}

/* From version 3 on, the return-address column is a ULEB128. */
static void a_return_address_column_that_does_not_exist(void) {
    struct cie_shape cie = x86_64_cie;
    cie.version = 3;
    cie.return_address_register = 200;
    begin();
    uint64_t at = write_cie(&writer, &cie);
    write_fde(&writer, at, 0x1000, 0x20, NO_CFI);
    read_section();
    expect_one_fde(0x1000, 0x1020);
    struct cfi_program program;
    CHECK(fde_program(&reader, &fdes[0], &program));
    CHECK_EQUAL(program.return_address_register, UNSPOOL_REGISTERS);
    CHECK_EQUAL(program.initial_size, sizeof x86_64_initial);
}

/* "zR" with an encoding and the bytes of start and size as it has them. */
static void expect_encoded(uint8_t encoding, const uint8_t *body, size_t size) {
    struct cie_shape cie = shape("zR", &encoding, 1);
    begin();
    section.address = 0x400000;
    input.image_address = 0x400000;
    input.text_address = 0x401000;
    input.data_address = 0x402000;
    uint64_t at = write_cie(&writer, &cie);
    uint64_t fde = write_raw_fde(at, body, size);
    CHECK_EQUAL(fde, 0x16); /* so its address field is at 0x40001e */
    read_section();
    expect_one_fde(0x3000, 0x3020);
}

static void pointer_encodings(void) {
    expect_encoded(0x00, CFI(U64(0x403000), U64(0x20), 0));
    expect_encoded(0x04, CFI(U64(0x403000), U64(0x20), 0));
    expect_encoded(0x0c, CFI(U64(0x403000), U64(0x20), 0));
    expect_encoded(0x03, CFI(U32(0x403000), U32(0x20), 0));
    expect_encoded(0x0b, CFI(U32(0x403000), U32(0x20), 0));
    expect_encoded(0x01, CFI(0x80, 0xe0, 0x80, 0x02, 0x20, 0));
    expect_encoded(0x09, CFI(0x80, 0xe0, 0x80, 0x02, 0x20, 0));
    expect_encoded(0x1b, CFI(U32(0x403000 - 0x40001e), U32(0x20), 0));
    expect_encoded(0x1c, CFI(U64(0x403000 - 0x40001e), U64(0x20), 0));
    expect_encoded(0x12, CFI(U16(0x403000 - 0x40001e), U16(0x20), 0));
    expect_encoded(0x2a, CFI(U16(0x2000), U16(0x20), 0));
    expect_encoded(0x3b, CFI(U32(0x1000), U32(0x20), 0));
}

static void encodings_that_cannot_be_resolved(void) {
    const uint8_t encodings[] = {0xff, 0x9b, 0x80, 0x40, 0x50, 0x70, 0x05, 0x0d, 0x1f};
    for (size_t i = 0; i < sizeof encodings; i++) {
        struct cie_shape cie = shape("zR", &encodings[i], 1);
        begin();
        uint64_t at = write_cie(&writer, &cie);
        uint64_t fde = write_raw_fde(at, CFI(U64(0x1000), U64(0x20), 0));
        read_section();
        expect_problem(UNSPOOL_PROBLEM_POINTER_ENCODING, fde);
    }
}

/* An augmentation that leaves the FDE's addresses absolute; fde_data stands before its instructions. */
static void expect_augmentation(const char *letters, const uint8_t *data, size_t size, uint8_t flags) {
    struct cie_shape cie = shape(letters, data, size);
    begin();
    uint64_t at = write_cie(&writer, &cie);
    write_raw_fde(at, CFI(U64(0x1000), U64(0x20), 3, 0xaa, 0xbb, 0xcc, NOP));
    read_section();
    expect_one_fde(0x1000, 0x1020);
    struct cfi_program program;
    CHECK(fde_program(&reader, &fdes[0], &program));
    CHECK_EQUAL(program.initial_size, sizeof x86_64_initial);
    CHECK_EQUAL(program.instructions_size, letters[0] == 'z' ? 1 : 5);
    CHECK_EQUAL(program.flags, flags);
}

static void augmentations(void) {
    expect_augmentation("z", NO_CFI, 0);
    expect_augmentation("zR", CFI(0), 0);
    expect_augmentation("zPLR", CFI(0x9b, U32(0x1234), 0x1b, 0), 0);
    expect_augmentation("zPLR", CFI(0x00, U64(0x1234), 0xff, 0x04), 0);
    expect_augmentation("zPR", CFI(0x01, 0x80, 0x01, 0x04), 0);
    expect_augmentation("zRS", CFI(0), UNSPOOL_ROW_SIGNAL);
    expect_augmentation("zSR", CFI(0), UNSPOOL_ROW_SIGNAL);
    expect_augmentation("zRB", CFI(0), 0);
    expect_augmentation("zRGB", CFI(0), 0);
    expect_augmentation("S", NO_CFI, UNSPOOL_ROW_SIGNAL);
    expect_augmentation("B", NO_CFI, 0);
    expect_augmentation("R", CFI(0x04), 0);
}

static void a_personality_may_be_left_out(void) {
    expect_augmentation("zPLR", CFI(0xff, 0x1b, 0x04), 0);
}

/* The pointer stands at a multiple of 8 of the address space. */
static void a_personality_may_be_aligned(void) {
    for (uint8_t gap = 0; gap < 8; gap++) {
        uint8_t data[2 + 7 + 8] = {POINTER_ALIGNED};
        data[1 + gap + 8] = 0x04; /* 'R' */
        struct cie_shape cie = shape("zPR", data, 2u + gap + 8);
        begin();
        write_cie(&writer, &cie);
        const uint8_t *pointer = writer.bytes + writer.size - cie.instructions_size - 1 - 8;
        section.address = 0x400000 - (uint64_t)(pointer - writer.bytes);
        write_raw_fde(0, CFI(U64(0x1000), U64(0x20), 0));
        read_section();
        expect_one_fde(0x1000, 0x1020);
    }
}

static void augmentations_that_cannot_be_skipped(void) {
    const struct {
        const char *letters;
        uint8_t data[4];
        size_t size;
    } cases[] = {
        {"X", {0}, 0},
        {"RX", {0x04}, 1},
        {"zRX", {0x04, 0xaa}, 2}, /* 'z' says where its data ends, but not what it means */
        {"zR", {0}, 0},           /* no room for the encoding */
        {"zP", {0x00, 1, 2}, 3},  /* nor for the personality */
        {"zPR", {0x07, 0, 0}, 3}, /* of no known format */
        {"armcc+", {0}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cie_shape cie = shape(cases[i].letters, cases[i].data, cases[i].size);
        begin();
        uint64_t at = write_cie(&writer, &cie);
        uint64_t fde = write_fde(&writer, at, 0x1000, 0x20, NO_CFI);
        read_section();
        expect_problem(UNSPOOL_PROBLEM_CIE_UNSUPPORTED, fde);
    }
}

static void the_ancient_eh_augmentation_brings_a_pointer(void) {
    begin();
    write_u32(&writer, 0);
    write_u32(&writer, 0);
    write_bytes(&writer, CFI(1, 'e', 'h', 0, U64(0xdeadbeef), 1, SLEB(-8), RIP, DEF_CFA(RSP, 8)));
    finish_entry(&writer, 0);
    write_fde(&writer, 0, 0x1000, 0x20, NO_CFI);
    read_section();
    expect_one_fde(0x1000, 0x1020);
    struct cfi_program program;
    CHECK(fde_program(&reader, &fdes[0], &program));
    CHECK_EQUAL(program.initial_size, 3);
    CHECK_EQUAL(program.return_address_register, RIP);
}

static void lengths_of_64_bits(void) {
    for (uint32_t kind = UNSPOOL_EH_FRAME; kind <= UNSPOOL_DEBUG_FRAME; kind++) {
        bool is_debug = kind == UNSPOOL_DEBUG_FRAME;
        begin();
        section.kind = kind;
        write_u32(&writer, UINT32_MAX);
        write_u64(&writer, is_debug ? 15 : 11);
        write_u32(&writer, is_debug ? UINT32_MAX : 0); /* the id: 8 bytes in .debug_frame, else 4 */
        if (is_debug)
            write_u32(&writer, UINT32_MAX);
        write_bytes(&writer, CFI(3, 0, 1, SLEB(-8), RIP, NOP, NOP));
        uint64_t fde = writer.size;
        write_u32(&writer, UINT32_MAX);
        write_u64(&writer, is_debug ? 24 : 20);
        if (is_debug)
            write_u64(&writer, 0);
        else
            write_u32(&writer, (uint32_t)writer.size);
        write_u64(&writer, 0x1000);
        write_u64(&writer, 0x20);
        read_section();
        expect_one_fde(0x1000, 0x1020);
        CHECK_EQUAL(fdes[0].offset, fde);
        CHECK_EQUAL(fdes[0].cie_offset, 0);
    }
}

static void debug_frame_names_its_cie_by_offset(void) {
    struct cie_shape cie = x86_64_cie;
    cie.kind = UNSPOOL_DEBUG_FRAME;
    begin();
    section.kind = UNSPOOL_DEBUG_FRAME;
    write_cie(&writer, &cie);
    uint64_t second = write_cie(&writer, &cie);
    write_debug_fde(&writer, second, 0x1000, 0x20, NO_CFI);
    read_section();
    expect_one_fde(0x1000, 0x1020);
    CHECK_EQUAL(fdes[0].cie_offset, second);
    struct cfi_program program;
    CHECK(fde_program(&reader, &fdes[0], &program));
    CHECK_EQUAL(program.flags, UNSPOOL_ROW_DEBUG_FRAME);
}

static void a_terminator_in_the_middle_is_stepped_over(void) {
    begin();
    uint64_t cie = write_cie(&writer, &x86_64_cie);
    write_u32(&writer, 0);
    write_fde(&writer, cie, 0x1000, 0x20, NO_CFI);
    write_u32(&writer, 0);
    read_section();
    expect_one_fde(0x1000, 0x1020);
}

static void a_terminator_ends_an_open_ended_section(void) {
    begin();
    uint64_t cie = write_cie(&writer, &x86_64_cie);
    write_fde(&writer, cie, 0x1000, 0x20, NO_CFI);
    write_u32(&writer, 0);
    write_fde(&writer, cie, 0x2000, 0x20, NO_CFI); /* another section, by now */
    section.open_ended = 1;
    read_section();
    expect_one_fde(0x1000, 0x1020);
}

static void a_truncated_entry_ends_the_section(void) {
    for (uint32_t open_ended = 0; open_ended < 2; open_ended++) {
        for (size_t kept = 1; kept < 28; kept++) {
            begin();
            section.open_ended = open_ended;
            uint64_t cie = write_cie(&writer, &x86_64_cie);
            write_fde(&writer, cie, 0x1000, 0x20, NO_CFI);
            uint64_t last = write_fde(&writer, cie, 0x2000, 0x20, CFI(NOP, NOP, NOP, NOP));
            writer.size = last + kept;
            read_section();
            CHECK_EQUAL(fde_count, 1);
            CHECK_EQUAL(problems.count, !open_ended);
            if (!open_ended)
                expect_problem(UNSPOOL_PROBLEM_TRUNCATED, last);
        }
    }
}

static void an_fde_too_short_for_its_addresses(void) {
    begin();
    uint64_t cie = write_cie(&writer, &x86_64_cie);
    uint64_t bad = write_raw_fde(cie, CFI(U64(0x1000), U32(0x20)));
    write_fde(&writer, cie, 0x2000, 0x20, NO_CFI);
    read_section();
    expect_problem(UNSPOOL_PROBLEM_TRUNCATED, bad);
    CHECK_EQUAL(fde_count, 1);
    CHECK_EQUAL(fdes[0].start, 0x2000);
}

static void an_fde_without_a_cie(void) {
    const uint64_t away[] = {0, 1, 4, 0x1000, (uint64_t)-0x1000, (uint64_t)-8};
    for (size_t i = 0; i < sizeof away / sizeof *away; i++) {
        begin();
        uint64_t cie = write_cie(&writer, &x86_64_cie);
        uint64_t first = write_fde(&writer, cie, 0x1000, 0x20, NO_CFI);
        /* at an FDE, inside of entries, before and behind the section */
        uint64_t bad = write_fde(&writer, first + away[i], 0x2000, 0x20, NO_CFI);
        read_section();
        expect_problem(UNSPOOL_PROBLEM_CIE_MISSING, bad);
        CHECK_EQUAL(fde_count, 1);
    }
}

static void empty_ranges_say_nothing(void) {
    begin();
    uint64_t cie = write_cie(&writer, &x86_64_cie);
    write_fde(&writer, cie, 0x1000, 0, NO_CFI);
    write_fde(&writer, cie, 0x1000, 0x20, NO_CFI);
    read_section();
    expect_one_fde(0x1000, 0x1020);
}

static void a_range_that_wraps(void) {
    begin();
    uint64_t cie = write_cie(&writer, &x86_64_cie);
    uint64_t bad = write_fde(&writer, cie, 0xfffffffffffffff0, 0x20, NO_CFI);
    read_section();
    expect_problem(UNSPOOL_PROBLEM_RANGE, bad);
    CHECK_EQUAL(fde_count, 0);
}

/* More CIEs than the reader remembers, used in turn. */
static void many_cies(void) {
    enum { COUNT = CIE_CACHE * 2 + 3 };
    uint64_t cies[COUNT];
    begin();
    for (size_t i = 0; i < COUNT; i++) {
        struct cie_shape cie = x86_64_cie;
        cie.data_alignment = (int8_t)-(1 + i % 60);
        cies[i] = write_cie(&writer, &cie);
    }
    for (size_t i = 0; i < 8; i++)
        write_fde(&writer, cies[i * (COUNT - 1) / 7], 0x1000 * (i + 1), 0x20, NO_CFI);
    read_section();
    CHECK_EQUAL(problems.count, 0);
    CHECK_EQUAL(fde_count, 8);
    for (size_t i = 0; i < fde_count; i++) {
        struct cfi_program program;
        CHECK(fde_program(&reader, &fdes[i], &program));
        CHECK_EQUAL(program.data_alignment, -(int64_t)(1 + i * (COUNT - 1) / 7 % 60));
    }
}

/* Two CIEs that share a place among the remembered ones, each with a long augmentation, would be read
 * again for every FDE: a length that no real one has is refused. */
static void an_augmentation_of_absurd_length(void) {
    char letters[1024];
    memset(letters, 'B', sizeof letters);
    letters[0] = 'z';
    letters[sizeof letters - 1] = 0;
    struct cie_shape cie = shape(letters, NULL, 0);
    begin();
    uint64_t at = write_cie(&writer, &cie);
    uint64_t fde = write_fde(&writer, at, 0x1000, 0x20, NO_CFI);
    read_section();
    expect_problem(UNSPOOL_PROBLEM_CIE_UNSUPPORTED, fde);
}

static void only_the_first_problems_are_kept(void) {
    begin();
    for (uint64_t i = 0; i < UNSPOOL_PROBLEMS_KEPT + 4; i++)
        write_fde(&writer, writer.size, 0x1000, 0x20, NO_CFI);
    read_section();
    CHECK_EQUAL(problems.count, UNSPOOL_PROBLEMS_KEPT + 4);
    CHECK_EQUAL(problems.first[UNSPOOL_PROBLEMS_KEPT - 1].kind, UNSPOOL_PROBLEM_CIE_MISSING);
}

int main(void) {
    RUN(an_fde_and_its_program);
    RUN(cie_versions);
    RUN(version_4_is_for_flat_64_bit_addresses_only);
    RUN(a_return_address_column_that_does_not_exist);
    RUN(pointer_encodings);
    RUN(encodings_that_cannot_be_resolved);
    RUN(augmentations);
    RUN(a_personality_may_be_left_out);
    RUN(a_personality_may_be_aligned);
    RUN(augmentations_that_cannot_be_skipped);
    RUN(the_ancient_eh_augmentation_brings_a_pointer);
    RUN(lengths_of_64_bits);
    RUN(debug_frame_names_its_cie_by_offset);
    RUN(a_terminator_in_the_middle_is_stepped_over);
    RUN(a_terminator_ends_an_open_ended_section);
    RUN(a_truncated_entry_ends_the_section);
    RUN(an_fde_too_short_for_its_addresses);
    RUN(an_fde_without_a_cie);
    RUN(empty_ranges_say_nothing);
    RUN(a_range_that_wraps);
    RUN(many_cies);
    RUN(an_augmentation_of_absurd_length);
    RUN(only_the_first_problems_are_kept);
    writer_free(&writer);
    return check_result();
}
