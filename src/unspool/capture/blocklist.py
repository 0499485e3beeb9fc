"""Drops samples that hit certain files, and counts them as lost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from unspool.capture.samples import Happening, Lost, SampleBatch

_REASON = "interrupted in a file that is on the blocklist"


def without_blocked(happenings: Iterable[Happening], pattern: re.Pattern[str] | None) -> Iterator[Happening]:
    """All but samples whose innermost frame lies in a file whose path the pattern finds; None: all."""
    for happening in happenings:
        if pattern is None or not isinstance(happening, SampleBatch):
            yield happening
            continue
        blocked = _is_blocked(happening, pattern)
        if blocked.any():
            time = int(happening.times[blocked][-1])
            yield Lost(happening.pid, None, _REASON, int(blocked.sum()), time)
        if not blocked.all():
            yield selected(happening, ~blocked)


def selected(batch: SampleBatch, chosen: NDArray[np.bool_]) -> SampleBatch:
    """Only the chosen samples (bool[n])."""
    if chosen.all():
        return batch
    lengths = np.diff(batch.offsets)
    frames = np.repeat(chosen, lengths.astype(np.int64))
    return SampleBatch(
        pid=batch.pid,
        event=batch.event,
        times=batch.times[chosen],
        tids=batch.tids[chosen],
        weights=batch.weights[chosen],
        ends=batch.ends[chosen],
        flags=batch.flags[chosen],
        offsets=np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths[chosen], dtype=np.uint64)]),
        addresses=batch.addresses[frames],
        how=batch.how[frames],
        code_map=batch.code_map,
    )


def _is_blocked(batch: SampleBatch, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    of_file = np.array([bool(pattern.search(file.path)) for file in batch.code_map.files])
    files, _ = batch.code_map.resolve(batch.addresses, batch.is_return)
    has_frames = batch.offsets[1:] > batch.offsets[:-1]
    blocked = np.zeros(len(batch), np.bool_)
    blocked[has_frames] = of_file[files[batch.offsets[:-1][has_frames].astype(np.int64)]]
    return blocked
