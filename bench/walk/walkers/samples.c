/* samples.c: see samples.h. The file is this program's own, hence not checked. */
#include "samples.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

struct reader {
    const uint8_t *at;
};

static uint64_t number(struct reader *reader) {
    uint64_t value;
    memcpy(&value, reader->at, sizeof value);
    reader->at += sizeof value;
    return value;
}

static const uint8_t *block(struct reader *reader, uint64_t *size) {
    *size = number(reader);
    const uint8_t *bytes = reader->at;
    reader->at += (*size + 7) / 8 * 8;
    return bytes;
}

static void read_module(struct reader *reader, struct module *module) {
    uint64_t size;
    for (uint64_t *field = &module->start; field <= &module->data_address; field++)
        *field = number(reader);
    const uint8_t *path = block(reader, &size);
    module->path = strndup((const char *)path, size);
    module->section_count = number(reader);
    module->sections = calloc(module->section_count + 1, sizeof *module->sections);
    for (uint64_t i = 0; i < module->section_count; i++) {
        struct section *section = &module->sections[i];
        section->kind = number(reader);
        section->address = number(reader);
        section->is_open_ended = number(reader);
        section->bytes = block(reader, &section->size);
    }
}

/* A file in memory of its own, in huge pages if they can be had: as NumPy's arrays, in which `unspool import`
 * has stack copies. */
static const uint8_t *read_file(const char *path) {
    struct stat status;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &status))
        abort();
    size_t size = (size_t)status.st_size, room = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uint8_t *bytes = aligned_alloc(HUGE_PAGE, room);
    if (!bytes)
        abort();
    madvise(bytes, room, MADV_HUGEPAGE);
    for (size_t done = 0; done < size;) {
        ssize_t got = read(file, bytes + done, size - done);
        if (got <= 0)
            abort();
        done += (size_t)got;
    }
    close(file);
    return bytes;
}

static struct samples load(const char *path) {
    struct samples samples = {0};
    struct reader reader = {read_file(path)};
    samples.module_count = number(&reader);
    samples.count = number(&reader);
    samples.modules = calloc(samples.module_count, sizeof *samples.modules);
    for (uint64_t i = 0; i < samples.module_count; i++)
        read_module(&reader, &samples.modules[i]);
    samples.registers = (const uint64_t *)(const void *)reader.at;
    samples.offsets = samples.registers + 4 * samples.count;
    samples.stacks = (const uint8_t *)(samples.offsets + samples.count + 1);
    return samples;
}

const struct section *find_section(const struct module *module, enum section_kind kind) {
    for (uint64_t i = 0; i < module->section_count; i++)
        if (module->sections[i].kind == kind)
            return &module->sections[i];
    return NULL;
}

const struct module *find_module_of(const struct samples *samples, uint64_t address) {
    uint64_t low = 0, high = samples->module_count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (address < samples->modules[middle].start)
            high = middle;
        else
            low = middle + 1;
    }
    return low && address < samples->modules[low - 1].end ? &samples->modules[low - 1] : NULL;
}

/* Of a word that lies only partly in a section, the rest is 0: libunwind reads whole words at multiples of 8.
 */
static int read_section(const struct section *section, uint64_t virtual_address, uint64_t *word) {
    uint8_t bytes[sizeof *word] = {0};
    int is_found = 0;
    for (uint64_t i = 0; i < sizeof bytes; i++) {
        uint64_t offset = virtual_address + i - section->address;
        if (offset < section->size)
            bytes[i] = section->bytes[offset], is_found = 1;
    }
    memcpy(word, bytes, sizeof bytes);
    return is_found;
}

static int read_file_word(const struct samples *samples, uint64_t address, uint64_t *word) {
    static const struct module *last; /* that a word was read of */
    for (uint64_t i = last ? 0 : 1; i <= samples->module_count; i++) {
        const struct module *module = i ? &samples->modules[i - 1] : last;
        uint64_t virtual_address = address - module->image_base + module->image_address;
        for (uint64_t j = 0; j < module->section_count; j++) {
            const struct section *section = &module->sections[j];
            if (section->kind == DEBUG_FRAME || section->kind == UNCOVERED_CODE ||
                virtual_address - section->address + 7 >= section->size + 7)
                continue;
            last = module;
            return read_section(section, virtual_address, word);
        }
    }
    return 0;
}

int read_word(const struct samples *samples, uint64_t sample, uint64_t address, uint64_t *word) {
    uint64_t offset = address - samples->registers[4 * sample + 1];
    uint64_t size = samples->offsets[sample + 1] - samples->offsets[sample];
    if (size < sizeof *word || offset > size - sizeof *word)
        return read_file_word(samples, address, word);
    memcpy(word, samples->stacks + samples->offsets[sample] + offset, sizeof *word);
    return 1;
}

static long anonymous_kilobytes(void) {
    char line[256];
    long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "RssAnon: %ld", &kilobytes);
    if (file)
        fclose(file);
    return kilobytes;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **arguments) {
    char word[16];
    if (count < 2)
        return 2;
    struct samples samples = load(arguments[1]);
    long before = anonymous_kilobytes();
    while (scanf("%15s", word) == 1) {
        struct counts counts = {0};
        if (strcmp(word, "warm"))
            prepare(&samples);
        uint64_t start = now();
        if (strcmp(word, "warm"))
            build(&samples);
        uint64_t built = now();
        walk_all(&samples, &counts);
        uint64_t end = now();
        printf("%lu %lu %lu %lu %ld\n", end - built, counts.frames, counts.complete, built - start,
               anonymous_kilobytes() - before);
        fflush(stdout);
    }
    return 0;
}
