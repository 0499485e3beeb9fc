"""A thread that was stopped in the small library, and the memory and the notes that a core file of it has."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from tests.core_writer import EXECUTE, READ, WRITE, FileAt, Memory, mapped_files, thread
from tests.small_library import IMAGE_BASE, Library

STACK = 0x7FFE_0000_1000
PAGE = 0x1000


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


@dataclass
class StoppedLibrary:
    """A thread that was stopped at inner_body; inner was called by middle, outer and root."""

    library: Library

    @property
    def arch(self) -> str:
        return self.library.binary.arch

    @property
    def frames(self) -> tuple[int, ...]:
        labels = ("inner_body", "middle_return", "outer_return", "root_return")
        return tuple(self.library.at(label) for label in labels)

    def thread(self, sp: int = STACK) -> bytes:
        at = self.library.at
        others = {4: sp + 0x30} if self.arch == "x86_64" else {29: sp + 0x20, 30: at("middle_return")}
        return thread(7, at("inner_body"), sp, arch=self.arch, signal=6, others=others)

    def stack(self) -> bytes:
        at = self.library.at
        if self.arch == "x86_64":
            return words(
                0xB, at("middle_return"), 0, 0, 0, at("outer_return"), 0xF0F0, at("root_return"), 0xDEAD
            )
        return words(at("outer_return"), 0, 0, 0, 0xF0F0, at("root_return"), 0xDEAD)

    def pages(self) -> list[Memory]:
        """The library as the kernel maps it: whole pages."""
        data = Path(self.library.binary.path).read_bytes()
        pages = []
        for segment in self.library.binary.segments:
            start = segment.file_offset // PAGE * PAGE
            end = -(-(segment.file_offset + segment.file_size) // PAGE) * PAGE
            flags = READ | (WRITE if segment.writable else 0) | (EXECUTE if segment.executable else 0)
            address = IMAGE_BASE + segment.address - (segment.file_offset - start)
            pages.append(Memory(address, data[start:end].ljust(end - start, b"\0"), flags=flags))
        return pages

    def files(self, path: str | None = None) -> bytes:
        """NT_FILE."""
        path = path or self.library.binary.path
        listed = []
        for segment, page in zip(self.library.binary.segments, self.pages(), strict=True):
            offset = segment.file_offset // PAGE * PAGE
            listed.append(FileAt(page.start, page.start + len(page.data), offset, path))
        return mapped_files(*listed)


def not_dumped(pages: list[Memory], *, but_first: bool) -> list[Memory]:
    """As the kernel leaves out what is in files: all of it, or all but the page with the headers."""
    return [
        Memory(page.start, page.data[:PAGE] if but_first and index == 0 else b"", len(page.data), page.flags)
        for index, page in enumerate(pages)
    ]
