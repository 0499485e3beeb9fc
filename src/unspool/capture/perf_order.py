"""Puts the records of several rings into the order of time.

`perf record` empties one ring after the other, so that records of two processors are mixed up; but whenever
it has emptied all of them once, it marks the end of a round. Nothing that comes after a round is older than
the latest record of the round before, so that all up to there can be taken, and little has to be kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unspool.capture.perf_records import OtherRecord, RecordChunk
from unspool.capture.perf_samples import SampleColumns

_KEPT_AT_MOST = (
    64 << 20
)  # bytes of records; a file without rounds is taken apart although it may be out of order
_LAST = (1 << 64) - 1


@dataclass
class SampleSet:
    """Samples of one event from one buffer."""

    words: NDArray[np.uint64]
    event: int
    samples: SampleColumns


@dataclass
class Window:
    """What happened in a while: all records but samples in the order of time, and samples (unordered)."""

    others: list[OtherRecord]
    samples: list[SampleSet]


class TimeOrder:
    """Takes chunks in the order of the file, gives windows in the order of time."""

    def __init__(self) -> None:
        self._others: list[OtherRecord] = []
        self._samples: list[SampleSet] = []
        self.latest = 0  # time of all records so far
        self._before_round = 0  # the same when the last round ended
        self._limit = -1  # up to here nothing older can come; what was there before perf bears the time 0

    def add(self, chunk: RecordChunk) -> None:
        for latest in chunk.rounds:
            self.end_round(latest)
        self._others.extend(chunk.others)
        for event, samples in chunk.samples:
            self._samples.append(SampleSet(chunk.words, event, samples))
            self.latest = max(self.latest, int(samples.times.max()))
        for other in chunk.others:
            self.latest = max(self.latest, other.time)

    def end_round(self, latest: int = 0) -> None:
        """All rings were emptied. latest: time of any record in the current chunk before that."""
        if self._before_round:
            self._limit = max(self._limit, self._before_round)
        self._before_round = max(self.latest, latest)

    def take(self, *, everything: bool = False) -> Window:
        """All up to the time that no record can precede any more."""
        limit = _LAST if everything else self._limit
        kept = sum({id(part.words): part.words.nbytes for part in self._samples}.values())
        if not everything and kept > _KEPT_AT_MOST:
            times = np.concatenate([part.samples.times for part in self._samples])
            limit = max(limit, int(np.quantile(times, 0.75, method="lower")))
        others = [record for record in self._others if record.time <= limit]
        self._others = [record for record in self._others if record.time > limit]
        taken, left = [], []
        for part in self._samples if limit >= 0 else ():
            old = part.samples.times <= np.uint64(max(limit, 0))
            if old.all():
                taken.append(part)
            elif not old.any():
                left.append(part)
            else:
                taken.append(SampleSet(part.words, part.event, part.samples.take(old)))
                left.append(SampleSet(part.words, part.event, part.samples.take(~old)))
        self._samples = left if limit >= 0 else self._samples
        others.sort(key=lambda record: record.time)
        return Window(others, taken)
