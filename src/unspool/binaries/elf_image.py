"""The loaded part of a file: virtual addresses to file bytes."""

from __future__ import annotations

from dataclasses import dataclass

from unspool.binaries.binary import Segment
from unspool.binaries.byte_source import ByteSource


@dataclass(frozen=True, slots=True)
class LoadedBytes:
    """What the file's segments hold; the zeros behind a segment's file bytes don't count."""

    source: ByteSource
    segments: tuple[Segment, ...]

    def segment_at(self, address: int, executable: bool = False) -> Segment | None:
        """The first segment (of the executable ones) that has file bytes at a virtual address."""
        for segment in self.segments:
            inside = segment.address <= address < segment.address + segment.file_size
            if inside and (segment.executable or not executable):
                return segment
        return None

    def read_some(self, address: int, size: int, executable: bool = False) -> memoryview:
        """At most `size` bytes, fewer where the segment ends, none outside. Raises BinaryError."""
        segment = self.segment_at(address, executable)
        if segment is None or size <= 0:
            return memoryview(b"")
        skipped = address - segment.address
        size = min(size, segment.file_size - skipped)
        return self.source.read(segment.file_offset + skipped, size, f"what is loaded at {address:#x}")

    def read(self, address: int, size: int) -> memoryview:
        """Exactly `size` bytes. Raises BinaryError."""
        segment = self.segment_at(address)
        if size and (segment is None or address + size > segment.address + segment.file_size):
            raise self.source.error(f"the file has nothing at virtual address {address:#x} ({size} bytes)")
        return self.read_some(address, size)
