/*
 * exact.h: the exact evaluator: one step by the CFI itself, with whatever registers are known.
 */
#ifndef UNSPOOL_EXACT_H
#define UNSPOOL_EXACT_H

#include "analysis.h"
#include "memory.h"
#include "unwind_table.h"

enum exact_status {
    EXACT_OK = 0,
    EXACT_REGISTER_UNKNOWN, /* pc, cfa or fp need a register whose value is not known */
    EXACT_UNREADABLE,       /* memory at *bad_address could not be read */
    EXACT_NO_RULE,          /* the CFI says nothing usable */
};

struct exact_input {
    uint32_t arch;
    const struct unspool_table *table;
    uint64_t lookup_address; /* relative */
    uint64_t image_base;
    struct unspool_memory *memory;
    bool has_all_registers; /* else an unknown one may yet be found: EXACT_REGISTER_UNKNOWN says so */
};

struct exact_result {
    uint64_t bad_address;  /* EXACT_UNREADABLE: what could not be read */
    uint64_t function;     /* address where the frame's function starts */
    uint64_t function_end; /* and ends */
    uint64_t cfa;
    bool replaces_registers;   /* sp has a rule of its own, though no signal handler returns: registers are
                                  being replaced by others (longjmp, setcontext), and what is found is where
                                  control goes */
    bool may_overwrite_itself; /* it keeps the registers that pass an exception to its handler: such a
                                  function, _Unwind_Resume for one, writes the handler's frame over its
                                  own before it goes there */
    bool is_in_lr;            /* aarch64: the return address has no rule: before it is saved, or afterwards */
    bool is_context;          /* aarch64: no frame is described, but registers to be restored; or the
                                  return address is in another register than lr, but not at first */
    bool is_entered_from_plt; /* aarch64: cfi_program.h */
    uint32_t return_address_register;
};

/* registers become the caller's: pc is the return address as it was found, perhaps signed. On failure
 * registers are unchanged. */
enum exact_status exact_step(const struct exact_input *input, struct unspool_registers *registers,
                             struct exact_result *result);

/* Whether the row that holds at a relative lookup address says of a caller's pc, sp and fp only what a rule
 * could say, there and at this pc: then that, as a recipe. It is EXACT for other registers' sake, or since
 * the function may overwrite its frame, or in a PLT. */
bool exact_row_recipe(uint32_t arch, const struct unspool_table *table, uint64_t lookup_address, uint64_t pc,
                      struct frame_recipe *recipe);

/* The operations that all expressions of one step may take together (real ones: a dozen each). */
#define EXPRESSION_STEPS 4096

struct expression_run {
    uint32_t steps_left;
    uint64_t bad_address; /* EXACT_UNREADABLE: what could not be read */
};

/* A DWARF expression (DWARF 5, 2.5) over the registers; *push is what the stack begins with, or
 * NULL. Bounded in steps and depth. */
enum exact_status evaluate_expression(const struct exact_input *input, struct cursor operations,
                                      const struct unspool_registers *registers, const uint64_t *push,
                                      struct expression_run *run, uint64_t *result);

#endif
