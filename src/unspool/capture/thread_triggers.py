"""What makes each thread of one process take samples: a timer of its own that the agent makes; above what
timers can do a perf event of ours, too, which fires in user code only: time in the kernel is the timer's.

A timer needs code of the agent to run in the process: a new thread gets a perf event first, which fires as
soon as the thread burns CPU and is closed once the timer is there; where perf is forbidden it is sent a
signal, and only while it burns CPU, so that no system call of it is interrupted.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass

from unspool.capture import perf_open
from unspool.capture.perf_open import PerfForbidden
from unspool.capture.session_layout import SlotState, Wish
from unspool.capture.session_memory import Area
from unspool.capture.thread_watch import ThreadWatch

TIMER_LIMIT = 250  # Hz: CPU timers deliver at most one signal a tick
_BOOTSTRAP_PERIOD = 1_000_000  # ns of CPU time that a new thread burns before it is asked to make its timer
_BOOTSTRAP_TIMES = 10  # it is asked: a program that has replaced our handler gets no more strays than that
_BURNING = 1_000_000  # ns that a thread must have used since the last look


@dataclass(slots=True)
class _Thread:
    """tid: as we see it. inner: as the program sees it. event: the descriptor of a perf event, -1 = none."""

    tid: int
    inner: int
    slot: int | None = None
    event: int = -1
    settled: bool = False  # nothing remains to be done for it
    cpu_time: int = 0


@dataclass(slots=True)
class PerfRights:
    """What the kernel allows; found out at the first event, since it depends on the process."""

    allowed: bool = True

    def open(self, tid: int, period: int) -> int:
        """-1: it can't be. Raises ProcessLookupError."""
        if self.allowed:
            try:
                return perf_open.open_trigger(tid, period)
            except PerfForbidden:
                self.allowed = False
            except ProcessLookupError:
                raise
            except OSError:
                return -1  # no file descriptors left, for instance
        return -1


class ThreadTriggers:
    """rate: Hz. problems: what could not be done, in words. Close it in the end."""

    def __init__(self, area: Area, watch: ThreadWatch, rate: int, cookie: int, rights: PerfRights) -> None:
        self.problems: list[str] = []
        self._area = area
        self._watch = watch
        self._program = watch.program(watch.pid)
        self._period = 1_000_000_000 // rate
        self._wants_events = rate > TIMER_LIMIT
        self._cookie = cookie
        self._rights = rights
        self._threads: dict[int, _Thread] = {}
        self._ended_slots: list[int] = []
        self._is_closed = False

    def close(self) -> None:
        """No more signals are sent, also not to new threads."""
        self._is_closed = True
        for thread in self._threads.values():
            _close_event(thread)
        self._threads.clear()

    def begin(self, tid: int, inner: int) -> None:
        """A new thread: ask for its samples."""
        if self._is_closed:
            return
        thread = self._threads[tid] = _Thread(tid, inner)
        self._ask(thread)

    def end(self, tid: int) -> None:
        """A thread has ended: its timer is to go."""
        thread = self._threads.pop(tid, None)
        if thread is None:
            return
        _close_event(thread)
        if thread.slot is not None:
            self._area.core.change_thread(thread.slot, Wish.END)
            self._ended_slots.append(thread.slot)

    @property
    def with_events(self) -> bool:
        """Whether threads take samples by perf events."""
        return self._wants_events and self._rights.allowed

    def slot_of(self, tid: int) -> int | None:
        """The number of the thread's slot."""
        thread = self._threads.get(tid)
        return None if thread is None else thread.slot

    def armed(self) -> dict[int, int]:
        """Threads to which signals are sent: their ids and their perf events, -1 = none."""
        return {thread.tid: thread.event for thread in self._threads.values() if thread.slot is not None}

    def look(self, cpu_times: dict[int, int]) -> None:
        """What agents have done meanwhile. cpu_times: of threads for which `waiting` asked, ns."""
        for thread in self._threads.values():
            if not thread.settled:
                self._go_on(thread, cpu_times.get(thread.tid))
        if self._ended_slots:
            self._ended_slots = [s for s in self._ended_slots if not self._area.core.release_slot(s)]

    def unsettled(self) -> list[int]:
        """Threads that have not made their timers yet."""
        return [thread.tid for thread in self._threads.values() if not thread.settled]

    def waiting(self) -> list[int]:
        """Threads whose CPU time must be watched, since only a signal can make them take samples."""
        return [] if self._rights.allowed else self.unsettled()

    def _ask(self, thread: _Thread) -> None:
        if thread.event < 0 and (self._wants_events or not self._has_timer(thread)):
            period = self._period if self._wants_events else _BOOTSTRAP_PERIOD
            try:
                thread.event = self._open(thread.tid, period)
            except ProcessLookupError:
                thread.settled = True
                return
        if thread.event < 0 and self._wants_events:
            self._note("perf events are not to be had: threads are sampled at 250 Hz at most")
        thread.slot = self._area.core.add_thread(thread.inner, Wish.TIMER, max(thread.event, 0))
        if thread.slot is not None and thread.event >= 0:
            with suppress(OSError):
                perf_open.enable(thread.event, None if self._wants_events else _BOOTSTRAP_TIMES)

    def _open(self, tid: int, period: int) -> int:
        """-1: there can be no event. Raises ProcessLookupError: the thread has ended, or runs another program
        by now, which a signal of ours would end. An event that is open already is removed by exec."""
        event = self._rights.open(tid, period)
        if event >= 0 and not self._runs_program(tid):
            os.close(event)
            raise ProcessLookupError(tid)
        return event

    def _runs_program(self, tid: int) -> bool:
        return self._watch.program(tid) == self._program

    def _has_timer(self, thread: _Thread) -> bool:
        """The thread that started the agent has one before it is seen from here."""
        slots = self._area.slots
        window = [(thread.inner + i) % len(slots) for i in range(64)]
        found = slots[window]
        return bool(((found["tid"] == thread.inner) & (found["state"] == SlotState.TIMER)).any())

    def _go_on(self, thread: _Thread, cpu_time: int | None) -> None:
        if thread.slot is None:
            self._ask(thread)
            return
        slot = self._area.slots[thread.slot]
        if slot["state"] == SlotState.TIMER:
            self._settle(thread)
        elif slot["state"] == SlotState.FAILED:
            self._use_event_instead(thread)
        elif thread.event < 0 and cpu_time is not None:
            if cpu_time - thread.cpu_time > _BURNING:
                self._send_signal(thread)
            thread.cpu_time = cpu_time

    def _settle(self, thread: _Thread) -> None:
        """The slot's perf_fd stays: a signal of the event may still be pending where it is blocked."""
        thread.settled = True
        if not self._wants_events:
            _close_event(thread)

    def _use_event_instead(self, thread: _Thread) -> None:
        """The program may have no more timers (RLIMIT_SIGPENDING counts them)."""
        thread.settled = True
        if thread.event >= 0 and self._wants_events:
            return
        _close_event(thread)
        with suppress(ProcessLookupError, OSError):
            thread.event = self._open(thread.tid, self._period)
            if thread.event < 0:
                self._note("some threads are not sampled: timers and perf events are not to be had for them")
                return
            assert thread.slot is not None
            self._area.slots["perf_fd"][thread.slot] = thread.event
            self._area.core.change_thread(thread.slot, Wish.OUTSIDE)
            perf_open.enable(thread.event)

    def _send_signal(self, thread: _Thread) -> None:
        """Not where it is blocked: it would wait there, perhaps until the thread runs another program."""
        if not self._watch.blocks(thread.tid, signal.SIGPROF) and self._runs_program(thread.tid):
            self._area.core.signal(self._watch.pid, thread.tid, signal.SIGPROF, self._cookie)

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _close_event(thread: _Thread) -> None:
    if thread.event >= 0:
        os.close(thread.event)
        thread.event = -1
