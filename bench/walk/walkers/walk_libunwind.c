/* walk_libunwind.c: libunwind's remote unwinder, as perf uses it, with its cache. */
#include "samples.h"
#include <libunwind.h>
#include <stdlib.h>
#include <string.h>

/* In libunwind's library, and in the ABI, but not in its headers. */
int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t space, unw_word_t ip, unw_dyn_info_t *table,
                                       unw_proc_info_t *info, int needs_info, void *place);

enum { DEPTH_LIMIT = 4096, ENTRY = 8 };

struct place {
    const struct samples *samples;
    uint64_t sample;
};

static unw_addr_space_t space;

static int find_proc_info(unw_addr_space_t in, unw_word_t ip, unw_proc_info_t *info, int needs_info,
                          void *argument) {
    const struct place *place = argument;
    const struct module *module = find_module_of(place->samples, ip);
    const struct section *header = module ? find_section(module, EH_FRAME_HDR) : NULL;
    uint32_t entries;
    if (!header || memcmp(header->bytes, "\x01\x1b\x03\x3b", 4)) /* version, and the usual encodings */
        return -UNW_ENOINFO;
    memcpy(&entries, header->bytes + 8, sizeof entries);
    uint64_t address = header->address - module->image_address + module->image_base;
    unw_dyn_info_t table = {
        .start_ip = module->start,
        .end_ip = module->end,
        .format = UNW_INFO_FORMAT_REMOTE_TABLE,
        .u.rti = {.segbase = address,
                  .table_data = address + 12,
                  .table_len = entries * ENTRY / sizeof(unw_word_t)},
    };
    return UNW_OBJ(dwarf_search_unwind_table)(in, ip, &table, info, needs_info, argument);
}

static void put_unwind_info(unw_addr_space_t in, unw_proc_info_t *info, void *argument) {
    (void)in, (void)info, (void)argument;
}

static int get_dyn_info_list_addr(unw_addr_space_t in, unw_word_t *address, void *argument) {
    (void)in, (void)address, (void)argument;
    return -UNW_ENOINFO;
}

/* Of the files' data only the pointers to personality routines are read, which are not used. */
static int is_data(const struct samples *samples, uint64_t address) {
    for (uint64_t i = 0; i < samples->module_count; i++)
        if (address - samples->modules[i].image_base < samples->modules[i].image_size)
            return 1;
    return 0;
}

static int access_mem(unw_addr_space_t in, unw_word_t address, unw_word_t *word, int is_write,
                      void *argument) {
    (void)in;
    const struct place *place = argument;
    if (is_write)
        return -UNW_EINVAL;
    if (read_word(place->samples, place->sample, address, word))
        return 0;
    *word = 0;
    return is_data(place->samples, address) ? 0 : -UNW_EINVAL;
}

static int access_reg(unw_addr_space_t in, unw_regnum_t number, unw_word_t *value, int is_write,
                      void *argument) {
    (void)in;
    const struct place *place = argument;
    const uint64_t *registers = place->samples->registers + 4 * place->sample;
    if (is_write)
        return -UNW_EREADONLYREG;
    switch (number) {
    case UNW_X86_64_RIP:
        *value = registers[0];
        return 0;
    case UNW_X86_64_RSP:
        *value = registers[1];
        return 0;
    case UNW_X86_64_RBP:
        *value = registers[2];
        return 0;
    default:
        return -UNW_EBADREG;
    }
}

static int access_fpreg(unw_addr_space_t in, unw_regnum_t number, unw_fpreg_t *value, int is_write,
                        void *argument) {
    (void)in, (void)number, (void)value, (void)is_write, (void)argument;
    return -UNW_EINVAL;
}

static int resume(unw_addr_space_t in, unw_cursor_t *cursor, void *argument) {
    (void)in, (void)cursor, (void)argument;
    return -UNW_EINVAL;
}

static int get_proc_name(unw_addr_space_t in, unw_word_t address, char *name, size_t size, unw_word_t *offset,
                         void *argument) {
    (void)in, (void)address, (void)name, (void)size, (void)offset, (void)argument;
    return -UNW_EINVAL;
}

void prepare(const struct samples *samples) {
    (void)samples;
    static unw_accessors_t accessors = {
        .find_proc_info = find_proc_info,
        .put_unwind_info = put_unwind_info,
        .get_dyn_info_list_addr = get_dyn_info_list_addr,
        .access_mem = access_mem,
        .access_reg = access_reg,
        .access_fpreg = access_fpreg,
        .resume = resume,
        .get_proc_name = get_proc_name,
    };
    if (space)
        unw_destroy_addr_space(space);
    space = unw_create_addr_space(&accessors, 0);
    if (!space || unw_set_caching_policy(space, UNW_CACHE_GLOBAL))
        abort();
}

void build(const struct samples *samples) {
    (void)samples;
}

void walk_all(const struct samples *samples, struct counts *counts) {
    for (uint64_t i = 0; i < samples->count; i++) {
        struct place place = {samples, i};
        unw_cursor_t cursor;
        int left = DEPTH_LIMIT, result = 0;
        counts->frames++;
        if (unw_init_remote(&cursor, space, &place))
            continue;
        while (left-- && (result = unw_step(&cursor)) > 0) {
            unw_word_t pc = 0;
            unw_get_reg(&cursor, UNW_REG_IP, &pc);
            counts->frames += pc != 0;
        }
        counts->complete += result == 0;
    }
}
