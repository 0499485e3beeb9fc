"""The records of a perf.data file or stream, chunk by chunk, with perf's own records among them acted upon.

Read once, from front to back, a few megabytes at a time. Perf's own records bring events and header
(streams), compressed records (`perf record -z`), ends of rounds.
Format: tools/perf/Documentation/perf.data-file-format.txt.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from io import BufferedReader

import numpy as np
import zstandard

from unspool.capture.perf_attributes import EventAttributes
from unspool.capture.perf_header import PerfHeader
from unspool.capture.perf_records import RecordChunk, RecordParser, Stop, scan

_BLOCK = 8 << 20  # bytes that are read at once
_PACKED = 2048  # bytes that are unpacked at once: they yield 64 MiB at most
_WINDOW = 1 << 27  # bytes of memory for unpacking; zstd's own default limit
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_HEADER = struct.Struct("<IHH")  # type, misc, size
_ATTRIBUTES, _TRACING_DATA, _BUILD_ID, _AUXTRACE, _UPDATE, _FEATURE, _COMPRESSED, _COMPRESSED2 = (
    *(64, 66, 67, 71, 78, 80, 81, 83),
)
_UPDATE_NAME = 2


class RecordStream:
    """Give it a file whose header was read. It completes header and parser as it goes. bytes_read: of the
    records; problems: what could not be read."""

    def __init__(
        self,
        file: BufferedReader,
        header: PerfHeader,
        parser: RecordParser,
        progress: Callable[[int, int | None], None],
    ) -> None:
        self.bytes_read = 0
        self.problems: list[str] = []
        self._file = file
        self._header = header
        self._parser = parser
        self._progress = progress
        self._unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        self._unpacked = b""  # records that are not parsed yet

    def chunks(self) -> Iterator[RecordChunk]:
        """All records, in the file's order. Call it once."""
        if self._header.data_size is not None:
            self._file.seek(self._header.data_offset)
        data = memoryview(b"")
        while True:
            unused = len(data)
            data = self._read(data)
            used, goes_on = yield from self._parse(data)
            if not goes_on:
                break
            if len(data) == unused:
                if len(data) > used:
                    self._tell(
                        f"the file ends within a record: its last {len(data) - used} bytes are left out"
                    )
                break
            self._skip(used - len(data))
            data = data[used:]
        yield from self._parse_unpacked()

    def _read(self, before: memoryview) -> memoryview:
        """Some bytes, and the next block after them; nothing is added at the end. Each block has memory of
        its own, since samples refer to it; NumPy's comes in large pages."""
        total = self._header.data_size
        left = _BLOCK if total is None else max(min(_BLOCK, total - self.bytes_read), 0)
        buffer = np.empty(len(before) + left, np.uint8).data
        buffer[: len(before)] = before
        size = self._file.readinto(buffer[len(before) :])
        self.bytes_read += size
        self._progress(self.bytes_read, total)
        return buffer[: len(before) + size]

    def _skip(self, count: int) -> None:
        """Data behind a record that are of no use."""
        while count > 0:
            block = self._file.read(min(count, _BLOCK))
            if not block:
                return
            count -= len(block)
            self.bytes_read += len(block)

    def _tell(self, problem: str) -> None:
        self.problems.append(problem)

    # ------------------------------------------------------------ records

    def _parse(self, data: memoryview) -> Generator[RecordChunk, None, tuple[int, bool]]:
        """Returns how many bytes are done with, and whether records may follow."""
        view, at = data, 0
        while True:
            found = scan(view[at:])
            if found.positions or found.rounds:
                yield from self._parse_unpacked()
                yield self._parser.parse(view[at:], found)
            at += found.size
            if found.stop == Stop.END:
                return at, True
            if found.stop == Stop.DAMAGED:
                where = self.bytes_read - len(data) + at
                self._tell(f"no record begins at byte {where:#x} of the records: the rest is left out")
                return at, False
            size = _HEADER.unpack_from(view, at)[2]
            if at + size > len(view):
                return at, True
            yield from self._own_record(view[at : at + size])
            at += size + self._size_behind(view[at : at + size])

    def _size_behind(self, record: memoryview) -> int:
        """Bytes of data that follow a record without belonging to its size."""
        kind = _HEADER.unpack_from(record)[0]
        if kind == _AUXTRACE and len(record) >= 16:
            return int(struct.unpack_from("<Q", record, 8)[0])
        if kind == _TRACING_DATA and len(record) >= 12:
            return (int(struct.unpack_from("<I", record, 8)[0]) + 7) // 8 * 8
        return 0

    def _own_record(self, record: memoryview) -> Iterator[RecordChunk]:
        kind, misc, _ = _HEADER.unpack_from(record)
        body = record[_HEADER.size :]
        try:
            if kind == _ATTRIBUTES:
                self._add_event(body)
            elif kind == _BUILD_ID:
                self._header.add_build_id(bytes(body), misc)
            elif kind == _FEATURE:
                self._header.read_feature(struct.unpack_from("<Q", body)[0], bytes(body[8:]))
            elif kind == _UPDATE:
                self._update_event(body)
            elif kind == _COMPRESSED:
                yield from self._unpack(body)
            elif kind == _COMPRESSED2:
                size = struct.unpack_from("<Q", body)[0]
                yield from self._unpack(body[8 : 8 + size])
        except (struct.error, ValueError, IndexError):
            self._parser.damaged["records"] += 1

    def _add_event(self, body: memoryview) -> None:
        (size,) = struct.unpack_from("<I", body, 4)
        attributes = EventAttributes.parse(body[:size])
        ids = body[size : size + (len(body) - size) // 8 * 8]
        self._parser.add_event(attributes, struct.unpack(f"<{len(ids) // 8}Q", ids))

    def _update_event(self, body: memoryview) -> None:
        kind, identifier = struct.unpack_from("<QQ", body)
        if kind == _UPDATE_NAME:
            name = bytes(body[16:]).split(b"\0", 1)[0]
            self._header.names[identifier] = name.decode(errors="backslashreplace")

    # ------------------------------------------------------------ compressed records

    def _unpack(self, packed: memoryview) -> Iterator[RecordChunk]:
        if packed[:4] == _ZSTD_MAGIC:
            self._unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        for start in range(0, len(packed), _PACKED):
            try:
                self._unpacked += self._unpacker.decompress(packed[start : start + _PACKED])
            except zstandard.ZstdError:
                self._parser.damaged["compressed records"] += 1
                return
            if len(self._unpacked) > _BLOCK:
                yield from self._parse_unpacked()

    def _parse_unpacked(self) -> Iterator[RecordChunk]:
        """What is unpacked, up to a record that goes on in the next compressed one."""
        data, view = self._unpacked, memoryview(self._unpacked)
        at = 0
        while at < len(data):
            found = scan(view[at:])
            if found.positions or found.rounds:
                yield self._parser.parse(view[at:], found)
            at += found.size
            if found.stop == Stop.END:
                break
            size = _HEADER.unpack_from(view, at)[2]
            if found.stop == Stop.DAMAGED:
                self._parser.damaged["compressed records"] += 1
                at = len(data)
            elif at + size > len(data):
                break
            else:
                at += size
        self._unpacked = data[at:]
