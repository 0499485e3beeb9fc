/*
 * hooks_wait.c: threads that block our signal and wait for it by sigwait or its like: signals of ours are not
 * for them.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>

#include "hooks.h"
#include "hooks_next.h"
#include "state.h"

static uint64_t bits_of(const sigset_t *set) {
    uint64_t bits;
    __builtin_memcpy(&bits, set, sizeof bits);
    return bits;
}

static uint64_t our_bit(void) {
    int signal = agent_signal();
    return signal ? (uint64_t)1 << (signal - 1) : 0;
}

/* True if a signal that this thread has taken was ours. Its timer, which fires once, goes on. */
static bool take_back(struct session_area *area, const siginfo_t *info) {
    struct session_slot *slot = find_slot(area, own_tid());
    bool has_cookie = (uint64_t)(uintptr_t)info->si_value.sival_ptr == agent.cookie;
    if (info->si_code == SI_TIMER && has_cookie && slot)
        arm_again(agent.header, slot, read_clock(CLOCK_OF_THREAD));
    if (info->si_code == SI_TIMER || info->si_code == SI_QUEUE)
        return has_cookie;
    return slot && info->si_code >= POLL_IN && info->si_code <= POLL_HUP && slot->perf_fd &&
           slot->perf_fd == info->si_fd;
}

/* No handler of the program's comes meanwhile: it might not return here. */
static bool is_ours(int signal, const siginfo_t *info) {
    if (signal != agent_signal() || !agent_is_running())
        return false;
    uint64_t mask = signals_block_all();
    __atomic_add_fetch(&agent.inside, 1, __ATOMIC_SEQ_CST);
    struct session_area *area = __atomic_load_n(&agent.area, __ATOMIC_SEQ_CST);
    bool result = area && take_back(area, info);
    __atomic_sub_fetch(&agent.inside, 1, __ATOMIC_SEQ_CST);
    signals_set_mask(mask);
    return result;
}

HOOK int sigwaitinfo(const sigset_t *set, siginfo_t *info) {
    siginfo_t own;
    int signal;
    info = info ? info : &own;
    do
        signal = NEXT(sigwaitinfo)(set, info);
    while (signal > 0 && is_ours(signal, info));
    return signal;
}

HOOK int sigwait(const sigset_t *set, int *signal) {
    siginfo_t info;
    int got;
    if (!(bits_of(set) & our_bit()))
        return NEXT(sigwait)(set, signal);
    do
        got = sigwaitinfo(set, &info);
    while (got < 0 && last_error() == EINTR); /* of other signals sigwait does not tell */
    if (got < 0)
        return last_error();
    *signal = got;
    return 0;
}

HOOK int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout) {
    siginfo_t own;
    if (!timeout)
        return sigwaitinfo(set, info);
    info = info ? info : &own;
    if (!(bits_of(set) & our_bit()) || timeout->tv_sec > INT32_MAX)
        return NEXT(sigtimedwait)(set, info, timeout);
    struct timespec rest = *timeout;
    uint64_t end = read_clock(CLOCK_OF_SYSTEM) + (uint64_t)rest.tv_sec * NANOSECONDS + (uint64_t)rest.tv_nsec;
    for (;;) {
        int signal = NEXT(sigtimedwait)(set, info, &rest);
        if (signal <= 0 || !is_ours(signal, info))
            return signal;
        uint64_t now = read_clock(CLOCK_OF_SYSTEM);
        uint64_t left = end > now ? end - now : 0;
        rest = (struct timespec){(time_t)(left / NANOSECONDS), (long)(left % NANOSECONDS)};
    }
}

/* What a read of the descriptor gives can't be sorted: our signal is left out of it. */
HOOK int signalfd(int file, const sigset_t *set, int flags) {
    uint64_t bits = bits_of(set) & ~our_bit();
    sigset_t without = *set;
    __builtin_memcpy(&without, &bits, sizeof bits);
    return NEXT(signalfd)(file, &without, flags);
}
