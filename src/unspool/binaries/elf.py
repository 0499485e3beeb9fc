"""ELF files, 64-bit little-endian, for x86_64 and aarch64: the Binary that a file of this format is.

Only the headers are read when a file is opened; every other part when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from unspool.binaries.binary import PAGE_SIZES, Binary, Section, Segment, UnwindKind, UnwindSection
from unspool.binaries.byte_source import ByteSource
from unspool.binaries.elf_dynamic import Dynamic, read_dynamic
from unspool.binaries.elf_headers import (
    PF_R,
    PF_W,
    PF_X,
    PT_DYNAMIC,
    PT_GNU_EH_FRAME,
    PT_INTERP,
    PT_LOAD,
    PT_NOTE,
    SHT_NOBITS,
    SHT_NOTE,
    Table,
    read_headers,
)
from unspool.binaries.elf_image import LoadedBytes
from unspool.binaries.elf_notes import find_build_id
from unspool.binaries.elf_relocate import relocated
from unspool.binaries.elf_sections import SectionTable
from unspool.binaries.elf_symbols import read_symbols
from unspool.binaries.elf_unwind import HeaderError, eh_frame_through_header
from unspool.binaries.symbol_table import SymbolTable

_MAX_NOTES = 1 << 20  # bytes of notes that are searched for the build id
_MAX_PATH = 4096
_MAX_UNWIND_SECTIONS = 16  # each may be as large as the file; one or two are usual


class ElfBinary(Binary):
    def __init__(self, source: ByteSource) -> None:
        headers = read_headers(source)
        self._source = source
        self._headers = headers
        self._sections = SectionTable(source, headers)
        self.path = source.path
        self.owner = source.owner
        self.arch = headers.arch
        self.type = headers.type
        self.entry = headers.entry
        if headers.type == "rel":
            self.segments = self._sections.segments()
        else:
            self.segments = tuple(_segment(header) for header in self._programs(PT_LOAD))
        self._loaded = LoadedBytes(source, self.segments)
        self.image_address = (
            min((s.address for s in self.segments), default=0) // PAGE_SIZES[0] * PAGE_SIZES[0]
        )

    def close(self) -> None:
        self._source.close()

    @cached_property
    def build_id(self) -> bytes | None:
        if self.type == "core":  # its notes are about the process
            return None
        return find_build_id(self._notes())

    @cached_property
    def interpreter(self) -> str | None:
        for header in self._programs(PT_INTERP)[:1]:
            size = min(int(header["filesz"]), _MAX_PATH)
            raw = bytes(self._source.read(int(header["offset"]), size, "the interpreter's name"))
            return raw.partition(b"\0")[0].decode("utf-8", "backslashreplace") or None
        return None

    @property
    def sections(self) -> Sequence[Section]:
        return self._sections

    def section(self, name: str) -> Section | None:
        index = self._sections.find(name)
        return None if index is None else self._sections[index]

    def unwind_sections(self) -> list[UnwindSection]:
        sections = self._sections
        eh_frame, debug_frame, compressed = sections.find_each(".eh_frame", ".debug_frame", ".zdebug_frame")
        by_name: dict[UnwindKind, list[int]] = {
            "eh_frame": eh_frame,
            "debug_frame": debug_frame + compressed,
        }
        found: list[UnwindSection] = []
        if not by_name["eh_frame"] and self.type != "rel":
            found.extend(self._eh_frame_by_program_header())
        for kind, indices in by_name.items():
            for index in self._with_bytes(indices):
                if len(found) == _MAX_UNWIND_SECTIONS:
                    raise self._source.error(f"more than {_MAX_UNWIND_SECTIONS} unwind sections")
                address = int(sections.addresses[index]) if kind == "eh_frame" else 0
                found.append(UnwindSection(kind, address, self._bytes_of(index), False))
        return found

    @property
    def text_address(self) -> int:
        """As gdb takes it: .text. No compiler emits textrel on these architectures; libgcc takes 0."""
        return self._address_of(".text")

    @property
    def data_address(self) -> int:
        """As gdb takes it: .got; without section headers DT_PLTGOT, which libgcc takes where datarel is in
        use (i386). In .eh_frame_hdr datarel means the header itself: not this."""
        return self._address_of(".got") or (0 if len(self._sections) else self._dynamic.plt_got)

    def code(self, address: int, size: int) -> memoryview:
        return self._loaded.read_some(address, size, executable=True)

    @cached_property
    def symbols(self) -> SymbolTable:
        code_ranges = self._sections.code_ranges() or [
            (s.address, min(s.address + s.memory_size, 2**64 - 1)) for s in self.segments if s.executable
        ]
        dynamic = None if len(self._sections) else self._dynamic.symbols(self._loaded)
        return read_symbols(self._source, self._sections, dynamic, code_ranges, self.type == "rel")

    @cached_property
    def debug_link(self) -> tuple[str, int] | None:
        section = self.section(".gnu_debuglink")
        if section is None or section.type == SHT_NOBITS:
            return None
        name, _, _ = bytes(section.data).partition(b"\0")
        position = (len(name) + 4) // 4 * 4
        checksum = bytes(section.data[position : position + 4])
        if len(checksum) < 4:
            raise self._source.error(".gnu_debuglink has no checksum", section.offset)
        return name[:_MAX_PATH].decode("utf-8", "backslashreplace"), int.from_bytes(checksum, "little")

    @cached_property
    def debug_alt_link(self) -> tuple[str, bytes] | None:
        section = self.section(".gnu_debugaltlink")
        if section is None or section.type == SHT_NOBITS:
            return None
        name, _, build_id = bytes(section.data).partition(b"\0")
        if not build_id:
            raise self._source.error(".gnu_debugaltlink has no build id", section.offset)
        return name[:_MAX_PATH].decode("utf-8", "backslashreplace"), build_id

    def _programs(self, kind: int) -> Table:
        programs = self._headers.programs
        chosen: Table = programs[programs["type"] == kind]
        return chosen

    def _with_bytes(self, indices: list[int]) -> list[int]:
        return [i for i in indices if self._sections.row(i).type != SHT_NOBITS]

    def _bytes_of(self, index: int) -> memoryview:
        if self.type == "rel":
            return relocated(self._source, self._sections, self.arch, index)
        return self._sections.data(index)

    def _address_of(self, name: str) -> int:
        index = self._sections.find(name)
        return 0 if index is None else int(self._sections.addresses[index])

    def _notes(self) -> Iterator[tuple[memoryview, int]]:
        """The bytes of every note section and segment with their alignment, build id's section first."""
        sections = self._sections
        indices = self._with_bytes(sections.find_all(".note.gnu.build-id"))
        indices += np.flatnonzero(sections.headers["type"] == SHT_NOTE).tolist()
        rows = [sections.row(i) for i in indices]
        places = [(row.offset, row.size, row.addralign) for row in rows]
        programs = self._programs(PT_NOTE)
        places += programs[["offset", "filesz", "align"]].tolist()
        left = _MAX_NOTES
        for offset, size, alignment in places:
            readable = min(size, left, self._source.size - offset)
            if readable > 0:
                left -= readable
                yield self._source.read(offset, readable, "notes"), alignment

    def _eh_frame_by_program_header(self) -> list[UnwindSection]:
        for header in self._programs(PT_GNU_EH_FRAME)[:1]:
            offset, address = int(header["offset"]), int(header["vaddr"])
            if self._loaded.segment_at(address) is None:  # a file of debug information only
                return []
            data = self._loaded.read(address, int(header["filesz"]))
            try:
                return [eh_frame_through_header(data, address, self._loaded)]
            except HeaderError as problem:
                raise self._source.error(f".eh_frame_hdr: {problem}", offset) from problem
        return []

    @cached_property
    def _dynamic(self) -> Dynamic:
        programs = self._programs(PT_DYNAMIC)[:1]
        if not len(programs):
            return Dynamic({})
        offset, size = int(programs[0]["offset"]), int(programs[0]["filesz"])
        return read_dynamic(self._source.read(offset, size, "the dynamic section"))


def _segment(header: np.void) -> Segment:
    flags = int(header["flags"])
    return Segment(
        int(header["vaddr"]),
        int(header["offset"]),
        int(header["filesz"]),
        int(header["memsz"]),
        bool(flags & PF_R),
        bool(flags & PF_W),
        bool(flags & PF_X),
        int(header["align"]),
    )
