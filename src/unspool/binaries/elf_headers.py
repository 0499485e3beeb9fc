"""The three header tables of a 64-bit little-endian ELF file (gABI chapters 2, 4 and 5), checked.

After `read_headers` the tables lie inside the file; what they point to is checked when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unspool.binaries.binary import Arch, BinaryType
from unspool.binaries.byte_source import ByteSource

Table = npt.NDArray[np.void]

FILE_HEADER = np.dtype(
    [
        ("ident", "S16"),
        ("type", "<u2"),
        ("machine", "<u2"),
        ("version", "<u4"),
        ("entry", "<u8"),
        ("phoff", "<u8"),
        ("shoff", "<u8"),
        ("flags", "<u4"),
        ("ehsize", "<u2"),
        ("phentsize", "<u2"),
        ("phnum", "<u2"),
        ("shentsize", "<u2"),
        ("shnum", "<u2"),
        ("shstrndx", "<u2"),
    ]
)
PROGRAM_HEADER = np.dtype(
    [
        ("type", "<u4"),
        ("flags", "<u4"),
        ("offset", "<u8"),
        ("vaddr", "<u8"),
        ("paddr", "<u8"),
        ("filesz", "<u8"),
        ("memsz", "<u8"),
        ("align", "<u8"),
    ]
)
SECTION_HEADER = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("addr", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("addralign", "<u8"),
        ("entsize", "<u8"),
    ]
)

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_GNU_EH_FRAME = 1, 2, 3, 4, 0x6474E550
PF_X, PF_W, PF_R = 1, 2, 4
SHT_NULL, SHT_SYMTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL = 0, 2, 4, 7, 8, 9
SHT_DYNSYM, SHT_SYMTAB_SHNDX = 11, 18
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_COMPRESSED = 1, 2, 4, 0x800
SHN_LORESERVE, SHN_COMMON, SHN_XINDEX = 0xFF00, 0xFFF2, 0xFFFF
PN_XNUM = 0xFFFF
MAX_HEADERS = 1 << 20  # segments or sections; object files of large programs have some 100,000

_ARCHES: dict[int, Arch] = {62: "x86_64", 183: "aarch64"}
_TYPES: dict[int, BinaryType] = {1: "rel", 2: "exec", 3: "dyn", 4: "core"}


class SectionHeader(NamedTuple):
    """One row of SECTION_HEADER as plain integers."""

    name: int
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    addralign: int
    entsize: int


@dataclass(frozen=True, slots=True)
class Headers:
    """programs: PROGRAM_HEADER[n]; sections: SECTION_HEADER[m], empty if the file has none, which stand at
    sections_offset; names_section: index of the section that holds the sections' names, 0 = none."""

    arch: Arch
    type: BinaryType
    entry: int
    programs: Table
    sections: Table
    sections_offset: int
    names_section: int


def read_headers(source: ByteSource) -> Headers:
    """Raises BinaryError."""
    header = _read_file_header(source)
    sections = _read_sections(source, header)
    count = int(header["phnum"])
    if count == PN_XNUM and len(sections):
        count = int(sections[0]["info"])
    programs = np.empty(0, dtype=PROGRAM_HEADER)
    if count:
        if header["phentsize"] != PROGRAM_HEADER.itemsize:
            raise source.error(f"program headers of {header['phentsize']} bytes instead of 56", 54)
        programs = read_table(source, PROGRAM_HEADER, int(header["phoff"]), count, "the program header table")
    names_section = int(header["shstrndx"])
    if names_section == SHN_XINDEX and len(sections):
        names_section = int(sections[0]["link"])
    if not len(sections):
        names_section = 0
    elif names_section >= len(sections):
        raise source.error(f"the section names are in section {names_section} of {len(sections)}", 62)
    return Headers(
        _ARCHES[int(header["machine"])],
        _TYPES[int(header["type"])],
        int(header["entry"]),
        programs,
        sections,
        int(header["shoff"]),
        names_section,
    )


def read_table(source: ByteSource, row: np.dtype[Any], offset: int, count: int, what: str) -> Table:
    if count > MAX_HEADERS:
        raise source.error(f"{what} has {count} entries, more than {MAX_HEADERS}", offset)
    return np.frombuffer(source.read(offset, count * row.itemsize, what), dtype=row)


def _read_file_header(source: ByteSource) -> np.void:
    remedy = "name an ELF file: a program, a library, an object file or a core file"
    if source.size == 0:
        raise source.error("the file is empty", 0, remedy)
    ident = bytes(source.read(0, min(source.size, 16), "the file header"))
    if ident[:4] != b"\x7fELF"[: len(ident)]:
        raise source.error("not an ELF file", 0, remedy)
    header: np.void = np.frombuffer(source.read(0, 64, "the file header"), dtype=FILE_HEADER)[0]
    remedy = "unspool reads 64-bit little-endian ELF files for x86_64 and aarch64"
    if ident[4] != 2:
        raise source.error("a 32-bit file" if ident[4] == 1 else f"ELF class {ident[4]}", 4, remedy)
    if ident[5] != 1:
        raise source.error("a big-endian file" if ident[5] == 2 else f"byte order {ident[5]}", 5, remedy)
    if ident[6] != 1:
        raise source.error(f"ELF version {ident[6]}", 6, remedy)
    if int(header["type"]) not in _TYPES:
        raise source.error(f"file type {header['type']}", 16, remedy)
    if int(header["machine"]) not in _ARCHES:
        raise source.error(f"a file for machine {header['machine']}", 18, remedy)
    return header


def _read_sections(source: ByteSource, header: np.void) -> Table:
    none = np.empty(0, dtype=SECTION_HEADER)
    offset, count = int(header["shoff"]), int(header["shnum"])
    if not offset:
        return none
    absent = not source.complete
    if offset + SECTION_HEADER.itemsize > source.size and absent:
        return none
    if header["shentsize"] != SECTION_HEADER.itemsize:
        if absent or not count:
            return none
        raise source.error(f"section headers of {header['shentsize']} bytes instead of 64", 58)
    if not count:  # too many for the file header: section 0 has the number
        count = int(read_table(source, SECTION_HEADER, offset, 1, "the section header table")[0]["size"])
    if offset + count * SECTION_HEADER.itemsize > source.size and absent:
        return none
    return read_table(source, SECTION_HEADER, offset, count, "the section header table")
