"""Which files are mapped where in one process, at one time.

A ModuleMap never changes: an Unwinder makes a new one whenever its modules change, so that a stack
still knows the modules with which it was walked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from unspool.binaries import Binary
from unspool.core import ModuleInput, Modules
from unspool.unwind.addresses import LookupAddress
from unspool.unwind.kept_code import segment_code
from unspool.unwind.table import WalkTable

LAST_ADDRESS = (1 << 64) - 1  # C holds the ends of modules in 64 bits


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A file in a process, or other code there (binary is None). It is its own handle."""

    binary: Binary | None
    table: WalkTable | None
    image_base: int  # the address of relative address 0
    name: str = field(default="[anonymous]")


class Mapping(NamedTuple):
    """Code at the addresses start <= a < end belongs to a module."""

    start: int
    end: int
    module: Module

    def without(self, start: int, end: int) -> list[Mapping]:
        """What is left of it when something else takes the addresses start <= a < end."""
        pieces = ((self.start, min(self.end, start)), (max(self.start, end), self.end))
        return [Mapping(low, high, self.module) for low, high in pieces if low < high]


class ModuleMap:
    """Mappings that do not overlap, in order."""

    def __init__(self, mappings: Iterable[Mapping]) -> None:
        self.mappings: Sequence[Mapping] = sorted(mappings, key=lambda mapping: mapping.start)
        self._starts = [mapping.start for mapping in self.mappings]
        self._with_code: Modules | None = None
        self._without_code: Modules | None = None

    def find(self, address: LookupAddress) -> Module | None:
        """The module whose code is there."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self.mappings[index].end:
            return None
        return self.mappings[index].module

    def for_core(self, *, with_code: bool) -> Modules:
        """As C sees it. Walks over a snapshot need the files' code for proofs; walks over a process
        read it there, and no file needs to be read."""
        if with_code:
            if self._with_code is None:
                self._with_code = Modules([_module_input(m, _code(m)) for m in self.mappings])
            return self._with_code
        if self._without_code is None:
            self._without_code = Modules([_module_input(m, None) for m in self.mappings])
        return self._without_code


def executable_mappings(module: Module, binary: Binary, start: int | None, end: int | None) -> list[Mapping]:
    """Where the code of a module lies: its executable segments, or what of [start, end) they cover (the
    rest of a page holds other bytes of the file); the whole of [start, end) if they cover nothing. A segment
    goes on up to the next one at most, whatever the file says: no address is in two."""
    low, high = start or 0, LAST_ADDRESS if end is None else min(end, LAST_ADDRESS)
    bias = module.image_base - binary.image_address
    pieces: list[Mapping] = []
    for segment in sorted(binary.segments, key=lambda segment: segment.address, reverse=True):
        if segment.executable:
            piece_start = max(low, segment.address + bias)
            segment_end = segment.address + segment.memory_size + bias
            piece_end = min(pieces[-1].start if pieces else high, segment_end)
            if piece_start < piece_end:
                pieces.append(Mapping(piece_start, piece_end, module))
    pieces.reverse()
    if not pieces and start is not None and end is not None:
        pieces.append(Mapping(start, high, module))
    return pieces


def _module_input(mapping: Mapping, code: memoryview | None) -> ModuleInput:
    module = mapping.module
    table = module.table.core_table if module.table is not None else None
    return ModuleInput(mapping.start, mapping.end, module.image_base, table, code)


def _code(mapping: Mapping) -> memoryview | None:
    """The file's bytes for a mapping; None where it has none or can't be read (proofs from code fail)."""
    binary = mapping.module.binary
    if binary is None:
        return None
    address = mapping.start - mapping.module.image_base + binary.image_address
    for segment in binary.segments:
        if segment.executable and segment.address <= address < segment.address + segment.file_size:
            offset = address - segment.address
            return segment_code(binary, segment)[offset : offset + mapping.end - mapping.start] or None
    return None
