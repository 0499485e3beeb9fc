"""Notices that a program has replaced our signal handler by a system call of its own, past libc: signals are
due and no sample comes. They are the program's from then on, and must cease.

Nothing shows whose a handler is; what shows is that threads use the CPU, do not block the signal, and nobody
has counted a sample, taken or lost. A wrong answer would end a recording: it takes two looks with much CPU
time between them, which are read in an order that lets samples only be seen too late, never too early.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from unspool.capture.session_layout import AreaState
from unspool.capture.session_memory import Area
from unspool.capture.thread_triggers import TIMER_LIMIT, ThreadTriggers
from unspool.capture.thread_watch import ThreadWatch

# ns of CPU time without a sample. Timers are looked at once a tick, and on a crowded machine few ticks hit.
_EVENT_PATIENCE, _TIMER_PATIENCE = 20_000_000, 2_000_000_000
_PERIODS = 20


class HandlerCheck:
    """rate: Hz."""

    def __init__(self, area: Area, watch: ThreadWatch, triggers: ThreadTriggers, rate: int) -> None:
        self._area = area
        self._watch = watch
        self._triggers = triggers
        self._by_events = rate > TIMER_LIMIT
        least = _EVENT_PATIENCE if self._by_events else _TIMER_PATIENCE
        self._patience = max(least, _PERIODS * 1_000_000_000 // rate)
        self._heard = -1
        self._process_time = 0
        self._suspects: dict[int, int] = {}  # CPU time of threads when they were first suspected

    def is_lost(self) -> bool:
        """To be called at every look. Raises ProcessLookupError."""
        process_time = self._watch.process_cpu_time()
        if self._area.field("state") != AreaState.RUNNING or self._heard != self._count():
            self._heard = self._count()
            self._process_time = process_time
            self._suspects.clear()
            return False
        if process_time - self._process_time < self._patience:
            return False
        self._process_time = process_time
        if not self._suspects:
            self._suspects = self._times(self._triggers.armed())
            return False
        times = self._times(
            {tid: event for tid, event in self._triggers.armed().items() if tid in self._suspects}
        )
        lost = any(
            time - self._suspects[tid] > self._patience and not self._watch.blocks(tid, signal.SIGPROF)
            for tid, time in times.items()
        )
        self._suspects.clear()
        return lost and self._heard == self._count()

    def _count(self) -> int:
        return int(self._area.slots["samples"].sum()) + int(self._area.fields["lost"].sum())

    def _times(self, armed: dict[int, int]) -> dict[int, int]:
        """Of each thread that does not block the signal: ns that were counted towards its signals."""
        times = {}
        for tid, event in armed.items():
            if self._watch.blocks(tid, signal.SIGPROF):
                continue
            if not self._by_events:
                times.update(self._watch.cpu_times([tid]))
            elif event >= 0:
                with suppress(OSError):
                    times[tid] = int.from_bytes(os.read(event, 8), "little")
        return times
