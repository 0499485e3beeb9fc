"""Which code lies where in one process as time goes by, and which samples that makes doubtful.

A process' memory map is read now and then. A sample was walked with the list of modules that had been
published by then; where the map has changed since that list was read, and the sample touches what has
changed, it is stale: its stack may be wrong although it looks whole. JIT code does not count: it changes all
the time, and no file says anything about it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import NDArray

from unspool.capture.mapped_code import CodeRange, MappedCode
from unspool.capture.samples import CodeEntry, CodeFile, CodeMap

_EPOCHS_KEPT = 1024  # more than are published between two readings of a map, before which no sample waits
_CHANGES_KEPT = 64  # a sample that is older than so many changes counts as touched by the oldest of them

Ranges = list[tuple[int, int]]


class CodeHistory:
    """current: the code as last read. version: counts its changes."""

    def __init__(self, arch: str, current: MappedCode | None = None) -> None:
        """current: what a forked process has of its parent."""
        self._arch = arch
        self.current = MappedCode([]) if current is None else current
        self.version = 0
        self._map = self.current.code_map(arch)
        self._of_epoch: dict[int, int] = {}
        self._unloads: dict[int, int] = {0: 0}  # before the first list
        self._changes: dict[int, Ranges] = {}  # version -> what it changed
        self.replacing: Ranges = []  # code of files where, at the reading before, other code was

    def update(self, mapped: MappedCode) -> CodeMap:
        """The map was read again. Returns that for samples up to now: the new map, and where it has nothing,
        the one before."""
        self.replacing = _replacing(mapped.ranges, self.current.ranges)
        if mapped.ranges == self.current.ranges:
            return self._map
        changed = sorted((r[0], r[1]) for r in _file_code(self.current) ^ _file_code(mapped))
        self.version += 1
        if changed:
            self._changes[self.version] = changed
            if len(self._changes) > _CHANGES_KEPT:
                first, second = list(self._changes)[:2]
                self._changes[second] = self._changes.pop(first) + self._changes[second]
        until_now = _merged(mapped.ranges, self.current.ranges, self._arch)
        self.current = mapped
        self._map = mapped.code_map(self._arch)
        return until_now

    def published(self, epoch: int, unloads: int) -> None:
        """The current map is what agents walk with from this epoch on. unloads: how often code may have been
        taken away before the map was read."""
        self._of_epoch[epoch] = self.version
        self._unloads[epoch] = unloads
        if len(self._of_epoch) > _EPOCHS_KEPT:
            oldest = next(iter(self._of_epoch))
            del self._of_epoch[oldest], self._unloads[oldest]

    def kept_all(self, epochs: NDArray[np.uint32], unloads: int) -> NDArray[np.bool_]:
        """bool[n]: since the lists of these epochs were read nothing was taken away: whatever has changed
        shows in the map, if that was read since. unloads: as they were counted after that."""
        known, inverse = np.unique(epochs, return_inverse=True)
        kept = [self._unloads.get(int(epoch)) == unloads for epoch in known]
        return np.array(kept, np.bool_)[inverse]

    def outdated(self, epochs: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """bool[n]: code has come or gone since the lists of these epochs were read."""
        known, inverse = np.unique(epochs, return_inverse=True)
        last = max(self._changes, default=0)
        return np.array([self._of_epoch.get(int(epoch), 0) < last for epoch in known], np.bool_)[inverse]

    def stale(
        self, epochs: NDArray[np.uint32], offsets: NDArray[np.uint64], addresses: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """bool[n]: which samples, walked in these epochs, touch what has changed meanwhile."""
        stale = np.zeros(len(epochs), np.bool_)
        if not self._changes or not len(epochs):
            return stale
        known, inverse = np.unique(epochs, return_inverse=True)
        versions = np.array([self._of_epoch.get(int(epoch), 0) for epoch in known])[inverse]
        oldest = int(versions.min())
        for version, ranges in self._changes.items():
            if version > oldest:
                stale |= (versions < version) & _touches(ranges, offsets, addresses)
        return stale


def _file_code(mapped: MappedCode) -> set[tuple[int, int, int, CodeFile]]:
    return {(r.start, r.end, r.image_base, r.file) for r in mapped.ranges if r.known is not None}


def _replacing(new: list[CodeRange], old: list[CodeRange]) -> Ranges:
    """Code of files that lies where other code was. Both lists are by address, and none overlap in them."""
    found: Ranges = []
    if new == old:
        return found
    ends = [r.end for r in old]
    for r in new:
        below = old[bisect_right(ends, r.start) : bisect_left(old, r.end, key=lambda other: other.start)]
        if r.known is not None and any((o.image_base, o.file) != (r.image_base, r.file) for o in below):
            found.append((r.start, r.end))
    return found


def _merged(new: list[CodeRange], old: list[CodeRange], arch: str) -> CodeMap:
    """The new code, and of the old what lies apart from it."""
    taken = sorted((r.start, r.end) for r in new)
    starts = np.array([start for start, _ in taken], np.uint64)
    ends = np.array([end for _, end in taken], np.uint64)
    kept = []
    for r in old:
        before = int(np.searchsorted(starts, np.uint64(r.end), "left"))  # begin below its end
        if before == 0 or int(ends[before - 1]) <= r.start:
            kept.append(r)
    return CodeMap([CodeEntry(r.start, r.end, r.image_base, r.file) for r in [*new, *kept]], arch)


def _touches(ranges: Ranges, offsets: NDArray[np.uint64], addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """bool[n]: which samples have a frame there. A return address may be the first one behind its code."""
    inside = np.zeros(len(addresses) + 1, np.int64)
    found = np.zeros(len(addresses), np.bool_)
    for start, end in ranges:
        found |= (addresses >= np.uint64(start)) & (addresses <= np.uint64(end))
    np.cumsum(found, out=inside[1:])
    touched: NDArray[np.bool_] = inside[offsets[1:]] != inside[offsets[:-1]]
    return touched
