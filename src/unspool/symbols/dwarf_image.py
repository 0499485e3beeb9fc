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
from unspool.symbols.dwarf_units import Units, look_at_units

_SECTIONS = ("info", "abbrev", "line", "line_str", "str", "str_offsets", "ranges", "rnglists", "addr")
_MACHINES = {"x86_64": 62, "aarch64": 183}
_ET_EXEC, _PT_LOAD, _SHT_PROGBITS, _SHT_STRTAB = 2, 1, 1, 3
_FILE_HEADER, _PROGRAM_HEADER, _SECTION_HEADER = "<16sHHIQQQIHHHHHH", "<IIQQQQQQ", "<IIQQQQIIQQ"


def has_dwarf(binary: Binary) -> bool:
    """Whether the file itself has lines and functions. Raises BinaryError."""
    section = binary.section(".debug_info")
    return section is not None and section.size > 0 and section.type == _SHT_PROGBITS


def write_image(binary: Binary, image_address: int) -> tuple[IO[bytes], Units]:
    """An unnamed file for symbolic, and what its units say. `image_address` becomes relative address 0: that
    of the binary that runs, should `binary` be its debug file. Raises BinaryError, OSError."""
    file: IO[bytes] = os.fdopen(os.memfd_create("unspool-dwarf"), "w+b")
    try:
        units = _write_sections(file, binary, image_address)
    except BaseException:
        file.close()
        raise
    return file, units


def _write_sections(file: IO[bytes], binary: Binary, image_address: int) -> Units:
    file.write(bytes(64 + 56))
    names = b"\0"
    headers = [bytes(64)]
    kept: dict[str, memoryview] = {}
    starts: dict[str, int] = {}
    for short_name in _SECTIONS:
        section = binary.section(f".debug_{short_name}")
        if section is None or section.type != _SHT_PROGBITS:
            continue
        data = section.data
        starts[short_name] = _append(file, data)
        fields = (len(names), _SHT_PROGBITS, 0, 0, starts[short_name], len(data), 0, 0, 1, 0)
        headers.append(struct.pack(_SECTION_HEADER, *fields))
        names += f".debug_{short_name}\0".encode()
        if short_name in ("info", "abbrev", "str"):
            kept[short_name] = data
        del data
    units = look_at_units(*(kept.get(name, memoryview(b"")) for name in ("info", "abbrev", "str")))
    names += b".shstrtab\0"
    fields = (len(names) - 10, _SHT_STRTAB, 0, 0, _append(file, names), len(names), 0, 0, 1, 0)
    headers.append(struct.pack(_SECTION_HEADER, *fields))
    table = _append(file, b"".join(headers))
    file.seek(0)
    file.write(_file_header(_MACHINES[binary.arch], table, len(headers)))
    file.write(struct.pack(_PROGRAM_HEADER, _PT_LOAD, 5, 0, image_address, image_address, 0, 0, 0x1000))
    for edit in units.edits:
        file.seek(starts["info"] + edit.offset)
        file.write(edit.data)
    file.flush()
    return units


def _file_header(machine: int, section_headers: int, count: int) -> bytes:
    """The names are in the last section."""
    sizes = (64, 56, 1, 64, count, count - 1)
    return struct.pack(
        _FILE_HEADER, b"\x7fELF\x02\x01\x01", _ET_EXEC, machine, 1, 0, 64, section_headers, 0, *sizes
    )


def _append(file: IO[bytes], data: bytes | memoryview) -> int:
    """Where it begins: a multiple of 8."""
    position = file.seek(0, os.SEEK_END)
    file.write(bytes(-position % 8))
    file.write(data)
    return position + -position % 8
