"""Reads a symcache: functions, lines and inlined calls of one file by address.

A symcache is what symbolic makes of DWARF (symcache_build.py). It is read here, not through symbolic,
because symbolic joins paths wrongly where the compilation directory is relative, and because arrays can
answer for thousands of addresses at once. Nothing in it is trusted: every index is checked.

Format, version 9, little-endian; each array begins on a multiple of 8 bytes:

    "SYMC", version u32, debug id 32 bytes, architecture u32, then the counts of files, functions, source
    locations and ranges and the size of the strings, u32 each; 16 bytes
    files:            u32 each: compilation directory, directory, name, three unused; strings, NONE = no such
    functions:        u32 each: name, unused, first address, language
    source locations: u32 each: file, line (0 = unknown), function, source location it is inlined into
    ranges:           u32 each: relative address where a range begins; the last source locations, as many
                      as there are ranges, are theirs
    strings:          at an offset: the length as LEB128, the bytes
"""

from __future__ import annotations

import posixpath
import struct
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

VERSION = 9
NONE = 0xFFFFFFFF
_HEADER = struct.Struct("<4sI32x6I16x")
_MAX_DEPTH = 1000  # inlined calls in one another
_MAX_STRING = 1 << 16


class SymcacheError(ValueError):
    """Bytes that are not a symcache of this version, or a damaged one."""


class Place(NamedTuple):
    """One function at one address. name: as DWARF says, often mangled; '' = unknown. line: 0 = unknown."""

    name: str
    file: str | None
    line: int


class Symcache:
    def __init__(self, data: bytes | memoryview) -> None:
        """Raises SymcacheError."""
        if len(data) < _HEADER.size:
            raise SymcacheError("a symcache without a header")
        magic, version, _, files, functions, locations, ranges, string_bytes = _HEADER.unpack_from(data)
        if magic != b"SYMC" or version != VERSION:
            raise SymcacheError(f"a symcache of version {version}; this unspool reads version {VERSION}")
        self._data = memoryview(data)
        self._end = _HEADER.size
        self._files = self._array(files, 6)
        self._functions = self._array(functions, 4)
        self._locations = self._array(locations, 4)
        self._ranges = self._array(ranges, 1).reshape(-1)
        self._strings = -(-self._end // 8) * 8
        if self._strings + string_bytes != len(data) or ranges > locations:
            raise SymcacheError("a symcache of another size than it declares")
        self._strings_end = self._strings + string_bytes
        self._first_of_ranges = locations - ranges
        self._path = lru_cache(maxsize=None)(self._make_path)  # one entry a file
        self._name = lru_cache(maxsize=None)(self._make_name)  # one a function

    def _array(self, count: int, fields: int) -> NDArray[np.uint32]:
        start = -(-self._end // 8) * 8
        self._end = start + count * fields * 4
        if self._end > len(self._data):
            raise SymcacheError("a symcache that is cut short")
        return np.frombuffer(self._data, "<u4", count * fields, start).reshape(-1, fields)

    def __len__(self) -> int:
        """How many ranges there are; 0: no function is known."""
        return len(self._ranges)

    def find(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """For each relative address the source location there, -1 = none."""
        found = np.searchsorted(self._ranges, addresses, "right").astype(np.int64) - 1
        found[found >= 0] += self._first_of_ranges
        found[addresses >= NONE] = -1
        known = np.flatnonzero(found >= 0)
        # A range without a function is where one ends and no other begins.
        found[known[self._locations[found[known], 2] >= len(self._functions)]] = -1
        return found

    def places(self, location: int) -> list[Place]:
        """The functions at a source location that `find` gave, innermost first."""
        chain: list[Place] = []
        while 0 <= location < len(self._locations) and len(chain) < _MAX_DEPTH:
            file, line, function, into = self._locations[location].tolist()
            if function >= len(self._functions):
                break
            chain.append(Place(self._name(function), self._path(file), line))
            location = into
        return chain

    def _make_name(self, function: int) -> str:
        return self._string(int(self._functions[function, 0])) or ""

    def _make_path(self, file: int) -> str | None:
        if file >= len(self._files):
            return None
        base, directory, name = (self._string(int(offset)) or "" for offset in self._files[file, :3])
        if not name:
            return None
        # DWARF 5 lists the compilation directory itself as a file's directory: not to be joined twice.
        folder = directory if directory == base else posixpath.join(base, directory)
        return posixpath.normpath(posixpath.join(folder, name))

    def _string(self, offset: int) -> str | None:
        """None where there is none or it is damaged."""
        if offset == NONE:
            return None
        position, size, shift = self._strings + offset, 0, 0
        while shift < 35 and position < self._strings_end:
            byte = self._data[position]
            size |= (byte & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if byte < 0x80:
                if position + size > self._strings_end:
                    return None
                raw = bytes(self._data[position : position + min(size, _MAX_STRING)])
                return raw.decode("utf-8", "backslashreplace")
        return None
