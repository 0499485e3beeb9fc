/*
 * probes.h: the functions that signals are to hit, and who calls whom.
 *
 * Each probe has a section of its own, named probe_NAME, so that the linker tells where it begins and
 * ends (__start_probe_NAME, __stop_probe_NAME). A probe calls another from one place only: the direct
 * call there gives the return address that a walk must find.
 */
#ifndef UNSPOOL_PROBES_H
#define UNSPOOL_PROBES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Weak, so that no compiler knows the callee's insides. */
#define PROBE(name) __attribute__((noinline, weak, used, section("probe_" #name)))

/* clang-format off: one name a line, as lists are read */
/* Written in C (functions.c, main.c). */
#define C_PROBES(_)                                                                                          \
    _(leaf_plain)                                                                                            \
    _(leaf_stack)                                                                                            \
    _(middle)                                                                                                \
    _(many_saved)                                                                                            \
    _(big_frame)                                                                                             \
    _(variable_frame)                                                                                        \
    _(calls_register)                                                                                        \
    _(calls_saved_cfa)                                                                                       \
    _(calls_unknown)                                                                                         \
    _(calls_signed)                                                                                          \
    _(calls_garbage_frame)                                                                                   \
    _(calls_garbage_leaf)                                                                                    \
    _(calls_garbage_unknown)                                                                                 \
    _(signals_twice)                                                                                         \
    _(handler_one)                                                                                           \
    _(handler_two)                                                                                           \
    _(run_scenario)                                                                                          \
    _(main)
/* Written in assembly, with CFI (functions_ARCH.S). */
#define ASSEMBLY_PROBES(_)                                                                                   \
    _(call_probe)                                                                                            \
    _(send_signal)                                                                                           \
    _(return_in_register)                                                                                    \
    _(frame_in_steps)                                                                                        \
    _(cfa_in_saved_register)                                                                                 \
    _(garbage_frame)                                                                                         \
    _(garbage_leaf)
/* And without: for code analysis. */
#define UNKNOWN_PROBES(_)                                                                                    \
    _(unknown_leaf)                                                                                          \
    _(unknown_middle)                                                                                        \
    _(unknown_outer)                                                                                         \
    _(unknown_signed)                                                                                        \
    _(garbage_unknown)
/* clang-format on */

#define ALL_PROBES(_) C_PROBES(_) ASSEMBLY_PROBES(_) UNKNOWN_PROBES(_)

#define NUMBER(name) probe_##name,
enum probe_number { ALL_PROBES(NUMBER) PROBE_COUNT };
#undef NUMBER

struct probe {
    const char *name;
    const uint8_t *start, *stop;
};
extern const struct probe probes[PROBE_COUNT];

unsigned long leaf_plain(unsigned long n);
unsigned long leaf_stack(unsigned long n);
unsigned long middle(unsigned long n);
unsigned long many_saved(unsigned long n);
unsigned long big_frame(unsigned long n);
unsigned long variable_frame(unsigned long n);
unsigned long calls_register(unsigned long n);
unsigned long calls_saved_cfa(unsigned long n);
unsigned long calls_unknown(unsigned long n);
unsigned long calls_signed(unsigned long n);
unsigned long calls_garbage_frame(unsigned long n);
unsigned long calls_garbage_leaf(unsigned long n);
unsigned long calls_garbage_unknown(unsigned long n);
unsigned long signals_twice(unsigned long n);

unsigned long return_in_register(unsigned long n);
unsigned long frame_in_steps(unsigned long n);
unsigned long cfa_in_saved_register(unsigned long n);
unsigned long unknown_leaf(unsigned long n);
unsigned long unknown_middle(unsigned long n);
unsigned long unknown_outer(unsigned long n);
unsigned long unknown_signed(unsigned long n);
unsigned long garbage_frame(unsigned long n);
unsigned long garbage_leaf(unsigned long n);
unsigned long garbage_unknown(unsigned long n);

/* Calls function(argument); returns to call_probe_return. */
unsigned long call_probe(unsigned long (*function)(unsigned long), unsigned long argument);
extern const uint8_t call_probe_return[];

/* tgkill; the signal finds pc at send_signal_return. */
long send_signal(long process, long thread, long number);
extern const uint8_t send_signal_return[];

/* Where the garbage probes' return address is 0x4cd. */
extern const uint8_t garbage_frame_begin[], garbage_frame_end[], garbage_leaf_begin[], garbage_leaf_end[],
    garbage_unknown_begin[], garbage_unknown_end[];

/* Steps through code from here on, or no more: SIGTRAP at every instruction (x86_64 only). */
void set_trap_flag(void);

#endif
