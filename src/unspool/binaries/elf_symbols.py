"""Symbols of an ELF file: .symtab, .dynsym and the mini debug information (.gnu_debugdata), joined.

Everything is checked when it is read: the arrays of the SymbolTable never lead outside of its names.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unspool.binaries.byte_source import ByteSource, MemorySource
from unspool.binaries.elf_compression import CompressionError, decompress_xz
from unspool.binaries.elf_headers import (
    SHN_COMMON,
    SHN_LORESERVE,
    SHN_XINDEX,
    SHT_DYNSYM,
    SHT_NOBITS,
    SHT_SYMTAB,
    SHT_SYMTAB_SHNDX,
    Table,
    read_headers,
)
from unspool.binaries.elf_sections import SectionTable
from unspool.binaries.symbol_table import RESERVED, SymbolTable

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("shndx", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
MAX_SYMBOLS = 1 << 24
_COMPARED_NAME = 1024  # longer names are never taken for doubles


@dataclass(frozen=True, slots=True)
class SymbolPart:
    """One symbol section: SYMBOL[n], section indices as in SymbolTable, and its names, NUL at the end."""

    rows: Table
    section: U32
    names: bytes


def read_symbols(
    source: ByteSource,
    sections: SectionTable,
    dynamic: SymbolPart | None,
    code_ranges: list[tuple[int, int]],
    is_object: bool,
) -> SymbolTable:
    """`dynamic`: symbols found without section headers. Raises BinaryError."""
    parts = _symbol_sections(source, sections)
    debug_data = sections.find(".gnu_debugdata")
    if debug_data is not None:
        parts.append(_mini_debug_information(source, sections, debug_data))
    if dynamic is not None:
        parts.append(dynamic)
    return _join(parts, sections, code_ranges, is_object)


def read_object_symbols(source: ByteSource, sections: SectionTable, index: int) -> tuple[U64, Mask]:
    """For the relocations of an object file: every symbol's address, and whether this file defines it."""
    part = _read_part(source, sections, index)
    defined = (part.section != 0) & (part.section != RESERVED | SHN_COMMON)
    return _addresses(part, sections, True), defined


def _symbol_sections(source: ByteSource, sections: SectionTable) -> list[SymbolPart]:
    types = sections.headers["type"]
    return [
        _read_part(source, sections, int(indices[0]))
        for indices in (np.flatnonzero(types == SHT_SYMTAB), np.flatnonzero(types == SHT_DYNSYM))
        if len(indices)
    ]


def _read_part(source: ByteSource, sections: SectionTable, index: int) -> SymbolPart:
    headers = sections.headers
    if not 0 < index < len(headers) or sections.row(index).type not in (SHT_SYMTAB, SHT_DYNSYM):
        raise source.error(f"section {index} is expected to hold symbols but does not")
    header = sections.row(index)
    where, link = header.offset, header.link
    raw = sections.data(index) if header.size <= MAX_SYMBOLS * SYMBOL.itemsize else memoryview(b"")
    if max(header.size, len(raw)) > MAX_SYMBOLS * SYMBOL.itemsize:
        raise source.error(f"symbol section {index} has more than {MAX_SYMBOLS} symbols", where)
    if len(raw) % SYMBOL.itemsize:
        raise source.error(f"symbol section {index} is no multiple of {SYMBOL.itemsize} bytes", where)
    if link >= len(headers) or sections.row(link).type == SHT_NOBITS:
        raise source.error(f"the names of symbol section {index} are in section {link}", where)
    rows = np.frombuffer(raw, dtype=SYMBOL)
    wide: U32 | None = None
    extended = np.flatnonzero((headers["type"] == SHT_SYMTAB_SHNDX) & (headers["link"] == index))
    if len(extended):
        wide_raw = sections.data(int(extended[0]))
        wide = np.frombuffer(wide_raw, dtype="<u4", count=len(wide_raw) // 4)
        if len(wide) < len(rows):
            raise source.error(f"section {extended[0]} has fewer entries than there are symbols", where)
    return make_part(source, rows, wide, sections.data(link), where)


def make_part(source: ByteSource, rows: Table, wide: U32 | None, names: memoryview, where: int) -> SymbolPart:
    """Checks the names; `wide`: the section indices of symbols whose own is SHN_XINDEX."""
    outside = np.flatnonzero(rows["name"] > len(names))
    if len(outside):
        raise source.error(f"the name of symbol {outside[0]} lies outside of the names", where)
    section = rows["shndx"].astype(np.uint32)
    if wide is not None:
        section = np.where(section == SHN_XINDEX, wide[: len(rows)], section)
    reserved = (rows["shndx"] >= SHN_LORESERVE) & (rows["shndx"] != SHN_XINDEX)
    section = np.where(reserved, rows["shndx"] | np.uint32(RESERVED), section)
    return SymbolPart(rows, section, b"".join((names, b"\0")))


def _mini_debug_information(source: ByteSource, sections: SectionTable, index: int) -> SymbolPart:
    """.gnu_debugdata is an xz-compressed ELF file of which only .symtab matters."""
    where = sections.row(index).offset
    try:
        inner = MemorySource(decompress_xz(sections.data(index)), f"{source.path}(.gnu_debugdata)")
    except CompressionError as problem:
        raise source.error(f".gnu_debugdata: {problem}", where) from problem
    inner_sections = SectionTable(inner, read_headers(inner))
    tables = np.flatnonzero(inner_sections.headers["type"] == SHT_SYMTAB)
    if not len(tables):
        raise source.error(".gnu_debugdata has no .symtab", where)
    return _read_part(inner, inner_sections, int(tables[0]))


def _addresses(part: SymbolPart, sections: SectionTable, is_object: bool) -> U64:
    address = part.rows["value"].astype(np.uint64)
    if is_object:  # values are offsets in sections
        inside = part.section < len(sections)
        address[inside] += sections.addresses[part.section[inside]]
    return address


def _join(
    parts: list[SymbolPart], sections: SectionTable, code_ranges: list[tuple[int, int]], is_object: bool
) -> SymbolTable:
    bases = np.cumsum([0, *(len(part.names) for part in parts)])
    names = b"".join([*(part.names for part in parts), bytes(8)])
    none = [np.empty(0, dtype=np.uint64)]
    address = np.concatenate([_addresses(part, sections, is_object) for part in parts] or none)
    size = np.concatenate([part.rows["size"].astype(np.uint64) for part in parts] or none)
    info = np.concatenate([part.rows["info"] for part in parts] or none).astype(np.uint8)
    section = np.concatenate([part.section for part in parts] or none).astype(np.uint32)
    offset = np.concatenate(
        [
            part.rows["name"].astype(np.uint64) + np.uint64(base)
            for part, base in zip(parts, bases, strict=False)
        ]
        or none
    )
    kept = section != 0
    if len(parts) > 1:
        kept &= ~_doubles([address, size, info.astype(np.uint64)], offset, names)
    return SymbolTable(
        address[kept],
        size[kept],
        info[kept] & np.uint8(15),
        info[kept] >> np.uint8(4),
        section[kept],
        offset[kept],
        names,
        code_ranges,
    )


def _doubles(keys: list[U64], offset: U64, names: bytes) -> Mask:
    """Marks symbols that an earlier one equals in all keys and in its name up to the version."""
    digest = np.zeros(len(offset), dtype=np.uint64)
    for key in keys:
        digest = _mix(digest, key)
    # Most symbols are told apart without a look at their names.
    order = np.argsort(digest, kind="stable")
    equal = digest[order[1:]] == digest[order[:-1]]
    is_candidate = np.zeros(len(offset), dtype=bool)
    is_candidate[order[1:][equal]] = True
    is_candidate[order[:-1][equal]] = True
    candidates = np.flatnonzero(is_candidate)

    name_digest, compared = _name_digests(offset[candidates], names)
    digest = _mix(digest[candidates], name_digest)
    order = np.argsort(digest, kind="stable")  # of equals the first one stays first
    fields = np.stack([digest, name_digest, *(key[candidates] for key in keys)])[:, order]
    equals_last = (fields[:, 1:] == fields[:, :-1]).all(axis=0) & compared[order[1:]]
    doubles = np.zeros(len(offset), dtype=bool)
    doubles[candidates[order[1:][equals_last]]] = True
    return doubles


def _name_digests(offset: U64, names: bytes) -> tuple[U64, Mask]:
    """A 64-bit digest of each name up to NUL or '@', eight bytes a step for all names at once; and which
    names were compared to their end. `names` ends with eight bytes more than all names."""
    blob = np.frombuffer(names, dtype=np.uint8)
    windows = np.ndarray((len(blob) - 7,), dtype="<u8", buffer=blob, strides=(1,))
    digest = np.zeros(len(offset), dtype=np.uint64)
    active = np.arange(len(offset))
    position = offset.astype(np.int64)
    for step in range(_COMPARED_NAME // 8):
        if not len(active):
            break
        word = windows[position]
        # An '@' that begins the name is no version; the 1 hides it.
        ends = _zero_bytes(word) | _zero_bytes(word ^ _AT_SIGNS | np.uint64(step == 0))
        before_end = ((ends & (~ends + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
        digest[active] = _mix(digest[active], word & before_end)
        going_on = ends == 0
        active, position = active[going_on], position[going_on] + 8
    compared = np.ones(len(offset), dtype=bool)
    compared[active] = False
    return digest, compared


_AT_SIGNS = np.uint64(0x4040404040404040)


def _zero_bytes(word: U64) -> U64:
    """Sets the top bit of each word's first zero byte, counted from the least significant (bits above it
    may be wrong); 0 if there is none."""
    return (word - np.uint64(0x0101010101010101)) & ~word & np.uint64(0x8080808080808080)


def _mix(digest: U64, word: U64) -> U64:
    mixed = ((digest ^ word) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(29))
