"""Which code is mapped where in a process, as records of mappings tell it: an address space, which never
changes.

A mapping makes a new one. A forked process shares its parent's until it maps something itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from unspool.binaries import Binary, BinaryError
from unspool.capture.perf_files import FoundFile
from unspool.capture.perf_records import Mapped
from unspool.capture.samples import BinaryKind, CodeEntry, CodeMap
from unspool.core import TablePool
from unspool.unwind import Unwinder
from unspool.unwind.table import WalkTable
from unspool.unwind.table_cache import walk_table

_LAST_ADDRESS = (1 << 64) - 1
_DEPTH_LIMIT = 4096


class Region(NamedTuple):
    """Code at the addresses start <= a < end. image_base: of the file; 0 without one."""

    start: int
    end: int
    image_base: int
    file: FoundFile

    def without(self, start: int, end: int) -> list[Region]:
        """What is left when something else takes start <= a < end."""
        pieces = ((self.start, min(self.end, start)), (max(self.start, end), self.end))
        return [self._replace(start=low, end=high) for low, high in pieces if low < high]

    def is_same_code(self, other: Region) -> bool:
        """Whether an address means the same in both."""
        return self.file.code_file == other.file.code_file and self.image_base == other.image_base


@dataclass
class Tables:
    """Unwind tables, one a file. missing: files without one, and why."""

    missing: dict[str, str]
    _pool: TablePool = field(default_factory=TablePool)
    _tables: dict[Binary, WalkTable | None] = field(default_factory=dict)

    def of(self, binary: Binary) -> WalkTable | None:
        """None: there is none; the code counts as code without unwind information."""
        if binary not in self._tables:
            try:
                self._tables[binary] = walk_table(binary, self._pool)
            except BinaryError as error:
                self._tables[binary] = None
                self.missing.setdefault(binary.path, f"its unwind information can't be read: {error.what}")
        return self._tables[binary]


class AddressSpace:
    """The code of a process. regions: in order, not overlapping."""

    def __init__(self, arch: str, tables: Tables, regions: tuple[Region, ...] = ()) -> None:
        self.arch = arch
        self.regions = regions
        self._tables = tables

    def with_mapping(self, mapped: Mapped, find: Callable[[Mapped], FoundFile]) -> tuple[AddressSpace, bool]:
        """The space after a mapping, and whether code was replaced by other code: if not, this space serves
        earlier samples too."""
        region = _region(mapped, find) if mapped.is_code else None
        start, end = mapped.start, min(mapped.end, _LAST_ADDRESS)
        # With those that only touch it, to be joined.
        first = bisect_left(self.regions, start, key=lambda other: other.end)
        last = bisect_right(self.regions, end, first, key=lambda other: other.start)
        near = self.regions[first:last]
        taken = [other for other in near if other.start < end and other.end > start]
        if region is None and not taken:
            return self, False
        if region is not None and any(
            r.start <= start and end <= r.end and r.is_same_code(region) for r in taken
        ):
            return self, False
        is_change = any(region is None or not other.is_same_code(region) for other in taken)
        pieces = [piece for other in near for piece in other.without(start, end)]
        if region is not None:
            pieces = _inserted(pieces, region)
        regions = (*self.regions[:first], *pieces, *self.regions[last:])
        return AddressSpace(self.arch, self._tables, regions), is_change

    @cached_property
    def code_map(self) -> CodeMap:
        """For recordings."""
        return CodeMap(
            (CodeEntry(r.start, r.end, r.image_base, r.file.code_file) for r in self.regions), self.arch
        )

    @cached_property
    def unwinder(self) -> Unwinder:
        """For walks."""
        unwinder = Unwinder(self.arch, depth_limit=_DEPTH_LIMIT)
        for region in self.regions:
            binary = region.file.binary
            table = self._tables.of(binary) if binary is not None else None
            unwinder.add_module(
                binary if table else None,
                region.image_base,
                start=region.start,
                end=region.end,
                table=table,
                name=region.file.code_file.path,
                replacing=True,
            )
        return unwinder


def _region(mapped: Mapped, find: Callable[[Mapped], FoundFile]) -> Region | None:
    start, end = mapped.start, min(mapped.end, _LAST_ADDRESS)
    if start >= end or mapped.path == "[vsyscall]":
        return None
    found = find(mapped)
    if found.code_file.kind is BinaryKind.JIT:
        return Region(start, end, 0, found)
    image_base = found.binary.image_base(start, mapped.file_offset, end) if found.binary is not None else None
    if image_base is None or not 0 <= image_base < _LAST_ADDRESS:
        found = FoundFile(None, found.code_file)
        image_base = max(start - mapped.file_offset, 0)
    return Region(start, end, image_base, found)


def _inserted(pieces: list[Region], region: Region) -> list[Region]:
    """Sorted, and joined with what is left of the same code on either side: runtimes with JIT code change the
    protection of page after page."""
    result: list[Region] = []
    for piece in sorted([*pieces, region]):
        if result and result[-1].end == piece.start and result[-1].is_same_code(piece):
            result[-1] = result[-1]._replace(end=piece.end)
        else:
            result.append(piece)
    return result
