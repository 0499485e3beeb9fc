/*
 * truth.c: the truth is known by construction: who calls whom is written here, and the return address is
 * found in the caller's code, behind its one direct call.
 */
#include "truth.h"

#include <stdio.h>
#include <string.h>

#include "instruction.h"

#define DECLARE(name) extern const uint8_t __start_probe_##name[], __stop_probe_##name[];
ALL_PROBES(DECLARE)
#undef DECLARE
#define DEFINE(name) {#name, __start_probe_##name, __stop_probe_##name},
const struct probe probes[PROBE_COUNT] = {ALL_PROBES(DEFINE)};
#undef DEFINE

#define CALLS(...) {__VA_ARGS__, LAST}
const struct scenario scenarios[] = {
    {"leaf", leaf_plain, CALLS(probe_leaf_plain), NULL, NULL, false},
    {"leaf with a frame", leaf_stack, CALLS(probe_leaf_stack), NULL, NULL, false},
    {"frame record", middle, CALLS(probe_leaf_plain, probe_middle), NULL, NULL, false},
    {"every saved register", many_saved, CALLS(probe_leaf_plain, probe_middle, probe_many_saved), NULL, NULL,
     false},
    {"big frame", big_frame, CALLS(probe_leaf_stack, probe_big_frame), NULL, NULL, false},
    {"frame of variable size", variable_frame, CALLS(probe_leaf_plain, probe_variable_frame), NULL, NULL,
     false},
    {"return address in a register, sp in steps", calls_register,
     CALLS(probe_return_in_register, probe_frame_in_steps, probe_calls_register), NULL, NULL, false},
    {"CFA in a saved register, two frames up", calls_saved_cfa,
     CALLS(probe_leaf_plain, probe_middle, probe_cfa_in_saved_register, probe_calls_saved_cfa), NULL, NULL,
     false},
    {"no CFI", calls_unknown,
     CALLS(probe_unknown_leaf, probe_unknown_middle, probe_unknown_outer, probe_calls_unknown), NULL, NULL,
     false},
    {"no CFI, signed", calls_signed, CALLS(probe_unknown_leaf, probe_unknown_signed, probe_calls_signed),
     NULL, NULL, false},
    {"garbage in the frame", calls_garbage_frame, CALLS(probe_garbage_frame, probe_calls_garbage_frame),
     garbage_frame_begin, garbage_frame_end, false},
    {"garbage in a leaf", calls_garbage_leaf, CALLS(probe_garbage_leaf, probe_calls_garbage_leaf),
     garbage_leaf_begin, garbage_leaf_end, false},
    {"garbage without CFI", calls_garbage_unknown, CALLS(probe_garbage_unknown, probe_calls_garbage_unknown),
     garbage_unknown_begin, garbage_unknown_end, true},
    {"nested signals", signals_twice,
     CALLS(probe_leaf_plain, probe_handler_two | SIGNALLED, probe_send_signal, probe_handler_one | SIGNALLED,
           probe_send_signal, probe_signals_twice),
     NULL, NULL, false},
};

const size_t scenario_count = sizeof scenarios / sizeof *scenarios;

/* What every scenario is called by. */
static const uint16_t common_calls[] = {probe_call_probe, probe_run_scenario, probe_main, LAST};

bool is_instruction[PROBE_COUNT][MOST_BYTES];
const uint8_t *volatile signal_restorer;
static uint64_t sites[PROBE_COUNT][PROBE_COUNT]; /* [caller][callee]: return address of the one call */

static uint64_t address_of(const uint8_t *place) {
    return (uint64_t)(uintptr_t)place;
}

static void decode(const uint8_t *at, const uint8_t *stop, struct instruction *instruction) {
#if defined(__aarch64__)
    aarch64_decode(at, (size_t)(stop - at), address_of(at), instruction);
#else
    x86_64_decode(at, (size_t)(stop - at), address_of(at), instruction);
#endif
}

/* The return address of the one call in `caller` that leads to `callee`; 0 when there is none or two. */
static uint64_t call_site(const struct probe *caller, const struct probe *callee) {
    uint64_t found = 0;
    struct instruction instruction;
    for (const uint8_t *at = caller->start; at < caller->stop; at += instruction.length) {
        decode(at, caller->stop, &instruction);
        if (!instruction.length)
            return 0;
        if (instruction.flow == FLOW_CALL && instruction.has_target &&
            instruction.target == address_of(callee->start)) {
            if (found)
                return 0;
            found = address_of(at) + instruction.length;
        }
    }
    return found;
}

static bool take_apart(void) {
    for (uint32_t number = 0; number < PROBE_COUNT; number++) {
        struct instruction instruction;
        for (const uint8_t *at = probes[number].start; at < probes[number].stop; at += instruction.length) {
            decode(at, probes[number].stop, &instruction);
            if (!instruction.length || at - probes[number].start >= MOST_BYTES) {
                fprintf(stderr, "%s: no instruction at %p\n", probes[number].name, (const void *)at);
                return false;
            }
            is_instruction[number][at - probes[number].start] = true;
        }
        for (uint32_t callee = 0; callee < PROBE_COUNT; callee++)
            sites[number][callee] = call_site(&probes[number], &probes[callee]);
    }
    return true;
}

/* Every caller must call its callee from one place. */
static bool has_call_sites(const uint16_t *calls) {
    for (; !(calls[1] & LAST); calls++)
        if (!(calls[0] & SIGNALLED) && !sites[calls[1] & 0xff][calls[0] & 0xff]) {
            fprintf(stderr, "%s does not call %s once\n", probes[calls[1] & 0xff].name,
                    probes[calls[0] & 0xff].name);
            return false;
        }
    return true;
}

bool prepare_truth(void) {
    bool is_ready = take_apart() && has_call_sites(common_calls);
    for (size_t i = 0; is_ready && i < scenario_count; i++)
        is_ready = has_call_sites(scenarios[i].calls);
    return is_ready;
}

/* Appends the callers of calls[0]; returns how many addresses there are then. */
static size_t add_callers(const uint16_t *calls, uint64_t *addresses, size_t count) {
    for (; !(calls[0] & LAST) && !(calls[1] & LAST); calls++) {
        if (calls[0] & SIGNALLED) {
            addresses[count++] = address_of(signal_restorer);
            addresses[count++] = address_of(send_signal_return);
        } else {
            addresses[count++] = sites[calls[1] & 0xff][calls[0] & 0xff];
        }
    }
    return count;
}

size_t true_stack(const uint16_t *calls, uint64_t pc, uint64_t *addresses) {
    addresses[0] = pc;
    size_t count = add_callers(calls, addresses, 1);
    addresses[count++] = address_of(call_probe_return);
    return add_callers(common_calls, addresses, count);
}

bool is_true(const struct scenario *scenario, const struct unspool_stack *stack, const uint64_t *expected,
             size_t count) {
    uint64_t pc = stack->addresses[0];
    bool is_guessed = false;
    for (uint64_t i = 0; i < stack->count; i++)
        is_guessed = is_guessed || (stack->how[i] & UNSPOOL_HOW_GUESS);
    if (pc - address_of(scenario->garbage_begin) <
        (uint64_t)(scenario->garbage_end - scenario->garbage_begin)) {
        if (scenario->may_guess)
            return is_guessed || stack->end != UNSPOOL_END_ROOT;
        return stack->count == 1 && stack->end == UNSPOOL_END_BAD_RETURN_ADDRESS;
    }
    /* Above main: the libc's start code, two or three frames. */
    return !is_guessed && stack->end == UNSPOOL_END_ROOT && stack->count > count &&
           stack->count <= count + 3 && memcmp(stack->addresses, expected, count * sizeof *expected) == 0;
}

const char *probe_of(uint64_t address) {
    for (uint32_t i = 0; i < PROBE_COUNT; i++)
        if (address >= address_of(probes[i].start) && address <= address_of(probes[i].stop))
            return probes[i].name;
    return "";
}
