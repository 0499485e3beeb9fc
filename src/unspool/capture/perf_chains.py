"""Call chains as the kernel writes them: addresses with marks in between that say whose they are.

The kernel's own frames come from its unwinder; those of the program from following frame pointers, which
nothing proves.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from unspool.capture.perf_records import MODE_KERNEL, MODE_USER
from unspool.capture.perf_samples import SampleColumns

_FIRST_MARK = np.uint64((1 << 64) - 4095)  # PERF_CONTEXT_MAX
_KERNEL_MARK = np.uint64((1 << 64) - 128)
_USER_MARK = np.uint64((1 << 64) - 512)
T = TypeVar("T", bound=np.generic)


class Runs(NamedTuple, Generic[T]):
    """Something of each frame of n samples: values[offsets[i] : offsets[i + 1]] is of sample i."""

    values: NDArray[T]
    offsets: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)


Frames: TypeAlias = Runs[np.uint64]  # addresses


def split_chains(words: NDArray[np.uint64], samples: SampleColumns) -> tuple[Frames, Frames]:
    """The kernel's and the program's part of every sample's call chain, innermost frame first. A sample
    without a chain has one frame: where it was taken."""
    counts = samples.chain_count
    starts = np.zeros(len(samples) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    owner = np.repeat(np.arange(len(samples)), counts)
    within = np.arange(starts[-1]) - starts[owner]
    entries = words[samples.chain_at[owner] + within]
    is_mark = entries >= _FIRST_MARK
    last_mark = np.maximum.accumulate(np.where(is_mark, np.arange(len(entries)), -1))
    marked = last_mark >= starts[owner]  # in the same sample
    first_mark = np.where(samples.modes == MODE_KERNEL, _KERNEL_MARK, _USER_MARK)
    marks = np.where(marked, entries[last_mark], first_mark[owner]) if len(entries) else entries
    kernel = _part(entries, owner, ~is_mark & (marks == _KERNEL_MARK), samples, MODE_KERNEL)
    return kernel, _part(entries, owner, ~is_mark & (marks == _USER_MARK), samples, MODE_USER)


def _part(
    entries: NDArray[np.uint64],
    owner: NDArray[np.int64],
    chosen: NDArray[np.bool_],
    samples: SampleColumns,
    mode: int,
) -> Frames:
    counts = np.bincount(owner[chosen], minlength=len(samples)).astype(np.int64)
    alone = (counts == 0) & (samples.modes == mode)
    counts[alone] = 1
    offsets = np.zeros(len(samples) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    addresses = np.empty(offsets[-1], np.uint64)
    is_alone = np.repeat(alone, counts)
    addresses[is_alone] = samples.ips[alone]
    addresses[~is_alone] = entries[chosen]
    return Runs(addresses, offsets)


def merged(parts: list[Runs[T]]) -> Runs[T]:
    """Each sample's frames of all parts, one part after the other."""
    counts = np.sum([part.counts for part in parts], axis=0)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    values = np.empty(offsets[-1], parts[0].values.dtype)
    at = offsets[:-1].copy()
    for part in parts:
        values[spread(part.offsets, at)] = part.values
        at += part.counts
    return Runs(values, offsets)


def spread(offsets: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """For runs of offsets[i + 1] - offsets[i] items each: where they are if run i begins at starts[i]."""
    counts = np.diff(offsets)
    moved: NDArray[np.int64] = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)
    return moved
