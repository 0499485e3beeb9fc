"""What /proc knows of processes that perf follows: threads, code that is mapped already, CPU times.

The kernel counts the CPU time of threads that begin meanwhile, and tells it when they end; of the others
/proc is read once in a while."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from unspool.capture.errors import CaptureError
from unspool.capture.memory_map import MemoryMap
from unspool.capture.perf_attributes import AttributeFlag, EventAttributes, EventType
from unspool.capture.perf_open import open_event
from unspool.capture.perf_records import Mapped, Named, OtherRecord
from unspool.capture.samples import (
    Happening,
    ProcessEnded,
    ProcessStarted,
    SampleBatch,
    ThreadEnded,
    ThreadTime,
)
from unspool.capture.task_status import TaskStatus
from unspool.capture.thread_watch import ThreadWatch

# It counts time in the kernel, too, although users may see no more of the kernel.
_TASK_CLOCK = EventAttributes(
    EventType.SOFTWARE, 1, 0, 0, 0, int(AttributeFlag.EXCLUDE_KERNEL | AttributeFlag.EXCLUDE_HV)
)


def thread_ids(pid: int) -> list[int]:
    """All of them. Raises CaptureError."""
    try:
        tids = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        status = TaskStatus.of(pid)
    except OSError:
        raise CaptureError(f"there is no process {pid}", "see `ps -e` for those that are") from None
    if status.process_id != pid:
        raise CaptureError(
            f"{pid} is a thread of process {status.process_id}", f"give that one: -p {status.process_id}"
        )
    return tids


def running_code(pid: int) -> list[OtherRecord]:
    """What perf would have told of a process if it had watched from its start. Empty if it is gone."""
    now = time.monotonic_ns()
    records: list[OtherRecord] = []
    with suppress(OSError):
        name = TaskStatus.of(pid).name
        records.append(Named(now, pid, pid, name, is_exec=False))
        for tid in thread_ids_if_any(pid):
            with suppress(OSError):
                records.append(Named(now, pid, tid, TaskStatus.of(pid, tid).name, is_exec=False))
        for entry in MemoryMap.of_process(pid).entries:
            if entry.executable:
                path = entry.path or "//anon"
                records.append(
                    Mapped(
                        *(now, pid, entry.start, entry.end, entry.file_offset, path),
                        is_code=True,
                        is_kernel=False,
                        inode=entry.inode,
                        device=entry.device,
                    )
                )
    return records


def thread_ids_if_any(pid: int) -> list[int]:
    """None if the process is gone."""
    try:
        return thread_ids(pid)
    except CaptureError:
        return []


class ThreadClocks:
    """Counts the CPU time of threads that ran already when they were attached to: one descriptor each, which
    tells it also when the thread has ended."""

    def __init__(self) -> None:
        self._clocks: dict[int, int] = {}  # descriptors

    def add(self, tid: int) -> None:
        """From now on. Where it can't be counted (too many descriptors), /proc is what is left."""
        with suppress(OSError):
            self._clocks[tid] = open_event(_TASK_CLOCK.pack(), tid)

    def read(self, tid: int) -> int | None:
        """Nanoseconds since it was added; None: it was not."""
        if tid not in self._clocks:
            return None
        return int.from_bytes(os.read(self._clocks[tid], 8), "little")

    def close(self) -> None:
        while self._clocks:
            os.close(self._clocks.popitem()[1])


class CpuTimes:
    """Adds CPU times to what happens. attached: a process that ran before; its threads have clocks.

    Of other threads /proc is read once in a while, and when one ends, its last samples say that it has used
    at least what they weigh. What a whole process has used beyond that is told of its thread 0."""

    def __init__(self, attached: int | None, clocks: ThreadClocks) -> None:
        self._attached = attached
        self._clocks = clocks
        self._watches: dict[int, ThreadWatch] = {}
        self._weights: dict[tuple[int, int], int] = {}
        self._told: dict[int, dict[int, int]] = {}  # by process and thread
        self._totals: dict[int, int] = {}  # of processes, as last read

    def added(self, happenings: Iterator[Happening]) -> Iterator[Happening]:
        """The same, with more of the times."""
        for happening in happenings:
            match happening:
                case ProcessStarted():
                    self._watch(happening.pid)
                case SampleBatch():
                    tids, index = np.unique(happening.tids, return_inverse=True)
                    sums = np.bincount(index, happening.weights.astype(np.float64))
                    for tid, weight in zip(tids.tolist(), sums.tolist(), strict=True):
                        key = (happening.pid, tid)
                        self._weights[key] = self._weights.get(key, 0) + int(weight)
                case ThreadEnded():
                    yield from self._end_thread(happening.pid, happening.tid)
                case ProcessEnded():
                    yield from self._end_process(happening.pid)
            yield happening

    def now(self, *, at_end: bool = False) -> Iterator[Happening]:
        """The times of all threads, once in a while."""
        for watch in self._watches.values():
            with suppress(ProcessLookupError):
                self._totals[watch.pid] = watch.process_cpu_time()
                watch.look()
            if at_end:
                watch.read()
            elif not watch.read_if_due(time.monotonic()):
                continue
            for thread in watch.threads.values():
                clock = self._clocks.read(thread.tid) if watch.pid == self._attached else None
                yield from self._tell(watch.pid, thread.tid, thread.cpu_time if clock is None else clock)

    def _end_thread(self, pid: int, tid: int) -> Iterator[Happening]:
        clock = self._clocks.read(tid) if pid == self._attached else None
        weight = self._weights.pop((pid, tid), 0)
        yield from self._tell(pid, tid, weight if clock is None else clock)

    def _end_process(self, pid: int) -> Iterator[Happening]:
        watch = self._watches.pop(pid, None)
        told = self._told.pop(pid, {})
        if watch is None:
            return
        with suppress(ProcessLookupError):
            self._totals[pid] = watch.process_cpu_time()
        watch.close()
        unseen = self._totals.pop(pid, 0) - sum(told.values())
        if unseen > 0 and pid != self._attached:  # of that one the threads' clocks know all
            yield ThreadTime(pid, 0, unseen, 0)

    def _tell(self, pid: int, tid: int, used: int) -> Iterator[Happening]:
        """Split into user and system time as they were last seen; never less than before."""
        told = self._told.setdefault(pid, {})
        if used <= told.get(tid, 0):
            return
        told[tid] = used
        watch = self._watches.get(pid)
        thread = None if watch is None else watch.threads.get(tid)
        system = int(used * thread.system_share) if thread is not None else 0
        yield ThreadTime(pid, tid, used - system, system)

    def _watch(self, pid: int) -> None:
        old = self._watches.pop(pid, None)
        if old is not None:
            old.close()
        self._told.pop(pid, None)
        with suppress(OSError):
            watch = ThreadWatch(pid)
            with suppress(OSError):
                watch.look()
            self._watches[pid] = watch
