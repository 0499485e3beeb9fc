"""Rows of many FDEs as one function of the address, so that two sources can be compared at every
address where either changes.

It may not hide an address: where several FDEs claim one, `pieces` decides by a rule that is told; an
address that nobody claims has the value NOTHING.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOTHING: Hashable = "nothing"


class Claimant(NamedTuple):
    """An FDE that claims start <= address < end. rows: start addresses, ascending, with values."""

    is_eh_frame: bool
    offset: int
    start: int
    end: int
    rows: Sequence[tuple[int, Hashable]]


class Piece(NamedTuple):
    start: int
    end: int
    claimant: Claimant


def pieces(claimants: Iterable[Claimant]) -> list[Piece]:
    """Who holds where: .eh_frame before .debug_frame; within a section the FDE that starts last, and
    of those that start together the one that the section has last (identical ranges: first).
    Time: n log n."""

    def rank(claimant: Claimant) -> tuple[bool, int, int]:
        return (not claimant.is_eh_frame, -claimant.start, -claimant.offset)

    first_of_range: dict[tuple[bool, int, int], Claimant] = {}
    for claimant in claimants:
        if claimant.start < claimant.end:
            first_of_range.setdefault((claimant.is_eh_frame, claimant.start, claimant.end), claimant)
    order = sorted(first_of_range.values(), key=lambda claimant: claimant.start)
    found: list[Piece] = []
    active: list[tuple[tuple[bool, int, int], Claimant]] = []
    position = 0
    following = 0
    while active or following < len(order):
        if not active:
            position = order[following].start
        while following < len(order) and order[following].start == position:
            heapq.heappush(active, (rank(order[following]), order[following]))
            following += 1
        while active and active[0][1].end <= position:
            heapq.heappop(active)
        if not active:
            continue
        holder = active[0][1]
        end = min(holder.end, order[following].start if following < len(order) else holder.end)
        found.append(Piece(position, end, holder))
        position = end
    return found


@dataclass
class StepFunction:
    """value_at(a) == values[ids[i]] for starts[i] <= a < starts[i + 1]."""

    starts: NDArray[np.uint64]
    ids: NDArray[np.int64]
    values: list[Hashable]

    @classmethod
    def of_pieces(cls, held: Iterable[Piece]) -> StepFunction:
        starts: list[int] = [0]
        ids: list[int] = [0]
        numbers: dict[Hashable, int] = {NOTHING: 0}

        def add(start: int, value: Hashable) -> None:
            number = numbers.setdefault(value, len(numbers))
            if starts[-1] == start:
                starts.pop()
                ids.pop()
            if not ids or ids[-1] != number:
                starts.append(start)
                ids.append(number)

        for piece in held:
            add(piece.start, NOTHING)
            for start, value in piece.claimant.rows:
                if start < piece.end:
                    add(max(start, piece.start), value)
            add(piece.end, NOTHING)
        return cls(np.array(starts, np.uint64), np.array(ids, np.int64), list(numbers))

    def at(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The numbers of the values at addresses."""
        found: NDArray[np.int64] = self.ids[np.searchsorted(self.starts, addresses, side="right") - 1]
        return found
