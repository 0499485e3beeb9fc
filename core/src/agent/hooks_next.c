/*
 * hooks_next.c: symbol tables of the loaded files, as the dynamic loader has mapped them.
 *
 * They are the process's own and as trustworthy as its code. Takes the loader's lock (dl_iterate_phdr).
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "hooks_next.h"

#pragma weak dl_iterate_phdr

struct symbols { /* of one file */
    const ElfW(Sym) * table;
    const char *names;
    const ElfW(Half) * versions; /* or NULL */
    const uint32_t *gnu_hash;    /* or NULL */
    const uint32_t *sysv_hash;   /* or NULL */
    uintptr_t base;
};

static _Atomic uintptr_t functions[NEXT_COUNT];
static atomic_bool are_known;

static const char *const function_names[NEXT_COUNT] = {
#define X(name) #name,
    NEXT_FUNCTIONS(X)
#undef X
};

static bool is_same(const char *a, const char *b) {
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* Some loaders add the base to the dynamic section's addresses, some do not. */
static uintptr_t absolute(uintptr_t address, uintptr_t base) {
    return address < base ? address + base : address;
}

static bool read_dynamic(const ElfW(Dyn) * entry, uintptr_t base, struct symbols *symbols) {
    *symbols = (struct symbols){.base = base};
    for (; entry->d_tag != DT_NULL; entry++) {
        uintptr_t address = absolute(entry->d_un.d_ptr, base);
        if (entry->d_tag == DT_SYMTAB)
            symbols->table = (const ElfW(Sym) *)address;
        else if (entry->d_tag == DT_STRTAB)
            symbols->names = (const char *)address;
        else if (entry->d_tag == DT_VERSYM)
            symbols->versions = (const ElfW(Half) *)address;
        else if (entry->d_tag == DT_GNU_HASH)
            symbols->gnu_hash = (const uint32_t *)address;
        else if (entry->d_tag == DT_HASH)
            symbols->sysv_hash = (const uint32_t *)address;
    }
    return symbols->table && symbols->names && (symbols->gnu_hash || symbols->sysv_hash);
}

/* The address of symbol `index`, if it is a function of this name that new programs are linked to. */
static uintptr_t function_at(const struct symbols *symbols, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &symbols->table[index];
    bool is_hidden = symbols->versions && symbols->versions[index] & 0x8000; /* an older version */
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || is_hidden ||
        !is_same(symbols->names + symbol->st_name, name))
        return 0;
    return symbols->base + symbol->st_value;
}

static uintptr_t find_by_gnu_hash(const struct symbols *symbols, const char *name) {
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const uint32_t *header = symbols->gnu_hash; /* buckets, first symbol, words of the filter, shift */
    const uint32_t *buckets = header + 4 + header[2] * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = buckets + header[0];
    if (!header[0])
        return 0;
    for (uint32_t index = buckets[hash % header[0]]; index >= header[1] && index; index++) {
        uint32_t word = chain[index - header[1]];
        uintptr_t found = (word | 1) == (hash | 1) ? function_at(symbols, index, name) : 0;
        if (found || word & 1)
            return found;
    }
    return 0;
}

static uintptr_t find_function(const struct symbols *symbols, const char *name) {
    if (symbols->gnu_hash)
        return find_by_gnu_hash(symbols, name);
    uintptr_t found = 0;
    for (uint32_t index = 0; index < symbols->sysv_hash[1] && !found; index++)
        found = function_at(symbols, index, name);
    return found;
}

static const ElfW(Dyn) * dynamic_section(const struct dl_phdr_info *file, bool *is_agent) {
    const ElfW(Dyn) *dynamic = NULL;
    *is_agent = false;
    for (unsigned i = 0; i < file->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &file->dlpi_phdr[i];
        uintptr_t address = file->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)address;
        if (header->p_type == PT_LOAD && (uintptr_t)functions - address < header->p_memsz)
            *is_agent = true;
    }
    return dynamic;
}

/* Files come in the order in which symbols are searched. */
static int look_into(struct dl_phdr_info *file, size_t size, void *data) {
    bool *is_behind_agent = data;
    (void)size;
    bool is_agent;
    struct symbols symbols;
    const ElfW(Dyn) *dynamic = dynamic_section(file, &is_agent);
    if (*is_behind_agent && dynamic && read_dynamic(dynamic, file->dlpi_addr, &symbols))
        for (int i = 0; i < NEXT_COUNT; i++)
            if (!functions[i])
                functions[i] = find_function(&symbols, function_names[i]);
    *is_behind_agent |= is_agent;
    return 0;
}

uintptr_t next_function_now(enum next which) {
    bool is_behind_agent = false;
    if (dl_iterate_phdr)
        dl_iterate_phdr(look_into, &is_behind_agent);
    return functions[which];
}

uintptr_t next_function(enum next which) {
    if (!atomic_load_explicit(&are_known, memory_order_acquire)) {
        next_function_now(which);
        atomic_store_explicit(&are_known, true, memory_order_release);
    }
    return functions[which];
}
