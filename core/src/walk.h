/*
 * walk.h: one frame and the step to its caller, as walk.c, fallback.c and signal_frame.c share them.
 *
 * Everything here is async-signal-safe: no allocation, no lock, no libc call.
 */
#ifndef UNSPOOL_WALK_H
#define UNSPOOL_WALK_H

#include "code.h"
#include "memory.h"
#include "unwind_table.h"

struct frame {
    uint64_t pc, sp, fp, lr;
    bool fp_is_known;
    bool lr_is_live;               /* lr holds this frame's return address, or did until it was saved */
    bool is_interrupted;           /* pc is the next instruction, not a return address */
    struct unspool_registers *all; /* every register that is known; NULL while nobody needs them */
    uint64_t untouched;            /* bit n: with `all`: not known, but it has the value that it had when the
                                      thread was interrupted in the frame before */
};

struct step {
    uint8_t how; /* enum unspool_how | UNSPOOL_HOW_GUESS */
    uint8_t end; /* enum unspool_end */
};

enum step_result {
    STEP_CALLER,          /* the frame became its caller's, step.how says by what */
    STEP_END,             /* step.end says why */
    STEP_NEEDS_REGISTERS, /* only a walk with all registers can go on; the frame is unchanged */
};

static inline enum step_result end_stack(struct step *step, enum unspool_end end) {
    step->end = (uint8_t)end;
    return STEP_END;
}

/* A lookup address is the pc itself or the last byte of the call before it. */
static inline uint64_t lookup_address(const struct frame *frame) {
    return frame->pc - !frame->is_interrupted;
}

/* A return address as it was found, without a PAC: bits that no user address has. It may be signed
 * though CFI does not say so, hence CFI is not asked. */
static inline uint64_t strip_pac(const struct unspool_unwinder *unwinder, uint64_t address) {
    if (unwinder->arch != UNSPOOL_AARCH64 || unwinder->address_bits >= 64)
        return address;
    return address & (((uint64_t)1 << unwinder->address_bits) - 1);
}

/* Where a register's saved value is taken from. */
struct caller {
    uint64_t pc, sp, fp;
    bool fp_is_known;
    bool may_keep_sp; /* though sp and even pc are the frame's own: never twice in a row */
};

struct frame_recipe; /* analysis.h */

/* The frame becomes the caller, unless that would be no progress. Registers that a call does not
 * preserve are forgotten. */
enum step_result become_caller(struct frame *frame, const struct caller *caller, struct step *step,
                               enum unspool_how how);

/* signal_frame.c: restores the interrupted frame from what the kernel saved above the handler. */
enum step_result step_signal_frame(const struct code *code, struct frame *frame, struct step *step);

/* fallback.c: whether the instruction before return_address calls a function. */
enum call_match {
    CALL_MATCHES,   /* a direct call, perhaps through a PLT stub, leads to it */
    CALL_UNKNOWN,   /* an indirect call, or a stub whose slot can't be read */
    CALL_ELSEWHERE, /* it leads to another place, or there is no call */
};
enum call_match match_call(const struct code *code, uint64_t return_address, uint64_t function);

/* fallback.c: true when the instruction before return_address is a call of any kind. */
bool follows_call(const struct code *code, uint64_t return_address);

/* fallback.c: the step that a proved recipe says. */
enum step_result step_by_recipe(const struct code *code, const struct frame_recipe *recipe,
                                struct frame *frame, struct step *step);

/* fallback.c: true when a recipe finds the caller's sp to be cfa, and its return address at ra_address (0: in
 * lr). */
bool recipe_agrees(const struct frame *frame, const struct frame_recipe *recipe, uint64_t cfa,
                   uint64_t ra_address);

/* fallback.c: what is tried, in this order, where no file says anything. */
enum step_result step_without_rule(const struct code *code, const struct unspool_module *module,
                                   struct frame *frame, struct step *step);

/* fallback.c: where the file does not describe a frame: a leaf that a direct call proves, or nothing. */
enum step_result step_by_proof(const struct code *code, struct frame *frame, struct step *step);

/* walk.c: the step from a frame to its caller. Whether the caller's pc is mapped shows at the next step. */
enum step_result take_step(const struct code *code, struct frame *frame, struct step *step);

/* walk.c: looks a frame's rule up in the tables, has it cached, and returns what rule_cache.h keeps of it; 0:
 * it may not be cached. */
uint64_t look_up_entry(const struct code *code, const struct frame *frame);

/* ordinary_walk.c: adds the stack's frames from its last one, `frame`, on, as long as steps are ordinary; or
 * none. True: the stack has ended at its root. */
bool walk_by_cache(const struct code *code, struct frame *frame, struct unspool_stack *stack);

/* walk.c: after STEP_END from the frame that was added last: how the stack ends. */
void finish_stack(const struct code *code, const struct frame *frame, const struct step *step,
                  struct unspool_stack *stack);

/* walk.c: the step that a row's rule says. */
enum step_result step_as_row_says(const struct code *code, const struct rule *rule, struct frame *frame,
                                  struct step *step);

/* doubted.c: from a function whose rows may not hold here (UNSPOOL_ROW_DOUBTED). */
enum step_result step_doubted(const struct code *code, const struct unspool_module *module,
                              const struct rule *rule, struct frame *frame, struct step *step);

/* doubted.c: aarch64: from a leaf that has moved sp and was interrupted. Of the addition to sp in its
 * epilogue and a load before it, clang makes one instruction, to which its CFI does not come; others may
 * follow. */
enum step_result step_leaf(const struct code *code, const struct rule *rule, struct frame *frame,
                           struct step *step);

/* doubted.c: from a function whose unwind information names another register than lr (aarch64). */
struct exact_result;
enum step_result step_by_other_register(const struct code *code, const struct exact_result *result,
                                        struct frame *frame, struct step *step);

/* epilogue.c: aarch64: what follows pc, where a function was interrupted, and the caller's registers in terms
 * of those at pc. */
enum epilogue {
    NO_EPILOGUE = 0,
    EPILOGUE_RETURNS, /* nothing but the return can follow */
    EPILOGUE_JUMPS,   /* nothing but a jump to another function; the recipe is right if that has a caller */
    EPILOGUE_LEAPS,   /* one of both, with an lr or sp that is from elsewhere: longjmp. No recipe */
};
enum epilogue epilogue_recipe(const struct code *code, uint64_t pc, struct frame_recipe *recipe);

/* epilogue.c: aarch64: the code before pc has replaced sp, so that lr may be another stack's, as at the
 * return of longjmp: all is as at the destination then, and no code tells whether it was the caller. */
bool may_have_leapt(const struct code *code, uint64_t pc);

/* analysis_memo.c: what is kept of a step that an EXACT row describes, by pc, by whether it was interrupted
 * there, and by how far fp is from sp. */
enum known_step {
    STEP_NOT_KNOWN = 0,
    STEP_KNOWN,           /* the recipe says where the caller is */
    STEP_KNOWN_LOST,      /* what the recipe leads to is no caller: the function has written over its frame */
    STEP_KNOWN_IF_CALLED, /* the function may have begun to: it is a caller if it calls this function */
    STEP_NEVER_KNOWN,     /* the row says more than a recipe can */
};
enum known_step known_step(const struct code *code, const struct frame *frame, struct frame_recipe *recipe);
/* slots_read: of the memory, before the step. */
void keep_step(const struct code *code, const struct unspool_module *module, const struct frame *frame,
               enum known_step known, uint32_t slots_read);

/* epilogue.c: aarch64: the unwind table says of address what holds at a function's first instruction. */
bool is_function_entry(const struct code *code, uint64_t address);

/* unwinder_code.c: what a function that passes exceptions on may have done to its frame by now: as many calls
 * are still to come, by the shortest way, before it leaves for the handler. */
enum own_frame {
    FRAME_LOST = 0,      /* its return address is the handler's */
    FRAME_BEING_WRITTEN, /* register by register, the return address last; or nothing is known */
    FRAME_UNTOUCHED,
};
enum own_frame own_frame(const struct code *code, uint64_t pc);
enum own_frame follow_own_frame(const struct code *code, uint64_t pc); /* anew, as in analysis.h */

/* unwinder_code.c: what such a function has made of its own frame, which the exact evaluator has found.
 * STEP_NEVER_KNOWN: what is found may be another's. */
struct exact_result; /* exact.h */
enum known_step trust_own_frame(const struct code *code, const struct frame *frame,
                                const struct exact_result *result);

/* root_code.c: the file says that the stack ends here, and it does, except in what stands behind _start in
 * its FDE: glibc's __wrap_main on aarch64, which is called and goes on to main. */
enum step_result step_by_tail_jump(const struct code *code, struct frame *frame, struct step *step);

/* root_code.c: aarch64: true between the system call that makes a thread and the branch by which that thread,
 * where x0 is 0, goes on in code that nobody called. Its maker runs the same code, with the same lr. */
bool tells_new_thread(const struct code *code, uint64_t pc);
/* True when that is, or may be, the new thread: *result says how its stack ends. */
bool step_new_thread(const struct frame *frame, struct step *step, enum step_result *result);

/* root_code.c: aarch64: true when sp is what the kernel gave to a program: argc, argv and so on lie there.
 * Code that jumps on from the entry point with an lr of 0 (musl's) has such a caller, which is none. */
bool is_initial_stack(const struct code *code, uint64_t sp);

/* root_code.c: true when the frame is the first of its thread, by the file's entry point or the code. */
bool is_root_code(const struct code *code, const struct unspool_module *module, const struct frame *frame);

/* new_thread.c: x86_64: whether a thread or process that a system call has just made is on its way from there
 * to its first row (glibc's clone3) or to its first call (musl's __clone). rax is 0 in it, and not in its
 * maker. */
enum thread_start { THREAD_OTHER, THREAD_IS_NEW, THREAD_NEEDS_REGISTERS };
enum thread_start is_new_thread(const struct code *code, const struct frame *frame);

/* fallback.c: a pc that no module holds: perhaps a jump through a bad pointer. */
enum step_result step_unmapped(const struct code *code, struct frame *frame, struct step *step);

#endif
