/*
 * decode_cases.h: how test_decode.c writes down an instruction and what it does.
 *
 * The text is: length, flow, "->" and the target as distance from the instruction, then the effects:
 * "sp=sp-8" sets, "fp=[sp+0]" loads, "[sp-8]8=fp" stores 8 bytes, "fp=?" clobbers.
 */
#ifndef UNSPOOL_DECODE_CASES_H
#define UNSPOOL_DECODE_CASES_H

#include "check.h"
#include "instruction.h"

struct decode_case {
    const char *bytes; /* hexadecimal; for aarch64 one word */
    const char *assembly;
    const char *expected;
};

typedef void (*decode_function)(const uint8_t *, size_t, uint64_t, struct instruction *);

#define CASE_ADDRESS 0x401000u

static inline size_t from_hex(const char *hex, uint8_t *bytes, size_t capacity) {
    size_t count = 0;
    for (unsigned value; count < capacity && sscanf(hex + 2 * count, "%2x", &value) == 1; count++)
        bytes[count] = (uint8_t)value;
    return count;
}

static inline void describe_effect(const struct stack_effect *effect, char *out, size_t size) {
    static const char *const names[] = {"sp", "fp", "lr", "?", "other"};
    const char *to = names[effect->to], *from = names[effect->from];
    if (effect->kind == EFFECT_SET)
        snprintf(out, size, " %s=%s%+" PRId64, to, from, effect->offset);
    else if (effect->kind == EFFECT_LOAD)
        snprintf(out, size, " %s=[%s%+" PRId64 "]", to, from, effect->offset);
    else if (effect->kind == EFFECT_STORE)
        snprintf(out, size, " [%s%+" PRId64 "]%u=%s", to, effect->offset, effect->size, from);
    else
        snprintf(out, size, " %s=?", to);
}

static inline void describe(const struct instruction *instruction, char *out, size_t size) {
    static const char *const flows[] = {"next",   "call",     "return", "jump",
                                        "branch", "indirect", "stop",   "invalid"};
    size_t used = (size_t)snprintf(out, size, "%u %s", instruction->length, flows[instruction->flow]);
    if (instruction->has_target)
        used += (size_t)snprintf(out + used, size - used, "->%" PRId64,
                                 (int64_t)(instruction->target - CASE_ADDRESS));
    if (instruction->popped)
        used += (size_t)snprintf(out + used, size - used, " pops %u", instruction->popped);
    for (unsigned i = 0; i < instruction->effect_count; i++) {
        describe_effect(&instruction->effects[i], out + used, size - used);
        used += strlen(out + used);
    }
}

static inline void check_cases(decode_function decode, const struct decode_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[32];
        char text[256];
        struct instruction instruction;
        decode(bytes, from_hex(cases[i].bytes, bytes, sizeof bytes), CASE_ADDRESS, &instruction);
        describe(&instruction, text, sizeof text);
        if (!CHECK(strcmp(text, cases[i].expected) == 0))
            fprintf(stderr, "    %s %s: %s, not %s\n", cases[i].bytes, cases[i].assembly, text,
                    cases[i].expected);
    }
}
#define CHECK_CASES(decode, cases) check_cases((decode), (cases), sizeof(cases) / sizeof *(cases))

#endif
