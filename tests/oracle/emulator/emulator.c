/*
 * emulator.c: runs a program for aarch64 Linux instruction by instruction, in an emulated processor, and
 * checks the product's walk at each.
 *
 *   emulator OUT.json [--steps LIMIT] [--signals MEAN SEED] [--sign] [--root FOLDER] -- PROGRAM ARGUMENT...
 *
 * --signals: a handler that does nothing interrupts the program every MEAN instructions or so. --sign: the
 * processor has keys for return addresses. --root: where the program's loader and libraries are.
 *
 * For every file with code that is mapped, the driver is told on stdout
 *   file START END OFFSET PATH (numbers in hex)
 * and answers on stdin
 *   image IMAGE_BASE MAKECONTEXT TABLE FUNCTIONS
 * MAKECONTEXT: the function's address or 0. FUNCTIONS: a file of uint64 triples, ascending: start and end of
 * a function, relative to the image base, and a number that parts of one function share.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../compare.h"
#include "instruction.h"
#include "process.h"

enum { MAPPINGS = 64, INJECTED_SIGNAL = 64, TURN = 5000, CONTEXT_END_SIZE = 16 /* of __startcontext */ };
#define NO_ADDRESS 0xfffffffffffffff0u
#define HANDLER_OFFSET 0x100 /* from the page of the return code */

struct function {
    uint64_t start, end, number;
};

/* A file's code as it was mapped, or code of no file. */
struct mapping {
    uint64_t start, end, image_base;
    const struct unspool_table *table;
    const struct function *functions;
    size_t function_count;
};

struct watched {
    struct truth truth;
    struct waiting waiting;
};

struct emulator {
    struct machine machine;
    struct process process;
    struct target target;
    struct truth_stacks stacks;
    struct comparison comparison;
    struct mapping mapping[MAPPINGS];
    size_t mapping_count;
    uint64_t generation; /* of the machine's memory that the modules are from */
    struct watched watched[TASKS];
    uint64_t registers[MACHINE_REGISTERS]; /* before the instruction that runs */
    enum instruction_kind kind;
    bool moving; /* an instruction was let go and not accounted for */
    uint64_t stopped_at;
    uint64_t make_context;
    size_t make_context_depth;
    uint64_t context_end;            /* what contexts return to */
    struct truth_chain parent_chain; /* of vfork */
    uint64_t step_limit, next_signal, signal_mean, next_turn, next_timer, random;
    uint64_t signed_addresses; /* return addresses that were seen with a signature */
};

static _Noreturn void fail(const char *what, const char *which) {
    fprintf(stderr, "emulator: %s: %s\n", what, which);
    exit(3);
}

static struct watched *now_running(struct emulator *e) {
    return &e->watched[e->process.current - e->process.task];
}

static uint64_t next_random(struct emulator *e) {
    e->random = e->random * 6364136223846793005u + 1442695040888963407u;
    return e->random >> 33;
}

/* ------------------------------------------------------------------ the target, as target.h has it */

size_t target_read(const struct target *target, uint64_t address, void *bytes, size_t size) {
    struct machine memory = {.piece = (struct unspool_region *)(uintptr_t)target->regions,
                             .piece_count = target->region_count};
    return machine_read(&memory, address, bytes, size);
}

const struct unspool_module *target_module(const struct target *target, uint64_t address) {
    for (uint64_t i = 0; i < target->module_count; i++) {
        if (address - target->modules[i].start < target->modules[i].end - target->modules[i].start)
            return &target->modules[i];
    }
    return NULL;
}

static const void *map_file(const char *path, size_t *size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status))
        fail("can't read", path);
    *size = (size_t)status.st_size;
    const void *bytes = *size ? mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0) : "";
    close(fd);
    if (bytes == MAP_FAILED)
        fail("can't map", path);
    return bytes;
}

static struct mapping *add_mapping(struct emulator *e, uint64_t start, uint64_t end) {
    if (e->mapping_count == MAPPINGS)
        fail("too many mappings", "");
    struct mapping *mapping = &e->mapping[e->mapping_count++];
    *mapping = (struct mapping){.start = start, .end = end};
    return mapping;
}

static void file_mapped(void *context, const char *path, uint64_t start, uint64_t end, uint64_t offset) {
    struct emulator *e = context;
    struct mapping *mapping = add_mapping(e, start, end);
    char line[8192], table[4096], functions[4096];
    uint64_t makecontext;
    size_t size;
    printf("file %" PRIx64 " %" PRIx64 " %" PRIx64 " %s\n", start, end, offset, path);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin) || sscanf(line, "image %" SCNx64 " %" SCNx64 " %4095s %4095s",
                                                   &mapping->image_base, &makecontext, table, functions) != 4)
        fail("no answer from the driver about", path);
    mapping->table = map_file(table, &size);
    if (unspool_table_check(mapping->table, size) != UNSPOOL_OK)
        fail("not a table", table);
    mapping->functions = map_file(functions, &size);
    mapping->function_count = size / sizeof *mapping->functions;
    if (makecontext)
        e->target.makecontext = makecontext;
}

static void code_mapped(void *context, uint64_t start, uint64_t end) {
    add_mapping(context, start, end);
}

static const struct mapping *find_mapping(const struct emulator *e, uint64_t address) {
    for (size_t i = e->mapping_count; i--;)
        if (address - e->mapping[i].start < e->mapping[i].end - e->mapping[i].start)
            return &e->mapping[i];
    return NULL;
}

/* Modules are what is executable now. */
static void refresh_modules(struct emulator *e) {
    struct machine *machine = &e->machine;
    struct target *target = &e->target;
    if (e->generation == machine->generation)
        return;
    e->generation = machine->generation;
    target->regions = machine->piece;
    target->region_count = machine->piece_count;
    target->modules = realloc(target->modules, machine->piece_count * sizeof *target->modules);
    target->module_count = 0;
    for (size_t i = 0; i < machine->piece_count; i++) {
        const struct unspool_region *piece = &machine->piece[i];
        const struct mapping *mapping = find_mapping(e, piece->address);
        if (!(machine->protection[i] & UC_PROT_EXEC) || !mapping)
            continue;
        target->modules[target->module_count++] = (struct unspool_module){
            piece->address, piece->address + piece->size, mapping->image_base, mapping->table, piece->bytes,
            piece->size};
    }
    comparison_modules_changed(&e->comparison);
}

/* ------------------------------------------------------------------ truth's questions */

static bool stack_mapping(void *context, uint64_t address, uint64_t *start, uint64_t *end) {
    const struct emulator *e = context;
    const struct unspool_region *piece = machine_find(&e->machine, address, NULL);
    if (!piece)
        return false;
    *start = piece->address;
    *end = piece->address + piece->size;
    return true;
}

static bool executable(void *context, uint64_t address) {
    const struct emulator *e = context;
    uint32_t protection = 0;
    return machine_find(&e->machine, address, &protection) && (protection & UC_PROT_EXEC);
}

static uint64_t function_at(const struct emulator *e, uint64_t address) {
    const struct mapping *mapping = find_mapping(e, address);
    size_t low = 0, high = mapping ? mapping->function_count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (mapping->functions[middle].end <= address - mapping->image_base)
            low = middle + 1;
        else
            high = middle;
    }
    if (!mapping || low == mapping->function_count ||
        mapping->functions[low].start > address - mapping->image_base)
        return 0;
    return mapping->image_base + mapping->functions[low].number;
}

static bool same_function(void *context, uint64_t one, uint64_t other) {
    uint64_t function = function_at(context, one);
    return function && function == function_at(context, other);
}

/* ------------------------------------------------------------------ what happens beside instructions */

static void stack_declared(void *context, uint64_t start, uint64_t end) {
    struct emulator *e = context;
    truth_declare(&e->stacks, start, end);
}

/* A thread that has done nothing yet has a stack of its own. */
static void begin_task(struct emulator *e, uint64_t sp) {
    struct task *task = e->process.current;
    if (!task->fresh)
        return;
    task->fresh = false;
    comparison_finish(&e->comparison, &now_running(e)->waiting);
    truth_stop(&now_running(e)->truth);
    truth_start(&now_running(e)->truth, &e->stacks, sp);
}

static void signal_delivered(void *context, uint64_t interrupted, uint64_t frame, uint64_t restorer) {
    struct emulator *e = context;
    begin_task(e, frame);
    truth_signal(&now_running(e)->truth, interrupted, frame + 128, restorer, frame);
}

static void vforked(void *context, bool begins) {
    struct emulator *e = context;
    struct truth_chain *chain = &now_running(e)->truth.chain;
    if (begins) {
        size_t size = chain->count * sizeof *chain->frame;
        e->parent_chain = (struct truth_chain){malloc(size + 1), chain->count, chain->count};
        memcpy(e->parent_chain.frame, chain->frame, size);
    } else {
        free(chain->frame);
        *chain = e->parent_chain;
    }
}

static void context_made(struct emulator *e, struct truth *truth) {
    uint64_t stack[3], saved[3]; /* uc_stack; lr, sp and pc of uc_mcontext */
    target_read(&e->target, e->make_context + 16, stack, sizeof stack);
    target_read(&e->target, e->make_context + 184 + 8 * MACHINE_LR, saved, sizeof saved);
    uint32_t region = truth_declare(&e->stacks, stack[0], stack[0] + stack[2]);
    truth_make_context(truth, region, saved[1], saved[0]);
    e->context_end = saved[0];
    e->make_context = 0;
}

/* ------------------------------------------------------------------ steps */

static void instruction_done(struct emulator *e, uint64_t pc, uint64_t sp, bool is_signal_return) {
    static const enum truth_event events[] = {
        [INSTRUCTION_CALL] = TRUTH_CALLED,          [INSTRUCTION_RETURN] = TRUTH_RETURNED,
        [INSTRUCTION_INDIRECT_JUMP] = TRUTH_JUMPED, [INSTRUCTION_SET_SP] = TRUTH_SET_SP,
        [INSTRUCTION_SYSCALL] = TRUTH_OTHER,
    };
    struct watched *watched = now_running(e);
    struct truth *truth = &watched->truth;
    struct truth_step step = {events[e->kind], e->registers[MACHINE_SP], pc, sp, 0};
    if (is_signal_return)
        step.event = TRUTH_SIGNAL_RETURN;
    if (step.event == TRUTH_CALLED)
        step.value = e->registers[MACHINE_PC] + 4;
    truth_step(truth, &step);
    e->moving = false;
    e->comparison.results.steps++;
    comparison_stepped(&e->comparison, &watched->waiting, truth);
    if (e->make_context && truth->chain.count < e->make_context_depth)
        context_made(e, truth);
    if (pc == e->target.makecontext && pc) {
        uc_reg_read(e->machine.uc, UC_ARM64_REG_X0, &e->make_context);
        e->make_context_depth = truth->chain.count;
    }
}

/* The processor stands before the instruction at pc. */
static void look(struct emulator *e, uint64_t pc) {
    struct watched *watched = now_running(e);
    struct unspool_registers registers = {.known = ((uint64_t)1 << MACHINE_REGISTERS) - 1};
    struct truth *truth = &watched->truth;
    if (e->context_end && !truth->chain.count && e->stacks.region[truth->region].declared &&
        pc - e->context_end >= CONTEXT_END_SIZE)
        truth_resume_context(truth, e->registers[MACHINE_SP], e->context_end);
    refresh_modules(e);
    e->registers[MACHINE_PC] = pc;
    memcpy(registers.value, e->registers, sizeof e->registers);
    e->signed_addresses += registers.value[MACHINE_LR] >> 48 != 0;
    comparison_check(&e->comparison, &watched->waiting, &watched->truth, &registers);
}

static bool wants_stop(const struct emulator *e) {
    uint64_t steps = e->comparison.results.steps;
    return e->kind == INSTRUCTION_SYSCALL || steps >= e->next_signal || steps >= e->next_turn ||
           steps >= e->next_timer || steps >= e->step_limit;
}

static void on_instruction(uc_engine *uc, uint64_t pc, uint32_t size, void *context) {
    struct emulator *e = context;
    uint64_t registers[MACHINE_REGISTERS];
    uint32_t word = 0;
    (void)size;
    machine_get(&e->machine, registers);
    if (e->stopped_at != pc) { /* else it was looked at already */
        if (e->moving)
            instruction_done(e, pc, registers[MACHINE_SP], false);
        memcpy(e->registers, registers, sizeof registers);
        begin_task(e, e->registers[MACHINE_SP]);
        look(e, pc);
    }
    machine_read(&e->machine, pc, &word, sizeof word);
    e->kind = instruction_kind(word);
    if (e->stopped_at != pc && wants_stop(e)) {
        e->stopped_at = pc;
        uc_emu_stop(uc);
        return;
    }
    e->stopped_at = NO_ADDRESS;
    e->moving = true;
}

/* ------------------------------------------------------------------ between runs of the processor */

static void system_call(struct emulator *e) {
    uint64_t after = e->registers[MACHINE_PC] + 4, registers[MACHINE_REGISTERS];
    bool is_signal_return = e->registers[8] == 139;
    struct task *task = e->process.current;
    uc_reg_write(e->machine.uc, UC_ARM64_REG_PC, &after);
    e->process.clock = e->comparison.results.steps;
    process_system_call(&e->process);
    e->stopped_at = NO_ADDRESS;
    if (e->process.exited)
        return;
    if (task->state == TASK_FREE) { /* a thread has ended: its call does not return */
        comparison_finish(&e->comparison, &now_running(e)->waiting);
        return;
    }
    machine_get(&e->machine, registers);
    instruction_done(e, registers[MACHINE_PC], registers[MACHINE_SP], is_signal_return);
}

static void inject(struct emulator *e) {
    struct action action = {.handler = (e->process.return_code & ~(MACHINE_PAGE - 1)) + HANDLER_OFFSET};
    action.mask = UINT64_MAX;
    e->next_signal = e->comparison.results.steps + 1 + next_random(e) % (2 * e->signal_mean);
    /* While registers are being replaced, what is below a handler would not be known. */
    bool limbo = truth_in_limbo(&now_running(e)->truth);
    if (limbo || (e->process.current->mask >> (INJECTED_SIGNAL - 1) & 1))
        return;
    process_deliver(&e->process, INJECTED_SIGNAL, &action, 0);
    e->stopped_at = NO_ADDRESS;
}

/* Stopped before an instruction, or at a fault. */
static void stopped(struct emulator *e) {
    uint64_t steps = e->comparison.results.steps;
    if (e->kind == INSTRUCTION_SYSCALL)
        system_call(e);
    else if (steps >= e->next_signal)
        inject(e);
    if (steps >= e->next_timer) {
        e->next_timer = UINT64_MAX;
        process_raise(&e->process, e->process.current, SIGALRM);
    }
    if (e->process.timer_period && e->next_timer == UINT64_MAX)
        e->next_timer = steps + 1 + next_random(e) % 2000;
    if (e->process.exited)
        return;
    if (steps >= e->next_turn || e->process.current->state != TASK_READY) {
        struct task *before = e->process.current;
        e->next_turn = steps + TURN;
        if (!process_switch(&e->process))
            fail("every thread waits", "");
        if (before != e->process.current)
            e->stopped_at = NO_ADDRESS;
    }
    uint64_t pending = e->process.current->pending & ~e->process.current->mask;
    if (pending) {
        process_signals(&e->process);
        e->stopped_at = NO_ADDRESS;
    }
}

/* An instruction could not be executed, or fetched. */
static void faulted(struct emulator *e, uc_err error) {
    uint64_t registers[MACHINE_REGISTERS];
    machine_get(&e->machine, registers);
    if (e->moving && registers[MACHINE_PC] != e->registers[MACHINE_PC]) { /* a jump to nowhere */
        instruction_done(e, registers[MACHINE_PC], registers[MACHINE_SP], false);
        memcpy(e->registers, registers, sizeof registers);
        look(e, registers[MACHINE_PC]);
    }
    e->moving = false;
    e->stopped_at = NO_ADDRESS;
    bool is_memory = error >= UC_ERR_READ_UNMAPPED && error <= UC_ERR_FETCH_UNALIGNED;
    process_fault(&e->process,
                  is_memory                      ? SIGSEGV
                  : error == UC_ERR_INSN_INVALID ? SIGILL
                                                 : SIGTRAP,
                  registers[MACHINE_PC]);
}

static void run(struct emulator *e) {
    while (!e->process.exited && e->comparison.results.steps < e->step_limit) {
        uint64_t pc;
        uc_reg_read(e->machine.uc, UC_ARM64_REG_PC, &pc);
        uc_err error = uc_emu_start(e->machine.uc, pc, NO_ADDRESS, 0, 0);
        if (error) {
            faulted(e, error);
            continue;
        }
        uc_reg_read(e->machine.uc, UC_ARM64_REG_PC, &pc);
        if (pc != e->stopped_at)
            fail("the processor stopped elsewhere", "");
        stopped(e);
    }
    for (size_t i = 0; i < TASKS; i++)
        comparison_finish(&e->comparison, &e->watched[i].waiting);
}

/* ------------------------------------------------------------------ start and end */

static void write_results(const struct emulator *e, const char *path) {
    FILE *out = fopen(path, "we");
    if (!out)
        fail("can't write", path);
    fprintf(out, "{\"arch\": \"aarch64\", \"exit_code\": %d, \"killed_by\": %d,\n", e->process.exit_code,
            e->process.killed_by);
    results_write(&e->comparison.results, out);
    results_write_truth(&e->stacks.counts, out);
    fprintf(out, ",\n\"signed_addresses\": %" PRIu64 ", \"unknown_calls\": %" PRIu64 "}\n",
            e->signed_addresses, e->process.unknown_calls);
    if (fclose(out))
        fail("can't write", path);
}

/* stp x29, x30, [sp, #-16]!; mov x29, sp; ldp x29, x30, [sp], #16; ret */
static void make_handler(struct emulator *e) {
    static const uint32_t code[] = {0xa9bf7bfd, 0x910003fd, 0xa8c17bfd, 0xd65f03c0};
    uint64_t page = e->process.return_code & ~(MACHINE_PAGE - 1);
    memcpy(machine_at(&e->machine, page + HANDLER_OFFSET, sizeof code), code, sizeof code);
}

static void start(struct emulator *e, char **command, bool sign) {
    uc_hook hook;
    machine_start(&e->machine, sign);
    e->stacks.mapping = stack_mapping;
    e->stacks.executable = executable;
    e->stacks.same_function = same_function;
    e->stacks.context = e;
    e->stacks.link_register = true;
    e->process.machine = &e->machine;
    e->process.watcher =
        (struct watcher){e, file_mapped, code_mapped, stack_declared, signal_delivered, vforked};
    e->stopped_at = NO_ADDRESS;
    e->next_turn = TURN;
    e->next_timer = UINT64_MAX;
    e->next_signal = e->signal_mean ? e->signal_mean : UINT64_MAX;
    comparison_init(&e->comparison, &e->target, UNSPOOL_AARCH64);
    process_load(&e->process, command[0], command);
    make_handler(e);
    if (uc_hook_add(e->machine.uc, &hook, UC_HOOK_CODE, (void *)(uintptr_t)on_instruction, e, 1, 0))
        fail("no hook", command[0]);
}

int main(int argc, char **argv) {
    static struct emulator emulator;
    bool sign = false;
    int at = 2;
    emulator.step_limit = UINT64_MAX;
    emulator.process.root = "";
    for (; at < argc && strcmp(argv[at], "--"); at++) {
        if (!strcmp(argv[at], "--sign")) {
            sign = true;
        } else if (!strcmp(argv[at], "--steps") && at + 1 < argc) {
            emulator.step_limit = strtoull(argv[++at], NULL, 0);
        } else if (!strcmp(argv[at], "--root") && at + 1 < argc) {
            emulator.process.root = argv[++at];
        } else if (!strcmp(argv[at], "--signals") && at + 2 < argc) {
            emulator.signal_mean = strtoull(argv[++at], NULL, 0);
            emulator.random = strtoull(argv[++at], NULL, 0);
        } else {
            break;
        }
    }
    if (at + 1 >= argc || strcmp(argv[at], "--")) {
        fprintf(stderr, "emulator OUT.json [--steps LIMIT] [--signals MEAN SEED] [--sign] [--root FOLDER]"
                        " -- PROGRAM...\n");
        return 2;
    }
    start(&emulator, argv + at + 1, sign);
    run(&emulator);
    write_results(&emulator, argv[1]);
    return 0;
}
