"""Samples whose walk in the program lacked a table or a module, walked once more when both are there, from
the copy of the stack that came with them.

The copy is of the moment of the sample, and so must be the code: only samples belong here of which it is
known that no code was taken away between them and the map that is used. What the walk reads is that copy and
the files' code, nothing of the process, which has gone on. A result counts only if it is better than what the
agent found.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unspool.capture.code_history import CodeHistory, Ranges
from unspool.capture.mapped_code import CodeRange
from unspool.capture.samples import Flag, SampleBatch
from unspool.core import RegisterValues
from unspool.core_interface import GUESS, PC_NUMBER, SP_NUMBER
from unspool.core_session import COPY, CopyRoom
from unspool.unwind import How, Stack, StackBytes, StackEnd, Unwinder
from unspool.unwind.registers import from_core

WAIT_SECONDS = 4.0  # that a sample waits for tables at most
_MOST_FRAMES = 4096  # as agents have it
_ADDRESSES = np.uint64((1 << 48) - 1)  # aarch64: what is above may be a PAC


@dataclass(slots=True)
class _Group:
    """Samples under one map, each with its copy. ranges: what code may be on their stacks. replacing: where
    other code was when the map was read before. knows_all: the map was read after the samples were taken, so
    that there is no other code."""

    batch: SampleBatch
    copies: list[bytes]
    ranges: list[CodeRange]
    replacing: Ranges
    knows_all: bool
    deadline: float

    @property
    def waits(self) -> bool:
        return any(r.known is not None and r.known.pending is not None for r in self.ranges)


class LateWalk:
    """Of one process. room: what copies are given back to."""

    def __init__(self, arch: str, room: CopyRoom) -> None:
        self._arch = arch
        self._room = room
        self._groups: list[_Group] = []

    @property
    def waits(self) -> bool:
        """Whether samples wait for tables."""
        return bool(self._groups)

    def add(self, batch: SampleBatch, copies: list[bytes], history: CodeHistory, *, knows_all: bool) -> None:
        """Samples, and the copy of each one's stack, under the current code of the process."""
        code = history.current.ranges
        touched = [code[i] for i in _touched(copies, code, self._arch)]
        deadline = time.monotonic() + WAIT_SECONDS
        self._groups.append(_Group(batch, copies, touched, history.replacing, knows_all, deadline))

    def take(self, *, all_of_them: bool = False) -> Iterator[SampleBatch]:
        """The samples for which all tables are there, or that have waited long enough."""
        now = time.monotonic()
        groups, self._groups = self._groups, []
        for group in groups:
            if group.waits and now < group.deadline and not all_of_them:
                self._groups.append(group)
                continue
            yield _walked(group, self._arch)
            self._room.give_back(group.copies)


def _touched(copies: Sequence[bytes], ranges: Sequence[CodeRange], arch: str) -> list[int]:
    """Numbers of the ranges of which a word in a register or on a stack may be an address. A return address
    may be the first one behind its code."""
    if not ranges:
        return []
    starts = np.array([r.start for r in ranges], np.uint64)
    lasts = np.array([r.end - 1 for r in ranges], np.uint64)
    found: set[int] = set()
    for copy in copies:
        words = _words(copy)
        if arch == "aarch64":
            words = words & _ADDRESSES
        words = np.unique(words[(words >= starts[0]) & (words - 1 <= lasts[-1])])
        words = np.concatenate([words, words - 1])
        index = np.searchsorted(starts, words, "right") - 1
        found.update(index[(index >= 0) & (words <= lasts[index])].tolist())
    return sorted(found)


def _words(copy: bytes) -> NDArray[np.uint64]:
    head = np.frombuffer(copy, COPY, 1)[0]
    skipped = -int(head["address"]) % 8
    count = max(0, len(copy) - COPY.itemsize - skipped) // 8
    stack = np.frombuffer(copy, np.uint64, count, COPY.itemsize + skipped if count else 0)
    return np.concatenate([head["values"], stack])


def _walked(group: _Group, arch: str) -> SampleBatch:
    """The group's samples with what is best known of their stacks."""
    batch = group.batch
    unwinder = _unwinder(group.ranges, arch)
    pending = [(r.start, r.end) for r in group.ranges if r.known is not None and r.known.pending is not None]
    offsets = batch.offsets.astype(np.int64)
    addresses = [batch.addresses[offsets[i] : offsets[i + 1]] for i in range(len(batch))]
    how = [batch.how[offsets[i] : offsets[i + 1]] for i in range(len(batch))]
    ends, flags = batch.ends.copy(), batch.flags.copy()
    for i, copy in enumerate(group.copies):
        stack = _walk(unwinder, copy, arch)
        if stack is None or _touches(stack, group.replacing):
            continue
        flag = Flag.NO_TABLE_YET if _touches(stack, pending) else Flag(0)
        if not stack.complete:  # it may lack what was taken away
            flag |= Flag(int(flags[i])) & Flag.STALE_MODULES
        if _is_better(stack, flag, batch, i, len(how[i])) and (group.knows_all or stack.complete):
            addresses[i] = np.array(stack.addresses, np.uint64)
            how[i] = np.array([f.how | (GUESS if f.guessed else 0) for f in stack], np.uint8)
            ends[i], flags[i] = stack.end, flag
    counts = np.array([0, *map(len, how)], np.uint64)
    return SampleBatch(
        pid=batch.pid,
        event=batch.event,
        times=batch.times,
        tids=batch.tids,
        weights=batch.weights,
        ends=ends,
        flags=flags,
        offsets=np.cumsum(counts, dtype=np.uint64),
        addresses=np.concatenate(addresses),
        how=np.concatenate(how),
        code_map=batch.code_map,
    )


def _unwinder(ranges: Sequence[CodeRange], arch: str) -> Unwinder:
    unwinder = Unwinder(arch, depth_limit=_MOST_FRAMES)
    for r in ranges:
        table = None if r.known is None else r.known.unwind
        # Without a table it would be compiled here and now.
        binary = r.known.binary if r.known is not None and r.known.is_open and table is not None else None
        unwinder.add_module(binary, r.image_base, start=r.start, end=r.end, table=table)
    return unwinder


def _walk(unwinder: Unwinder, copy: bytes, arch: str) -> Stack | None:
    """None: the copy lacks pc or sp."""
    head = np.frombuffer(copy, COPY, 1)[0]
    known = int(head["known"])
    values = {n: value for n, value in enumerate(head["values"].tolist()) if known >> n & 1}
    if PC_NUMBER[arch] not in values or SP_NUMBER[arch] not in values:
        return None
    registers = from_core(RegisterValues(values, False), arch, How.INTERRUPTED, guessed=False)
    return unwinder.walk(registers, StackBytes(int(head["address"]), memoryview(copy)[COPY.itemsize :]))


def _touches(stack: Stack, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= frame.lookup_address < end for start, end in ranges for frame in stack)


def _is_better(stack: Stack, flag: Flag, batch: SampleBatch, sample: int, length: int) -> bool:
    """Than the sample, which has so many frames: complete, guessed, cut, in this order, or the same with more
    frames and no guess that was not."""
    is_root = stack.end is StackEnd.ROOT
    verdict = 2 if stack.complete and not flag else int(is_root)
    before = 2 if batch.complete[sample] else int(batch.guessed[sample])
    if verdict != before:
        return verdict > before
    return len(stack) > length and (not stack.has_guess or bool(batch.has_guess[sample]))
