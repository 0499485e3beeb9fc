"""Samples of perf_event, many at once: from records in a buffer to arrays of their fields.

The buffer is not trusted: every position is checked against the end of its record before it is read, and a
sample whose parts do not fit is left out and counted. No Python runs per sample.
Layout: linux/perf_event.h, "PERF_RECORD_SAMPLE".
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from unspool.capture.perf_attributes import (
    BRANCH_COUNTERS,
    BRANCH_HW_INDEX,
    EventAttributes,
    ReadFormat,
    SampleType,
)

Words = NDArray[np.uint64]
Positions = NDArray[np.int64]


@dataclass
class SampleColumns:
    """n samples of one event. Positions are indices of 8-byte words in the buffer.

    pids, tids: -1 = not known. modes: where the processor was: 1 kernel, 2 user (linux/perf_event.h,
    cpumode). chains: position and length of the call chain. registers: position of the first; abi: 0 there
    are none, 1 of a 32-bit task, 2 of a 64-bit one. stacks: position and length in bytes."""

    modes: NDArray[np.uint8]
    ips: Words
    pids: NDArray[np.int64]
    tids: NDArray[np.int64]
    times: Words
    weights: Words
    chain_at: Positions
    chain_count: Positions
    abi: Positions
    registers_at: Positions
    stack_at: Positions
    stack_size: Positions

    def __len__(self) -> int:
        return len(self.times)

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Self:
        """Some of the samples."""
        return type(self)(*(getattr(self, field.name)[index] for field in fields(self)))


class _Cursor:
    """A position in each of n records. A record that is too short for what is read is marked bad, and from
    then on its values are 0."""

    def __init__(self, words: Words, starts: Positions, ends: Positions) -> None:
        self._words = words
        self._ends = ends
        self.at = starts.copy()
        self.good = np.ones(len(starts), np.bool_)

    def need(self, count: int | Positions) -> None:
        """So many words more must be there; negative ones are never."""
        self.good &= (self.at + count <= self._ends) & np.asarray(count >= 0)
        self.at = np.where(self.good, self.at, 0)

    def skip(self, count: int | Positions) -> None:
        self.need(count)
        self.at += np.where(self.good, count, 0)

    def read(self) -> Words:
        """The next word of each."""
        self.need(1)
        values = np.where(self.good, self._words[self.at], np.uint64(0))
        self.at += self.good
        return values

    def peek(self, where: NDArray[np.bool_]) -> Words:
        """The next word of each record where there is to be one; 0 elsewhere."""
        self.need(where.astype(np.int64))
        return np.where(self.good & where, self._words[np.where(where, self.at, 0)], np.uint64(0))

    def read_count(self) -> Positions:
        """The next word as a number of things; absurd ones mark their record as bad."""
        values = self.read()
        self.good &= values < np.uint64(1 << 32)
        return np.where(self.good, values, np.uint64(0)).astype(np.int64)


def parse_samples(
    words: Words, starts: Positions, ends: Positions, attributes: EventAttributes
) -> tuple[SampleColumns, int]:
    """The samples of one event whose records (header included) are words[starts[i] : ends[i]], and how many
    of them were damaged. words: uint64[]; 0 <= starts < ends <= len(words)."""
    count = len(starts)
    fixed = attributes.fixed_words
    cursor = _Cursor(words, starts, ends)
    cursor.skip(1 + len(fixed))
    good = cursor.good

    def field(kind: SampleType, missing: int = 0) -> Words:
        if kind not in fixed:
            return np.full(count, missing, np.uint64)
        return np.where(good, words[np.where(good, starts + fixed[kind], 0)], np.uint64(0))

    both = field(SampleType.TID, (1 << 64) - 1)
    samples = SampleColumns(
        modes=(words[starts] >> np.uint64(32) & np.uint64(7)).astype(np.uint8),
        ips=field(SampleType.IP),
        pids=(both & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32).astype(np.int64),
        tids=(both >> np.uint64(32)).astype(np.uint32).view(np.int32).astype(np.int64),
        times=field(SampleType.TIME),
        weights=field(SampleType.PERIOD, attributes.weight),
        **_varying(cursor, attributes),
    )
    good = cursor.good
    damaged = count - int(good.sum())
    return (samples.take(good) if damaged else samples), damaged


def _varying(cursor: _Cursor, attributes: EventAttributes) -> dict[str, NDArray[np.int64]]:
    """The fields after the fixed ones, in the order in which they lie."""
    kinds = attributes.sample_type
    zeros = np.zeros(len(cursor.at), np.int64)
    result = dict.fromkeys(("chain_at", "chain_count", "registers_at", "stack_at", "stack_size"), zeros)
    if kinds & SampleType.READ:
        _skip_read(cursor, attributes.read_format)
    if kinds & SampleType.CALLCHAIN:
        length = cursor.read_count()
        result["chain_at"], result["chain_count"] = cursor.at, length
        cursor.skip(length)
    if kinds & SampleType.RAW:
        size = (cursor.read() & np.uint64(0xFFFFFFFF)).astype(np.int64)
        cursor.skip((size + 4 + 7) // 8 - 1)  # the size itself takes four bytes
    if kinds & SampleType.BRANCH_STACK:
        branches = cursor.read_count()
        words = 4 if attributes.branch_sample_type & BRANCH_COUNTERS else 3
        cursor.skip(words * branches + bool(attributes.branch_sample_type & BRANCH_HW_INDEX))
    abi = zeros
    if kinds & SampleType.REGS_USER:
        abi = cursor.read_count()
        result["registers_at"] = cursor.at
        cursor.skip(np.where(abi != 0, attributes.user_registers.bit_count(), 0))
    if kinds & SampleType.STACK_USER:
        size = cursor.read_count()
        result["stack_at"] = cursor.at
        cursor.good &= size % 8 == 0
        cursor.skip(size // 8)
        dynamic = cursor.peek(size > 0)  # how much of it was copied
        result["stack_size"] = np.minimum(dynamic, size.astype(np.uint64)).astype(np.int64)
    return {**result, "abi": abi}


def _skip_read(cursor: _Cursor, read_format: int) -> None:
    times = bool(read_format & ReadFormat.TIME_ENABLED) + bool(read_format & ReadFormat.TIME_RUNNING)
    value = 1 + bool(read_format & ReadFormat.ID) + bool(read_format & ReadFormat.LOST)
    if read_format & ReadFormat.GROUP:
        cursor.skip(cursor.read_count() * value + times)
    else:
        cursor.skip(value + times)
