"""Notes of an ELF file: the build id is the only one that matters here (gABI "Note Section")."""

from __future__ import annotations

import struct
from collections.abc import Iterable

NT_GNU_BUILD_ID = 3
MAX_BUILD_ID = 256  # bytes; 20 is usual


def find_build_id(notes: Iterable[tuple[memoryview, int]]) -> bytes | None:
    """The first build id in (bytes, alignment) pieces. A damaged note ends its piece."""
    for data, alignment in notes:
        step = 8 if alignment == 8 else 4
        position = 0
        while position + 12 <= len(data):
            name_size, size, kind = struct.unpack_from("<III", data, position)
            name_start = position + 12
            start = -(-(name_start + name_size) // step) * step
            end = start + size
            if end > len(data):
                break
            if kind == NT_GNU_BUILD_ID and bytes(data[name_start : name_start + name_size]) == b"GNU\0":
                return bytes(data[start:end]) if 0 < size <= MAX_BUILD_ID else None
            position = -(-end // step) * step
    return None
