"""A core file: its headers, its notes, and the memory that is in it.

The file is not trusted, never mapped and never read whole: memory is read (pread) where a walk needs it. Of
a file that was cut short, what is there counts. A zstd-compressed core is unpacked into a temporary file.
"""

import os
import tempfile
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from unspool.binaries import BinaryError
from unspool.binaries.byte_source import FileSource
from unspool.binaries.elf_headers import PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE, Table, read_headers
from unspool.capture.errors import CaptureError

_MAX_NOTES = 64 << 20  # bytes; some 4 KiB a thread
_LAST_ADDRESS = (1 << 64) - 1
_MAX_IMAGE_BYTES = 1 << 30

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_OTHER_COMPRESSIONS = {
    b"\x1f\x8b": "gunzip",
    b"\xfd7zXZ": "unxz",
    b"\x04\x22\x4d\x18": "unlz4",
    b"BZh": "bunzip2",
}
_ZSTD_WINDOW = 1 << 27  # bytes of memory; zstd's own default limit
_ZSTD_INPUT = 2048  # bytes unpacked at once: they yield 64 MiB at most
_BLOCK = 1 << 16  # zeros of this size become holes
_MAX_UNPACKED = 64 << 30
_MAX_RATIO, _RATIO_SLACK = 1000, 1 << 30  # of what is not a hole


@dataclass(frozen=True, slots=True)
class CoreSegment:
    """Memory start <= a < end. Its first `stored` bytes are in the file, from file_offset on; it should
    have been `dumped` bytes if the file was not cut short. What was not dumped is not known: not zero."""

    start: int
    end: int
    file_offset: int
    dumped: int
    stored: int
    permissions: str  # "r-x"


class _CoreSource(FileSource):
    complete = False  # gdb's cores have section headers at their end: nothing depends on them


class CoreFile:
    """Headers, notes and memory. Raises CaptureError, BinaryError. Close it in the end."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.problems: list[str] = []
        self._image_bytes_left = _MAX_IMAGE_BYTES
        self._source = self._open()
        try:
            headers = read_headers(self._source)
            if headers.type != "core":
                raise CaptureError(
                    f"{self.path} is not a core file", "name the core file first, then the program"
                )
            self.arch = headers.arch
            rows = headers.programs
            self.segments = self._segments(rows[rows["type"] == PT_LOAD])
            self.notes = self._notes(rows[rows["type"] == PT_NOTE])
        except BaseException:
            self._source.close()
            raise
        self._stored = [segment for segment in self.segments if segment.stored]
        self._starts = [segment.start for segment in self._stored]

    def close(self) -> None:
        self._source.close()

    @property
    def size(self) -> int:
        """Bytes of the (unpacked) file."""
        return self._source.size

    def read(self, address: int, size: int) -> bytes:
        """Memory from an address on: as many bytes as the core has without a gap, at most `size`. Raises
        nothing."""
        parts = []
        left = min(size, self.size)
        index = bisect_right(self._starts, address) - 1
        while left > 0 and 0 <= index < len(self._stored):
            segment = self._stored[index]
            skipped = address - segment.start
            if not 0 <= skipped < segment.stored:
                break
            count = min(left, segment.stored - skipped)
            try:
                parts.append(bytes(self._source.read(segment.file_offset + skipped, count, "memory")))
            except BinaryError:  # the file is being cut short, or a disk error
                break
            address += count
            left -= count
            index += 1
        return b"".join(parts)

    def read_for_image(self, address: int, size: int) -> bytes:
        """The same for pages of mapped files, which are kept: within a limit for all of them together."""
        data = self.read(address, min(size, self._image_bytes_left))
        self._image_bytes_left -= len(data)
        return data

    @property
    def lost_ranges(self) -> list[tuple[int, int]]:
        """Addresses [start, end) that were dumped, but behind the end of a file that was cut short."""
        ranges: list[tuple[int, int]] = []
        for segment in self.segments:
            start, end = segment.start + segment.stored, segment.start + segment.dumped
            if start >= end:
                continue
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, end))
        return ranges

    def _open(self) -> _CoreSource:
        source = _CoreSource(self.path)
        magic = bytes(source.read(0, min(source.size, 6), "the first bytes"))
        for prefix, command in _OTHER_COMPRESSIONS.items():
            if magic.startswith(prefix):
                source.close()
                raise CaptureError(f"{self.path} is compressed", f"unpack it first, with {command}")
        if not magic.startswith(_ZSTD_MAGIC):
            return source
        source.close()
        # The file goes with its name; the source has it open.
        with tempfile.NamedTemporaryFile(prefix="unspool-core-") as unpacked:
            if not _unpack(self.path, unpacked):
                self.problems.append("the compressed file is cut short")
                if not unpacked.tell():
                    raise CaptureError(f"{self.path} is cut short", "nothing of it can be unpacked")
            source = _CoreSource(unpacked.name)
        source.path = self.path
        return source

    def _segments(self, rows: Table) -> list[CoreSegment]:
        """By address, not overlapping."""
        segments: list[CoreSegment] = []
        overlapping: list[int] = []
        fields = ("vaddr", "memsz", "offset", "filesz", "flags")
        columns = [rows[name].tolist() for name in fields]
        reach = 0
        for start, memory_size, offset, dumped, flags in sorted(zip(*columns, strict=True)):
            end = min(start + max(memory_size, dumped), _LAST_ADDRESS)
            if start >= end:
                continue
            if start < reach:
                overlapping.append(start)
                continue
            reach = end
            dumped = min(dumped, end - start)
            stored = max(min(dumped, self._source.size - offset), 0)
            permissions = "".join(
                letter if flags & bit else "-" for bit, letter in ((PF_R, "r"), (PF_W, "w"), (PF_X, "x"))
            )
            segments.append(CoreSegment(start, end, offset, dumped, stored, permissions))
        if overlapping:
            self.problems.append(f"{len(overlapping)} segments overlap others, from {overlapping[0]:#x} on")
        return segments

    def _notes(self, rows: Table) -> bytes:
        wanted = 0
        parts: list[bytes] = []
        left = _MAX_NOTES
        for offset, size in zip(rows["offset"].tolist(), rows["filesz"].tolist(), strict=True):
            wanted += size
            there = max(min(size, left, self._source.size - offset), 0)
            left -= there
            if there:
                parts.append(bytes(self._source.read(offset, there, "the notes")))
        if wanted > _MAX_NOTES - left:
            self.problems.append(f"of {wanted} bytes of notes only {_MAX_NOTES - left} could be read")
        return b"".join(parts)


def _unpack(path: str, target: IO[bytes]) -> bool:
    """Unpack zstd; long runs of zeros become holes. False: the compressed file ends too early. Raises
    CaptureError: it is damaged, or there is no room."""
    taken = written = size = 0
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    frame = decoder.decompressobj()
    try:
        with Path(path).open("rb") as source:
            while piece := source.read(_ZSTD_INPUT):
                taken += len(piece)
                while piece:
                    if frame.eof:
                        frame = decoder.decompressobj()
                    data = frame.decompress(piece)
                    piece = frame.unused_data
                    size += len(data)
                    written += _write_sparsely(target, data)
                    if size > _MAX_UNPACKED or written > _MAX_RATIO * taken + _RATIO_SLACK:
                        raise CaptureError(
                            f"{path} would unpack to more than {size} bytes", "unpack it with zstd -d"
                        )
        target.truncate(size)
    except (zstandard.ZstdError, MemoryError) as error:
        raise CaptureError(
            f"{path}: damaged zstd data in its first {taken} bytes ({error})",
            "get a fresh copy of it, or try zstd -d",
        ) from None
    except OSError as error:
        raise CaptureError(
            f"{path} can't be unpacked into {tempfile.gettempdir()} ({error.strerror})",
            "set TMPDIR to a folder with more room, or unpack it with zstd -d",
        ) from None
    return frame.eof


def _write_sparsely(target: IO[bytes], data: bytes) -> int:
    """Append data; returns how many bytes of it were not left as a hole."""
    written = 0
    for start in range(0, len(data), _BLOCK):
        block = data[start : start + _BLOCK]
        if block.count(0) == len(block):
            target.seek(len(block), os.SEEK_CUR)
        else:
            written += target.write(block)
    return written
