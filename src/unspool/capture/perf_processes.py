"""Follows processes through the records of perf: who began, what it is called, which code it maps, when it
ended; and walks its samples with the map of their time.

A process has an address space, which its samples are walked with. Samples are kept back until the window
ends, or until code is replaced by other code (exec, or another file at the same addresses): a space to which
code was only added serves earlier samples too, whose addresses lie elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from unspool.capture.perf_attributes import EventAttributes
from unspool.capture.perf_files import FoundFile
from unspool.capture.perf_order import SampleSet, Window
from unspool.capture.perf_records import CounterRead, Exited, Forked, Mapped, Named, NotRecorded
from unspool.capture.perf_registers import ABI_32
from unspool.capture.perf_spaces import AddressSpace, Tables
from unspool.capture.perf_walk import walk_samples
from unspool.capture.samples import (
    Happening,
    Lost,
    Problem,
    ProcessEnded,
    ProcessStarted,
    ThreadEnded,
    ThreadNamed,
    ThreadTime,
)

_GRACE = 1_000_000_000  # nanoseconds after its end in which samples of a process may still come
_IDLE = "idle"  # pid 0


@dataclass
class _Process:
    pid: int
    name: str
    space: AddressSpace
    parent: int | None
    threads: dict[int, str] = field(default_factory=dict)  # name by tid
    ended: int | None = None  # when
    samples_32bit: int = 0


@dataclass
class ProcessFollower:
    """events: as they are in the recording; find: opens the file of a mapping; threads: to walk with;
    is_running: the processes run now, or did a moment ago. throttled: how often the kernel stopped an event
    for a while. begin: time of the first sample."""

    arch: str
    events: list[EventAttributes]
    find: Callable[[Mapped], FoundFile]
    tables: Tables
    threads: int = 2
    is_running: bool = False
    throttled: int = 0
    begin: int = 0
    processes: dict[int, _Process] = field(default_factory=dict)
    _parents: dict[int, int] = field(default_factory=dict)
    _cpu_times: dict[tuple[int, int], int] = field(default_factory=dict)  # that events have counted
    _ended_threads: deque[Exited] = field(default_factory=deque)
    _waiting: dict[int, list[SampleSet]] = field(default_factory=dict)

    def follow(self, window: Window) -> Iterator[Happening]:
        """All that happened in a window, which no earlier one overlaps."""
        if not self.begin and window.samples:
            self.begin = min(int(part.samples.times.min()) for part in window.samples)
        self._waiting = _by_process(window.samples)
        now = max((int(part.samples.times.max()) for part in window.samples), default=0)
        for record in window.others:
            now = max(now, record.time)
            yield from self._apply(record)
        for pid in list(self._waiting):
            yield from self._walk(pid)
        yield from self._bury(now)

    def finish(self, now: int) -> Iterator[Happening]:
        """The end of the recording: processes that are still there, end with it."""
        for process in self.processes.values():
            if process.ended is None:
                process.ended = now
        yield from self._bury(now + _GRACE + 1)

    # ------------------------------------------------------------ records

    def _apply(self, record: object) -> Iterator[Happening]:
        match record:
            case Mapped():
                yield from self._mapped(record)
            case Named():
                yield from self._named(record)
            case Forked():
                yield from self._forked(record)
            case Exited():
                self._exited(record)
            case NotRecorded() if record.records == 0:
                self.throttled += 1
            case NotRecorded():
                pid, tid = (value if value > 0 else None for value in (record.pid, record.tid))
                yield Lost(pid, tid, record.reason, record.records, record.time)
            case CounterRead() if self.events[record.event].counts_time:
                key = (record.pid, record.tid)
                self._cpu_times[key] = self._cpu_times.get(key, 0) + record.value
            case CounterRead():
                pass

    def _mapped(self, record: Mapped) -> Iterator[Happening]:
        if record.is_kernel or record.pid < 0:
            return
        process = self.processes.get(record.pid)
        if process is None:
            process = yield from self._start(record.pid, None, "", record.time)
        space, is_change = process.space.with_mapping(record, self.find)
        if is_change:
            yield from self._walk(record.pid, before=record.time)
        process.space = space

    def _named(self, record: Named) -> Iterator[Happening]:
        process = self.processes.get(record.pid)
        if record.is_exec:
            parent = None if process is None else process.parent
            yield from self._walk(record.pid, before=record.time)
            process = yield from self._start(record.pid, parent, record.name, record.time)
        elif process is None:
            parent = self._parents.pop(record.pid, None)
            process = yield from self._start(record.pid, parent, record.name, record.time)
        elif record.tid == record.pid:
            process.name = record.name
        process.threads[record.tid] = record.name
        yield ThreadNamed(record.pid, record.tid, record.name, self._time(record.time))

    def _forked(self, record: Forked) -> Iterator[Happening]:
        if not record.time:  # of what was there before: names follow
            self._parents[record.pid] = record.parent_pid
            return
        parent = self.processes.get(record.parent_pid)
        if record.pid == record.parent_pid:
            process = parent or (yield from self._start(record.pid, None, "", record.time))
            name = process.threads.get(record.parent_tid, process.name)
        else:
            name = parent.threads.get(record.parent_tid, parent.name) if parent is not None else ""
            known = self.processes.get(record.pid)
            if known is not None:  # its end was lost
                yield from self._walk(record.pid, before=record.time)
                known.ended = record.time if known.ended is None else known.ended
                yield from self._end(known)
            process = yield from self._start(record.pid, record.parent_pid, name, record.time)
            if parent is not None:
                process.space = parent.space
        process.threads[record.tid] = name
        if name:
            yield ThreadNamed(record.pid, record.tid, name, self._time(record.time))

    def _exited(self, record: Exited) -> None:
        process = self.processes.get(record.pid)
        if process is None:
            return
        process.threads.pop(record.tid, None)
        self._ended_threads.append(record)
        if not process.threads:
            process.ended = record.time

    # ------------------------------------------------------------ processes

    def _start(
        self, pid: int, parent: int | None, name: str, time: int
    ) -> Generator[Happening, None, _Process]:
        process = _Process(pid, name, AddressSpace(self.arch, self.tables), parent)
        self.processes[pid] = process
        yield ProcessStarted(pid, parent, name or (_IDLE if pid == 0 else ""), self._time(time))
        return process

    def _end_thread(self, ended: Exited) -> Iterator[Happening]:
        used = self._cpu_times.pop((ended.pid, ended.tid), 0)
        if used:
            yield ThreadTime(ended.pid, ended.tid, used, 0)
        yield ThreadEnded(ended.pid, ended.tid, ended.time)

    def _end(self, process: _Process) -> Iterator[Happening]:
        assert process.ended is not None
        for ended in [one for one in self._ended_threads if one.pid == process.pid]:
            self._ended_threads.remove(ended)
            yield from self._end_thread(ended)
        if process.samples_32bit:
            yield Problem(
                process.pid,
                f"{process.name or process.pid} is a 32-bit program: {process.samples_32bit} samples only "
                "show where they were taken, since unspool walks 64-bit programs",
            )
        yield ProcessEnded(process.pid, process.ended)

    def _bury(self, now: int) -> Iterator[Happening]:
        """Tells of ends for which nothing can come any more; what an event counted follows a thread's end."""
        while self._ended_threads and self._ended_threads[0].time + _GRACE < now:
            yield from self._end_thread(self._ended_threads.popleft())
        gone = [p for p in self.processes.values() if p.ended is not None and p.ended + _GRACE < now]
        for process in gone:
            yield from self._end(process)
            del self.processes[process.pid]

    def _time(self, time: int) -> int:
        """What perf tells of before it began, at time 0, counts as the beginning."""
        return time or self.begin

    # ------------------------------------------------------------ samples

    def _walk(self, pid: int, before: int | None = None) -> Iterator[Happening]:
        """The samples of a process that wait, up to a time."""
        sets = self._waiting.pop(pid, [])
        for part in sets:
            samples = part.samples
            if before is not None:
                earlier = samples.times < np.uint64(before)
                if not earlier.all():
                    later = SampleSet(part.words, part.event, samples.take(~earlier))
                    self._waiting.setdefault(pid, []).append(later)
                    samples = samples.take(earlier)
            if not len(samples):
                continue
            process = self.processes.get(pid)
            if process is None:
                process = yield from self._start(pid, None, "", int(samples.times.min()))
            process.samples_32bit += int((samples.abi == ABI_32).sum())
            yield walk_samples(
                pid,
                part.event,
                self.events[part.event],
                part.words,
                samples,
                process.space,
                self.threads,
                is_running=self.is_running,
            )


def _by_process(sets: Iterable[SampleSet]) -> dict[int, list[SampleSet]]:
    """Samples by process, in the order of time."""
    result: dict[int, list[SampleSet]] = {}
    for part in sets:
        order = np.lexsort((part.samples.times, part.samples.pids))
        samples = part.samples.take(order)
        pids, starts = np.unique(samples.pids, return_index=True)
        ends = [*starts[1:].tolist(), len(samples)]
        for pid, start, end in zip(pids.tolist(), starts.tolist(), ends, strict=True):
            piece = samples.take(np.arange(start, end))
            result.setdefault(pid, []).append(SampleSet(part.words, part.event, piece))
    return result
