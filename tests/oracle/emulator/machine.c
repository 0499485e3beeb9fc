/* machine.c: see machine.h. */
#define _GNU_SOURCE
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Noreturn void fail(const char *what, uint64_t value) {
    fprintf(stderr, "emulator: %s: %#llx\n", what, (unsigned long long)value);
    exit(3);
}

/* ------------------------------------------------------------------ processor */

static uint64_t system_register(struct machine *machine, uint32_t op0, uint32_t op1, uint32_t crn,
                                uint32_t crm, uint32_t op2, const uint64_t *value) {
    uc_arm64_cp_reg name = {.crn = crn, .crm = crm, .op0 = op0, .op1 = op1, .op2 = op2, .val = 0};
    if (value)
        name.val = *value;
    uc_err error = value ? uc_reg_write(machine->uc, UC_ARM64_REG_CP_REG, &name)
                         : uc_reg_read(machine->uc, UC_ARM64_REG_CP_REG, &name);
    if (error)
        fail("system register", (uint64_t)crn << 16 | crm << 8 | op2);
    return name.val;
}

static void set_keys(struct machine *machine) {
    uint64_t secure = 3 << 16 | 1 << 10 | 1; /* SCR_EL3: APK, API do not trap; RW, not secure */
    system_register(machine, 3, 6, 1, 1, 0, &secure);
    uint64_t hypervisor = (uint64_t)3 << 40 | (uint64_t)1 << 31; /* HCR_EL2: likewise */
    system_register(machine, 3, 4, 1, 1, 0, &hypervisor);
    for (uint32_t key = 0; key < 8; key++) { /* APIAKeyLo_EL1 to APDBKeyHi_EL1 */
        uint64_t value = 0x9e3779b97f4a7c15u * (key + 3);
        system_register(machine, 3, 0, 2, 1 + key / 4, key % 4, &value);
    }
    uint64_t control = system_register(machine, 3, 0, 1, 0, 0, NULL); /* SCTLR_EL1: EnIA, EnIB, EnDA, EnDB */
    control |= (uint64_t)1 << 31 | 1 << 30 | 1 << 27 | 1 << 13;
    system_register(machine, 3, 0, 1, 0, 0, &control);
}

void machine_start(struct machine *machine, bool sign) {
    memset(machine, 0, sizeof *machine);
    uc_err error = uc_open(UC_ARCH_ARM64, UC_MODE_ARM, &machine->uc);
    if (!error)
        error = uc_ctl_set_cpu_model(machine->uc, UC_CPU_ARM64_MAX);
    if (error)
        fail(uc_strerror(error), 0);
    uint64_t translation = 16 | (uint64_t)1 << 37; /* TCR_EL1: 48-bit addresses, top byte ignored */
    system_register(machine, 3, 0, 2, 0, 2, &translation);
    uint64_t floating = (uint64_t)3 << 20; /* CPACR_EL1 */
    system_register(machine, 3, 0, 1, 0, 2, &floating);
    if (sign)
        set_keys(machine);
}

/* ------------------------------------------------------------------ memory */

void machine_add_arena(struct machine *machine, uint64_t start, uint64_t size) {
    void *host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED || machine->arena_count == 8)
        fail("no memory for an arena", size);
    machine->arena[machine->arena_count++] = (struct arena){start, start + size, host};
}

static uint8_t *host_address(const struct machine *machine, uint64_t start, uint64_t size) {
    for (size_t i = 0; i < machine->arena_count; i++) {
        const struct arena *arena = &machine->arena[i];
        if (start >= arena->start && start < arena->end && size <= arena->end - start)
            return arena->host + (start - arena->start);
    }
    return NULL;
}

static size_t first_piece(const struct machine *machine, uint64_t address) {
    size_t low = 0, high = machine->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (machine->piece[middle].address + machine->piece[middle].size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low; /* the first that ends above address */
}

static void insert(struct machine *machine, size_t at, uint64_t start, uint64_t size, uint32_t protection) {
    if (machine->piece_count == machine->piece_capacity) {
        size_t capacity = machine->piece_capacity ? 2 * machine->piece_capacity : 64;
        machine->piece = realloc(machine->piece, capacity * sizeof *machine->piece);
        machine->protection = realloc(machine->protection, capacity * sizeof *machine->protection);
        if (!machine->piece || !machine->protection)
            fail("no memory for pieces", capacity);
        machine->piece_capacity = capacity;
    }
    size_t after = machine->piece_count++ - at;
    memmove(&machine->piece[at + 1], &machine->piece[at], after * sizeof *machine->piece);
    memmove(&machine->protection[at + 1], &machine->protection[at], after * sizeof *machine->protection);
    machine->piece[at] = (struct unspool_region){start, size, host_address(machine, start, size)};
    machine->protection[at] = protection;
}

static void erase(struct machine *machine, size_t at) {
    size_t after = --machine->piece_count - at;
    memmove(&machine->piece[at], &machine->piece[at + 1], after * sizeof *machine->piece);
    memmove(&machine->protection[at], &machine->protection[at + 1], after * sizeof *machine->protection);
}

/* Cuts pieces so that none crosses address. */
static void cut(struct machine *machine, uint64_t address) {
    size_t at = first_piece(machine, address);
    if (at == machine->piece_count || machine->piece[at].address >= address)
        return;
    struct unspool_region piece = machine->piece[at];
    uint64_t end = piece.address + piece.size;
    machine->piece[at].size = address - piece.address;
    insert(machine, at + 1, address, end - address, machine->protection[at]);
}

void machine_unmap(struct machine *machine, uint64_t start, uint64_t size) {
    machine->generation++;
    cut(machine, start);
    cut(machine, start + size);
    for (size_t at = first_piece(machine, start);
         at < machine->piece_count && machine->piece[at].address < start + size;) {
        if (uc_mem_unmap(machine->uc, machine->piece[at].address, machine->piece[at].size))
            fail("unmap", machine->piece[at].address);
        erase(machine, at);
    }
}

bool machine_map(struct machine *machine, uint64_t start, uint64_t size, uint32_t protection) {
    uint8_t *host = host_address(machine, start, size);
    if (!host || !size)
        return false;
    machine_unmap(machine, start, size);
    memset(host, 0, size);
    if (uc_mem_map_ptr(machine->uc, start, size, protection, host))
        fail("map", start);
    insert(machine, first_piece(machine, start), start, size, protection);
    return true;
}

void machine_protect(struct machine *machine, uint64_t start, uint64_t size, uint32_t protection) {
    machine->generation++;
    cut(machine, start);
    cut(machine, start + size);
    for (size_t at = first_piece(machine, start);
         at < machine->piece_count && machine->piece[at].address < start + size; at++) {
        if (uc_mem_protect(machine->uc, machine->piece[at].address, machine->piece[at].size, protection))
            fail("protect", machine->piece[at].address);
        machine->protection[at] = protection;
    }
}

const struct unspool_region *machine_find(const struct machine *machine, uint64_t address,
                                          uint32_t *protection) {
    size_t at = first_piece(machine, address);
    if (at == machine->piece_count || machine->piece[at].address > address)
        return NULL;
    if (protection)
        *protection = machine->protection[at];
    return &machine->piece[at];
}

size_t machine_read(const struct machine *machine, uint64_t address, void *bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
        const struct unspool_region *piece = machine_find(machine, address + done, NULL);
        if (!piece)
            break;
        uint64_t offset = address + done - piece->address, here = piece->size - offset;
        size_t part = here < size - done ? (size_t)here : size - done;
        memcpy((uint8_t *)bytes + done, piece->bytes + offset, part);
        done += part;
    }
    return done;
}

void *machine_at(const struct machine *machine, uint64_t address, uint64_t size) {
    void *host = host_address(machine, address, size);
    if (!machine_find(machine, address, NULL) || !host)
        fail("the program named memory that it does not have", address);
    return host;
}

/* ------------------------------------------------------------------ registers */

static int register_names[MACHINE_REGISTERS] = {
    UC_ARM64_REG_X0,  UC_ARM64_REG_X1,  UC_ARM64_REG_X2,  UC_ARM64_REG_X3,  UC_ARM64_REG_X4,
    UC_ARM64_REG_X5,  UC_ARM64_REG_X6,  UC_ARM64_REG_X7,  UC_ARM64_REG_X8,  UC_ARM64_REG_X9,
    UC_ARM64_REG_X10, UC_ARM64_REG_X11, UC_ARM64_REG_X12, UC_ARM64_REG_X13, UC_ARM64_REG_X14,
    UC_ARM64_REG_X15, UC_ARM64_REG_X16, UC_ARM64_REG_X17, UC_ARM64_REG_X18, UC_ARM64_REG_X19,
    UC_ARM64_REG_X20, UC_ARM64_REG_X21, UC_ARM64_REG_X22, UC_ARM64_REG_X23, UC_ARM64_REG_X24,
    UC_ARM64_REG_X25, UC_ARM64_REG_X26, UC_ARM64_REG_X27, UC_ARM64_REG_X28, UC_ARM64_REG_X29,
    UC_ARM64_REG_X30, UC_ARM64_REG_SP,  UC_ARM64_REG_PC,
};

void machine_get(const struct machine *machine, uint64_t registers[MACHINE_REGISTERS]) {
    void *to[MACHINE_REGISTERS];
    for (size_t i = 0; i < MACHINE_REGISTERS; i++)
        to[i] = &registers[i];
    uc_reg_read_batch(machine->uc, register_names, to, MACHINE_REGISTERS);
}

void machine_set(struct machine *machine, const uint64_t registers[MACHINE_REGISTERS]) {
    for (size_t i = 0; i < MACHINE_REGISTERS; i++)
        uc_reg_write(machine->uc, register_names[i], &registers[i]);
}

uint64_t machine_pstate(const struct machine *machine) {
    uint64_t pstate = 0;
    uc_reg_read(machine->uc, UC_ARM64_REG_NZCV, &pstate);
    return pstate;
}

void machine_set_pstate(struct machine *machine, uint64_t pstate) {
    uc_reg_write(machine->uc, UC_ARM64_REG_NZCV, &pstate);
}

void machine_get_vectors(const struct machine *machine, uint8_t vectors[32 * 16], uint32_t status[2]) {
    for (int i = 0; i < 32; i++)
        uc_reg_read(machine->uc, UC_ARM64_REG_Q0 + i, vectors + 16 * i);
    uint64_t value = 0;
    uc_reg_read(machine->uc, UC_ARM64_REG_FPSR, &value);
    status[0] = (uint32_t)value;
    uc_reg_read(machine->uc, UC_ARM64_REG_FPCR, &value);
    status[1] = (uint32_t)value;
}

void machine_set_vectors(struct machine *machine, const uint8_t vectors[32 * 16], const uint32_t status[2]) {
    for (int i = 0; i < 32; i++)
        uc_reg_write(machine->uc, UC_ARM64_REG_Q0 + i, vectors + 16 * i);
    uint64_t value = status[0];
    uc_reg_write(machine->uc, UC_ARM64_REG_FPSR, &value);
    value = status[1];
    uc_reg_write(machine->uc, UC_ARM64_REG_FPCR, &value);
}
