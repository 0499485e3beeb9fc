"""Sections of an ELF file: names, places, bytes.

Sections are looked up in the header array and made into objects only when asked for: a damaged file may
declare a million of them, all with names that overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import overload

import numpy as np
import numpy.typing as npt

from unspool.binaries.binary import Section, Segment
from unspool.binaries.byte_source import ByteSource
from unspool.binaries.elf_compression import CompressionError, decompress_section, decompress_zdebug
from unspool.binaries.elf_headers import (
    SECTION_HEADER,
    SHF_ALLOC,
    SHF_COMPRESSED,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_NOBITS,
    SHT_NULL,
    Headers,
    SectionHeader,
)

MAX_NAME = 1 << 12  # bytes of a section's name that are shown
OBJECT_BASE = 1 << 16  # where an object file's first section is laid out: on a page of any size, not 0
MAX_OBJECT_ADDRESS = 1 << 47


class SectionTable(Sequence[Section]):
    """All sections; [0] is the null section, as in the file. `addresses`: uint64[n], laid out for object
    files (ET_REL), whose sections have no addresses of their own."""

    def __init__(self, source: ByteSource, headers: Headers) -> None:
        self._source = source
        self.headers = headers.sections
        self._headers_offset = headers.sections_offset
        self._names_section = headers.names_section
        self.addresses = self.headers["addr"].astype(np.uint64)
        if headers.type == "rel":
            self.addresses = self._lay_out()

    def __len__(self) -> int:
        return len(self.headers)

    @overload
    def __getitem__(self, index: int) -> Section: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Section]: ...
    def __getitem__(self, index: int | slice) -> Section | Sequence[Section]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        header = self.row(index)
        return Section(
            self.name(index),
            int(self.addresses[index]),
            header.offset,
            header.size,
            header.type,
            header.flags,
            partial(self.data, index),
        )

    def __iter__(self) -> Iterator[Section]:
        return (self[i] for i in range(len(self)))

    def row(self, index: int) -> SectionHeader:
        return SectionHeader(*self.headers[index].tolist())

    def name(self, index: int) -> str:
        start = self.row(index).name
        names = self._names
        if start >= len(names):
            if not start:
                return ""
            what = f"the name of section {index} ({start:#x}) lies outside of the section names,"
            raise self._source.error(what, self._header_offset(index))
        raw = names[start : start + MAX_NAME].partition(b"\0")[0]
        return raw.decode("utf-8", "backslashreplace")

    def find_all(self, name: str) -> list[int]:
        """Indices of the sections with exactly this name."""
        return self.find_each(name)[0]

    def find_each(self, *names: str) -> list[list[int]]:
        """The same of each of several names."""
        blob, starts = self._names, self._name_starts
        wanted = tuple(name.encode() + b"\0" for name in names)
        found = [i for i, start in enumerate(starts) if i and blob.startswith(wanted, start)]
        return [[i for i in found if blob.startswith(one, starts[i])] for one in wanted]

    def find(self, name: str) -> int | None:
        """The first section of that name; for `.debug_x` also `.zdebug_x`."""
        found = self.find_all(name)
        if not found and name.startswith(".debug_"):
            found = self.find_all(".z" + name[1:])
        return found[0] if found else None

    def data(self, index: int) -> memoryview:
        """The section's bytes, decompressed; empty for a section without file bytes."""
        header = self.row(index)
        if header.type in (SHT_NOBITS, SHT_NULL):
            return memoryview(b"")
        name = self.name(index)
        what = f"section {index} ({name or 'without a name'})"
        data = self._source.read(header.offset, header.size, what)
        try:
            if header.flags & SHF_COMPRESSED:
                return memoryview(decompress_section(data))
            if name.startswith(".zdebug_"):
                return memoryview(decompress_zdebug(data))
        except CompressionError as problem:
            raise self._source.error(f"{what}: {problem}", header.offset) from problem
        return data

    def code_ranges(self) -> list[tuple[int, int]]:
        """[start, end) of each section that holds code."""
        code = (self.headers["flags"] & SHF_ALLOC != 0) & (self.headers["flags"] & SHF_EXECINSTR != 0)
        starts, sizes = self.addresses[code].tolist(), self.headers["size"][code].tolist()
        return [(start, min(start + size, 2**64 - 1)) for start, size in zip(starts, sizes, strict=True)]

    def segments(self) -> tuple[Segment, ...]:
        """An object file's allocated sections as segments, since it has no program headers."""
        chosen = (self.headers["flags"] & SHF_ALLOC != 0) & (self.headers["size"] > 0)
        rows = [SectionHeader(*row) for row in self.headers[chosen].tolist()]
        return tuple(
            Segment(
                address,
                row.offset,
                0 if row.type == SHT_NOBITS else row.size,
                row.size,
                True,
                bool(row.flags & SHF_WRITE),
                bool(row.flags & SHF_EXECINSTR),
                max(row.addralign, 1),
            )
            for address, row in zip(self.addresses[chosen].tolist(), rows, strict=True)
        )

    @cached_property
    def _names(self) -> bytes:
        if not self._names_section:
            return b""
        header = self.row(self._names_section)
        return bytes(self._source.read(header.offset, header.size, "the section names"))

    @cached_property
    def _name_starts(self) -> list[int]:
        starts: list[int] = self.headers["name"].tolist()
        return starts

    def _lay_out(self) -> npt.NDArray[np.uint64]:
        """Puts allocated sections one after the other, each on a multiple of its alignment."""
        which = np.flatnonzero(self.headers["flags"] & SHF_ALLOC).tolist()
        placed: list[int] = []
        next_free = OBJECT_BASE
        for i, raw in zip(which, self.headers[which].tolist(), strict=True):
            row = SectionHeader(*raw)
            align = max(row.addralign, 1)
            if align & (align - 1):
                what = f"section {i} is aligned to {align} bytes, not a power of two,"
                raise self._source.error(what, self._header_offset(i))
            placed.append(-(-next_free // align) * align)
            next_free = placed[-1] + row.size
            if next_free > MAX_OBJECT_ADDRESS:
                what = f"section {i} ({row.size} bytes) does not fit into an address space"
                raise self._source.error(what, self._header_offset(i))
        addresses = np.zeros(len(self.headers), dtype=np.uint64)
        addresses[which] = np.array(placed, dtype=np.uint64)
        return addresses

    def _header_offset(self, index: int) -> int:
        return self._headers_offset + index * SECTION_HEADER.itemsize
