/*
 * dwarf_cfi.c: reading the entries of .eh_frame (LSB Core, 10.6) and .debug_frame (DWARF 5, 6.4.1).
 */
#include "dwarf_cfi.h"

/* A CIE may be read again for each of its FDEs, so reading one must take no longer than a file should
 * be able to ask for. Real augmentations have up to 8 letters. */
#define AUGMENTATION_LIMIT 32

void add_problem(struct unspool_problems *problems, enum unspool_problem_kind kind, uint32_t section,
                 uint64_t offset) {
    if (problems->count < UNSPOOL_PROBLEMS_KEPT)
        problems->first[problems->count] = (struct unspool_problem){(uint32_t)kind, section, offset};
    problems->count++;
}

void cfi_reader_begin(struct cfi_reader *reader, const struct unspool_compile_input *input,
                      struct unspool_problems *problems) {
    reader->input = input;
    reader->problems = problems;
    for (size_t i = 0; i < CIE_CACHE; i++)
        reader->cies[i].instructions = NULL;
}

/* The part that every entry begins with. */
struct entry {
    uint64_t offset;
    struct cursor body; /* after the CIE id or pointer */
    bool is_terminator; /* length 0 */
    bool is_cie;
    uint64_t cie_offset; /* of an FDE */
};

static bool read_entry(const struct unspool_section *section, uint64_t offset, struct entry *entry,
                       uint64_t *next) {
    struct cursor cursor = cursor_over(section->bytes + offset, section->size - offset);
    uint64_t length = cursor_u32(&cursor);
    bool is_64_bit = length == 0xffffffff;
    if (is_64_bit)
        length = cursor_u64(&cursor);
    const uint8_t *body = cursor_take(&cursor, length);
    if (!body)
        return false;
    *next = (uint64_t)(cursor.at - section->bytes);
    entry->offset = offset;
    entry->is_terminator = length == 0;
    if (entry->is_terminator)
        return true;
    entry->body = cursor_over(body, length);
    uint64_t id_offset = (uint64_t)(body - section->bytes);
    if (section->kind == UNSPOOL_EH_FRAME) { /* 4 bytes in either length format (LSB) */
        uint32_t id = cursor_u32(&entry->body);
        entry->is_cie = id == 0;
        entry->cie_offset = id_offset - id; /* may wrap: checked when the CIE is looked up */
    } else {
        uint64_t id = is_64_bit ? cursor_u64(&entry->body) : cursor_u32(&entry->body);
        entry->is_cie = id == (is_64_bit ? UINT64_MAX : UINT32_MAX);
        entry->cie_offset = id;
    }
    return !entry->body.failed;
}

static bool encoding_is_usable(const struct unspool_compile_input *input, uint8_t encoding) {
    uint8_t base = encoding & 0x70;
    if ((base == POINTER_TEXT_RELATIVE && !input->text_address) ||
        (base == POINTER_DATA_RELATIVE && !input->data_address))
        return false; /* relative to nobody knows what */
    uint8_t format = encoding & 0x0f;
    bool format_known = format <= POINTER_UDATA8 || (format >= POINTER_SIGNED && format <= POINTER_SDATA8);
    return !(encoding & POINTER_INDIRECT) && base <= POINTER_DATA_RELATIVE && format_known;
}

/* The personality routine, of which only the size matters. */
static void skip_personality(struct cursor *data, const struct unspool_section *section) {
    uint8_t encoding = cursor_u8(data);
    if (encoding == POINTER_OMIT)
        return;
    if ((encoding & 0x70) == POINTER_ALIGNED) { /* an absolute pointer, filled up to a multiple of 8 */
        uint64_t address = section->address + (uint64_t)(data->at - section->bytes);
        cursor_take(data, -address & 7);
        encoding = POINTER_ABSOLUTE;
    }
    read_encoded(data, encoding);
}

/* The augmentation's letters in order (LSB Core, 10.6.1.1.1). False: a letter that can't be skipped. */
static bool read_augmentation(struct cie *cie, const struct unspool_section *section, const char *letters,
                              struct cursor *body) {
    struct cursor data = *body;
    if (letters[0] == 'z') {
        uint64_t size = cursor_uleb(body);
        const uint8_t *bytes = cursor_take(body, size);
        if (!bytes)
            return false;
        data = cursor_over(bytes, size);
        cie->has_augmentation_size = true;
        letters++;
    }
    for (; *letters; letters++) {
        switch (*letters) {
        case 'R':
            cie->pointer_encoding = cursor_u8(&data);
            break;
        case 'L':
            cursor_u8(&data);
            break;
        case 'P':
            skip_personality(&data, section);
            break;
        case 'S':
            cie->is_signal = true;
            break;
        case 'B': /* signed with the B key */
        case 'G': /* memory is tagged */
            break;
        default: /* 'z' tells where its data ends, but not what it means for the FDEs */
            return false;
        }
    }
    if (!cie->has_augmentation_size)
        *body = data;
    return !data.failed;
}

static bool parse_cie(struct cie *cie, const struct entry *entry, const struct unspool_section *section) {
    struct cursor body = entry->body;
    uint8_t version = cursor_u8(&body);
    const char *letters = (const char *)body.at;
    uint32_t letter_count = 0;
    while (cursor_u8(&body) && letter_count <= AUGMENTATION_LIMIT)
        letter_count++;
    if (body.failed || letter_count > AUGMENTATION_LIMIT || (version != 1 && version != 3 && version != 4))
        return false;
    if (version == 4) {
        uint8_t address_size = cursor_u8(&body);
        uint8_t segment_size = cursor_u8(&body);
        if (address_size != 8 || segment_size != 0)
            return false;
    }
    if (letters[0] == 'e' && letters[1] == 'h') { /* gcc 2: a pointer that nothing here needs */
        cursor_u64(&body);
        letters += 2;
    }
    cie->code_alignment = cursor_uleb(&body);
    cie->data_alignment = cursor_sleb(&body);
    uint64_t number = version == 1 ? cursor_u8(&body) : cursor_uleb(&body);
    cie->return_address_register = number < UNSPOOL_REGISTERS ? (uint8_t)number : UNSPOOL_REGISTERS;
    cie->pointer_encoding = POINTER_ABSOLUTE;
    if (!read_augmentation(cie, section, letters, &body) || body.failed)
        return false;
    cie->instructions = body.at;
    cie->instructions_size = (uint32_t)cursor_left(&body);
    return cursor_left(&body) <= UINT32_MAX;
}

/* The CIE at an offset, usable or not; NULL when there is none. */
static struct cie *find_cie(struct cfi_reader *reader, uint32_t section_index, uint64_t offset) {
    const struct unspool_section *section = &reader->input->sections[section_index];
    struct cie *cie = &reader->cies[(offset / 4 + section_index) % CIE_CACHE];
    if (cie->instructions && cie->offset == offset && cie->section == section_index)
        return cie;
    struct entry entry;
    uint64_t next;
    if (offset >= section->size || !read_entry(section, offset, &entry, &next) || entry.is_terminator ||
        !entry.is_cie)
        return NULL;
    *cie = (struct cie){.offset = offset, .section = section_index};
    cie->usable = parse_cie(cie, &entry, section);
    if (!cie->usable)
        cie->instructions = section->bytes; /* remembered as unusable */
    return cie;
}

/* An FDE's address, made relative to the image; `at` is where it is written. */
static uint64_t read_address(const struct cfi_reader *reader, uint32_t section_index, uint8_t encoding,
                             struct cursor *cursor) {
    const struct unspool_section *section = &reader->input->sections[section_index];
    uint64_t address = section->address + (uint64_t)(cursor->at - section->bytes);
    uint64_t value = read_encoded(cursor, encoding);
    switch (encoding & 0x70) {
    case POINTER_PC_RELATIVE:
        value += address;
        break;
    case POINTER_TEXT_RELATIVE:
        value += reader->input->text_address;
        break;
    case POINTER_DATA_RELATIVE:
        value += reader->input->data_address;
        break;
    }
    return value - reader->input->image_address;
}

/* False, with *problem set, when the entry can't be used; *problem 0: it is merely empty. */
static bool parse_fde(struct cfi_reader *reader, uint32_t section_index, struct entry *entry, struct fde *fde,
                      enum unspool_problem_kind *problem) {
    const struct cie *cie = find_cie(reader, section_index, entry->cie_offset);
    *problem = UNSPOOL_PROBLEM_CIE_MISSING;
    if (!cie)
        return false;
    *problem = UNSPOOL_PROBLEM_CIE_UNSUPPORTED;
    if (!cie->usable)
        return false;
    *problem = UNSPOOL_PROBLEM_POINTER_ENCODING;
    if (!encoding_is_usable(reader->input, cie->pointer_encoding))
        return false;
    struct cursor *body = &entry->body;
    uint64_t start = read_address(reader, section_index, cie->pointer_encoding, body);
    uint64_t size = read_encoded(body, cie->pointer_encoding & 0x0f);
    if (cie->has_augmentation_size)
        cursor_take(body, cursor_uleb(body));
    *problem = UNSPOOL_PROBLEM_TRUNCATED;
    if (body->failed || cursor_left(body) > UINT32_MAX)
        return false;
    *problem = UNSPOOL_PROBLEM_RANGE;
    if (start + size < start || (size && start + size > UINT32_MAX))
        return false;
    *problem = 0;
    *fde = (struct fde){
        .start = (uint32_t)start,
        .end = (uint32_t)(start + size),
        .offset = entry->offset,
        .instructions = (uint64_t)(body->at - reader->input->sections[section_index].bytes),
        .cie_offset = entry->cie_offset,
        .instructions_size = (uint32_t)cursor_left(body),
        .section = section_index,
    };
    return size != 0; /* zero-length entries shadow real ones in an index, and say nothing */
}

/* An FDE as nearly all are: of the CIE of the one before, in .eh_frame, with pc-relative addresses of 4
 * bytes, and an address range like any. False: parse_fde tells what it is. */
static bool read_usual_fde(const struct cfi_reader *reader, const struct cie *cie, uint64_t offset,
                           struct fde *fde, uint64_t *next) {
    enum { LENGTH_END = 4, ADDRESS = 8, SIZE = 12, AUGMENTATION = 16, LEAST = 17 };
    const struct unspool_section *section = &reader->input->sections[cie->section];
    if (section->size - offset < LEAST)
        return false;
    const uint8_t *entry = section->bytes + offset;
    uint32_t length, to_cie, address, size;
    memcpy(&length, entry, sizeof length);
    memcpy(&to_cie, entry + LENGTH_END, sizeof to_cie);
    memcpy(&address, entry + ADDRESS, sizeof address);
    memcpy(&size, entry + SIZE, sizeof size);
    uint64_t end = offset + LENGTH_END + length, instructions = offset + LEAST + entry[AUGMENTATION];
    uint64_t start = section->address + offset + ADDRESS + (uint64_t)(int64_t)(int32_t)address -
                     reader->input->image_address;
    if (offset + LENGTH_END - to_cie != cie->offset || to_cie == 0 || length == UINT32_MAX ||
        end > section->size || entry[AUGMENTATION] >= 0x80 || instructions > end || size == 0 ||
        size > INT32_MAX || start > UINT32_MAX - size)
        return false;
    *next = end;
    *fde = (struct fde){
        .start = (uint32_t)start,
        .end = (uint32_t)start + size,
        .offset = offset,
        .instructions = instructions,
        .cie_offset = cie->offset,
        .instructions_size = (uint32_t)(end - instructions),
        .section = cie->section,
    };
    return true;
}

/* The CIE of an FDE, if the FDEs that follow it may be read so. */
static const struct cie *usual_fdes_cie(struct cfi_reader *reader, const struct fde *fde) {
    const struct cie *cie = find_cie(reader, fde->section, fde->cie_offset);
    bool is_usual = cie && reader->input->sections[fde->section].kind == UNSPOOL_EH_FRAME &&
                    cie->pointer_encoding == ((int)POINTER_PC_RELATIVE | (int)POINTER_SDATA4) &&
                    cie->has_augmentation_size;
    return is_usual ? cie : NULL;
}

bool read_fdes(struct cfi_reader *reader, uint32_t section_index,
               bool (*add)(void *context, const struct fde *fde), void *context) {
    const struct unspool_section *section = &reader->input->sections[section_index];
    const struct cie *usual = NULL;
    uint64_t next;
    for (uint64_t offset = 0; offset < section->size; offset = next) {
        struct entry entry;
        struct fde fde;
        if (usual && read_usual_fde(reader, usual, offset, &fde, &next)) {
            if (!add(context, &fde))
                return false;
            continue;
        }
        if (section->size - offset < 4 || !read_entry(section, offset, &entry, &next)) {
            if (!section->open_ended)
                add_problem(reader->problems, UNSPOOL_PROBLEM_TRUNCATED, section_index, offset);
            return true;
        }
        if (entry.is_terminator) {
            if (section->open_ended)
                return true;
            continue; /* crt files put one in the middle: go on */
        }
        if (entry.is_cie)
            continue;
        enum unspool_problem_kind problem;
        usual = NULL; /* another CIE may take the place of its own */
        if (parse_fde(reader, section_index, &entry, &fde, &problem)) {
            usual = usual_fdes_cie(reader, &fde);
            if (!add(context, &fde))
                return false;
        } else if (problem) {
            add_problem(reader->problems, problem, section_index, offset);
        }
    }
    return true;
}

bool read_fde(struct cfi_reader *reader, uint32_t section_index, uint64_t offset, struct fde *fde) {
    const struct unspool_section *section = &reader->input->sections[section_index];
    struct entry entry;
    uint64_t next;
    enum unspool_problem_kind problem;
    return offset < section->size && section->size - offset >= 4 &&
           read_entry(section, offset, &entry, &next) && !entry.is_terminator && !entry.is_cie &&
           parse_fde(reader, section_index, &entry, fde, &problem);
}

struct cie *fde_cie(struct cfi_reader *reader, const struct fde *fde) {
    struct cie *cie = find_cie(reader, fde->section, fde->cie_offset);
    return cie && cie->usable ? cie : NULL;
}

bool fde_program(struct cfi_reader *reader, const struct fde *fde, struct cfi_program *program) {
    const struct unspool_compile_input *input = reader->input;
    const struct unspool_section *section = &input->sections[fde->section];
    const struct cie *cie = fde_cie(reader, fde);
    if (!cie)
        return false;
    *program = (struct cfi_program){
        .initial = cie->instructions,
        .initial_size = cie->instructions_size,
        .instructions = section->bytes + fde->instructions,
        .instructions_size = fde->instructions_size,
        .start = fde->start,
        .end = fde->end,
        .code_alignment = cie->code_alignment,
        .data_alignment = cie->data_alignment,
        .image_address = input->image_address,
        .instructions_address = section->address + fde->instructions - input->image_address,
        .arch = (uint8_t)input->arch,
        .return_address_register = cie->return_address_register,
        .pointer_encoding = cie->pointer_encoding,
        .flags = (uint8_t)((cie->is_signal ? UNSPOOL_ROW_SIGNAL : 0) |
                           (section->kind == UNSPOOL_DEBUG_FRAME ? UNSPOOL_ROW_DEBUG_FRAME : 0)),
    };
    return true;
}
