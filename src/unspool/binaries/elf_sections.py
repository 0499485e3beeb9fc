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
    SHF_ALLOC,
    SHF_COMPRESSED,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_NOBITS,
    SHT_NULL,
    Headers,
)

MAX_NAME = 1 << 12  # bytes of a section's name that are shown
OBJECT_BASE = 1 << 16  # where an object file's first section is laid out: on a page of any size, not 0


class SectionTable(Sequence[Section]):
    """All sections; [0] is the null section, as in the file. `addresses`: uint64[n], laid out for object
    files (ET_REL), whose sections have no addresses of their own."""

    def __init__(self, source: ByteSource, headers: Headers) -> None:
        self._source = source
        self.headers = headers.sections
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
        header = self.headers[index]
        return Section(
            self.name(index),
            int(self.addresses[index]),
            int(header["offset"]),
            int(header["size"]),
            int(header["type"]),
            int(header["flags"]),
            partial(self.data, index),
        )

    def __iter__(self) -> Iterator[Section]:
        return (self[i] for i in range(len(self)))

    def name(self, index: int) -> str:
        start = int(self.headers[index]["name"])
        names = self._names
        if start >= len(names):
            if not start:
                return ""
            raise self._source.error(f"the name of section {index} lies outside of the section names", start)
        raw = bytes(names[start : start + MAX_NAME]).partition(b"\0")[0]
        return raw.decode("utf-8", "backslashreplace")

    def find_all(self, name: str) -> list[int]:
        """Indices of the sections with exactly this name."""
        blob = np.frombuffer(self._names, dtype=np.uint8)
        wanted = name.encode() + b"\0"
        candidates = np.flatnonzero(self.headers["name"] + np.uint64(len(wanted)) <= np.uint64(len(blob)))
        offsets = self.headers["name"][candidates].astype(np.int64)
        for position, byte in enumerate(wanted):
            matches = blob[offsets + position] == byte
            candidates, offsets = candidates[matches], offsets[matches]
        return [int(i) for i in candidates if i]

    def find(self, name: str) -> int | None:
        """The first section of that name; for `.debug_x` also `.zdebug_x`."""
        found = self.find_all(name)
        if not found and name.startswith(".debug_"):
            found = self.find_all(".z" + name[1:])
        return found[0] if found else None

    def data(self, index: int) -> memoryview:
        """The section's bytes, decompressed; empty for a section without file bytes."""
        header = self.headers[index]
        if header["type"] in (SHT_NOBITS, SHT_NULL):
            return memoryview(b"")
        what = f"section {index} ({self.name(index) or 'without a name'})"
        offset = int(header["offset"])
        data = self._source.read(offset, int(header["size"]), what)
        try:
            if header["flags"] & SHF_COMPRESSED:
                return memoryview(decompress_section(data))
            if self.name(index).startswith(".zdebug_"):
                return memoryview(decompress_zdebug(data))
        except CompressionError as problem:
            raise self._source.error(f"{what}: {problem}", offset) from problem
        return data

    def code_ranges(self) -> list[tuple[int, int]]:
        """[start, end) of each section that holds code."""
        flags = SHF_ALLOC | SHF_EXECINSTR
        which = np.flatnonzero(self.headers["flags"] & flags == flags)
        return [
            (start, min(start + int(self.headers[i]["size"]), 2**64 - 1))
            for i in which
            for start in (int(self.addresses[i]),)
        ]

    def segments(self) -> tuple[Segment, ...]:
        """An object file's allocated sections as segments, since it has no program headers."""
        return tuple(
            Segment(
                int(self.addresses[i]),
                int(header["offset"]),
                0 if header["type"] == SHT_NOBITS else int(header["size"]),
                int(header["size"]),
                True,
                bool(header["flags"] & SHF_WRITE),
                bool(header["flags"] & SHF_EXECINSTR),
                max(int(header["addralign"]), 1),
            )
            for i, header in enumerate(self.headers)
            if header["flags"] & SHF_ALLOC and header["size"]
        )

    @cached_property
    def _names(self) -> memoryview:
        return self.data_of_names() if self._names_section else memoryview(b"")

    def data_of_names(self) -> memoryview:
        header = self.headers[self._names_section]
        return self._source.read(int(header["offset"]), int(header["size"]), "the section names")

    def _lay_out(self) -> npt.NDArray[np.uint64]:
        """Puts allocated sections one after the other, each on a multiple of its alignment."""
        addresses = np.zeros(len(self.headers), dtype=np.uint64)
        next_free = OBJECT_BASE
        for i in np.flatnonzero(self.headers["flags"] & SHF_ALLOC):
            align = max(int(self.headers[i]["addralign"]), 1)
            if align & (align - 1):
                raise self._source.error(f"section {i} is aligned to {align} bytes, not a power of two")
            address = -(-next_free // align) * align
            next_free = address + int(self.headers[i]["size"])
            if next_free >= 1 << 47:
                raise self._source.error(f"section {i} does not fit into an address space")
            addresses[i] = address
        return addresses
