/* walk_unspool.c: unspool's walker, with what the Python side gives it: files' code, and tables that are
 * compiled function by function, as `unspool import` does it; with WHOLE_TABLES, tables of all files. */
#include "samples.h"
#include "unspool.h"
#include <stdlib.h>
#include <string.h>

#ifdef WHOLE_TABLES
#define CODE_KIND(module) (find_section(module, UNCOVERED_CODE) ? UNCOVERED_CODE : CODE)
#else
#define CODE_KIND(module) CODE
#endif

enum { DEPTH_LIMIT = 4096, FRAMES_A_SAMPLE = 128 };

static struct unspool_module *modules;
static struct unspool_table **growing, **whole; /* of each module one, or none */
static struct unspool_cache *cache;
static struct unspool_pool *pool;
static struct unspool_batch batch;

static struct unspool_section given(const struct section *section) {
    return (struct unspool_section){section->bytes, section->size, section->address, (uint32_t)section->kind,
                                    (uint32_t)section->is_open_ended};
}

/* As unspool/unwind/table.py does it for whole tables: with all code, or if that is much, with what no unwind
 * information covers. */
static const struct unspool_table *compile(const struct module *module, uint64_t number) {
    struct unspool_section unwind[module->section_count + 1], code[module->section_count + 1];
    struct unspool_compile_input input = {
        .arch = UNSPOOL_X86_64,
        .sections = unwind,
        .image_address = module->image_address,
        .text_address = module->text_address,
        .data_address = module->data_address,
        .entry_address = module->entry,
        .code = code,
    };
    struct unspool_problems problems;
    for (uint64_t i = 0; i < module->section_count; i++) {
        const struct section *section = &module->sections[i];
        if (section->kind == EH_FRAME || section->kind == DEBUG_FRAME)
            unwind[input.section_count++] = given(section);
        else if (section->kind == CODE_KIND(module))
            code[input.code_count++] = given(section);
    }
#ifndef WHOLE_TABLES
    const struct section *index = find_section(module, EH_FRAME_HDR);
    if (index) {
        const struct unspool_section header = given(index);
        if (unspool_table_begin(pool, &input, &header, &growing[number]) == UNSPOOL_OK)
            return growing[number];
    }
#endif
    if (module->section_count && unspool_table_compile(&input, &whole[number], &problems) != UNSPOOL_OK)
        abort();
    return whole[number];
}

static void set_code(const struct module *module, struct unspool_module *target) {
    uint64_t address = module->start - module->image_base + module->image_address;
    for (uint64_t i = 0; i < module->section_count; i++) {
        const struct section *section = &module->sections[i];
        uint64_t offset = address - section->address;
        if (section->kind == CODE && offset < section->size) {
            uint64_t size = section->size - offset, mapped = module->end - module->start;
            target->code = section->bytes + offset;
            target->code_size = size < mapped ? size : mapped;
        }
    }
}

static void begin(const struct samples *samples) {
    modules = calloc(samples->module_count, sizeof *modules);
    growing = calloc(samples->module_count, sizeof *growing);
    whole = calloc(samples->module_count, sizeof *whole);
    for (uint64_t i = 0; i < samples->module_count; i++) {
        const struct module *module = &samples->modules[i];
        modules[i] = (struct unspool_module){
            .start = module->start, .end = module->end, .image_base = module->image_base};
        set_code(module, &modules[i]);
    }
    uint64_t capacity = samples->count * FRAMES_A_SAMPLE + DEPTH_LIMIT;
    batch = (struct unspool_batch){
        .count = samples->count,
        .registers = samples->registers,
        .stack_offsets = samples->offsets,
        .stack_bytes = samples->stacks,
        .depth_limit = DEPTH_LIMIT,
        .capacity = capacity,
        .addresses = calloc(capacity, sizeof(uint64_t)),
        .how = calloc(capacity, 1),
        .offsets = calloc(samples->count + 1, sizeof(uint64_t)),
        .ends = calloc(samples->count, 1),
    };
    cache = malloc(sizeof *cache);
}

void prepare(const struct samples *samples) {
    if (!modules)
        begin(samples);
    for (uint64_t i = 0; i < samples->module_count; i++) {
        unspool_table_end(growing[i]);
        unspool_table_free(whole[i]);
        modules[i].table = growing[i] = whole[i] = NULL;
    }
    unspool_pool_free(pool);
    pool = NULL;
    unspool_cache_clear(cache);
}

void build(const struct samples *samples) {
    if (unspool_pool_new(&pool) != UNSPOOL_OK)
        abort();
    for (uint64_t i = 0; i < samples->module_count; i++)
        modules[i].table = compile(&samples->modules[i], i);
}

void walk_all(const struct samples *samples, struct counts *counts) {
    struct unspool_unwinder unwinder = {
        .arch = UNSPOOL_X86_64,
        .address_bits = 47,
        .modules = modules,
        .module_count = samples->module_count,
        .cache = cache,
    };
    if (unspool_walk_many(&unwinder, &batch, 0) != samples->count)
        abort();
    counts->frames = batch.offsets[samples->count];
    for (uint64_t i = 0; i < samples->count; i++) {
        int is_guessed = 0;
        for (uint64_t j = batch.offsets[i]; j < batch.offsets[i + 1]; j++)
            is_guessed |= batch.how[j] & UNSPOOL_HOW_GUESS;
        counts->complete += batch.ends[i] == UNSPOOL_END_ROOT && !is_guessed;
    }
}
