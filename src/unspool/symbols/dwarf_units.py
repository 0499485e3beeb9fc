"""Looks at DWARF units before symbolic reads them, for the little that symbolic does not say or gets wrong.

- Which units keep their functions in another file (split DWARF), which symbolic cannot read.
- Functions that the assembler lists twice: a name and its alias cover the same bytes. Debuggers take the
  last one, symbolic the first, so the earlier ones are to be made empty.

Formats: DWARF 5, sections 7.5 (units, entries, abbreviations, forms) and 3.1 (split units). Bytes are not
trusted: reads are bounded, and so is the number of units and entries that are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

_DW_TAG_SUBPROGRAM = 0x2E
_DW_AT_LOW_PC, _DW_AT_HIGH_PC, _DW_AT_LANGUAGE = 0x11, 0x12, 0x13
_DW_AT_DWO_NAMES = (0x76, 0x2130)  # DWARF 5's, and GNU's for DWARF 4
_DW_LANG_MIPS_ASSEMBLER = 0x8001
_DW_UT_TYPE, _DW_UT_SKELETON, _DW_UT_SPLIT_COMPILE, _DW_UT_SPLIT_TYPE = 2, 4, 5, 6
_DW_FORM_ADDR, _DW_FORM_INDIRECT, _DW_FORM_IMPLICIT_CONST = 0x01, 0x16, 0x21
_DW_FORM_STRING, _DW_FORM_EXPRLOC = 0x08, 0x18

# Sizes of the forms: in bytes; of an offset or an address; a LEB128 number; a block behind its size.
_OFFSET, _ADDRESS, _LEB128 = -1, -2, -3
_FIXED = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16, 0x0C: 1, 0x19: 0, 0x21: 0}
_FIXED |= {0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8, 0x20: 8, 0x1C: 4, 0x24: 8}
_FIXED |= {0x25: 1, 0x26: 2, 0x27: 3, 0x28: 4, 0x29: 1, 0x2A: 2, 0x2B: 3, 0x2C: 4}
_FIXED |= dict.fromkeys((0x0E, 0x17, 0x1F, 0x1D, 0x10, 0x1F20, 0x1F21), _OFFSET)
_FIXED |= dict.fromkeys((0x0D, 0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23, 0x1F01, 0x1F02), _LEB128)
_FIXED[_DW_FORM_ADDR] = _ADDRESS
_BLOCKS = {0x0A: 1, 0x03: 2, 0x04: 4, 0x09: 0, _DW_FORM_EXPRLOC: 0}  # the size's size; 0: LEB128

_ASSEMBLER_BYTES = _DW_LANG_MIPS_ASSEMBLER.to_bytes(2, "little")
_GNU_DWO_NAME = b"\xb0\x42"  # 0x2130 as LEB128
_ROOT_SIZE = 256  # the bytes of a unit's first entry, language included

_MAX_UNITS = 1 << 18
_MAX_ENTRIES = 1 << 18  # of all assembler units together
_MAX_ATTRIBUTES = 1 << 8  # of one abbreviation
_MAX_ABBREVIATIONS = 1 << 12  # of one assembler unit


class DwarfError(Exception):
    """A unit can't be read."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes of .debug_info to be replaced."""

    offset: int
    data: bytes


@dataclass(slots=True)
class Units:
    """What was found: `count`: compilation units that were looked at; `split`: those of them that have their
    functions elsewhere, the first one's file is `split_file`; `edits`: what makes double entries empty."""

    count: int = 0
    split: int = 0
    split_file: str | None = None
    edits: list[Edit] = field(default_factory=list)


class _Cursor:
    """Bounded reads; a read past the end is a DwarfError."""

    def __init__(self, data: memoryview, position: int, end: int) -> None:
        self.data, self.position, self.end = data, position, min(end, len(data))
        if not 0 <= position <= self.end:
            raise DwarfError("outside of the section")

    def uint(self, size: int) -> int:
        start = self.position
        self.skip(size)
        return int.from_bytes(self.data[start : self.position], "little")

    def uleb128(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.uint(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise DwarfError("a number of more than 64 bits")

    def string(self) -> bytes:
        start = self.position
        while self.uint(1):
            pass
        return bytes(self.data[start : self.position - 1])

    def skip(self, size: int) -> None:
        if size > self.end - self.position:
            raise DwarfError("cut short")
        self.position += size


class _Unit(NamedTuple):
    """type, address_size, offset_size: as in the header; entries: where they begin; end: of the unit."""

    type: int
    address_size: int
    offset_size: int
    abbreviations: int
    entries: int
    end: int


class _Abbreviation(NamedTuple):
    tag: int
    attributes: list[tuple[int, int]]  # (attribute, form)


def look_at_units(info: memoryview, abbreviations: memoryview, strings: memoryview) -> Units:
    """`info`, `abbreviations`, `strings`: the bytes of .debug_info, .debug_abbrev and .debug_str. Damaged
    units are passed over: symbolic will say what is wrong with them."""
    found = Units()
    entries_left = _MAX_ENTRIES
    gnu_split = _GNU_DWO_NAME in bytes(abbreviations)
    for unit in _unit_headers(info):
        if unit.type in (_DW_UT_TYPE, _DW_UT_SPLIT_TYPE, _DW_UT_SPLIT_COMPILE):
            continue
        found.count += 1
        # Most units can be told to be ordinary without a close look.
        start = bytes(info[unit.entries : min(unit.entries + _ROOT_SIZE, unit.end)])
        if not gnu_split and unit.type != _DW_UT_SKELETON and _ASSEMBLER_BYTES not in start:
            continue
        with suppress(DwarfError):
            values = _root_values(unit, info, abbreviations)
            names = [values[name] for name in _DW_AT_DWO_NAMES if name in values]
            if names or unit.type == _DW_UT_SKELETON:
                found.split += 1
                if found.split_file is None and names:
                    found.split_file = _text(names[0], unit, info, strings)
            elif _language(values, unit, info) == _DW_LANG_MIPS_ASSEMBLER:
                entries_left -= _empty_doubles(unit, info, abbreviations, entries_left, found.edits)
        if found.count >= _MAX_UNITS:
            break
    return found


def _unit_headers(info: memoryview) -> Iterator[_Unit]:
    start = 0
    while start + 32 <= len(info):  # no unit with an entry in it is smaller than its header may be
        cursor = _Cursor(info, start, len(info))
        length, offset_size = cursor.uint(4), 4
        if length == 0xFFFFFFFF:
            length, offset_size = cursor.uint(8), 8
        end = cursor.position + length
        if end > len(info):
            return
        version = cursor.uint(2)
        if 2 <= version <= 4:
            abbreviations, address_size = cursor.uint(offset_size), cursor.uint(1)
            yield _Unit(1, address_size, offset_size, abbreviations, cursor.position, end)
        elif version == 5:
            kind, address_size, abbreviations = cursor.uint(1), cursor.uint(1), cursor.uint(offset_size)
            cursor.skip(8 if kind in (_DW_UT_SKELETON, _DW_UT_SPLIT_COMPILE) else 0)
            yield _Unit(kind, address_size, offset_size, abbreviations, cursor.position, end)
        start = end


def _read_abbreviation(cursor: _Cursor) -> tuple[int, _Abbreviation] | None:
    """(code, abbreviation); None at the end of the table."""
    code = cursor.uleb128()
    if not code:
        return None
    tag, _has_children = cursor.uleb128(), cursor.uint(1)
    attributes: list[tuple[int, int]] = []
    while True:
        attribute, form = cursor.uleb128(), cursor.uleb128()
        if form == _DW_FORM_IMPLICIT_CONST:
            cursor.uleb128()
        if not attribute and not form:
            return code, _Abbreviation(tag, attributes)
        if len(attributes) == _MAX_ATTRIBUTES:
            raise DwarfError("an abbreviation with too many attributes")
        attributes.append((attribute, form))


def _skip_form(cursor: _Cursor, form: int, unit: _Unit) -> None:
    size = _FIXED.get(form)
    if size is not None:
        if size == _LEB128:
            cursor.uleb128()
        else:
            cursor.skip({_OFFSET: unit.offset_size, _ADDRESS: unit.address_size}.get(size, size))
    elif form in _BLOCKS:
        width = _BLOCKS[form]
        cursor.skip(cursor.uint(width) if width else cursor.uleb128())
    elif form == _DW_FORM_STRING:
        cursor.string()
    else:  # DW_FORM_indirect among them, which no producer emits
        raise DwarfError(f"form {form:#x}")


class _Value(NamedTuple):
    form: int
    start: int  # offset in .debug_info
    end: int


def _entry_values(cursor: _Cursor, abbreviation: _Abbreviation, unit: _Unit) -> dict[int, _Value]:
    values: dict[int, _Value] = {}
    for attribute, form in abbreviation.attributes:
        start = cursor.position
        _skip_form(cursor, form, unit)
        values[attribute] = _Value(form, start, cursor.position)
    return values


def _root_values(unit: _Unit, info: memoryview, abbreviations: memoryview) -> dict[int, _Value]:
    """The attributes of a unit's first entry; its abbreviation is nearly always the table's first."""
    cursor = _Cursor(info, unit.entries, unit.end)
    code = cursor.uleb128()
    table = _Cursor(abbreviations, unit.abbreviations, len(abbreviations))
    for _ in range(_MAX_ABBREVIATIONS):
        entry = _read_abbreviation(table)
        if entry is None:
            break
        if entry[0] == code:
            return _entry_values(cursor, entry[1], unit)
    return {}


def _language(values: dict[int, _Value], unit: _Unit, info: memoryview) -> int | None:
    value = values.get(_DW_AT_LANGUAGE)
    return None if value is None else _number(value, info, unit)


def _number(value: _Value, info: memoryview, unit: _Unit) -> int | None:
    """A constant or an address; None for what needs another section."""
    cursor = _Cursor(info, value.start, value.end)
    size = _FIXED.get(value.form)
    if value.form == 0x0F:  # DW_FORM_udata
        return cursor.uleb128()
    if value.form in (0x0B, 0x05, 0x06, 0x07, _DW_FORM_ADDR):
        return cursor.uint(unit.address_size if size == _ADDRESS else value.end - value.start)
    return None


def _text(value: _Value, unit: _Unit, info: memoryview, strings: memoryview) -> str | None:
    try:
        if value.form == _DW_FORM_STRING:
            raw = _Cursor(info, value.start, value.end).string()
        elif value.form == 0x0E:  # DW_FORM_strp
            offset = _Cursor(info, value.start, value.end).uint(unit.offset_size)
            raw = _Cursor(strings, offset, len(strings)).string()
        else:  # an index into .debug_str_offsets
            return None
    except DwarfError:
        return None
    return raw.decode("utf-8", "backslashreplace")


def _empty_doubles(
    unit: _Unit, info: memoryview, abbreviations: memoryview, limit: int, edits: list[Edit]
) -> int:
    """Appends edits that make all but the last function of each address range empty; how many entries were
    read. An assembler's functions have no functions inside, so that nothing else is lost."""
    table = _Cursor(abbreviations, unit.abbreviations, len(abbreviations))
    known: dict[int, _Abbreviation] = {}
    while len(known) < _MAX_ABBREVIATIONS and (entry := _read_abbreviation(table)) is not None:
        known.setdefault(*entry)
    cursor = _Cursor(info, unit.entries, unit.end)
    last: dict[tuple[int, int], tuple[_Value, int]] = {}
    count = 0
    while cursor.position < unit.end and count < limit:
        count += 1
        code = cursor.uleb128()
        if not code:  # the end of a list of children
            continue
        if code not in known:
            raise DwarfError(f"no abbreviation {code}")
        values = _entry_values(cursor, known[code], unit)
        if known[code].tag != _DW_TAG_SUBPROGRAM or not {_DW_AT_LOW_PC, _DW_AT_HIGH_PC} <= values.keys():
            continue
        low = _number(values[_DW_AT_LOW_PC], info, unit)
        high = _number(values[_DW_AT_HIGH_PC], info, unit)
        if low is None or high is None:
            continue
        if (low, high) in last:
            edits.append(_emptied(*last[low, high]))
        last[low, high] = (values[_DW_AT_HIGH_PC], low)
    return count


def _emptied(high: _Value, low: int) -> Edit:
    """The end of a function, as an address or as a size, set to its begin."""
    size = high.end - high.start
    if high.form == _DW_FORM_ADDR:
        return Edit(high.start, low.to_bytes(size, "little"))
    if high.form == 0x0F:
        return Edit(high.start, b"\x80" * (size - 1) + b"\0")
    return Edit(high.start, bytes(size))
