"""Looks at DWARF units before symbolic reads them, for the little that symbolic does not say or gets wrong.

- Which units keep their functions in another file (split DWARF), which symbolic cannot read.
- Functions that assemblers list twice: a name and its alias cover the same bytes. Debuggers take the last
  one, symbolic the first, so the earlier ones are to be made empty.

Formats: DWARF 5, sections 3.1.2 (skeleton units) and 3.3.1 (functions).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from unspool.symbols.dwarf_reader import (
    DW_FORM_ADDR,
    DW_FORM_UDATA,
    DW_UT_SKELETON,
    DW_UT_SPLIT_COMPILE,
    DW_UT_SPLIT_TYPE,
    DW_UT_TYPE,
    Dwarf,
    DwarfError,
    Unit,
    Value,
)

_DW_TAG_SUBPROGRAM = 0x2E
_DW_AT_LOW_PC, _DW_AT_HIGH_PC, _DW_AT_LANGUAGE = 0x11, 0x12, 0x13
_DW_AT_DWO_NAMES = (0x76, 0x2130)  # DWARF 5's, and GNU's for DWARF 4
_DW_LANG_MIPS_ASSEMBLER = 0x8001
_ASSEMBLER_BYTES = _DW_LANG_MIPS_ASSEMBLER.to_bytes(2, "little")
_GNU_DWO_NAME = b"\xb0\x42"  # 0x2130 as LEB128
_ROOT_SIZE = 256  # the bytes of a unit's first entry, language included
_MAX_UNITS = 1 << 18


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes of .debug_info to be replaced."""

    offset: int
    data: bytes


@dataclass(slots=True)
class Units:
    """What was found. count: compilation units that were looked at; split: those of them that have their
    functions elsewhere, the first one's file is split_file; edits: what makes double functions empty."""

    count: int = 0
    split: int = 0
    split_file: str | None = None
    edits: list[Edit] = field(default_factory=list)


def look_at_units(dwarf: Dwarf) -> Units:
    """Damaged units are passed over: symbolic will say what is wrong with them."""
    found = Units()
    gnu_split = _GNU_DWO_NAME in bytes(dwarf.abbreviations)
    for unit in dwarf.units():
        if unit.type in (DW_UT_TYPE, DW_UT_SPLIT_TYPE, DW_UT_SPLIT_COMPILE):
            continue
        found.count += 1
        # Most units can be told to be ordinary without a close look.
        start = bytes(dwarf.info[unit.entries : min(unit.entries + _ROOT_SIZE, unit.end)])
        if gnu_split or unit.type == DW_UT_SKELETON or _ASSEMBLER_BYTES in start:
            with suppress(DwarfError):
                _look_at(dwarf, unit, found)
        if found.count >= _MAX_UNITS:
            break
    return found


def _look_at(dwarf: Dwarf, unit: Unit, found: Units) -> None:
    values = dwarf.first_entry(unit)
    names = [values[name] for name in _DW_AT_DWO_NAMES if name in values]
    if names or unit.type == DW_UT_SKELETON:
        found.split += 1
        name = dwarf.text(names[0], unit) if names and found.split_file is None else None
        if name is not None:
            found.split_file = name.decode("utf-8", "backslashreplace")
    elif dwarf.number(values.get(_DW_AT_LANGUAGE)) == _DW_LANG_MIPS_ASSEMBLER:
        _empty_doubles(dwarf, unit, found.edits)


def _empty_doubles(dwarf: Dwarf, unit: Unit, edits: list[Edit]) -> None:
    """Appends edits that make all but the last function of each address range empty. There are no inlined
    calls inside an assembler's functions, so that nothing else is lost."""
    known = dict(dwarf.abbreviations_of(unit))
    cursor = dwarf.entries(unit)
    last: dict[tuple[int, int], Value] = {}
    while cursor.position < unit.end:
        code = cursor.uleb128()
        if not code:  # the end of a list of children
            continue
        if code not in known:
            raise DwarfError(f"no abbreviation {code}")
        values = dwarf.entry(cursor, known[code], unit)
        low = dwarf.number(values.get(_DW_AT_LOW_PC))
        high = dwarf.number(values.get(_DW_AT_HIGH_PC))
        if known[code].tag == _DW_TAG_SUBPROGRAM and low is not None and high is not None:
            if (low, high) in last:
                edits.append(_emptied(last[low, high], low))
            last[low, high] = values[_DW_AT_HIGH_PC]


def _emptied(high: Value, low: int) -> Edit:
    """The end of a function, as an address or as a size, set to its begin."""
    size = high.end - high.start
    if high.form == DW_FORM_ADDR:
        return Edit(high.start, low.to_bytes(size, "little"))
    if high.form == DW_FORM_UDATA:
        return Edit(high.start, b"\x80" * (size - 1) + b"\0")
    return Edit(high.start, bytes(size))
