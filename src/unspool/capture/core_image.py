"""A mapped file as a core file has it: the file's bytes, read from the memory they were mapped to.

It serves to check a file's identity, and to walk where the file itself is missing. Pages that were not dumped
are an error when they are read, never zeros. Pages that the process wrote to are not the file's any more.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unspool.binaries import Binary, BinaryError
from unspool.binaries.byte_source import ByteSource, MemorySource
from unspool.binaries.elf import ElfBinary
from unspool.binaries.elf_headers import PF_W, PT_DYNAMIC, PT_LOAD, Table, read_headers
from unspool.capture.core_file import CoreFile

_ELF_MAGIC = b"\x7fELF"
_HEADERS = 1 << 14  # bytes; the program headers are within


@dataclass(frozen=True, slots=True)
class CoreImage:
    """bias: an address minus the virtual address that is mapped there. dynamic: the virtual address of the
    dynamic section, if there is one."""

    binary: Binary
    bias: int
    dynamic: int | None


def image_at(core: CoreFile, header: int, name: str) -> CoreImage | None:
    """The file whose first byte is mapped at an address, if the core has its headers."""
    if core.read(header, 4) != _ELF_MAGIC:
        return None
    try:
        programs = read_headers(MemorySource(core.read(header, _HEADERS), name)).programs
        pages = _Pages(core, header, name, programs)
        binary = _ImageBinary(pages)
    except BinaryError:
        return None
    if binary.type not in ("exec", "dyn") or binary.arch != core.arch:
        return None
    return CoreImage(binary, pages.bias, pages.dynamic)


class _ImageBinary(ElfBinary):
    """Pages that the core does not have make a build id unknown; they are no error."""

    @cached_property
    def build_id(self) -> bytes | None:
        try:
            return super().build_id
        except BinaryError:
            return None


class _Pages(ByteSource):
    """File offsets, translated to addresses by the program headers."""

    complete = False

    def __init__(self, core: CoreFile, header: int, name: str, programs: Table) -> None:
        """header: where the file's first byte is mapped. Raises BinaryError."""
        self.path = name
        self._core = core
        loads = programs[programs["type"] == PT_LOAD]
        columns = [loads[field].tolist() for field in ("offset", "filesz", "vaddr", "flags")]
        # A page of the file may belong to two segments: the one that is not written to is the file's.
        self._loads = sorted(zip(*columns, strict=True), key=lambda load: load[3] & PF_W)
        biases = [header - vaddr for offset, size, vaddr, _ in self._loads if not offset and size]
        if not biases:
            raise self.error("no segment has the file header")
        self.bias: int = min(biases)
        self.size = max(offset + size for offset, size, _, _ in self._loads)
        self._image_end = self.bias + max(vaddr + size for _, size, vaddr, _ in self._loads)
        dynamic = programs[programs["type"] == PT_DYNAMIC]
        self.dynamic: int | None = int(dynamic["vaddr"][0]) if len(dynamic) else None
        self._dynamic_offset = int(dynamic["offset"][0]) if len(dynamic) else None

    def close(self) -> None:
        """The core stays open."""

    def _read(self, offset: int, size: int, what: str) -> memoryview:
        parts = []
        start = offset
        while size:
            address, there = self._locate(offset)
            data = self._core.read_for_image(address, min(size, there)) if there else b""
            if not data:
                raise self.error(f"the core does not have {what}", offset, "get the file itself")
            parts.append(data)
            offset += len(data)
            size -= len(data)
        data = b"".join(parts)
        return memoryview(self._not_relocated(data) if start == self._dynamic_offset else data)

    def _not_relocated(self, dynamic: bytes) -> bytes:
        """The dynamic section as the file has it: glibc turns virtual addresses in it into addresses."""
        words = np.frombuffer(dynamic, dtype="<u8", count=len(dynamic) // 16 * 2).reshape(-1, 2).copy()
        values = words[:, 1]
        if 0 < self.bias <= self._image_end < 1 << 64:
            moved = (values >= self.bias) & (values < self._image_end)
            values[moved] -= np.uint64(self.bias)
        return words.tobytes()

    def _locate(self, offset: int) -> tuple[int, int]:
        """(address, how many bytes follow there) of a file offset; 0 bytes if it is not mapped."""
        for start, size, vaddr, _ in self._loads:
            if start <= offset < start + size:
                return self.bias + vaddr + offset - start, start + size - offset
        return 0, 0
