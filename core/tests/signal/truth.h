/*
 * truth.h: who calls whom in every scenario, and whether a walk says so. Async-signal-safe, once prepared.
 */
#ifndef UNSPOOL_TRUTH_H
#define UNSPOOL_TRUTH_H

#include "probes.h"
#include "unspool.h"

enum { MOST_CALLS = 8, MOST_FRAMES = 40, MOST_BYTES = 2048 };

/* The probes that are active at once, innermost first. All but those below a signal are called by the
 * next; SIGNALLED means that a signal interrupted the next one at send_signal_return. */
enum { SIGNALLED = 0x100, LAST = 0x200 };
struct scenario {
    const char *name;
    unsigned long (*entry)(unsigned long);
    uint16_t calls[MOST_CALLS + 1];
    const uint8_t *garbage_begin, *garbage_end; /* there the caller is at 0x4cd */
    bool may_guess;                             /* no file says that the garbage is none */
};
extern const struct scenario scenarios[];
extern const size_t scenario_count;

/* The number of the probe in a scenario's call. */
static inline uint32_t probe_number(uint16_t call) {
    return call & 0xff;
}

/* Where an instruction of a probe begins, by its offset. */
extern bool is_instruction[PROBE_COUNT][MOST_BYTES];

/* Where handlers return to; set by the first one. */
extern const uint8_t *volatile signal_restorer;

/* Takes the probes apart. False, with a message, when one can't be, or does not call as a scenario says. */
bool prepare_truth(void);

/* The true addresses from pc in calls[0] up to main's caller, which is the libc's; returns how many. */
size_t true_stack(const uint16_t *calls, uint64_t pc, uint64_t *addresses);

/* True when a walk that began in a scenario's probe found the true stack and nothing else. */
bool is_true(const struct scenario *scenario, const struct unspool_stack *stack, const uint64_t *expected,
             size_t expected_count);

/* The probe that holds an address or ends there; "" when none does. */
const char *probe_of(uint64_t address);

#endif
