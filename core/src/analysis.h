/*
 * analysis.h: finding the caller from the instructions themselves, where no file says anything.
 *
 * Every answer is a proof: it holds on every path that was followed, or there is no answer.
 */
#ifndef UNSPOOL_ANALYSIS_H
#define UNSPOOL_ANALYSIS_H

#include <stdbool.h>

#include "code.h"

enum frame_value_kind {
    VALUE_UNKNOWN = 0,
    VALUE_SP,    /* sp at pc, + offset */
    VALUE_FP,    /* fp at pc, + offset */
    VALUE_LR,    /* lr at pc */
    VALUE_AT_SP, /* the 8 bytes in memory at sp + offset */
    VALUE_AT_FP, /* the 8 bytes in memory at fp + offset */
};

struct frame_value {
    uint8_t kind; /* enum frame_value_kind */
    int64_t offset;
};

/* What the caller's registers are, said in terms of the registers at pc. */
struct frame_recipe {
    struct frame_value return_address;
    struct frame_value sp;
    struct frame_value fp; /* VALUE_UNKNOWN: lost */
};

enum analysis_result {
    CALLER_NOT_FOUND = 0,
    CALLER_IF_CALLS_RETURN, /* right unless a call on the way never returns */
    CALLER_PROVED,
};

/* Follows the code from pc to the function's returns; analysis.c says what counts as proof.
 * is_interrupted: pc is no return address. lr_is_live (aarch64): lr is known. */
enum analysis_result analyse_code(const struct code *code, uint64_t pc, bool is_interrupted, bool lr_is_live,
                                  struct frame_recipe *recipe);

/* True when pc lies in an instruction of the function that starts at entry: reachable from it by
 * instructions that fall through, jump or branch directly, calls stepped over. */
bool code_reaches(const struct code *code, uint64_t entry, uint64_t pc);

/* The same, and what is known there of the caller, along one path from entry to pc; what that path
 * leaves unknown is VALUE_UNKNOWN. A frame that was found by other means is proved by its return
 * address being where this says. */
bool recipe_from_entry(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe);

/* The same, by paths that take no call to come back. */
bool recipe_before_calls(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe);

/* The same, by paths that run on behind jumps that can't be followed, as the cases of a switch do. */
bool recipe_past_tables(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe);

/* Where a function stands: pc (perhaps a return address), sp and fp there, and where its code ends. */
struct code_place {
    uint64_t pc, sp, fp, function_end;
};

/* True when every path from pc ends in a trap or goes round for ever; calls are stepped over. */
bool code_never_returns(const struct code *code, uint64_t pc);

/* True when some path leads from there to an ordinary return, after which sp is caller_sp; calls are
 * stepped over. What the function saved is then still needed, so that nothing has been written over it. */
bool code_returns(const struct code *code, const struct code_place *place, uint64_t caller_sp);

/* The same, anew: what is kept between walks is not asked. */
enum analysis_result follow_to_returns(const struct code *code, uint64_t pc, bool is_interrupted,
                                       bool lr_is_live, struct frame_recipe *recipe);
bool follow_to_place(const struct code *code, uint64_t entry, uint64_t pc);
bool follow_from_entry(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe);
bool follow_past_tables(const struct code *code, uint64_t entry, uint64_t pc, struct frame_recipe *recipe);
bool follow_to_no_return(const struct code *code, uint64_t pc);
/* *by_fp: another fp may make another answer. */
bool follow_to_return(const struct code *code, const struct code_place *place, uint64_t caller_sp,
                      bool *by_fp);

/* PLT stubs and the like, matched byte for byte: true when pc is inside one. */
bool plt_recipe(const struct code *code, uint64_t pc, struct frame_recipe *recipe);

/* The target of the direct call that returns to return_address, or 0. When the target is a PLT stub
 * whose slot can be read, where the slot leads. */
uint64_t called_function(const struct code *code, uint64_t return_address);

/* call_site.c: true when a jump before the call that returns to return_address leads right behind it, and
 * nothing between the two moves sp or fp: that code is there, whether the call comes back or not. */
bool call_is_jumped_over(const struct code *code, uint64_t return_address);

/* call_site.c: where the jump through a register at address leads, if the address of code was loaded right
 * before and nothing but pops stands between the two (musl's start code); else 0. */
uint64_t loaded_jump_target(const struct code *code, uint64_t address);

/* call_site.c: where the call of length bytes before return_address, through a register or memory that a
 * register points to, led to, if the registers are what they were; sp is what it was. False: not known. */
enum { SHORTEST_INDIRECT_CALL = 2, LONGEST_INDIRECT_CALL = 8 };
bool called_by_register(const struct code *code, const struct unspool_registers *registers,
                        uint64_t return_address, uint32_t length, uint64_t sp, uint64_t *target);

/* True when pc stands at (or, if interrupted, inside) the code that returns from a signal handler. */
bool is_signal_return(const struct code *code, uint64_t pc, bool interrupted);

#endif
