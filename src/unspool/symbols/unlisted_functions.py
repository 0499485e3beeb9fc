"""Lines of functions that DWARF's entries leave out, though its line tables have them.

Assemblers other than GNU's list no functions, units of split DWARF have them in another file, and gcc's
link-time optimization forgets some. symbolic gives lines only for functions that are listed. So it is given a
second file: the same line tables, and units made up here that list those functions as the symbol table has
them. Which unit an address belongs to, .debug_aranges says (DWARF 5, section 6.1.2).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unspool.binaries import Binary, SymbolTable
from unspool.binaries.symbol_table import FUNCTION
from unspool.symbols.dwarf_image import Image, dwarf_section
from unspool.symbols.dwarf_reader import Cursor, Dwarf, DwarfError
from unspool.symbols.symcache import Symcache

_DW_AT_STMT_LIST, _DW_AT_COMP_DIR = 0x10, 0x1B
_MAX_FUNCTIONS = 1 << 16
_MAX_SETS = 1 << 18

# Two abbreviations: a unit (low_pc addr, stmt_list sec_offset, comp_dir string) with children, and a function
# (name string, low_pc addr, high_pc data8) without.
_ABBREVIATIONS = bytes.fromhex("01 11 01 11 01 10 17 1b 08 00 00 02 2e 00 03 08 11 01 12 07 00 00 00")


class Function(NamedTuple):
    """What the symbol table says: virtual address, size in bytes, name as in the file."""

    address: int
    size: int
    name: str


def unlisted_functions(
    symcache: Symcache, tables: Sequence[SymbolTable], image_address: int
) -> list[Function]:
    """Functions of the symbol tables at whose first byte the symcache has nothing, by address."""
    found: dict[int, Function] = {}
    for table in tables:
        index = np.flatnonzero((table.type == FUNCTION) & (table.size > 0) & (table.address >= image_address))
        starts = np.unique(table.address[index])
        starts = starts[symcache.find(starts - np.uint64(image_address)) < 0]
        owners = table.find(starts)  # of several names for a function the usual one
        for start, owner in zip(starts.tolist(), owners.tolist(), strict=True):
            if owner >= 0 and int(table.address[owner]) == start and len(found) < _MAX_FUNCTIONS:
                found.setdefault(start, Function(start, int(table.size[owner]), table.name(owner)))
    return [found[start] for start in sorted(found)]


def write_line_image(debug_file: Binary, image_address: int, functions: list[Function]) -> IO[bytes] | None:
    """A file for symbolic with these functions; None where no line table covers any. Raises BinaryError,
    OSError."""
    ranges = dwarf_section(debug_file, "aranges")
    if not functions or not ranges:
        return None
    sections = {name: dwarf_section(debug_file, name) for name in ("info", "abbrev", "str", "line_str")}
    dwarf = Dwarf(**sections)
    units = b"".join(_made_up_units(dwarf, ranges, functions))
    if not units:
        return None
    with Image(debug_file.arch, image_address) as image:
        image.add("info", units)
        image.add("abbrev", _ABBREVIATIONS)
        for name in ("line", "line_str", "str"):
            image.add(name, sections.get(name) or dwarf_section(debug_file, name))
        return image.finish()


def _made_up_units(dwarf: Dwarf, ranges: memoryview, functions: list[Function]) -> Iterator[bytes]:
    starts, ends, offsets = _address_ranges(dwarf, ranges)
    addresses = np.array([function.address for function in functions], dtype=np.uint64)
    place = np.searchsorted(starts, addresses, "right") - 1
    by_unit: dict[int, list[Function]] = {}
    for i in np.flatnonzero(place >= 0).tolist():
        if functions[i].address >= ends[place[i]]:
            continue
        by_unit.setdefault(int(offsets[place[i]]), []).append(functions[i])
    for offset, members in by_unit.items():
        with suppress(DwarfError):
            unit, _ = dwarf.unit_at(offset)
            values = {} if unit is None else dwarf.first_entry(unit)
            lines = None if unit is None else dwarf.number(values.get(_DW_AT_STMT_LIST))
            if unit is not None and lines is not None and lines < 1 << 32:
                yield _unit(lines, dwarf.text(values.get(_DW_AT_COMP_DIR), unit) or b"", members)


def _unit(lines: int, directory: bytes, functions: list[Function]) -> bytes:
    """A unit of DWARF 4."""
    entries = [struct.pack("<BQI", 1, functions[0].address, lines), directory, b"\0"]
    for function in functions:
        name = function.name.encode().replace(b"\0", b"")
        entries.append(b"\2" + name + struct.pack("<BQQ", 0, function.address, function.size))
    body = struct.pack("<HIB", 4, 0, 8) + b"".join(entries) + b"\0"
    return struct.pack("<I", len(body)) + body


def _address_ranges(
    dwarf: Dwarf, data: memoryview
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """.debug_aranges as sorted starts, their ends and the offsets of their units; what follows a damaged set
    is left out."""
    parts: list[NDArray[np.uint64]] = []
    position = 0
    with suppress(DwarfError):
        while position < len(data) and len(parts) < _MAX_SETS:
            cursor = Cursor(dwarf, data, position)
            length, offset_size = cursor.uint(4), 4
            if length == 0xFFFFFFFF:
                length, offset_size = cursor.uint(8), 8
            end = cursor.position + length
            cursor.uint(2)
            unit, address_size, segment_size = cursor.uint(offset_size), cursor.uint(1), cursor.uint(1)
            # Tuples begin on a multiple of their own size, counted from the set's begin.
            first = position + -(-(cursor.position - position) // 16) * 16
            if address_size == 8 and segment_size == 0 and first <= end <= len(data):
                pairs = np.frombuffer(data[first:end], "<u8", (end - first) // 16 * 2).reshape(-1, 2)
                parts.append(np.column_stack((pairs, np.full(len(pairs), unit, dtype=np.uint64))))
            position = end
    rows = np.concatenate(parts) if parts else np.empty((0, 3), dtype=np.uint64)
    rows = rows[rows[:, 1] > 0]
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return rows[:, 0], rows[:, 0] + rows[:, 1], rows[:, 2]
