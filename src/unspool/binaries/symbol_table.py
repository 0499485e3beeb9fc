"""Symbols of one file as NumPy arrays, and the search for the symbol at an address.

Knows no file format. Names stay bytes in one blob until somebody asks for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

Addresses = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Symbol types and bindings as in the ELF format (gABI, "Symbol Table").
NOTYPE, OBJECT, FUNCTION, SECTION, FILE, COMMON, TLS, INDIRECT_FUNCTION = 0, 1, 2, 3, 4, 5, 6, 10
LOCAL, GLOBAL, WEAK, UNIQUE = 0, 1, 2, 10

RESERVED = 0xFFFF0000  # set in `section` for symbols that are in none: absolute, common, …
MAX_NAME = 1 << 16  # bytes of a name that are shown; longer ones are cut


class SymbolTable:
    """n symbols, as the file lists them.

    address, size: uint64[n]; type, binding: uint8[n]; section: uint32[n] (section header index; from
    RESERVED on: in no section); name_offset: uint64[n], into `names`. Undefined symbols are left out. For
    symbols of type TLS the address is an offset in the thread's block, for absolute ones a plain number.
    """

    def __init__(
        self,
        address: Addresses,
        size: Addresses,
        type: npt.NDArray[np.uint8],
        binding: npt.NDArray[np.uint8],
        section: npt.NDArray[np.uint32],
        name_offset: Addresses,
        names: bytes,
        code_ranges: Sequence[tuple[int, int]],
    ) -> None:
        """`names`: NUL-terminated; `code_ranges`: the address ranges [start, end) that hold code."""
        self.address = address
        self.size = size
        self.type = type
        self.binding = binding
        self.section = section
        self.name_offset = name_offset
        self.names = names
        ranges = np.array(sorted(code_ranges), dtype=np.uint64).reshape(-1, 2)
        self._code_starts, self._code_ends = ranges[:, 0].copy(), ranges[:, 1].copy()

    def __len__(self) -> int:
        return len(self.address)

    def name(self, index: int) -> str:
        """A symbol's name without its version (`@…`); bytes that are not UTF-8 are shown as \\x escapes."""
        start = int(self.name_offset[index])
        end = self.names.find(b"\0", start, start + MAX_NAME)
        raw = self.names[start : end if end >= 0 else start + MAX_NAME]
        at = raw.find(b"@", 1)
        return (raw if at < 0 else raw[:at]).decode("utf-8", "backslashreplace")

    def lookup(self, address: int) -> tuple[str, int] | None:
        """The symbol at a virtual address: (name, address - its start), or None.

        Functions go before labels without size, these before data; of functions that contain each other the
        innermost; of names for one function a global one, with the fewest leading underscores.
        """
        if not 0 <= address < 1 << 64:
            return None
        key = np.uint64(address)
        for partition in self._partitions:
            index = partition.owner_of(key)
            if index >= 0:
                return self.name(index), address - int(self.address[index])
        return None

    def find(self, addresses: Addresses) -> Indices:
        """For each virtual address what lookup() finds: int64 indices of symbols, -1 = none."""
        addresses = np.asarray(addresses, dtype=np.uint64)
        found = np.full(addresses.shape, -1, dtype=np.int64)
        for partition in self._partitions:
            missing = found < 0
            found[missing] = partition.owners_of(addresses[missing])
        return found

    @cached_property
    def _partitions(self) -> tuple[_Partition, _Partition, _Partition]:
        """In the order of the search: functions, labels, data."""
        first_byte, second_byte = self._byte_of_name(0), self._byte_of_name(1)
        # Mapping symbols of aarch64 ($x, $d) mark code and data, and .L symbols are the compiler's own.
        placed = (self.section < RESERVED) & (first_byte != ord("$")) & (first_byte != 0)
        placed &= ~((first_byte == ord(".")) & (second_byte == ord("L")))
        in_code, code_end = self._code_range_of()
        is_function = (self.type == FUNCTION) | (self.type == INDIRECT_FUNCTION)
        is_code = placed & (is_function | (in_code & (self.type == NOTYPE)))
        is_data = placed & ((self.type == OBJECT) | ((self.type == NOTYPE) & ~in_code)) & (self.size > 0)
        underscores = np.where(first_byte == ord("_"), np.where(second_byte == ord("_"), 2, 1), 0)
        # Small is better.
        rank = 12 * (~is_function).astype(np.int64) + 6 * (self.binding == LOCAL) + 2 * underscores
        rank += self.binding == WEAK

        end = self.address + self.size
        end[end < self.address] = np.uint64(2**64 - 1)
        functions = np.flatnonzero(is_code & (self.size > 0))
        labels = np.flatnonzero(is_code & (self.size == 0) & in_code)
        # A label holds until the next symbol or the end of its section.
        starts = _sorted_set(self.address[is_code | is_data])
        next_start = np.append(starts, np.uint64(2**64 - 1))[
            np.searchsorted(starts, self.address[labels], "right")
        ]
        label_end = np.minimum(next_start, code_end[labels])
        data = np.flatnonzero(is_data)
        return (
            _Partition(functions, self.address[functions], end[functions], rank[functions]),
            _Partition(labels, self.address[labels], label_end, rank[labels]),
            _Partition(data, self.address[data], end[data], rank[data]),
        )

    def _byte_of_name(self, position: int) -> npt.NDArray[np.uint8]:
        blob = np.frombuffer(self.names, dtype=np.uint8)
        if not len(blob):
            return np.zeros(len(self), dtype=np.uint8)
        last = np.uint64(len(blob) - 1)
        first: npt.NDArray[np.uint8] = blob[np.minimum(self.name_offset + np.uint64(position), last)]
        return first

    def _code_range_of(self) -> tuple[Mask, Addresses]:
        """Whether each symbol lies in a code range, and that range's end."""
        if not len(self._code_starts):
            return np.zeros(len(self), dtype=bool), np.zeros(len(self), dtype=np.uint64)
        which = np.searchsorted(self._code_starts, self.address, "right") - 1
        end = self._code_ends[np.maximum(which, 0)]
        return (which >= 0) & (self.address < end), end


def _sorted_set(values: Addresses) -> Addresses:
    """np.unique, which is several times slower in some versions of NumPy."""
    values = np.sort(values)
    kept: Addresses = values[np.append(True, values[1:] != values[:-1])[: len(values)]]
    return kept


class _Partition:
    """Cuts the addresses at the symbols' starts and ends and says for each piece which symbol owns it:
    of those that cover it the one that starts last, of equal starts the one of the lowest rank."""

    def __init__(self, symbols: Indices, starts: Addresses, ends: Addresses, rank: Indices) -> None:
        order = np.lexsort((-symbols, -rank, starts))
        symbols, starts, ends = symbols[order], starts[order], ends[order]
        self._cuts = _sorted_set(np.concatenate((starts, ends)))
        # `last` is the last symbol that starts at or before the cut; where it ended already, an earlier
        # one may still cover the cut (one function inside another): rare, hence a search of its own.
        last = np.searchsorted(starts, self._cuts, "right") - 1
        covers = (last >= 0) & (ends[np.maximum(last, 0)] > self._cuts)
        owner = np.where(covers, last, -1)
        if len(ends):
            reach = np.maximum.accumulate(ends)
            open_cuts = np.flatnonzero(~covers & (last >= 0) & (reach[np.maximum(last, 0)] > self._cuts))
            owner[open_cuts] = _last_above(ends, last[open_cuts], self._cuts[open_cuts])
        self._owner = np.append(symbols, -1)[owner]

    def owner_of(self, address: np.uint64) -> int:
        cut = int(np.searchsorted(self._cuts, address, "right")) - 1
        return int(self._owner[cut]) if cut >= 0 else -1

    def owners_of(self, addresses: Addresses) -> Indices:
        if not len(self._cuts):
            return np.full(addresses.shape, -1, dtype=np.int64)
        cut = np.searchsorted(self._cuts, addresses, "right") - 1
        return np.where(cut >= 0, self._owner[np.maximum(cut, 0)], -1)


def _last_above(values: Addresses, last: Indices, limits: Addresses) -> Indices:
    """For each query the greatest i <= last with values[i] > limit; one exists. O(log n) array steps over a
    tree of maxima, so that no arrangement of symbols takes quadratic time."""
    levels = [values]
    while len(levels[-1]) > 1:
        padded = np.append(levels[-1], np.zeros(len(levels[-1]) % 2, dtype=np.uint64))
        levels.append(padded.reshape(-1, 2).max(axis=1))
    # Up: blocks that end at `position`, ever larger, until one holds a greater value.
    position = last + 1
    level_found = np.full(len(last), -1, dtype=np.int64)
    for level, maxima in enumerate(levels):
        block = (position >> level) - 1
        here = (level_found < 0) & ((position >> level) & 1 == 1)
        above = here & (maxima[np.minimum(np.maximum(block, 0), len(maxima) - 1)] > limits)
        level_found[above] = level
        position = np.where(here & ~above, position - (1 << level), position)
    # Down: the right half first.
    node = (position >> level_found) - 1
    for level in range(len(levels) - 1, 0, -1):
        inside = level_found >= level
        right = np.minimum(2 * node + 1, len(levels[level - 1]) - 1)
        takes_right = (2 * node + 1 == right) & (levels[level - 1][right] > limits)
        node = np.where(inside, np.where(takes_right, right, 2 * node), node)
    return node
