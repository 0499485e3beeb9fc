/*
 * growing_table.c: compiling of a file's unwind sections what walks ask for (growing_table.h).
 *
 * A part of the file is what .eh_frame_hdr leads to: the FDE of an entry up to the next entry, or what is
 * behind that FDE up to there. Each part is compiled once, by the same code as whole tables.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "growing_pool.h"
#include "growing_table.h"

enum {
    HEADER_SIZE = 12, /* of .eh_frame_hdr, as all linkers write it */
    ENTRY_SIZE = 8,
    DATA_RELATIVE_SDATA4 = (int)POINTER_DATA_RELATIVE | (int)POINTER_SDATA4,
    STRIDE = 32,     /* entries between those that are searched first */
    NEAR_SHIFT = 6,  /* of addresses that share a slot of `near` */
    MOST_SLOTS = 64, /* of a part */
    BEFORE = 16,     /* how many FDEs before it may reach over one that has ended */
};

/* Two that have nothing to do with each other, but the page that they are in: numbers of parts, or 0. */
struct slot {
    _Atomic uint32_t head; /* of those whose keys have its hash */
    _Atomic uint32_t near; /* one that addresses of this slot may be in: found without a search */
};

/* What a table needs from the first question on. */
struct begun {
    struct cfi_reader reader;
    struct slot slots[];
};

struct growing_table {
    struct unspool_table table; /* its parts are the pool's */
    struct unspool_pool *pool;
    struct unspool_compile_input input;
    struct unspool_problems problems;
    uint64_t work_left; /* as a builder's */
    const uint8_t *entries;
    uint32_t entry_count;
    uint64_t entries_base; /* what entries count from, relative to the image */
    uint32_t *strides; /* where each STRIDE-th entry starts: few enough to stay in the processor's cache */
    uint32_t mask;     /* of slots */
    _Atomic(struct begun *) begun;
};

static struct growing_table *growing_of(const struct unspool_table *table) {
    return (struct growing_table *)(uintptr_t)table; /* its first member */
}

/* ------------------------------------------------------------------ .eh_frame_hdr */

static uint32_t entry_word(const struct growing_table *growing, uint32_t entry, uint32_t offset) {
    uint32_t word;
    memcpy(&word, growing->entries + (size_t)entry * ENTRY_SIZE + offset, sizeof word);
    return word;
}

/* Relative, modulo 4 GiB: below that lie all addresses that FDEs may have. */
static uint32_t entry_start(const struct growing_table *growing, uint32_t entry) {
    return (uint32_t)growing->entries_base + entry_word(growing, entry, 0);
}

/* Whether it is sorted, without two for one address, so that a search finds the FDE that starts last. */
static bool is_sorted(const struct growing_table *growing) {
    bool is_ascending = true;
    for (uint32_t i = 1; i < growing->entry_count; i++)
        is_ascending &= entry_start(growing, i) > entry_start(growing, i - 1);
    return is_ascending;
}

static bool keep_strides(struct growing_table *growing) {
    uint32_t count = (growing->entry_count - 1) / STRIDE + 1;
    growing->strides = malloc(count * sizeof *growing->strides);
    for (uint32_t i = 0; growing->strides && i < count; i++)
        growing->strides[i] = entry_start(growing, i * STRIDE);
    return growing->strides != NULL;
}

/* Version 1, the count as udata4, entries as sdata4 relative to the section: else it is not used. */
static bool read_index(struct growing_table *growing, const struct unspool_section *index) {
    const uint8_t *bytes = index->bytes;
    if (index->size < HEADER_SIZE || bytes[0] != 1 || (bytes[1] & 0x0f) != POINTER_SDATA4 ||
        bytes[2] != POINTER_UDATA4 || bytes[3] != DATA_RELATIVE_SDATA4)
        return false;
    memcpy(&growing->entry_count, bytes + 8, sizeof growing->entry_count);
    growing->entries = bytes + HEADER_SIZE;
    growing->entries_base = index->address - growing->input.image_address;
    return growing->entry_count && growing->entry_count <= (index->size - HEADER_SIZE) / ENTRY_SIZE &&
           is_sorted(growing) && keep_strides(growing);
}

/* The last entry that starts at or before an address; entry_count: there is none. */
static uint32_t find_entry(const struct growing_table *growing, uint32_t address) {
    uint32_t stride = 0, count = (growing->entry_count - 1) / STRIDE + 1;
    if (address < growing->strides[0])
        return growing->entry_count;
    while (count > 1) {
        uint32_t half = count / 2;
        stride += growing->strides[stride + half] <= address ? half : 0;
        count -= half;
    }
    uint32_t first = stride * STRIDE;
    count = growing->entry_count - first < STRIDE ? growing->entry_count - first : STRIDE;
    for (uint32_t i = 0; i < count; i += 64 / ENTRY_SIZE)
        __builtin_prefetch(growing->entries + (size_t)(first + i) * ENTRY_SIZE);
    while (count > 1) {
        uint32_t half = count / 2;
        first += entry_start(growing, first + half) <= address ? half : 0;
        count -= half;
    }
    return first;
}

/* The FDE that an entry leads to, if it is that of the entry's address. */
static bool read_entry_fde(const struct growing_table *growing, struct cfi_reader *reader, uint32_t entry,
                           struct fde *fde) {
    uint64_t offset = growing->entries_base + (uint64_t)(int64_t)(int32_t)entry_word(growing, entry, 4) +
                      growing->input.image_address - growing->input.sections[0].address;
    return read_fde(reader, 0, offset, fde) && fde->start == entry_start(growing, entry);
}

/* ------------------------------------------------------------------ growing */

/* Adds a row even where it says what the one before it says, which is another part's. */
static bool add_boundary(struct builder *builder, uint64_t start) {
    uint32_t *row = vector_add(&builder->rows, 1, sizeof *row);
    uint16_t *rule = vector_add(&builder->row_rules, 1, sizeof *rule);
    if (!row || !rule)
        return false;
    *row = (uint32_t)start;
    *rule = RULE_NONE;
    return true;
}

/* What an FDE says, of start .. end. */
static bool add_fde_part(struct builder *builder, const struct fde *fde, uint32_t start, uint32_t end) {
    const struct piece piece = {start, end, 0};
    *(struct fde *)builder->fdes.items = *fde;
    return builder_add_piece(builder, &piece);
}

/* What is behind an entry's FDE: some FDE before that reaches so far, else the code alone. */
static bool add_behind(struct growing_table *growing, uint32_t entry, uint32_t start, uint32_t end) {
    struct builder *builder = growing->pool->builder;
    struct fde fde;
    for (uint32_t i = 1; start < end && i <= BEFORE && i <= entry; i++) {
        if (!read_entry_fde(growing, builder->reader, entry - i, &fde) || fde.end <= start)
            continue;
        uint32_t to = fde.end < end ? fde.end : end;
        if (!add_fde_part(builder, &fde, start, to))
            return false;
        start = to;
    }
    return start >= end || builder_add_code(builder, start, end);
}

/* An entry's FDE, or what is behind it (NULL). */
static bool add_part(struct growing_table *growing, uint32_t entry, const struct fde *fde,
                     const struct part *part) {
    struct builder *builder = growing->pool->builder;
    return add_boundary(builder, part->start) && (fde ? add_fde_part(builder, fde, part->start, part->end)
                                                      : add_behind(growing, entry, part->start, part->end));
}

/* Compiles a part, which says nothing if there is no room for what it has to say. False: nor is there for
 * that, and nothing has changed. */
static bool compile_part(struct growing_table *growing, uint32_t entry, const struct fde *fde,
                         struct part *part) {
    struct builder *builder = growing->pool->builder;
    struct vector *vectors[] = {&builder->rows, &builder->row_rules, &builder->functions, &builder->programs};
    enum { VECTORS = sizeof vectors / sizeof *vectors };
    size_t counts[VECTORS];
    for (size_t i = 0; i < VECTORS; i++)
        counts[i] = vectors[i]->count;
    part->first_row = (uint32_t)builder->row_rules.count;
    builder->work_left = growing->work_left;
    bool ok = add_part(growing, entry, fde, part);
    for (size_t i = 0; !ok && i < VECTORS; i++)
        vectors[i]->count = counts[i];
    ok = ok || add_boundary(builder, part->start);
    if (ok && builder_rows(builder)[builder->row_rules.count - 1] != part->end)
        ok = add_boundary(builder, part->end);
    for (size_t i = 0; !ok && i < VECTORS; i++)
        vectors[i]->count = counts[i];
    growing->work_left = builder->work_left;
    part->row_count = (uint32_t)builder->row_rules.count - part->first_row;
    part->first_function = (uint32_t)counts[2];
    part->function_count = (uint32_t)(builder->functions.count - counts[2]);
    return ok;
}

/* ------------------------------------------------------------------ looking up */

static struct slot *slot_of_key(const struct growing_table *growing, struct slot *slots, uint32_t key) {
    return &slots[(key * 0x9e3779b1u >> 8) & growing->mask];
}

static struct slot *slot_of_address(const struct growing_table *growing, struct slot *slots,
                                    uint32_t address) {
    return &slots[address >> NEAR_SHIFT & growing->mask];
}

/* NULL: it was not compiled. */
static const struct part *known_part(const struct growing_table *growing, struct slot *slots, uint32_t key) {
    const struct part *parts = growing->pool->parts;
    uint32_t number = atomic_load_explicit(&slot_of_key(growing, slots, key)->head, memory_order_acquire);
    while (number && parts[number].key != key)
        number = parts[number].next;
    return number ? &parts[number] : NULL;
}

/* The part of an address that lies at or behind an entry, if it was compiled. */
static const struct part *compiled_part(const struct growing_table *growing, struct slot *slots,
                                        uint32_t entry, uint32_t address) {
    const struct part *part = known_part(growing, slots, 2 * entry);
    if (part && address < part->end)
        return part;
    part = known_part(growing, slots, 2 * entry + 1);
    return part && address >= part->start ? part : NULL;
}

/* The slots of a part's addresses, or of the first of them, lead to it. */
static void keep_near(const struct growing_table *growing, struct slot *slots, const struct part *part) {
    uint32_t number = (uint32_t)(part - growing->pool->parts);
    uint32_t first = part->start >> NEAR_SHIFT, last = (part->end - 1) >> NEAR_SHIFT;
    for (uint32_t i = first; i <= last && i - first < MOST_SLOTS; i++)
        atomic_store_explicit(&slots[i & growing->mask].near, number, memory_order_release);
}

/* Compiles that part. NULL: there is no room. */
static const struct part *grow(struct growing_table *growing, struct begun *begun, uint32_t entry,
                               uint32_t address) {
    struct part *part = pool_next_part(growing->pool);
    bool has_next = entry + 1 < growing->entry_count;
    uint32_t start = entry_start(growing, entry);
    uint32_t end = has_next ? entry_start(growing, entry + 1) : UINT32_MAX;
    struct fde fde;
    uint32_t fde_end = read_entry_fde(growing, &begun->reader, entry, &fde) ? fde.end : start;
    if (fde_end > end)
        fde_end = end;
    bool is_behind = address >= fde_end;
    if (!part)
        return NULL;
    *part = (struct part){
        .start = is_behind ? fde_end : start, .end = is_behind ? end : fde_end, .key = 2 * entry + is_behind};
    struct slot *slot = slot_of_key(growing, begun->slots, part->key);
    growing->pool->builder->reader = &begun->reader;
    part->next = atomic_load_explicit(&slot->head, memory_order_relaxed);
    if (!compile_part(growing, entry, is_behind ? NULL : &fde, part))
        return NULL;
    atomic_store_explicit(&slot->head, growing->pool->part_count++, memory_order_release);
    keep_near(growing, begun->slots, part);
    return part;
}

static struct begun *begin(struct growing_table *growing) {
    struct begun *begun = atomic_load_explicit(&growing->begun, memory_order_relaxed);
    if (begun)
        return begun;
    begun = calloc(1, sizeof *begun + ((size_t)growing->mask + 1) * sizeof *begun->slots);
    if (begun)
        cfi_reader_begin(&begun->reader, &growing->input, &growing->problems);
    atomic_store_explicit(&growing->begun, begun, memory_order_release);
    return begun;
}

/* The part of an address, compiled now if no other thread was quicker. NULL: there is no room. */
static const struct part *compile_at(struct growing_table *growing, uint32_t entry, uint32_t address) {
    const struct part *part = NULL;
    pthread_mutex_lock(&growing->pool->growing);
    struct begun *begun = begin(growing);
    if (begun)
        part = compiled_part(growing, begun->slots, entry, address);
    if (begun && !part)
        part = grow(growing, begun, entry, address);
    pthread_mutex_unlock(&growing->pool->growing);
    return part;
}

/* The part that holds an address; NULL: none does. */
static const struct part *find_part(struct growing_table *growing, uint32_t address) {
    struct begun *begun = atomic_load_explicit(&growing->begun, memory_order_acquire);
    const struct part *part = NULL;
    if (begun) {
        struct slot *slot = slot_of_address(growing, begun->slots, address);
        part = &growing->pool->parts[atomic_load_explicit(&slot->near, memory_order_acquire)];
        if (address - part->start < part->end - part->start) /* part 0 has no address */
            return part;
    }
    uint32_t entry = find_entry(growing, address);
    if (entry == growing->entry_count)
        return NULL;
    part = begun ? compiled_part(growing, begun->slots, entry, address) : NULL;
    if (!part)
        return compile_at(growing, entry, address);
    atomic_store_explicit(&slot_of_address(growing, begun->slots, address)->near,
                          (uint32_t)(part - growing->pool->parts), memory_order_release);
    return part;
}

static const struct part *part_of(const struct unspool_table *table, uint64_t relative_address) {
    return relative_address < UINT32_MAX ? find_part(growing_of(table), (uint32_t)relative_address) : NULL;
}

uint32_t growing_find_row(const struct unspool_table *table, uint64_t relative_address) {
    const struct part *part = part_of(table, relative_address);
    if (!part)
        return TABLE_GROWS;
    const uint32_t *rows = table_part(table, table->rows);
    uint32_t first = part->first_row, count = part->row_count;
    while (count > 1) {
        uint32_t half = count / 2;
        first += rows[first + half] <= relative_address ? half : 0;
        count -= half;
    }
    return first;
}

bool growing_find_function(const struct unspool_table *table, uint64_t relative_address, uint32_t *function) {
    const struct part *part = part_of(table, relative_address);
    const struct exact_function *functions = table_part(table, table->functions);
    for (uint32_t i = 0; part && i < part->function_count; i++) { /* one, but for what is behind several */
        *function = part->first_function + i;
        if (functions[*function].start <= relative_address && relative_address < functions[*function].end)
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------ the table itself */

/* A copy of sections, of which the bytes stay where they are. False: memory is out. */
static bool copy_sections(const struct unspool_section **sections, size_t count) {
    struct unspool_section *copy = malloc((count + 1) * sizeof *copy);
    if (copy && count)
        memcpy(copy, *sections, count * sizeof *copy);
    *sections = copy;
    return copy != NULL;
}

void unspool_table_end(struct unspool_table *table) {
    if (!table)
        return;
    struct growing_table *growing = growing_of(table);
    free(atomic_load_explicit(&growing->begun, memory_order_relaxed));
    free(growing->strides);
    free((void *)(uintptr_t)growing->input.sections);
    free((void *)(uintptr_t)growing->input.code);
    free(growing);
}

int unspool_table_begin(struct unspool_pool *pool, const struct unspool_compile_input *input,
                        const struct unspool_section *index, struct unspool_table **table) {
    *table = NULL;
    if (input->arch != UNSPOOL_X86_64 && input->arch != UNSPOOL_AARCH64)
        return UNSPOOL_BAD_ARGUMENT;
    if (input->section_count != 1 || input->sections[0].kind != UNSPOOL_EH_FRAME)
        return UNSPOOL_NOT_FOUND;
    struct growing_table *growing = calloc(1, sizeof *growing);
    if (!growing)
        return UNSPOOL_NO_MEMORY;
    growing->pool = pool;
    growing->input = *input;
    growing->work_left = compile_work(input);
    bool is_usable = read_index(growing, index);
    bool ok = copy_sections(&growing->input.sections, 1);
    ok = copy_sections(&growing->input.code, input->code_count) && ok;
    for (growing->mask = 63; growing->mask < growing->entry_count / 4;)
        growing->mask = 2 * growing->mask + 1;
    growing->table = (struct unspool_table){
        .magic = TABLE_MAGIC,
        .version = TABLE_VERSION,
        .arch = input->arch,
        .image_address = input->image_address,
        .entry = input->entry_address ? input->entry_address - input->image_address : TABLE_NO_ENTRY,
        .row_count = TABLE_GROWS,
    };
    pool_place(pool, &growing->table);
    *table = &growing->table;
    if (ok && is_usable)
        return UNSPOOL_OK;
    unspool_table_end(*table);
    *table = NULL;
    return ok ? UNSPOOL_NOT_FOUND : UNSPOOL_NO_MEMORY;
}
