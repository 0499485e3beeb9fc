"""The common face of every file format, and the one error that a file can cause.

What a format must say stands here; how it says it stands in elf.py. Whatever a file holds, nothing but
BinaryError may leave this package, and memory stays in proportion to the file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from unspool.binaries.symbol_table import SymbolTable

Arch = Literal["x86_64", "aarch64"]
BinaryType = Literal["exec", "dyn", "rel", "core"]
UnwindKind = Literal["eh_frame", "debug_frame"]

DAMAGED = "the file is damaged or cut short; get a fresh copy of it"
PAGE_SIZES = (0x1000, 0x4000, 0x10000)  # the kernel's, on x86_64 and aarch64


class BinaryError(Exception):
    """A file can't be read: which file, what is wrong, at which file offset (None: nowhere in particular)."""

    def __init__(self, path: str, what: str, offset: int | None = None, remedy: str = DAMAGED) -> None:
        super().__init__(path, what, offset, remedy)
        self.path = path
        self.what = what
        self.offset = offset
        self.remedy = remedy

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at offset {self.offset:#x}"
        return f"{self.path}: {self.what}{where}: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the file that is loaded: file bytes first, zeros up to memory_size. Sizes in bytes."""

    address: int
    file_offset: int
    file_size: int
    memory_size: int
    readable: bool
    writable: bool
    executable: bool
    alignment: int


@dataclass(frozen=True, slots=True)
class Section:
    """One section header. `size` is what the header says: of the compressed bytes if the section is
    compressed; `data` is decompressed."""

    name: str
    address: int
    offset: int
    size: int
    type: int
    flags: int
    load: Callable[[], memoryview] = field(repr=False, compare=False)

    @property
    def data(self) -> memoryview:
        """The section's bytes (uint8, read afresh at every access: keep them); empty for a section
        without file bytes (.bss). Raises BinaryError."""
        return self.load()


@dataclass(frozen=True, slots=True)
class UnwindSection:
    """Unwind entries. `address` is the virtual address of data[0] (0 for .debug_frame). `open_ended`:
    only an upper bound of the size is known; the first terminator or malformed entry ends the section."""

    kind: UnwindKind
    address: int
    data: memoryview
    open_ended: bool


class Binary(ABC):
    """A program, library, object file, core file or vDSO. Thread-safe; a context manager.

    The file is never mapped, since a mapped file that is cut short kills the reader with SIGBUS, and
    never read whole: each part is read (pread) when it is asked for.
    """

    path: str
    arch: Arch
    type: BinaryType
    owner: int | None  # the file's user, who may have written anything into it; None: from memory
    entry: int  # e_entry: a virtual address, 0 = none
    segments: tuple[Segment, ...]
    image_address: int  # lowest segment's virtual address, rounded down to its page: relative address 0

    @staticmethod
    def open(path: str | PathLike[str]) -> Binary:
        """Open a file. Raises BinaryError."""
        from unspool.binaries.byte_source import FileSource
        from unspool.binaries.elf import ElfBinary

        source = FileSource(path)
        try:
            return ElfBinary(source)
        except BaseException:
            source.close()
            raise

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview, name: str = "[vdso]") -> Binary:
        """A file's image that is only in memory, such as the vDSO. What lies outside of it, such as a
        section header table that was never loaded, counts as absent. Raises BinaryError."""
        from unspool.binaries.byte_source import MemorySource
        from unspool.binaries.elf import ElfBinary

        return ElfBinary(MemorySource(data, name))

    @abstractmethod
    def close(self) -> None:
        """Release the file; whatever was not read before raises BinaryError from now on."""

    def __enter__(self) -> Binary:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    @abstractmethod
    def build_id(self) -> bytes | None:
        """The bytes of NT_GNU_BUILD_ID, by which a file and its debug file know each other."""

    @property
    @abstractmethod
    def interpreter(self) -> str | None:
        """The dynamic loader's path."""

    @property
    @abstractmethod
    def sections(self) -> Sequence[Section]:
        """All sections, in the file's order; made one by one as they are indexed. May raise BinaryError."""

    @abstractmethod
    def section(self, name: str) -> Section | None:
        """The first section of that name; `.debug_x` also finds `.zdebug_x`. Raises BinaryError."""

    @abstractmethod
    def unwind_sections(self) -> list[UnwindSection]:
        """Everything that holds unwind entries, .eh_frame first. Raises BinaryError."""

    @property
    @abstractmethod
    def text_address(self) -> int:
        """Base of DW_EH_PE_textrel; 0 = unknown."""

    @property
    @abstractmethod
    def data_address(self) -> int:
        """Base of DW_EH_PE_datarel in unwind entries; 0 = unknown."""

    @abstractmethod
    def code(self, address: int, size: int) -> memoryview:
        """The file's bytes at a virtual address of an executable segment: at most `size`, fewer (or none)
        where the file has no more. A copy, uint8. Raises BinaryError."""

    @property
    @abstractmethod
    def symbols(self) -> SymbolTable:
        """All symbols, read at the first access. Raises BinaryError."""

    @property
    @abstractmethod
    def debug_link(self) -> tuple[str, int] | None:
        """(file name, CRC-32 of the file) of the separate debug file."""

    @property
    @abstractmethod
    def debug_alt_link(self) -> tuple[str, bytes] | None:
        """(file name, build id) of the debug file shared with other binaries (dwz)."""

    def image_base(self, start: int, file_offset: int, end: int) -> int | None:
        """The address of relative address 0, from an executable mapping [start, end) of this file that begins
        at file_offset; None if no executable segment explains the mapping, or two do.

        A page of the file may belong to two segments that are loaded at different distances (lld), so only
        executable segments count: first one whose page-rounded file range is the mapping's, then one that
        begins on the mapping's first page, then the one with most bytes in the mapping (mprotect splits).
        """
        fits: dict[int, tuple[bool, bool, int]] = {}
        for segment in self.segments:
            first, last = segment.file_offset, segment.file_offset + segment.file_size
            overlap = min(last, file_offset + end - start) - max(first, file_offset)
            bias = start - file_offset - (segment.address - first)
            if segment.executable and overlap > 0 and bias % PAGE_SIZES[0] == 0:
                begins = [page for page in PAGE_SIZES if first // page * page == file_offset]
                whole = any(-(-last // page) * page == file_offset + end - start for page in begins)
                fits[bias] = max(fits.get(bias, (False, False, 0)), (whole, bool(begins), overlap))
        best = [bias for bias, fit in fits.items() if fit == max(fits.values())]
        found = best[0] + self.image_address if len(best) == 1 else -1
        return found if 0 <= found < 1 << 64 else None
