"""Finds numbers by keys, for many keys at once: of nodes in the prefix tree of stacks, of frames.

A hash table with open addressing in NumPy arrays: 12 bytes a slot, where a dict would need ten times that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unspool.core_interface import GUESS

MAX_FRAMES = 1 << 28
MAX_NODES = (1 << 31) - 2
_EMPTY = np.uint64((1 << 64) - 1)  # no key: there are no MAX_NODES + 1 nodes
# Slots for each key: where there are many, most keys are found at the first look; every further look takes
# as long as that.
_SMALL, _SLOTS_WHILE_SMALL, _SLOTS = 1 << 16, 8, 2
_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)  # 2^64 / golden ratio: spreads what differs in low bits


def address_keys(
    addresses: NDArray[np.uint64], is_return: NDArray[np.bool_]
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """One number for each (address, is_return), and which of them no other pair has: those of all addresses
    that a process or the kernel can have."""
    upper = addresses >> np.uint64(62)
    keys = addresses << np.uint64(1) | is_return
    return keys, ((upper == 0) | (upper == 3)) & (keys != _EMPTY)


def keys_of(
    parent: NDArray[np.int64], frame: NDArray[np.int64], how: NDArray[np.uint8]
) -> NDArray[np.uint64]:
    """One number for each (parent, frame, how): parent + 1 in the upper 31 bits, then 28 bits of the frame,
    the guess and four bits of how."""
    return below(parent, steps_of(frame, how))


def steps_of(frame: NDArray[np.int64], how: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The lower part of a key: what leads from a parent to its child."""
    five_bits = (how & 0x0F) | (how & GUESS) >> 3
    return frame << 5 | five_bits


def below(parent: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The keys of the children to which steps lead."""
    return ((parent + 1) << 33 | steps).view(np.uint64)


def parts_of(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The reverse: parent, frame, how."""
    low = keys & np.uint64(0x1F)
    how = (low & np.uint64(0x0F)) | (low & np.uint64(0x10)) << np.uint64(3)
    frame = keys >> np.uint64(5) & np.uint64(MAX_FRAMES - 1)
    return (keys >> np.uint64(33)).astype(np.int64) - 1, frame.astype(np.int64), how.astype(np.int64)


class NumberTable:
    """From keys to numbers. It grows; how far is for its owner to say."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._make_room(1 << 6)

    def __len__(self) -> int:
        return self._count

    def find(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Each key's number; -1: it is not here."""
        slot = self._slots(keys)
        there = self._keys[slot]
        hit = there == keys
        found = np.where(hit, self._numbers[slot], -1).astype(np.int64)
        (active,) = (~hit & (there != _EMPTY)).nonzero()
        slot = slot[active]
        while len(active):
            slot = slot + 1 & self._mask
            there = self._keys[slot]
            hit = there == keys[active]
            found[active[hit]] = self._numbers[slot[hit]]
            on = ~hit & (there != _EMPTY)
            active, slot = active[on], slot[on]
        return found

    def add(self, keys: NDArray[np.uint64], numbers: NDArray[np.int64]) -> None:
        """Distinct keys that are not here yet."""
        count = self._count + len(keys)
        least = count * (_SLOTS_WHILE_SMALL if count <= _SMALL else _SLOTS)
        if least > len(self._keys):
            used = self._keys != _EMPTY
            old_keys, old_numbers = self._keys[used], self._numbers[used]
            self._make_room(1 << least.bit_length())
            self._place(old_keys, old_numbers)
        self._place(keys, numbers)

    def _make_room(self, slots: int) -> None:
        self._keys = np.full(slots, _EMPTY, np.uint64)
        self._numbers = np.zeros(slots, np.int32)
        self._mask = slots - 1
        self._shift = np.uint64(64 - self._mask.bit_length())
        self._count = 0

    def _slots(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        return (keys * _FACTOR >> self._shift).view(np.int64)

    def _place(self, keys: NDArray[np.uint64], numbers: NDArray[np.int64]) -> None:
        self._count += len(keys)
        slot = self._slots(keys)
        while len(keys):
            free = self._keys[slot] == _EMPTY
            self._keys[slot[free]] = keys[free]  # of several that want one slot, one gets it
            here = free & (self._keys[slot] == keys)
            self._numbers[slot[here]] = numbers[here]
            keys, numbers, slot = keys[~here], numbers[~here], slot[~here] + 1 & self._mask
