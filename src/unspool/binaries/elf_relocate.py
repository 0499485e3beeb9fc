"""Relocation of an object file's unwind sections (ET_REL: .o, .ko), in place on a copy of their bytes.

Types and formulas are the psABIs': x86_64 "Relocation Types", AArch64 "Static Data relocations". Only plain
data relocations can occur in unwind sections; any other type is an error, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unspool.binaries.binary import Arch
from unspool.binaries.byte_source import ByteSource
from unspool.binaries.elf_headers import SHT_REL, SHT_RELA
from unspool.binaries.elf_sections import SectionTable
from unspool.binaries.elf_symbols import read_object_symbols

RELA = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])


@dataclass(frozen=True, slots=True)
class _Kind:
    """Value: S + A, minus the place if relative. Values outside of low .. high don't fit."""

    width: int
    relative: bool
    low: int
    high: int


def _kind(width: int, relative: bool, signs: str) -> _Kind:
    low = -(1 << (8 * width - 1)) if "-" in signs else 0
    high = (1 << (8 * width)) - 1 if "+" in signs else (1 << (8 * width - 1)) - 1
    return _Kind(width, relative, low, high)


_KINDS: dict[Arch, dict[int, _Kind]] = {
    "x86_64": {
        1: _kind(8, False, "-+"),  # R_X86_64_64
        2: _kind(4, True, "-"),  # PC32
        4: _kind(4, True, "-"),  # PLT32: the function itself, there is no PLT
        10: _kind(4, False, "+"),  # 32, zero-extended
        11: _kind(4, False, "-"),  # 32S, sign-extended
        12: _kind(2, False, "-+"),  # 16
        13: _kind(2, True, "-"),  # PC16
        14: _kind(1, False, "-+"),  # 8
        15: _kind(1, True, "-"),  # PC8
        24: _kind(8, True, "-+"),  # PC64
    },
    "aarch64": {
        257: _kind(8, False, "-+"),  # R_AARCH64_ABS64
        258: _kind(4, False, "-+"),  # ABS32
        259: _kind(2, False, "-+"),  # ABS16
        260: _kind(8, True, "-+"),  # PREL64
        261: _kind(4, True, "-+"),  # PREL32
        262: _kind(2, True, "-+"),  # PREL16
        314: _kind(4, True, "-"),  # PLT32
    },
}


def relocated(source: ByteSource, sections: SectionTable, arch: Arch, index: int) -> memoryview:
    """The section's bytes with all its relocations applied. References to symbols that other files define
    (personality routines) stay as they are. Raises BinaryError."""
    data = sections.data(index)
    headers = sections.headers
    tables = np.flatnonzero((headers["info"] == index) & np.isin(headers["type"], (SHT_RELA, SHT_REL)))
    if not len(tables):
        return data
    table = int(tables[0])
    header = sections.row(table)
    where = header.offset
    if len(tables) > 1:
        raise source.error(f"section {index} has {len(tables)} relocation sections", where)
    if header.type == SHT_REL:
        raise source.error(f"section {table} has relocations without addends", where)
    raw = sections.data(table)
    if len(raw) % RELA.itemsize:
        raise source.error(f"relocation section {table} is no multiple of {RELA.itemsize} bytes", where)
    addresses, defined = read_object_symbols(source, sections, header.link)
    rows = np.frombuffer(raw, dtype=RELA)
    out = np.frombuffer(data, dtype=np.uint8).copy()
    try:
        _apply(_KINDS[arch], rows, addresses, defined, int(sections.addresses[index]), out)
    except _RelocationError as problem:
        raise source.error(f"relocation section {table}: {problem}", where) from problem
    return memoryview(out.tobytes())


class _RelocationError(Exception):
    pass


def _apply(
    kinds: dict[int, _Kind],
    relocations: npt.NDArray[np.void],
    addresses: npt.NDArray[np.uint64],
    defined: npt.NDArray[np.bool_],
    section_address: int,
    out: npt.NDArray[np.uint8],
) -> None:
    relocations = relocations[relocations["info"] & 0xFFFFFFFF != 0]
    types = relocations["info"] & 0xFFFFFFFF
    symbols = (relocations["info"] >> 32).astype(np.int64)
    if len(symbols) and int(symbols.max()) >= len(addresses):
        raise _RelocationError(f"symbol {int(symbols.max())} of {len(addresses)}")
    for type_number in np.unique(types)[: len(kinds) + 1]:
        kind = kinds.get(int(type_number))
        if kind is None:
            raise _RelocationError(f"type {type_number} can't occur in an unwind section")
        chosen = (types == type_number) & defined[symbols]
        places = relocations["offset"][chosen]
        if len(places) and int(places.max()) > len(out) - kind.width:
            raise _RelocationError(f"offset {int(places.max()):#x} lies outside of its section")
        value = addresses[symbols[chosen]] + relocations["addend"][chosen].astype(np.uint64)
        if kind.relative:
            value -= np.uint64(section_address) + places
        _check_range(value.view(np.int64), kind)
        for byte in range(kind.width):
            out[places.astype(np.int64) + byte] = (value >> np.uint64(8 * byte)).astype(np.uint8)


def _check_range(value: npt.NDArray[np.int64], kind: _Kind) -> None:
    if kind.width < 8 and len(value) and (int(value.min()) < kind.low or int(value.max()) > kind.high):
        raise _RelocationError(f"a value does not fit into {kind.width} bytes")
