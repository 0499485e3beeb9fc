"""Bounded reading of DWARF units, their abbreviations and the attributes of single entries.

It is for looks at a unit's first entry and at the small units of assembler code; symbolic reads the rest.
Formats: DWARF 5, sections 7.5.1 (units), 7.5.3 (abbreviations), 7.5.6 (forms).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

DW_UT_COMPILE, DW_UT_TYPE, DW_UT_SKELETON, DW_UT_SPLIT_COMPILE, DW_UT_SPLIT_TYPE = 1, 2, 4, 5, 6
DW_FORM_ADDR, DW_FORM_STRING, DW_FORM_UDATA = 0x01, 0x08, 0x0F
_DW_FORM_STRP, _DW_FORM_SEC_OFFSET, _DW_FORM_LINE_STRP, _DW_FORM_IMPLICIT_CONST = 0x0E, 0x17, 0x1F, 0x21

# Sizes of the forms: in bytes; of an offset or an address; a LEB128 number; a block behind its size.
_OFFSET, _ADDRESS, _LEB128 = -1, -2, -3
_DATA = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8}
_SIZES = _DATA | {0x1E: 16, 0x0C: 1, 0x19: 0, _DW_FORM_IMPLICIT_CONST: 0, DW_FORM_ADDR: _ADDRESS}
_SIZES |= {0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8, 0x20: 8, 0x1C: 4, 0x24: 8}
_SIZES |= {0x25: 1, 0x26: 2, 0x27: 3, 0x28: 4, 0x29: 1, 0x2A: 2, 0x2B: 3, 0x2C: 4}
_SIZES |= dict.fromkeys((0x0E, 0x17, 0x1F, 0x1D, 0x10, 0x1F20, 0x1F21), _OFFSET)
_SIZES |= dict.fromkeys((0x0D, 0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23, 0x1F01, 0x1F02), _LEB128)
_BLOCKS = {0x0A: 1, 0x03: 2, 0x04: 4, 0x09: 0, 0x18: 0}  # the size's size; 0: LEB128

_MIN_UNIT = 12  # bytes of the smallest header, and one of an entry
_MAX_ATTRIBUTES = 1 << 8  # of one abbreviation
_MAX_STRING = 1 << 16
# Of all units together, since a damaged file may lead to the same bytes again and again. A sound unit needs
# some 100 reads.
_MAX_READS = 1 << 22


class DwarfError(Exception):
    """A unit can't be read."""


class Unit(NamedTuple):
    """A unit's header. offset, entries, end: in .debug_info; type: DW_UT_*; sizes in bytes."""

    offset: int
    type: int
    address_size: int
    offset_size: int
    abbreviations: int  # offset in .debug_abbrev
    entries: int
    end: int


class Abbreviation(NamedTuple):
    tag: int
    attributes: list[tuple[int, int]]  # (attribute, form)


class Value(NamedTuple):
    """Where an attribute's value is in .debug_info."""

    form: int
    start: int
    end: int


class Cursor:
    """Bounded reads; one that fails is a DwarfError."""

    def __init__(self, dwarf: Dwarf, data: memoryview, position: int, end: int | None = None) -> None:
        self._dwarf, self._data = dwarf, data
        self.position, self.end = position, len(data) if end is None else min(end, len(data))
        if not 0 <= position <= self.end:
            raise DwarfError("outside of the section")

    def uint(self, size: int) -> int:
        start = self.position
        self.skip(size)
        return int.from_bytes(self._data[start : self.position], "little")

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
        raw = bytes(self._data[self.position : min(self.end, self.position + _MAX_STRING)])
        size = raw.find(b"\0")
        if size < 0:
            raise DwarfError("a string without an end")
        self.skip(size + 1)
        return raw[:size]

    def skip(self, size: int) -> None:
        self._dwarf.reads_left -= 1
        if size > self.end - self.position or self._dwarf.reads_left < 0:
            raise DwarfError("cut short")
        self.position += size


class Dwarf:
    """The bytes of .debug_info, .debug_abbrev, .debug_str and .debug_line_str of one file."""

    def __init__(
        self,
        info: memoryview,
        abbrev: memoryview,
        str: memoryview,
        line_str: memoryview,
    ) -> None:
        self.info, self.abbreviations = info, abbrev
        self._strings, self._line_strings = str, line_str
        self.reads_left = _MAX_READS

    def units(self) -> Iterator[Unit]:
        """All units of a known version; a damaged header ends them."""
        start = 0
        while start + _MIN_UNIT <= len(self.info):
            try:
                unit, start = self.unit_at(start)
            except DwarfError:
                return
            if unit is not None:
                yield unit

    def unit_at(self, start: int) -> tuple[Unit | None, int]:
        """The unit at an offset (None: of a version that is not known), and where it ends."""
        cursor = Cursor(self, self.info, start)
        length, offset_size = cursor.uint(4), 4
        if length == 0xFFFFFFFF:
            length, offset_size = cursor.uint(8), 8
        end = cursor.position + length
        if end > len(self.info):
            raise DwarfError("a unit that is cut short")
        version = cursor.uint(2)
        kind = DW_UT_COMPILE
        if version == 5:
            kind, address_size, abbreviations = cursor.uint(1), cursor.uint(1), cursor.uint(offset_size)
            cursor.skip(8 if kind in (DW_UT_SKELETON, DW_UT_SPLIT_COMPILE) else 0)
        elif 2 <= version <= 4:
            abbreviations, address_size = cursor.uint(offset_size), cursor.uint(1)
        else:
            return None, end
        return Unit(start, kind, address_size, offset_size, abbreviations, cursor.position, end), end

    def first_entry(self, unit: Unit) -> dict[int, Value]:
        """The attributes of a unit's first entry; its abbreviation is nearly always the table's first."""
        cursor = self.entries(unit)
        code = cursor.uleb128()
        for number, abbreviation in self.abbreviations_of(unit):
            if number == code:
                return self.entry(cursor, abbreviation, unit)
        return {}

    def entries(self, unit: Unit) -> Cursor:
        return Cursor(self, self.info, unit.entries, unit.end)

    def abbreviations_of(self, unit: Unit) -> Iterator[tuple[int, Abbreviation]]:
        """(code, abbreviation) of the unit's table."""
        cursor = Cursor(self, self.abbreviations, unit.abbreviations)
        while code := cursor.uleb128():
            tag, _has_children = cursor.uleb128(), cursor.uint(1)
            attributes: list[tuple[int, int]] = []
            while (pair := (cursor.uleb128(), cursor.uleb128())) != (0, 0):
                if pair[1] == _DW_FORM_IMPLICIT_CONST:
                    cursor.uleb128()
                if len(attributes) == _MAX_ATTRIBUTES:
                    raise DwarfError("an abbreviation with too many attributes")
                attributes.append(pair)
            yield code, Abbreviation(tag, attributes)

    def entry(self, cursor: Cursor, abbreviation: Abbreviation, unit: Unit) -> dict[int, Value]:
        """The attributes of the entry at the cursor, behind its code."""
        values: dict[int, Value] = {}
        for attribute, form in abbreviation.attributes:
            start = cursor.position
            _skip(cursor, form, unit)
            values[attribute] = Value(form, start, cursor.position)
        return values

    def number(self, value: Value | None) -> int | None:
        """A constant, an address or an offset; None for what needs another section."""
        if value is None:
            return None
        cursor = Cursor(self, self.info, value.start, value.end)
        if value.form == DW_FORM_UDATA:
            return cursor.uleb128()
        if value.form in _DATA or value.form in (DW_FORM_ADDR, _DW_FORM_SEC_OFFSET):
            return cursor.uint(value.end - value.start)
        return None

    def text(self, value: Value | None, unit: Unit) -> bytes | None:
        """A string in place, in .debug_str or in .debug_line_str; None for one that needs other sections."""
        if value is None:
            return None
        cursor = Cursor(self, self.info, value.start, value.end)
        if value.form == DW_FORM_STRING:
            return cursor.string()
        if value.form in (_DW_FORM_STRP, _DW_FORM_LINE_STRP):
            section = self._strings if value.form == _DW_FORM_STRP else self._line_strings
            return Cursor(self, section, cursor.uint(unit.offset_size)).string()
        return None


def _skip(cursor: Cursor, form: int, unit: Unit) -> None:
    """Past a value of this form."""
    size = _SIZES.get(form)
    if size == _LEB128:
        cursor.uleb128()
    elif size is not None:
        cursor.skip({_OFFSET: unit.offset_size, _ADDRESS: unit.address_size}.get(size, size))
    elif form in _BLOCKS:
        width = _BLOCKS[form]
        cursor.skip(cursor.uint(width) if width else cursor.uleb128())
    elif form == DW_FORM_STRING:
        cursor.string()
    else:  # DW_FORM_indirect among them, which no producer emits
        raise DwarfError(f"form {form:#x}")
