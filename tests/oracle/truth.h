/*
 * truth.h: the true stack of a thread, kept by watching what its instructions do.
 *
 * Knows nothing of ptrace, of an emulator, of unwind information or of the product: whoever executes
 * the instructions reports each one as an event with pc and sp. A frame is what a call pushed: its
 * return address and the slot that holds it. Frames below sp are gone, however sp got there
 * (return, longjmp, exception, switch of stacks). Where a call leaves its return address in a register
 * (link_register), the slot is sp at the call, which is sp at the return, too.
 */
#ifndef ORACLE_TRUTH_H
#define ORACLE_TRUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum truth_frame_kind {
    TRUTH_CALL,   /* pushed by a call */
    TRUTH_SIGNAL, /* the address where a signal interrupted */
    TRUTH_BASE,   /* put there by makecontext: returning ends the context */
    TRUTH_HELD,   /* its function has taken its own return address off the stack and calls another */
    TRUTH_LIMBO,  /* registers are being replaced: where control will go is not known yet */
};

struct truth_frame {
    uint64_t address; /* where control goes on when the frames above are done; in limbo 0, or the return
                         address that was popped */
    uint64_t slot;    /* where the return address lies; for a signal, its ucontext */
    uint64_t hash;    /* of this address and all those of the frames below */
    uint32_t region;  /* index of the stack that holds slot */
    uint32_t kind;    /* enum truth_frame_kind */
};

struct truth_chain {
    struct truth_frame *frame; /* outermost first */
    size_t count, capacity;
};

/* One stack: a mapping, or a part of one that the program declared (sigaltstack, makecontext). */
struct truth_region {
    uint64_t start, end;
    bool declared, gone;
    struct truth_chain suspended; /* its frames while no thread runs on it */
};

/* A call that was made while a return address was held: whoever jumps back to behind it (longjmp) finds the
 * return address held again. */
#define TRUTH_HELD_CALLS 16
struct truth_held_call {
    uint64_t return_address, slot, held;
};

/* How well the truth was confirmed: every return must go where the truth says. */
struct truth_counts {
    uint64_t calls, returns_right, returns_rewritten, returns_stray;
    uint64_t signals, signal_returns, signal_returns_stray;
    uint64_t switches, switches_abandoned, deepest;
};

/* The stacks of a process. */
struct truth_stacks {
    struct truth_region *region;
    size_t count, capacity;
    /* Finds the mapping that holds an address. */
    bool (*mapping)(void *context, uint64_t address, uint64_t *start, uint64_t *end);
    /* True when an address is in executable memory. */
    bool (*executable)(void *context, uint64_t address);
    /* True when two addresses are in one function. Only asked with a link register. */
    bool (*same_function)(void *context, uint64_t one, uint64_t other);
    void *context;
    bool link_register;                                 /* a call changes a register, not sp (aarch64) */
    struct truth_held_call held_call[TRUTH_HELD_CALLS]; /* the latest */
    size_t held_calls;                                  /* how many there were */
    struct truth_counts counts;
};

enum truth_event {
    TRUTH_OTHER,         /* any instruction that is none of these */
    TRUTH_SET_SP,        /* sp became what another register held, not the frame pointer */
    TRUTH_CALLED,        /* value: the return address, now at [sp] or in the link register */
    TRUTH_RETURNED,      /* a return instruction; it popped sp_before */
    TRUTH_JUMPED,        /* an indirect jump */
    TRUTH_PUSHED,        /* a push; value: what it pushed. Only needed in limbo */
    TRUTH_SIGNAL_RETURN, /* sigreturn */
};

struct truth_step {
    enum truth_event event;
    uint64_t sp_before;
    uint64_t pc, sp; /* after the instruction */
    uint64_t value;
};

/* What a step meant for stacks whose truth depends on where control goes. */
enum truth_outcome {
    TRUTH_NOTHING,
    TRUTH_ENTERED,     /* the running frame called another */
    TRUTH_FRAMES_LEFT, /* one or more frames were left in the ordinary way */
    TRUTH_RESOLVED,    /* a switch ended: control goes to `resolved` */
    TRUTH_ABANDONED,   /* a switch ended by a call: the frames were discarded for good */
    TRUTH_KEPT,        /* it was none: the function keeps its return address elsewhere, and calls another */
};

struct truth {
    struct truth_stacks *stacks;
    struct truth_chain chain; /* the frames of the running thread */
    uint32_t region;          /* the stack that sp is on */
    bool switching;           /* frames were dropped, but control has not gone anywhere yet */
    size_t switch_depth;      /* how many frames there were when that began */
    enum truth_outcome outcome;
    uint64_t resolved;
    bool resolved_is_top; /* and was pushed, to be returned to */
};

void truth_start(struct truth *truth, struct truth_stacks *stacks, uint64_t sp);
void truth_stop(struct truth *truth);
void truth_stacks_free(struct truth_stacks *stacks);

/* An instruction was executed. */
void truth_step(struct truth *truth, const struct truth_step *step);

/* A signal was delivered at address `interrupted`; its ucontext is at `slot`, and the handler's
 * return address `restorer` at `sp`. */
void truth_signal(struct truth *truth, uint64_t interrupted, uint64_t slot, uint64_t restorer, uint64_t sp);

/* The program declared [start, end) to be a stack of its own. */
uint32_t truth_declare(struct truth_stacks *stacks, uint64_t start, uint64_t end);

/* A new context was made on a declared stack: it will return to `address`, read from `slot`. */
void truth_make_context(struct truth *truth, uint32_t region, uint64_t slot, uint64_t address);

/* A context's first function has returned, and the code that it returned to has jumped on with that address
 * still in the link register: it is where control goes when that function returns, too. */
void truth_resume_context(struct truth *truth, uint64_t sp, uint64_t address);

/* The innermost frame, or NULL when the running function is the outermost. */
const struct truth_frame *truth_top(const struct truth *truth);
bool truth_in_limbo(const struct truth *truth);

#endif
