"""Writes small ELF files, so that a test builds its condition in front of the reader.

    elf_file([Section(".text", b"\\xc3", flags=ALLOC | EXEC, address=0x1000)], [Segment(0x1000, ".text")])

It writes what it is told, also what is invalid, and checks nothing. 64-bit little-endian; gABI chapters 2
to 5. Layout: file header, program headers, the sections' bytes (8-byte aligned), section headers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

X86_64, AARCH64 = 62, 183
REL, EXEC_FILE, DYN, CORE = 1, 2, 3, 4
PROGBITS, SYMTAB, STRTAB, RELA, NOTE, NOBITS, DYNSYM, SYMTAB_SHNDX = 1, 2, 3, 4, 7, 8, 11, 18
WRITE, ALLOC, EXEC, COMPRESSED = 1, 2, 4, 0x800
LOAD, DYNAMIC, INTERP, NOTES, GNU_EH_FRAME = 1, 2, 3, 4, 0x6474E550
FILE_HEADER_SIZE, PROGRAM_HEADER_SIZE, SECTION_HEADER_SIZE, SYMBOL_SIZE = 64, 56, 64, 24


@dataclass
class Section:
    name: str
    data: bytes = b""
    type: int = PROGBITS
    flags: int = 0
    address: int = 0
    link: int | str = 0  # a name stands for that section's index
    info: int | str = 0
    alignment: int = 1
    entry_size: int = 0
    size: int | None = None  # None: that of data


@dataclass
class Segment:
    """The bytes of one section (by name), or of a given file range."""

    address: int
    section: str = ""
    type: int = LOAD
    flags: int = 5
    offset: int = 0
    file_size: int | None = None
    memory_size: int | None = None
    alignment: int = 0x1000


@dataclass
class Layout:
    """Where things went, for tests that damage the file afterwards."""

    data: bytes
    section_headers: int
    offsets: dict[str, int] = field(default_factory=dict)
    indices: dict[str, int] = field(default_factory=dict)

    def header_of(self, name: str) -> int:
        """File offset of a section's header."""
        return self.section_headers + SECTION_HEADER_SIZE * self.indices[name]

    def patched(self, offset: int, form: str, *values: int) -> bytes:
        """The file with other values at an offset."""
        copy = bytearray(self.data)
        struct.pack_into("<" + form, copy, offset, *values)
        return bytes(copy)


def strings(*names: str) -> tuple[bytes, dict[str, int]]:
    """A string table and each name's offset in it."""
    blob, offsets = b"\0", {"": 0}
    for name in names:
        offsets.setdefault(name, len(blob))
        blob += name.encode() + b"\0"
    return blob, offsets


def symbol(name: int, value: int, size: int, type: int = 2, binding: int = 1, section: int = 1) -> bytes:
    return struct.pack("<IBBHQQ", name, binding << 4 | type, 0, section, value, size)


def note(name: bytes, kind: int, description: bytes, alignment: int = 4) -> bytes:
    def pad(data: bytes) -> bytes:
        return data + bytes(-len(data) % alignment)

    return pad(pad(struct.pack("<III", len(name), len(description), kind) + name) + description)


def compressed(kind: int, size: int, stream: bytes) -> bytes:
    """A SHF_COMPRESSED section's bytes: kind 1 = zlib, 2 = zstd."""
    return struct.pack("<IIQQ", kind, 0, size, 1) + stream


def layout(
    sections: Sequence[Section],
    segments: Sequence[Segment] = (),
    *,
    machine: int = X86_64,
    type: int = DYN,
    entry: int = 0,
    with_section_headers: bool = True,
) -> Layout:
    names, name_offsets = strings(*(section.name for section in sections), ".shstrtab")
    all_sections = [Section("", type=0), *sections, Section(".shstrtab", names, STRTAB)]
    result = Layout(b"", 0)
    body = bytearray(FILE_HEADER_SIZE + PROGRAM_HEADER_SIZE * len(segments))
    for index, section in enumerate(all_sections):
        body += bytes(-len(body) % 8)
        result.indices.setdefault(section.name, index)
        result.offsets.setdefault(section.name, len(body))
        body += section.data
    body += bytes(-len(body) % 8)
    result.section_headers = len(body)

    def number(value: int | str) -> int:
        return result.indices[value] if isinstance(value, str) else value

    if with_section_headers:
        position = FILE_HEADER_SIZE + PROGRAM_HEADER_SIZE * len(segments)
        for section in all_sections:
            position += -position % 8
            body += struct.pack(
                "<IIQQQQIIQQ",
                name_offsets[section.name],
                section.type,
                section.flags,
                section.address,
                position,
                len(section.data) if section.size is None else section.size,
                number(section.link),
                number(section.info),
                section.alignment,
                section.entry_size,
            )
            position += len(section.data)
    for index, segment in enumerate(segments):
        offset = result.offsets[segment.section] if segment.section else segment.offset
        default = len(all_sections[result.indices[segment.section]].data) if segment.section else 0
        file_size = default if segment.file_size is None else segment.file_size
        memory_size = file_size if segment.memory_size is None else segment.memory_size
        struct.pack_into(
            "<IIQQQQQQ",
            body,
            FILE_HEADER_SIZE + PROGRAM_HEADER_SIZE * index,
            *(segment.type, segment.flags, offset, segment.address, segment.address),
            *(file_size, memory_size, segment.alignment),
        )
    struct.pack_into(
        "<16sHHIQQQIHHHHHH",
        body,
        0,
        b"\x7fELF\x02\x01\x01",
        *(type, machine, 1, entry, FILE_HEADER_SIZE if segments else 0),
        *(result.section_headers if with_section_headers else 0, 0, FILE_HEADER_SIZE),
        *(PROGRAM_HEADER_SIZE, len(segments), SECTION_HEADER_SIZE),
        *((len(all_sections), len(all_sections) - 1) if with_section_headers else (0, 0)),
    )
    result.data = bytes(body)
    return result


def elf_file(
    sections: Sequence[Section],
    segments: Sequence[Segment] = (),
    *,
    machine: int = X86_64,
    type: int = DYN,
    entry: int = 0,
    with_section_headers: bool = True,
) -> bytes:
    return layout(
        sections,
        segments,
        machine=machine,
        type=type,
        entry=entry,
        with_section_headers=with_section_headers,
    ).data
