"""One process that is recorded: its threads, its memory map, and the samples that its agent takes.

It is looked at again and again; each look yields what has happened. Samples are given out once the memory map
was read after they were taken, so that none is resolved with a map that was not its own any more.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import cache
from typing import NamedTuple

import numpy as np

from unspool.capture.code_history import CodeHistory
from unspool.capture.handler_check import HandlerCheck
from unspool.capture.mapped_code import CodeFiles, MappedCode
from unspool.capture.memory_map import MemoryMap
from unspool.capture.own_stacks import OwnStacks
from unspool.capture.sample_buffer import SampleBuffer
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
from unspool.capture.session_layout import AreaState, LostReason, Note, Origin
from unspool.capture.session_memory import Area, SessionMemory
from unspool.capture.task_status import TaskStatus
from unspool.capture.thread_triggers import PerfRights, ThreadTriggers
from unspool.capture.thread_watch import ThreadWatch, WatchedThread
from unspool.core_session import RingDamaged, RingSamples
from unspool.unwind import StackEnd

_MAP_SECONDS = 0.2  # between two readings of a process' memory map
_NEW_STACK_SECONDS = 0.05  # at most until it is read, where a thread's stack is not in it
_SECCOMP_SECONDS = 0.1  # between two looks for a filter that was set past libc
_COST = 0.01  # of the time at most goes into reading it, however long it is
_LEAST_SECONDS = 0.02
_FORCED_COST = 0.05  # likewise while the program loads and unloads libraries
_FIRST_LIST_SECONDS = 1.0  # a program that starts waits so long for tables that are compiled
_UNHEARD = 100_000_000  # ns of CPU time that a thread must have used to be missed
_LARGEST_TIME = np.uint64(1 << 60)  # ns; what a program writes into its ring is not trusted
_MOST_LOST = np.uint64(1 << 40)  # likewise; sums over many processes must fit into 63 bits
_MOST_READS = 64  # at a time; a ring that is full takes a third of them
_UNSEEN = "(ended threads)"  # what they used after they were last seen
_LOST_WORDS = {
    LostReason.RING_FULL: "unspool did not get the CPU in time to take them; a lower rate (-r) helps",
    LostReason.NO_WORKSPACE: "128 other threads of the process were being sampled at that moment",
    LostReason.NO_SLOT: "the thread was not known yet, or is one of more than 4,096",
    LostReason.NO_MODULES: "it was not known yet which code is where",
    LostReason.TOO_SLOW: "left out after a slow one: sampling takes a fifth of a thread's time at most",
}
_NOTE_WORDS = {
    Note.OWN_HANDLER: "the program uses SIGPROF itself; its handler is called for its own signals",
    Note.SECCOMP: "the program has set a seccomp filter, after which it was not sampled any more; --via perf "
    "can go on",
    Note.HANDLER_LOST: "the program has replaced unspool's signal handler, after which it was not sampled "
    "any more; use --via perf",
}


class _Published(NamedTuple):
    """What the agent was given. changes: of area.changes, before the map was read."""

    version: int
    changes: int
    tables: int


class FollowedProcess:
    """rate: Hz. Raises ProcessLookupError: it has ended already. Close it in the end."""

    def __init__(
        self,
        memory: SessionMemory,
        area: Area,
        pid: int,
        files: CodeFiles,
        rate: int,
        rights: PerfRights,
        parent: FollowedProcess | None,
    ) -> None:
        self.pid = pid
        self.area = area
        self.has_ended = False
        self.has_other_program = False  # it has called exec
        self.cpu_time_told = 0  # ns, once it has ended
        self.command = ""
        self._memory = memory
        self._files = files
        self._watch = ThreadWatch(pid)
        self.start_time = self._watch.start_time()
        self._without_trigger: list[int] = []
        self._triggers = ThreadTriggers(area, self._watch, rate, memory.cookie, rights)
        try:
            self._has_own_namespace = len(TaskStatus.of(pid).namespace_ids) > 1
            if not _has_mapped(pid, area, memory):  # asked after it was noted which program runs
                raise ProcessLookupError(pid)
        except OSError:
            self._watch.close()
            raise
        self._stacks = OwnStacks(pid, area, self._triggers)
        self._handler_check = HandlerCheck(area, self._watch, self._triggers, rate)
        self._samples = SampleBuffer(pid, 1_000_000_000 // rate, memory.arch, memory.reader.copy_room)
        forked = area.field("origin") == Origin.FORK
        self._parent_pid = None if parent is None else parent.pid
        self._history: CodeHistory = CodeHistory(
            memory.arch, parent._history.current if forked and parent else None
        )
        self._map = MemoryMap([])
        self._map_text = b""
        self._published: _Published | None = None
        self._is_behind = False  # there is more to publish
        self._next_seccomp = 0.0
        self._next_map = self._next_forced_map = 0.0
        self._changes_seen = self._unloads_seen = -1
        self._unknown_epoch = -1  # of the list with which samples met code that is not in it
        self._met_unknown = False  # a sample hit code that is in no map
        self._started = time.monotonic()
        self._lost_seen = np.zeros(len(LostReason), np.int64)
        self._notes_seen = Note(0)
        self._problems_told: set[str] = set()
        self._base_time: dict[int, int] = {}  # CPU time that threads had used before they were recorded
        self._process_base = self._total_cpu_time = 0  # CPU time of the process: before it was recorded, last
        self._total_seen = 0  # CPU time of threads that have ended
        self._outer: dict[int, int] = {}  # ids of threads as the program sees them -> as we do

    # ------------------------------------------------------------ life

    @property
    def told_up_to(self) -> int:
        """ns of the process' CPU clock, up to which its time was told."""
        return self._process_base + self.cpu_time_told

    def begin(self, *, from_outside: bool, told_before: int | None = None) -> Iterator[Happening]:
        """from_outside: it ran before it was recorded; what it had used of the CPU by then does not count.
        told_before: up to which time that was told already, of the program that it ran before."""
        self.command = self._watch.command()
        started = min(self.area.field("started"), int(_LARGEST_TIME))
        yield ProcessStarted(self.pid, self._parent_pid, self.command, started)
        if told_before is None:
            told_before = self._watch.process_cpu_time() if from_outside else 0
        self._process_base = told_before
        yield from self._look_at_threads(from_outside=from_outside)

    def look(self, *, rang: bool, has_new_tables: bool) -> Iterator[Happening]:
        """What has happened since the last look; has_ended is true after the last one. rang: somebody wants
        to be looked at, perhaps since a ring gets full."""
        if not self.has_ended:
            yield from self._look(rang=rang, has_new_tables=has_new_tables)
        yield from self._late_samples()

    def _look(self, *, rang: bool, has_new_tables: bool) -> Iterator[Happening]:
        now = time.monotonic()
        changes, unloads = self.area.field("changes"), self.area.field("unloads")
        if rang:
            self._drain()
        is_forced = (changes != self._changes_seen or self._met_unknown) and now >= self._next_forced_map
        is_due = is_forced or now >= self._next_map
        try:
            yield from self._look_at_threads(from_outside=False)
            if is_due or self._triggers.with_events:
                self._check_handler()
            self._check_silence(now)
            if self._watch.read_if_due(now):
                yield from self._names()
                self._total_cpu_time = self._watch.process_cpu_time()
                self._check_blocked()
        except ProcessLookupError:
            self.has_ended = True
        if is_due or self._published is None:
            self._drain()
        if is_due:
            yield from self._look_at_map(now, changes, unloads)
            yield from self._counters()
        elif has_new_tables or self._is_behind:
            self._publish()

    @property
    def has_new_threads(self) -> bool:
        """Whether its agent has told of threads since they were last listed."""
        return not self.has_ended and not self.area.field("threads_wanted")

    @property
    def next_look(self) -> float:
        """When threads may be listed again, of time.monotonic."""
        return self._watch.next_look

    @property
    def waits_for_tables(self) -> bool:
        """Whether samples do, though not for long."""
        return self._samples.late.waits

    def end(self, exit_status: int | None, wait_until: float) -> Iterator[Happening]:
        """The last happenings. exit_status: as wait(2) gives it, None = not known. wait_until: when samples
        wait no more for tables."""
        with suppress(OSError):
            self._total_cpu_time = self._watch.process_cpu_time()
        with suppress(ProcessLookupError):
            self._watch.read()
        if not self.has_ended:
            self._drain()
            with suppress(OSError):
                fields = self.area.field("changes"), self.area.field("unloads")
                yield from self._look_at_map(time.monotonic(), *fields)
        yield from self._rest()
        while self.waits_for_tables and (left := wait_until - time.monotonic()) > 0:
            self._files.wait(left)
            self._files.take_finished()
            yield from self._samples.late.take()
        yield from self._samples.late.take(all_of_them=True)
        yield from self._names()
        yield from self._counters()
        now = time.monotonic_ns()
        for thread in self._watch.threads.values():
            yield from self._thread_ended(thread, now)
        unseen = max(0, self._total_cpu_time - self._process_base - self._total_seen)
        self.cpu_time_told = self._total_seen + unseen
        if unseen:
            yield ThreadNamed(self.pid, 0, _UNSEEN, now)
            yield ThreadTime(self.pid, 0, unseen, 0)
        yield ProcessEnded(self.pid, now, exit_status)

    def _late_samples(self) -> Iterator[Happening]:
        if self.has_ended:
            yield from self._rest()
        yield from self._samples.late.take()

    def _rest(self) -> Iterator[Happening]:
        """The samples that were taken after the map was last read."""
        self._drain()
        history, unloads = self._history, self.area.field("unloads")
        yield from self._samples.give_out(history.update(history.current), history, unloads, is_read=False)

    def hurry(self) -> None:
        """The next look gives out all samples up to then."""
        self._next_map = 0.0

    def silence(self) -> None:
        """Send it no more signals."""
        self._triggers.close()

    def close(self) -> None:
        self._triggers.close()
        self._watch.close()

    # ------------------------------------------------------------ threads

    def _look_at_threads(self, *, from_outside: bool) -> Iterator[Happening]:
        if time.monotonic() >= self._watch.next_look:
            self.area.set_field("threads_wanted", 1)  # first: who is made after the look rings
        new, ended = self._watch.look()
        now = time.monotonic_ns()
        if ended:
            self._drain()
        yield from self._renamed(ended, now)
        for thread in ended:  # before those that are new: an id may be used again
            yield from self._thread_ended(thread, now)
        for tid in new:
            thread = self._watch.threads[tid]
            thread.is_renamed = True
            if from_outside:
                self._base_time[tid] = thread.cpu_time
                self._samples.clocks.begin(tid, thread.cpu_time)
        yield from self._renamed([self._watch.threads[tid] for tid in self._watch.fresh], now)
        self._without_trigger += new
        if self.area.field("state") == AreaState.RUNNING:  # by then the first thread has a timer
            for tid in self._without_trigger:
                self._triggers.begin(tid, self._inner(tid))
            if self.pid in self._without_trigger:
                self._stacks.tell_main(self._map)
            self._without_trigger.clear()
        waiting = self._triggers.waiting()
        self._triggers.look(self._watch.cpu_times(waiting))

    def _thread_ended(self, thread: WatchedThread, now: int) -> Iterator[Happening]:
        yield self._time(thread)
        self._total_seen += self._used(thread)
        yield ThreadEnded(self.pid, thread.tid, now)
        self._triggers.end(thread.tid)
        self._samples.clocks.end(thread.tid)
        self._stacks.forget(thread.tid)
        self._base_time.pop(thread.tid, None)  # its id is another thread's from now on

    def _inner(self, tid: int) -> int:
        """A thread's id as the program sees it."""
        if not self._has_own_namespace:
            return tid
        with suppress(OSError, IndexError):
            inner = TaskStatus.of(self.pid, tid).namespace_ids[-1]
            self._outer[inner] = tid
            return inner
        return tid

    def _names(self) -> Iterator[Happening]:
        threads = self._watch.threads.values()
        yield from self._renamed(threads, time.monotonic_ns())
        yield from map(self._time, threads)

    def _renamed(self, threads: Iterable[WatchedThread], now: int) -> Iterator[Happening]:
        for thread in threads:
            if thread.is_renamed:
                thread.is_renamed = False
                yield ThreadNamed(self.pid, thread.tid, thread.name, now)

    def _used(self, thread: WatchedThread) -> int:
        """The kernel's figure, or if that was read too early, what the thread's own last sample says; ns."""
        used = max(thread.cpu_time, self._samples.clocks.last(thread.tid))
        return max(0, used - self._base_time.get(thread.tid, 0))

    def _time(self, thread: WatchedThread) -> ThreadTime:
        used = self._used(thread)
        system = round(used * thread.system_share)
        return ThreadTime(self.pid, thread.tid, used - system, system)

    def _check_handler(self) -> None:
        """What signals there are go to the program's own handler, if that has replaced ours."""
        if not self.area.field("quiet") and self._handler_check.is_lost():
            self.silence()
            self.area.set_field("quiet", 1)
            self._notes_seen |= Note.HANDLER_LOST
            self._problem(_NOTE_WORDS[Note.HANDLER_LOST])

    def _check_silence(self, now: float) -> None:
        """The agent has stopped, maybe since the program is about to set a seccomp filter, and waits until no
        signal can come. Or a filter is there that unspool has not: it may kill the program for a system call
        that it does not expect of it."""
        if self.area.field("quiet"):
            return
        if self.area.field("state") == AreaState.STOPPED:
            self.silence()
            self.area.set_field("quiet", 1)
        elif now >= self._next_seccomp:
            self._next_seccomp = now + _SECCOMP_SECONDS
            if self._watch.seccomp() > _own_seccomp():
                self.silence()
                self.area.set_field("quiet", 1)
                self._notes_seen |= Note.SECCOMP
                self._problem(_NOTE_WORDS[Note.SECCOMP])

    def _check_blocked(self) -> None:
        """Threads that use the CPU and yet never took a sample."""
        for tid in self._triggers.unsettled():
            thread = self._watch.threads.get(tid)
            if thread is not None and thread.cpu_time > _UNHEARD and self._watch.blocks(tid, signal.SIGPROF):
                self._problem(
                    f"thread {thread.name} blocks SIGPROF, as threads do that block all signals: it is not "
                    "sampled as long as it does; --via perf can watch it"
                )

    # ------------------------------------------------------------ samples

    def _drain(self) -> None:
        """From the ring to what is pending; not without end, however fast a program fills it."""
        more = True
        for _ in range(_MOST_READS):
            if not more:
                break
            try:
                ring, more = self._memory.reader.read(self.area.core)
            except RingDamaged:
                self._problem("the samples of this process are damaged: it has overwritten them")
                self.area.set_field("quiet", 1)
                return
            if len(ring.samples):
                self._take(ring)
        self.area.set_field("ring_wanted", 1)

    def _take(self, ring: RingSamples) -> None:
        tids = ring.samples["tid"].astype(np.int64)
        if self._outer:
            tids = np.array([self._outer.get(int(tid), int(tid)) for tid in tids], np.int64)
        self._samples.take(ring, tids, self._history.current, with_events=self._triggers.with_events)
        sps = dict(zip(tids.tolist(), ring.samples["sp"].tolist(), strict=True))
        if not self._stacks.tell(sps, self._map):
            soon = max(time.monotonic() + _NEW_STACK_SECONDS, self._next_forced_map)
            self._next_map = min(self._next_map, soon)
        ends = ring.samples["end"]
        self._met_unknown |= bool((ends == StackEnd.UNMAPPED_PC).any())
        # A return address that is no code may be in a library that is new; or it is none, however often the
        # map is read.
        epochs = ring.samples["epoch"][ends == StackEnd.BAD_RETURN_ADDRESS]
        if len(epochs) and int(epochs.max()) > self._unknown_epoch:
            self._unknown_epoch = int(epochs.max())
            self._met_unknown = True

    # ------------------------------------------------------------ memory map

    def _look_at_map(self, now: float, changes: int, unloads: int) -> Iterator[Happening]:
        """Read the map, publish what has changed, give out the samples up to now. changes, unloads: of the
        area, from before."""
        started = time.thread_time()
        try:
            text = self._watch.memory_map()
        except PermissionError:
            self._problem("its memory map may not be read any more; run unspool as root")
            self._next_map = now + 1.0
            return
        except ProcessLookupError:
            self.has_ended = True
            return
        seconds = time.thread_time() - started  # without opening files, which is done once
        self._changes_seen, self._unloads_seen = changes, unloads
        self._met_unknown = False
        unloads_now = self.area.field("unloads")
        mapped = self._history.current
        if text != self._map_text:
            self._map_text = text
            self._map = MemoryMap.parse(text)
            if self._is_other_program():
                self.has_ended = self.has_other_program = True
                return
            mapped = self._files.mapped(self.pid, self._map.entries)
        code_map = self._history.update(mapped)
        self._publish()
        self._next_map = now + max(_MAP_SECONDS, seconds / _COST)
        self._next_forced_map = now + max(_LEAST_SECONDS, seconds / _FORCED_COST)
        yield from self._samples.give_out(code_map, self._history, unloads_now)
        yield from self._missing(mapped)

    def _is_other_program(self) -> bool:
        """After exec nothing of ours is mapped any more."""
        entry = self._map.find(self.area.field("area_address"))
        return entry is None or entry.inode != self._memory.identity[1]

    def _publish(self) -> None:
        """The current code for the agent, with the tables that are there, unless it has that already."""
        code = self._history.current
        wanted = _Published(self._history.version, self._changes_seen, code.table_count)
        self._is_behind = wanted != self._published
        if not self._is_behind:
            return
        is_awaited = self._published is None and self.area.field("state") == AreaState.WAITING
        if is_awaited and code.waits and time.monotonic() - self._started < _FIRST_LIST_SECONDS:
            return
        ranges = code.ranges
        epoch = self.area.publish(
            [r.start for r in ranges],
            [r.end for r in ranges],
            [r.image_base for r in ranges],
            [r.known.table if r.known is not None else None for r in ranges],
            [r.known is not None and r.known.pending is not None for r in ranges],
            self._changes_seen,
        )
        if epoch is not None:
            self._history.published(epoch, self._unloads_seen)
            self._published = wanted
            self._is_behind = False

    def _missing(self, mapped: MappedCode) -> Iterator[Happening]:
        for name, why in mapped.missing.items():
            text = f"{name}: {why}"
            if text not in self._problems_told:
                self._problems_told.add(text)
                yield Problem(self.pid, text)

    # ------------------------------------------------------------ what goes wrong

    def _problem(self, text: str) -> None:
        if text not in self._problems_told:
            self._problems_told.add(text)
            self._files.problems.append(f"process {self.pid}: {text}")

    def _counters(self) -> Iterator[Happening]:
        lost = np.minimum(self.area.fields["lost"][: len(LostReason)].copy(), _MOST_LOST).astype(np.int64)
        for reason in LostReason:
            count = int(lost[reason] - self._lost_seen[reason])
            if count > 0:
                yield Lost(self.pid, None, _LOST_WORDS[reason], count, time.monotonic_ns())
        self._lost_seen = np.maximum(lost, self._lost_seen)
        notes = Note(self.area.field("notes") & 7)
        for note in notes & ~self._notes_seen:
            yield Problem(self.pid, _NOTE_WORDS[note], is_note=note is Note.OWN_HANDLER)
        self._notes_seen |= notes
        for text in self._triggers.problems:
            if text not in self._problems_told:
                self._problems_told.add(text)
                yield Problem(self.pid, text)


@cache
def _own_seccomp() -> tuple[int, int]:
    with closing(ThreadWatch(os.getpid())) as watch:
        return watch.seccomp()


def _has_mapped(pid: int, area: Area, memory: SessionMemory) -> bool:
    entry = MemoryMap.of_process(pid).find(area.field("area_address"))
    return entry is not None and entry.inode == memory.identity[1]
