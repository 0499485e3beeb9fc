"""What walk_many yields: the stacks of many samples in a few arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unspool.core import BatchResult
from unspool.core_interface import GUESS
from unspool.unwind.modules import ModuleMap
from unspool.unwind.stack import Stack, StackEnd


@dataclass(frozen=True)
class StackBatch:
    """The stacks of n samples, m frames in all.

    Frames of sample i are [offsets[i] : offsets[i + 1]] of addresses and how, innermost first.
    addresses: uint64[m]; how: uint8[m], How with GUESS (0x80) where nothing proves the frame;
    offsets: uint64[n + 1]; ends: uint8[n], StackEnd.
    """

    addresses: NDArray[np.uint64]
    how: NDArray[np.uint8]
    offsets: NDArray[np.uint64]
    ends: NDArray[np.uint8]
    modules: ModuleMap = field(repr=False)

    def __len__(self) -> int:
        return len(self.ends)

    def stack(self, index: int) -> Stack:
        """Sample number index as a Stack. IndexError."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        frames = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        end = int(self.ends[index])
        return Stack(self.addresses[frames].tobytes(), self.how[frames].tobytes(), end, self.modules)

    @cached_property
    def has_guess(self) -> NDArray[np.bool_]:
        """bool[n]: which stacks have a guess in them."""
        return stacks_with_guess(self.how, self.offsets)

    @cached_property
    def _at_root(self) -> NDArray[np.bool_]:
        at_root: NDArray[np.bool_] = self.ends == StackEnd.ROOT
        return at_root

    @property
    def complete(self) -> NDArray[np.bool_]:
        """bool[n]: ended at the root, and every frame is the file's own word or proved."""
        return self._at_root & ~self.has_guess

    @property
    def guessed(self) -> NDArray[np.bool_]:
        """bool[n]: ended at the root, but with a guess in it."""
        return self._at_root & self.has_guess

    @property
    def cut(self) -> NDArray[np.bool_]:
        """bool[n]: ended before the root."""
        return ~self._at_root


def stacks_with_guess(how: NDArray[np.uint8], offsets: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """bool[n]: which stacks have a guess in them. how: uint8[m], of all frames; offsets: uint64[n + 1]."""
    guesses = np.zeros(len(how) + 1, np.int64)
    np.cumsum(how >= GUESS, out=guesses[1:])
    has_guess: NDArray[np.bool_] = guesses[offsets[1:]] != guesses[offsets[:-1]]
    return has_guess


def joined(parts: list[BatchResult], modules: ModuleMap) -> StackBatch:
    """One batch from consecutive parts of it."""
    if len(parts) == 1:
        return StackBatch(*parts[0], modules)
    offsets = [np.zeros(1, np.uint64)]
    for part in parts:
        offsets.append(part.offsets[1:] + offsets[-1][-1])
    return StackBatch(
        np.concatenate([part.addresses for part in parts]),
        np.concatenate([part.how for part in parts]),
        np.concatenate(offsets),
        np.concatenate([part.ends for part in parts]),
        modules,
    )
