/*
 * paths.h: one analysis of code: the paths that are followed, the places where they join, what they lead to.
 *
 * analysis.c asks the questions, paths.c follows. About 5 KB, on the stack of a signal handler perhaps.
 */
#ifndef UNSPOOL_PATHS_H
#define UNSPOOL_PATHS_H

#include "analysis.h"
#include "instruction.h"
#include "stack_state.h"

enum {
    INSTRUCTION_LIMIT = 1024,
    SEARCH_LIMIT = 3072,
    PLACES = 256,
    STATES = 24,
    WINDOW_SIZE = 64,
    LONGEST_INSTRUCTION = 15
};

/* A target of a jump or branch: where paths begin and join. */
struct place {
    int32_t offset; /* of its address, from the start of the analysis */
    uint8_t state;  /* index into states */
    bool is_queued;
};

enum sought {
    SEEKS_CALLER, /* on every path */
    SEEKS_PLACE,  /* the instruction at goal, by any path, whatever tables say */
    SEEKS_RETURN, /* an ordinary return to the caller, likewise */
};

struct analysis {
    const struct code *code;
    uint64_t start;
    uint8_t seeks; /* enum sought */
    bool steps_over_calls, saw_call;
    uint64_t goal;                     /* SEEKS_PLACE: its address; SEEKS_RETURN: sp after the return */
    uint64_t sp_at_start, fp_at_start; /* SEEKS_RETURN */
    uint64_t function_end;             /* SEEKS_RETURN: there is nothing to fall through to */

    uint32_t instructions_left, instructions_for_callees;
    uint32_t place_count, state_count;
    uint64_t filter[16]; /* which places may exist, by a hash of their address */
    struct place places[PLACES];
    struct stack_state states[STATES];
    struct written_memory written;
    int32_t least_sp[2];                /* of the caller, from sp and from fp at start */
    struct stack_state at_goal;         /* of the path that reached it */
    bool has_table_state, enters_cases; /* enters_cases: what follows the end of a path is a place, too */
    struct stack_state table_state;     /* at a jump that can't be followed */

    bool has_caller, saw_return, saw_open_path;
    bool saw_return_by_fp;                     /* SEEKS_RETURN: one where sp is known by fp alone */
    bool calls_return;                         /* all that were stepped over */
    struct state_value return_address, sp, fp; /* the caller's */

    uint64_t bare_start, bare_size; /* where no row is known to be */

    uint64_t window_address;
    size_t window_size;
    uint8_t window[WINDOW_SIZE];
};

enum path_result {
    PATH_DONE, /* the path has been dealt with */
    PATH_OPEN, /* can't be followed: no proof */
    PATH_GOAL, /* the goal was reached */
};

/* Begins an analysis at start. lr_is_live: lr holds the return address there. */
void begin_analysis(struct analysis *a, const struct code *code, uint64_t start, bool lr_is_live,
                    bool steps_over_calls);

/* A call that is stepped over, or that pc is the return address of. */
void note_call(struct analysis *a, const struct stack_state *state);

/* A place from which a path is still to be followed; NULL: all have been. */
struct place *next_place(struct analysis *a);

/* Follows one path from a place until it ends or joins another. */
enum path_result follow(struct analysis *a, struct place *place);

/* True when some path gets to what is sought. */
bool reaches_goal(struct analysis *a);

/* True when a path runs on behind the call that returns to return_address for certain. */
bool call_returns(struct analysis *a, uint64_t return_address);

#endif
