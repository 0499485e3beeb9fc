"""What a sample weighs: the CPU time that its thread has used since the thread's sample before it.

Measured, never counted: whatever made a signal come late or not at all, no time is given twice. A signal that
was blocked comes when a system call unblocks it: the time until then was spent elsewhere, and is given to
nobody.

Where perf events take samples, they see user code only: such a sample weighs a period at most, since what is
more was spent in the kernel. Kernel time is the slower timer's, of whose samples those count that interrupted
the return from a system call; the others would count user time twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# CPU timers are looked at once a tick, by the thread that runs then; the coarse clock counts ticks. On a
# crowded machine, where threads run for less than a tick at a time, it is chance when a thread is met: a time
# of n ticks more is exceeded in exp(-n) of all cases.
_CLOCK_MONOTONIC_COARSE = 6  # linux/time.h
TICK = round(time.clock_getres(_CLOCK_MONOTONIC_COARSE) * 1e9)
_LATE_TICKS = 16
_LATE_TICKS_AT_CALL = 4


@dataclass(slots=True)
class _Before:
    """CPU times of a thread, ns: at its last sample, at the last one by a timer, at the last one that counted
    as one by an event. free: how much of it no sample weighs; less than nothing: some weighed too much.
    by_events: there was one by an event."""

    cpu: int = 0
    system: int = 0
    timer_cpu: int = 0
    event_cpu: int = 0
    free: int = 0
    by_events: bool = False


class _Samples(NamedTuple):
    """Of one thread, in their order; times in ns. numbers: among all."""

    numbers: NDArray[np.intp]
    cpu: NDArray[np.uint64]
    system: NDArray[np.uint64]
    by_event: NDArray[np.bool_]


class ThreadClocks:
    """The state of one process' threads. period: ns of CPU time between two samples."""

    def __init__(self, period: int) -> None:
        self._period = np.uint64(period)
        self._limit = np.uint64(period + _LATE_TICKS * TICK)
        self._limit_at_call = np.uint64(period + _LATE_TICKS_AT_CALL * TICK)
        self._before: dict[int, _Before] = {}

    def begin(self, tid: int, cpu_time: int) -> None:
        """A thread had used so much (ns) when recording began."""
        self._before[tid] = _Before(cpu_time, 0, cpu_time, cpu_time)

    def last(self, tid: int) -> int:
        """CPU time of the thread at its last sample, ns; 0: there was none."""
        before = self._before.get(tid)
        return 0 if before is None else before.cpu

    def end(self, tid: int) -> None:
        """The thread has ended: the same id is another thread from now on."""
        self._before.pop(tid, None)

    def weights(
        self,
        tids: NDArray[np.int64],
        cpu: NDArray[np.uint64],
        system: NDArray[np.uint64],
        by_event: NDArray[np.bool_],
        is_at_call: Callable[[int], bool],
    ) -> NDArray[np.uint64]:
        """uint64[n], ns; 0: the sample counts nothing. cpu, system: uint64[n], what the thread had used in
        all and in the kernel at each sample, in the order in which the samples were taken. by_event: bool[n].
        is_at_call: whether sample number n interrupted the return from a system call; asked where it
        matters. There a long stay in the kernel is the caller's; what is neither that nor within a period was
        spent elsewhere."""
        weights = np.zeros(len(tids), np.uint64)
        order = np.argsort(tids, kind="stable")
        bounds = np.flatnonzero(np.diff(tids[order], prepend=-1, append=-1))
        for first, last in pairwise(bounds):
            numbers = order[first:last]
            before = self._before.setdefault(int(tids[numbers[0]]), _Before())
            samples = _Samples(
                numbers,
                np.maximum.accumulate(np.maximum(cpu[numbers], np.uint64(before.cpu))),
                np.maximum.accumulate(np.maximum(system[numbers], np.uint64(before.system))),
                by_event[numbers],
            )
            before.by_events |= bool(samples.by_event.any())
            of_thread = self._with_events if before.by_events else self._by_timer
            weights[numbers] = of_thread(samples, before, is_at_call)
            before.free += int(samples.cpu[-1]) - before.cpu - int(weights[numbers].sum())
            before.cpu, before.system = int(samples.cpu[-1]), int(samples.system[-1])
        return weights

    def _by_timer(
        self, samples: _Samples, before: _Before, is_at_call: Callable[[int], bool]
    ) -> NDArray[np.uint64]:
        used = np.diff(samples.cpu, prepend=np.uint64(before.timer_cpu))
        in_kernel = np.diff(samples.system, prepend=np.uint64(before.system))
        weights = np.minimum(used, self._limit + in_kernel)
        for late in np.flatnonzero(used > self._limit_at_call).tolist():
            if is_at_call(int(samples.numbers[late])):
                weights[late] = min(used[late], self._limit_at_call + in_kernel[late])
        if len(used):
            before.timer_cpu = int(samples.cpu[-1])
        return weights

    def _with_events(
        self, samples: _Samples, before: _Before, is_at_call: Callable[[int], bool]
    ) -> NDArray[np.uint64]:
        weights = np.zeros(len(samples.cpu), np.uint64)
        timer = np.flatnonzero(~samples.by_event)
        at_call = np.array([is_at_call(int(number)) for number in samples.numbers[timer]], np.bool_)
        of_timer = _Samples(
            samples.numbers[timer], samples.cpu[timer], samples.system[timer], samples.by_event[timer]
        )
        of_kernel = self._by_timer(of_timer, before, is_at_call)
        # A signal that comes while another one of its number is pending is not delivered: where an event's is
        # missing, the timer's stands for it.
        in_user = samples.by_event.copy()
        in_user[timer] = ~at_call
        stream = np.flatnonzero(in_user)
        since = np.diff(samples.cpu[stream], prepend=np.uint64(before.event_cpu))
        stream = stream[samples.by_event[stream] | (since > self._period * np.uint64(9) // np.uint64(10))]
        if len(stream):
            used = np.diff(samples.cpu[stream], prepend=np.uint64(before.event_cpu))
            weights[stream] = np.minimum(used, self._period)
            before.event_cpu = int(samples.cpu[stream[-1]])
        # Where signals of the timer's were not delivered either, its samples would weigh too much: user time
        # is known, and what is left is all that they can share.
        free = samples.cpu.astype(np.int64) - before.cpu + before.free - np.cumsum(weights.astype(np.int64))
        given = 0
        for index, weight in zip(timer[at_call].tolist(), of_kernel[at_call].tolist(), strict=True):
            weights[index] = max(0, min(weight, int(free[index]) - given))
            given += int(weights[index])
        return weights
