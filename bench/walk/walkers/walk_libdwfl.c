/* walk_libdwfl.c: elfutils' unwinder. It opens the files itself. */
#include "samples.h"
#include <elfutils/libdwfl.h>
#include <stdlib.h>

static Dwfl *dwfl;
static struct place {
    const struct samples *samples;
    uint64_t sample;
    struct counts *counts;
} place;

static pid_t next_thread(Dwfl *in, void *argument, void **thread) {
    (void)in;
    if (*thread)
        return 0;
    *thread = argument;
    return 1;
}

static bool memory_read(Dwfl *in, Dwarf_Addr address, Dwarf_Word *word, void *argument) {
    (void)in, (void)argument;
    return read_word(place.samples, place.sample, address, word);
}

static bool set_initial_registers(Dwfl_Thread *thread, void *argument) {
    (void)argument;
    const uint64_t *registers = place.samples->registers + 4 * place.sample;
    Dwarf_Word rbp = registers[2], rsp = registers[1];
    if (!dwfl_thread_state_registers(thread, 6, 1, &rbp) || !dwfl_thread_state_registers(thread, 7, 1, &rsp))
        return false;
    dwfl_thread_state_register_pc(thread, registers[0]);
    return true;
}

static int count_frame(Dwfl_Frame *frame, void *argument) {
    (void)argument;
    Dwarf_Addr pc;
    if (!dwfl_frame_pc(frame, &pc, NULL))
        return DWARF_CB_ABORT;
    place.counts->frames++;
    return DWARF_CB_OK;
}

static int no_debug_file(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base,
                         const char *file, const char *link, GElf_Word sum, char **path) {
    (void)module, (void)data, (void)name, (void)base, (void)file, (void)link, (void)sum, (void)path;
    return -1;
}

void prepare(const struct samples *samples) {
    static const Dwfl_Callbacks callbacks = {.find_debuginfo = no_debug_file};
    static const Dwfl_Thread_Callbacks thread_callbacks = {.next_thread = next_thread,
                                                           .memory_read = memory_read,
                                                           .set_initial_registers = set_initial_registers};
    if (dwfl)
        dwfl_end(dwfl);
    dwfl = dwfl_begin(&callbacks);
    if (!dwfl)
        abort();
    Dwfl_Module *any = NULL;
    for (uint64_t i = 0; i < samples->module_count; i++) {
        const struct module *module = &samples->modules[i];
        Dwfl_Module *found = NULL;
        if (module->path[0] == '/') /* a file of several mappings is reported once more, which is no harm */
            found = dwfl_report_elf(dwfl, module->path, module->path, -1,
                                    module->image_base - module->image_address, true);
        any = found ? found : any;
    }
    dwfl_report_end(dwfl, NULL, NULL);
    GElf_Addr bias;
    if (!any || !dwfl_attach_state(dwfl, dwfl_module_getelf(any, &bias), 1, &thread_callbacks, &place))
        abort();
}

void build(const struct samples *samples) {
    (void)samples;
}

void walk_all(const struct samples *samples, struct counts *counts) {
    place = (struct place){samples, 0, counts};
    for (; place.sample < samples->count; place.sample++)
        counts->complete += dwfl_getthread_frames(dwfl, 1, count_frame, NULL) == 0;
}
