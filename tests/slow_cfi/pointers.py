"""Encoded pointers of .eh_frame: DW_EH_PE (Linux Standard Base Core 5.0, 10.5.1).

The low four bits say how a value is stored, the next three what is added to it, the top bit that
the result is the address of the pointer. It may not guess: an encoding that has no meaning here, or
whose base is not known, is a CfiError.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cursor import ADDRESS_MASK, CfiError, Cursor

OMIT = 0xFF
INDIRECT = 0x80

ABSPTR, ULEB128, UDATA2, UDATA4, UDATA8 = 0x00, 0x01, 0x02, 0x03, 0x04
SIGNED, SLEB128, SDATA2, SDATA4, SDATA8 = 0x08, 0x09, 0x0A, 0x0B, 0x0C
PCREL, TEXTREL, DATAREL, FUNCREL, ALIGNED = 0x10, 0x20, 0x30, 0x40, 0x50


@dataclass(frozen=True)
class Bases:
    """Virtual addresses of the file: what relative pointers count from; None is not known."""

    section: int  # of byte 0 of the section that is read
    text: int | None = None
    data: int | None = None
    function: int | None = None


def read_value(cursor: Cursor, encoding: int, address_size: int = 8) -> int:
    """The stored value alone, as a range (PC range) is read: no base, no indirection."""
    start, stored_as = cursor.position, encoding & 0x0F
    if stored_as == ABSPTR:
        return cursor.unsigned(address_size)
    if stored_as == SIGNED:
        return cursor.signed(address_size)
    if stored_as == ULEB128:
        return cursor.uleb128()
    if stored_as == SLEB128:
        return cursor.sleb128()
    if stored_as in (UDATA2, UDATA4, UDATA8):
        return cursor.unsigned(1 << (stored_as - UDATA2 + 1))
    if stored_as in (SDATA2, SDATA4, SDATA8):
        return cursor.signed(1 << (stored_as - SDATA2 + 1))
    raise CfiError(f"pointer encoding {encoding:#x} stores its value in no known way", start)


def skip_pointer(cursor: Cursor, encoding: int, address: int, address_size: int = 8) -> None:
    """Passes over a pointer that is not needed; address is that of cursor.data[0]."""
    if encoding == OMIT:
        return
    if encoding & 0x70 == ALIGNED:
        cursor.take(-(address + cursor.position) % address_size)
        cursor.take(address_size)
        return
    read_value(cursor, encoding, address_size)


def read_pointer(cursor: Cursor, encoding: int, bases: Bases, address_size: int = 8) -> int:
    """The pointer's address in the file, modulo 2**64. (ALIGNED occurs in personality pointers only.)"""
    start = cursor.position
    if encoding == OMIT or encoding & INDIRECT:
        raise CfiError(f"pointer encoding {encoding:#x} gives no address of the file", start)
    added = encoding & 0x70
    base = {
        0: 0,
        PCREL: bases.section + start,  # the address of the pointer itself
        TEXTREL: bases.text,
        DATAREL: bases.data,
        FUNCREL: bases.function,
    }.get(added)
    if base is None:
        raise CfiError(f"the base of pointer encoding {encoding:#x} is not known", start)
    return (base + read_value(cursor, encoding, address_size)) & ADDRESS_MASK
