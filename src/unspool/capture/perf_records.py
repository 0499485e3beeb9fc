"""Records of perf_event: what the kernel writes into its rings and `perf record` into its files.

One parser for both. Nothing is trusted: sizes are checked before bytes are read; what can't be read is left
out and counted. Samples become arrays (perf_samples.py), all other records one object each.
Layout: linux/perf_event.h, enum perf_event_type; perf's own record types (64 and more):
tools/perf/Documentation/perf.data-file-format.txt.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unspool.capture.perf_attributes import EventAttributes, SampleType
from unspool.capture.perf_samples import SampleColumns, parse_samples

MMAP, LOST, COMM, EXIT, THROTTLE, FORK, READ, SAMPLE, MMAP2, LOST_SAMPLES = 1, 2, 3, 4, 5, 7, 8, 9, 10, 13
_KERNEL_TYPES = 64  # the kernel's record types are below
FINISHED_ROUND = 68

_MODE_MASK, MODE_KERNEL, MODE_USER = 7, 1, 2
_MISC_DATA = _MISC_EXEC = 1 << 13
_MISC_BUILD_ID = 1 << 14
_MISC_LOST_BPF = 1 << 13
_PROT_EXEC = 4
_HEADER = 8
_MAX_BUILD_ID = 20


class Mapped(NamedTuple):
    """Memory start <= a < end shows a file from file_offset on (or none: path is in brackets or //anon).
    pid -1: the kernel or a module of it. inode, device: 0, "" = not known."""

    time: int
    pid: int
    start: int
    end: int
    file_offset: int
    path: str
    is_code: bool
    is_kernel: bool
    build_id: bytes | None = None
    inode: int = 0
    device: str = ""


class Named(NamedTuple):
    """A thread has a name; is_exec: since its process runs another program."""

    time: int
    pid: int
    tid: int
    name: str
    is_exec: bool


class Forked(NamedTuple):
    """A thread begins; a process, if its pid is not its parent's."""

    time: int
    pid: int
    tid: int
    parent_pid: int
    parent_tid: int


class Exited(NamedTuple):
    """A thread ended."""

    time: int
    pid: int
    tid: int


class NotRecorded(NamedTuple):
    """records: those that found no room (in the kernel's ring), or samples; 0: sampling was stopped for a
    while since there were too many."""

    time: int
    pid: int
    tid: int
    records: int
    reason: str


class CounterRead(NamedTuple):
    """What an event has counted for a thread that ends (attribute inherit_stat)."""

    time: int
    pid: int
    tid: int
    event: int
    value: int


OtherRecord: TypeAlias = Mapped | Named | Forked | Exited | NotRecorded | CounterRead


@dataclass
class RecordChunk:
    """The records of one buffer. words: the buffer, to which the samples' positions refer; samples: by event.
    others: in the file's order. rounds: for each end of a round (a mark that perf writes whenever it has
    emptied all rings once) the latest time of all records of this chunk before it."""

    words: NDArray[np.uint64]
    samples: list[tuple[int, SampleColumns]]
    others: list[OtherRecord]
    rounds: list[int]


class Scan(NamedTuple):
    """Records that follow each other from a buffer's start on. positions: of each, in words. rounds: how many
    records precede each round's end. size: bytes of all of them. stop: type of the record after them that
    needs special treatment, or one of Stop."""

    positions: list[int]
    rounds: list[int]
    size: int
    stop: int


class Stop:
    """Why a scan ended if not at a record of perf's own."""

    END = -1  # of the buffer, or the next record is not whole yet
    DAMAGED = -2  # the next header is none


def scan(data: memoryview) -> Scan:
    """Finds the records at the start of a buffer (of bytes), as far as it goes."""
    count = len(data) // 8
    words = data[: count * 8].cast("Q")
    positions: list[int] = []
    rounds: list[int] = []
    at, stop = 0, Stop.END
    while at < count:
        header = words[at]
        size = header >> 48
        if header & _KERNEL_TYPES:
            kind = header & 0xFFFFFFFF
            if kind != FINISHED_ROUND or size != _HEADER:
                stop = kind if size >= _HEADER else Stop.DAMAGED
                break
            rounds.append(len(positions))
            at += 1
            continue
        if size < _HEADER or size & 7:
            stop = Stop.DAMAGED
            break
        if at + (size >> 3) > count:
            break
        positions.append(at)
        at += size >> 3
    return Scan(positions, rounds, at * 8, stop)


@dataclass
class RecordParser:
    """Knows the events, so that it can read their records. ids: of every event, which its records bear, and
    its number. damaged, unknown: records that could not be read, and such whose event or type is not known,
    by what they are."""

    events: list[EventAttributes] = field(default_factory=list)
    damaged: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    _numbers: dict[int, int] = field(default_factory=dict)
    _sorted: tuple[NDArray[np.uint64], NDArray[np.int64]] | None = None

    def add_event(self, attributes: EventAttributes, ids: Sequence[int]) -> int:
        """Another event; its number."""
        number = len(self.events)
        self.events.append(attributes)
        self._numbers.update(dict.fromkeys(ids, number))
        self._sorted = None
        return number

    def ids_of(self, event: int) -> list[int]:
        """The ids that records of an event bear."""
        return [number for number, of in self._numbers.items() if of == event]

    def parse(self, data: memoryview, found: Scan) -> RecordChunk:
        """The records that a scan of this buffer has found."""
        words = np.frombuffer(data, np.uint64, found.size // 8)
        positions = np.array(found.positions, np.int64)
        headers = words[positions]
        ends = positions + (headers >> np.uint64(48 + 3)).astype(np.int64)
        types = (headers & np.uint64(0xFFFFFFFF)).astype(np.int64)
        is_sample = types == SAMPLE
        samples, sample_times = self._samples(words, positions, ends, is_sample)
        times = np.zeros(len(positions), np.uint64)
        times[is_sample] = sample_times
        others = []
        for index in np.flatnonzero(~is_sample).tolist():
            other = self._other(data[found.positions[index] * 8 : int(ends[index]) * 8], int(types[index]))
            if other is not None:
                others.append(other)
                times[index] = other.time
        latest = np.maximum.accumulate(times) if len(times) else times
        return RecordChunk(
            words, samples, others, [int(latest[before - 1]) if before else 0 for before in found.rounds]
        )

    def _samples(
        self,
        words: NDArray[np.uint64],
        positions: NDArray[np.int64],
        ends: NDArray[np.int64],
        is_sample: NDArray[np.bool_],
    ) -> tuple[list[tuple[int, SampleColumns]], NDArray[np.uint64]]:
        """The samples by event, and all samples' times (0: damaged)."""
        positions, ends = positions[is_sample], ends[is_sample]
        times = np.zeros(len(positions), np.uint64)
        numbers = self._events_of(words, positions, ends)
        samples = []
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            if number < 0:
                self.unknown["samples of an unknown event"] += int(chosen.sum())
                continue
            attributes = self.events[number]
            columns, damaged = parse_samples(words, positions[chosen], ends[chosen], attributes)
            self.damaged["samples"] += damaged
            at = attributes.fixed_words.get(SampleType.TIME)
            if at is not None:
                inside = chosen & (positions + at < ends)
                times[inside] = words[positions[inside] + at]
            if len(columns):
                samples.append((number, columns))
        return samples, times

    def _events_of(
        self, words: NDArray[np.uint64], positions: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The event of each sample, -1: not known. All events have their id in the same place."""
        if not self.events:
            return np.full(len(positions), -1)
        fixed = self.events[0].fixed_words
        at = fixed.get(SampleType.IDENTIFIER, fixed.get(SampleType.ID))
        if len(self.events) == 1 or at is None or not self._numbers:
            return np.zeros(len(positions), np.int64)
        if self._sorted is None:
            ids = np.array(sorted(self._numbers), np.uint64)
            self._sorted = ids, np.array([self._numbers[number] for number in ids.tolist()], np.int64)
        known, numbers = self._sorted
        inside = positions + at < ends
        values = words[np.where(inside, positions + at, 0)]
        index = np.minimum(np.searchsorted(known, values), len(known) - 1)
        result: NDArray[np.int64] = np.where(inside & (known[index] == values), numbers[index], -1)
        return result

    # ------------------------------------------------------------ all but samples

    def _other(self, record: memoryview, kind: int) -> OtherRecord | None:
        """One record, header included; None: nothing that matters, or damaged."""
        read = _READERS.get(kind)
        if read is None:
            if kind > _LAST_KNOWN:
                self.unknown["records of an unknown type"] += 1
            return None
        (misc,) = struct.unpack_from("<H", record, 4)
        try:
            return read(self, record, misc)
        except (struct.error, ValueError):
            self.damaged["records"] += 1
            return None

    def _trailer(self, record: memoryview) -> tuple[int, int, int, int, int]:
        """(time, pid, tid, event, size) of the fields at the end of a record; the size in bytes."""
        if not self.events:
            return 0, -1, -1, 0, 0
        words = self.events[0].id_words
        size = -min(words.values(), default=0) * 8
        if len(record) < _HEADER + size:
            raise ValueError("too short")

        def value(kind: SampleType) -> int | None:
            at = words.get(kind)
            if at is None:
                return None
            (number,) = struct.unpack_from("<Q", record, len(record) + at * 8)
            return int(number)

        both = value(SampleType.TID)
        pid, tid = (-1, -1) if both is None else (_signed(both & 0xFFFFFFFF), _signed(both >> 32))
        identifier = value(SampleType.IDENTIFIER)
        event = self._numbers.get((identifier if identifier is not None else value(SampleType.ID)) or 0, 0)
        return value(SampleType.TIME) or 0, pid, tid, event, size

    def _mmap(self, record: memoryview, misc: int) -> Mapped:
        time, *_, size = self._trailer(record)
        pid, _, start, length, offset = struct.unpack_from("<iiQQQ", record, _HEADER)
        path = _text(record[_HEADER + 32 : len(record) - size])
        return _mapped(time, pid, start, length, offset, path, misc, is_code=not misc & _MISC_DATA)

    def _mmap2(self, record: memoryview, misc: int) -> Mapped:
        time, *_, size = self._trailer(record)
        pid, _, start, length, offset = struct.unpack_from("<iiQQQ", record, _HEADER)
        (protection,) = struct.unpack_from("<I", record, _HEADER + 56)
        path = _text(record[_HEADER + 64 : len(record) - size])
        mapped = _mapped(time, pid, start, length, offset, path, misc, is_code=bool(protection & _PROT_EXEC))
        if misc & _MISC_BUILD_ID:
            used = min(record[_HEADER + 32], _MAX_BUILD_ID)
            return mapped._replace(build_id=bytes(record[_HEADER + 36 : _HEADER + 36 + used]))
        major, minor, inode = struct.unpack_from("<IIQ", record, _HEADER + 32)
        return mapped._replace(inode=inode, device=f"{major:02x}:{minor:02x}")

    def _comm(self, record: memoryview, misc: int) -> Named:
        time, *_, size = self._trailer(record)
        pid, tid = struct.unpack_from("<ii", record, _HEADER)
        name = _text(record[_HEADER + 8 : len(record) - size])
        return Named(time, pid, tid, name, bool(misc & _MISC_EXEC))

    def _fork(self, record: memoryview, misc: int) -> Forked:
        pid, parent, tid, parent_tid, time = struct.unpack_from("<iiiiQ", record, _HEADER)
        return Forked(self._trailer(record)[0] or time, pid, tid, parent, parent_tid)

    def _exit(self, record: memoryview, misc: int) -> Exited:
        pid, _, tid, _, time = struct.unpack_from("<iiiiQ", record, _HEADER)
        return Exited(self._trailer(record)[0] or time, pid, tid)

    def _lost(self, record: memoryview, misc: int) -> NotRecorded:
        time, pid, tid, *_ = self._trailer(record)
        _, count = struct.unpack_from("<QQ", record, _HEADER)
        return NotRecorded(time, pid, tid, count, "perf's ring was full")

    def _lost_samples(self, record: memoryview, misc: int) -> NotRecorded:
        time, pid, tid, *_ = self._trailer(record)
        (count,) = struct.unpack_from("<Q", record, _HEADER)
        reason = "a BPF filter dropped them" if misc & _MISC_LOST_BPF else "the kernel dropped them"
        return NotRecorded(time, pid, tid, count, reason)

    def _throttle(self, record: memoryview, misc: int) -> NotRecorded:
        time, pid, tid, *_ = self._trailer(record)
        return NotRecorded(time, pid, tid, 0, "the kernel throttled the event")

    def _read(self, record: memoryview, misc: int) -> CounterRead:
        time, _, _, event, _ = self._trailer(record)
        pid, tid, value = struct.unpack_from("<iiQ", record, _HEADER)
        return CounterRead(time, pid, tid, event, value)


_READERS: dict[int, Callable[[RecordParser, memoryview, int], OtherRecord]] = {
    MMAP: RecordParser._mmap,
    MMAP2: RecordParser._mmap2,
    COMM: RecordParser._comm,
    FORK: RecordParser._fork,
    EXIT: RecordParser._exit,
    LOST: RecordParser._lost,
    LOST_SAMPLES: RecordParser._lost_samples,
    THROTTLE: RecordParser._throttle,
    READ: RecordParser._read,
}
_LAST_KNOWN = 22  # the rest up to here (switches, BPF programs, ...) says nothing about stacks


def _mapped(
    time: int, pid: int, start: int, length: int, offset: int, path: str, misc: int, *, is_code: bool
) -> Mapped:
    if not length or start + length > 1 << 64:
        raise ValueError("no addresses")
    is_kernel = misc & _MODE_MASK == MODE_KERNEL
    return Mapped(time, pid, start, start + length, offset, path, is_code or is_kernel, is_kernel)


def _text(data: memoryview) -> str:
    return os.fsdecode(bytes(data).split(b"\0", 1)[0])


def _signed(number: int) -> int:
    """A pid of 32 bits."""
    return number - (1 << 32) if number >> 31 else number
