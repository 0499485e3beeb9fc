/*
 * machine_code.h: code that is known by its bytes, by architecture: PLT stubs, calls and what links
 * them to their functions, the return from a signal handler. analysis.h says what each promises.
 */
#ifndef UNSPOOL_MACHINE_CODE_H
#define UNSPOOL_MACHINE_CODE_H

#include "analysis.h"

bool x86_64_plt_recipe(const struct code *code, uint64_t pc, struct frame_recipe *recipe);
uint64_t x86_64_called_function(const struct code *code, uint64_t return_address);
bool x86_64_is_signal_return(const struct code *code, uint64_t pc, bool interrupted);

bool aarch64_plt_recipe(const struct code *code, uint64_t pc, struct frame_recipe *recipe);
uint64_t aarch64_called_function(const struct code *code, uint64_t return_address);
bool aarch64_is_signal_return(const struct code *code, uint64_t pc, bool interrupted);

/* How many jumps and stubs may lie between a call and the function that it gets to. */
enum { CALL_HOPS = 4 };

#endif
