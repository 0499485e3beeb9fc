"""The file that symbolic is given: an ELF file with nothing in it but the DWARF sections that it needs.

Without a symbol table, because symbolic would take the outermost function's name from there: the hot/cold
split of gcc then yields `f.cold` or a wrong name, where DWARF says `f`. Decompressed, within our bounds. And
without the sections that lines and names don't need, which are more than half of a large file.
"""

from __future__ import annotations

import os
import struct
from typing import IO

from unspool.binaries import Binary
from unspool.symbols.dwarf_reader import Dwarf
from unspool.symbols.dwarf_units import Units, look_at_units

_SECTIONS = ("info", "abbrev", "line", "line_str", "str", "str_offsets", "ranges", "rnglists", "addr")
_MACHINES = {"x86_64": 62, "aarch64": 183}
_ET_EXEC, _PT_LOAD, _SHT_PROGBITS, _SHT_STRTAB = 2, 1, 1, 3
_FILE_HEADER, _PROGRAM_HEADER, _SECTION_HEADER = "<16sHHIQQQIHHHHHH", "<IIQQQQQQ", "<IIQQQQIIQQ"


def has_dwarf(binary: Binary) -> bool:
    """Whether the file itself has lines and functions. Raises BinaryError."""
    section = binary.section(".debug_info")
    return section is not None and section.size > 0 and section.type == _SHT_PROGBITS


def dwarf_section(binary: Binary, name: str) -> memoryview:
    """The bytes of .debug_NAME, none if the file has none. Raises BinaryError."""
    section = binary.section(f".debug_{name}")
    return memoryview(b"") if section is None or section.type != _SHT_PROGBITS else section.data


def write_image(binary: Binary, image_address: int) -> tuple[IO[bytes], Units]:
    """An unnamed file for symbolic, and what its units say. `image_address` becomes relative address 0: that
    of the binary that runs, should `binary` be its debug file. Raises BinaryError, OSError."""
    looked_at: dict[str, memoryview] = {}
    with Image(binary.arch, image_address) as image:
        for name in _SECTIONS:
            data = dwarf_section(binary, name)
            if data:
                image.add(name, data)
            if name in ("info", "abbrev", "line_str", "str"):
                looked_at[name] = data
            del data  # a large file's sections need not all be in memory
        units = look_at_units(Dwarf(**looked_at))
        for edit in units.edits:
            image.overwrite("info", edit.offset, edit.data)
        return image.finish(), units


class Image:
    """Writes the file: room for the headers, the sections in the order in which they come, the headers."""

    def __init__(self, arch: str, image_address: int) -> None:
        self._file: IO[bytes] = os.fdopen(os.memfd_create("unspool-dwarf"), "w+b")
        self._machine = _MACHINES[arch]
        self._image_address = image_address
        self._names = b"\0"
        self._headers = [bytes(64)]
        self._starts: dict[str, int] = {}
        self._file.write(bytes(64 + 56))
        self._finished = False

    def __enter__(self) -> Image:
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._finished:
            self._file.close()

    def add(self, name: str, data: bytes | memoryview) -> None:
        """A section .debug_NAME."""
        self._starts[name] = self._append(data)
        self._add_header(f".debug_{name}", _SHT_PROGBITS, self._starts[name], len(data))

    def overwrite(self, name: str, offset: int, data: bytes) -> None:
        """Bytes of a section that was added."""
        self._file.seek(self._starts[name] + offset)
        self._file.write(data)

    def finish(self) -> IO[bytes]:
        """The file, which belongs to the caller."""
        names = self._names + b".shstrtab\0"
        self._add_header(".shstrtab", _SHT_STRTAB, self._append(names), len(names))
        table = self._append(b"".join(self._headers))
        count, address = len(self._headers), self._image_address
        ident = b"\x7fELF\x02\x01\x01"
        fields = (ident, _ET_EXEC, self._machine, 1, 0, 64, table, 0, 64, 56, 1, 64, count, count - 1)
        self._file.seek(0)
        self._file.write(struct.pack(_FILE_HEADER, *fields))
        self._file.write(struct.pack(_PROGRAM_HEADER, _PT_LOAD, 5, 0, address, address, 0, 0, 0x1000))
        self._file.flush()
        self._finished = True
        return self._file

    def _add_header(self, name: str, kind: int, start: int, size: int) -> None:
        self._headers.append(
            struct.pack(_SECTION_HEADER, len(self._names), kind, 0, 0, start, size, 0, 0, 1, 0)
        )
        self._names += name.encode() + b"\0"

    def _append(self, data: bytes | memoryview) -> int:
        """Where it begins: a multiple of 8."""
        position = self._file.seek(0, os.SEEK_END)
        self._file.write(bytes(-position % 8))
        self._file.write(data)
        return position + -position % 8
