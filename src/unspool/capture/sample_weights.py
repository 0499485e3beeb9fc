"""What a sample weighs: the CPU time that its thread has used since the thread's sample before it.

Measured, never counted: whatever made a signal come late or not at all, no time is given twice. A signal that
was blocked comes when a system call unblocks it: the time until then was spent elsewhere, and is given to
nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

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
    """CPU times of a thread at its last sample, ns."""

    cpu: int = 0
    system: int = 0


class ThreadClocks:
    """The state of one process' threads. period: ns of CPU time between two samples."""

    def __init__(self, period: int) -> None:
        self._limit = np.uint64(period + _LATE_TICKS * TICK)
        self._limit_at_call = np.uint64(period + _LATE_TICKS_AT_CALL * TICK)
        self._before: dict[int, _Before] = {}

    def begin(self, tid: int, cpu_time: int, system_time: int = 0) -> None:
        """A thread had used so much (ns) when recording began."""
        self._before[tid] = _Before(cpu_time, system_time)

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
        is_at_call: Callable[[int], bool],
    ) -> NDArray[np.uint64]:
        """uint64[n], ns. cpu, system: uint64[n], what the thread had used in all and in the kernel at each
        sample, in the order in which the samples were taken. is_at_call: whether sample number n interrupted
        the return from a system call; asked where it matters. There a long stay in the kernel is the
        caller's; what is neither that nor within a period was spent elsewhere."""
        weights = np.zeros(len(tids), np.uint64)
        order = np.argsort(tids, kind="stable")
        bounds = np.flatnonzero(np.diff(tids[order], prepend=-1, append=-1))
        for first, last in pairwise(bounds):
            chosen = order[first:last]
            before = self._before.setdefault(int(tids[chosen[0]]), _Before())
            times = np.maximum.accumulate(np.maximum(cpu[chosen], np.uint64(before.cpu)))
            kernel = np.maximum.accumulate(np.maximum(system[chosen], np.uint64(before.system)))
            used = np.diff(times, prepend=np.uint64(before.cpu))
            in_kernel = np.diff(kernel, prepend=np.uint64(before.system))
            weights[chosen] = np.minimum(used, self._limit + in_kernel)
            for late in np.flatnonzero(used > self._limit_at_call).tolist():
                if is_at_call(int(chosen[late])):
                    weights[chosen[late]] = min(used[late], self._limit_at_call + in_kernel[late])
            before.cpu, before.system = int(times[-1]), int(kernel[-1])
        return weights
