"""The header of a perf.data file: events, and what perf knew of machine and command ("features").

Format: tools/perf/Documentation/perf.data-file-format.txt. Of the features only those are read that matter
here. Whatever is damaged is left out and told."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from unspool.capture.errors import CaptureError
from unspool.capture.perf_attributes import EventAttributes

MAGIC = b"PERFILE2"
PIPE_HEADER_SIZE = 16
_FILE_HEADER = struct.Struct(
    "<8sQQQQQQQQ32s"
)  # magic, size, size of an attribute, then sections, then feature bits
_SECTION = struct.Struct("<QQ")  # offset, size
_MAX_ATTRIBUTES = 4096
_MAX_FEATURE = 64 << 20  # bytes of one
_MAX_IDS = 1 << 20
_BUILD_ID, _HOSTNAME, _RELEASE, _VERSION, _ARCH, _COMMAND, _EVENTS = 2, 3, 4, 5, 6, 11, 12
_BUILD_ID_SIZE_GIVEN = 1 << 15  # a bit of the record's misc


class DescribedEvent(NamedTuple):
    """An event, the ids that its records bear, and its name ("": not known)."""

    attributes: EventAttributes
    ids: tuple[int, ...]
    name: str = ""


@dataclass
class PerfHeader:
    """What is known before the first sample. build_ids: by path. data_offset, data_size: where the records
    are; None: up to the end of the stream. problems: what could not be read."""

    events: list[DescribedEvent] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # of events, by any of their ids
    build_ids: dict[str, list[bytes]] = field(default_factory=dict)
    hostname: str = ""
    release: str = ""
    version: str = ""
    arch: str = ""
    command: Sequence[str] = ()  # words
    data_offset: int = PIPE_HEADER_SIZE
    data_size: int | None = None
    problems: list[str] = field(default_factory=list)

    def read_feature(self, number: int, data: bytes) -> None:
        """One feature's bytes. What is damaged is told in problems."""
        reader = _FEATURES.get(number)
        if reader is None:
            return
        try:
            reader(self, data)
        except (struct.error, ValueError, IndexError):
            self.problems.append(f"feature {number} of the header is damaged")

    def add_build_id(self, data: bytes, misc: int) -> None:
        """A record of perf's: pid, build id, path. Raises struct.error, ValueError."""
        size = data[24] if misc & _BUILD_ID_SIZE_GIVEN else 20
        path = os.fsdecode(data[28:].split(b"\0", 1)[0])
        if len(data) < 29 or not 0 < size <= 20:
            raise ValueError("too short")
        known = self.build_ids.setdefault(path, [])
        if data[4 : 4 + size] not in known:
            known.append(data[4 : 4 + size])

    @property
    def kernel_build_ids(self) -> list[bytes]:
        """Of the kernel's code, as far as they are known."""
        return self.build_ids.get("[kernel.kallsyms]", [])

    def _read_build_ids(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            _, misc, size = struct.unpack_from("<IHH", data, at)
            if size < 8 or at + size > len(data):
                raise ValueError("too short")
            self.add_build_id(data[at + 8 : at + size], misc)
            at += size

    def _read_events(self, data: bytes) -> None:
        count, size = struct.unpack_from("<II", data)
        at = 8
        for _ in range(count):
            at += size
            (ids,) = struct.unpack_from("<I", data, at)
            name, at = _string(data, at + 4)
            if 8 * ids > len(data) - at:
                raise ValueError("too short")
            self.names.update(dict.fromkeys(struct.unpack_from(f"<{ids}Q", data, at), name))
            at += 8 * ids

    def _read_command(self, data: bytes) -> None:
        (count,) = struct.unpack_from("<I", data)
        at, words = 4, []
        for _ in range(count):
            word, at = _string(data, at)
            words.append(word)
        self.command = words


def _text_feature(name: str) -> Callable[[PerfHeader, bytes], None]:
    def read(header: PerfHeader, data: bytes) -> None:
        setattr(header, name, _string(data, 0)[0])

    return read


_FEATURES: dict[int, Callable[[PerfHeader, bytes], None]] = {
    _BUILD_ID: PerfHeader._read_build_ids,
    _HOSTNAME: _text_feature("hostname"),
    _RELEASE: _text_feature("release"),
    _VERSION: _text_feature("version"),
    _ARCH: _text_feature("arch"),
    _COMMAND: PerfHeader._read_command,
    _EVENTS: PerfHeader._read_events,
}


def _string(data: bytes, at: int) -> tuple[str, int]:
    """A string with its length before it, and where it ends."""
    (length,) = struct.unpack_from("<I", data, at)
    end = at + 4 + length
    if end > len(data):
        raise ValueError("too short")
    return data[at + 4 : end].split(b"\0", 1)[0].decode(errors="backslashreplace"), end


# ---------------------------------------------------------------- reading


def is_perf_data(path: str) -> bool:
    """Whether a file begins as what perf record writes."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(file: BinaryIO, path: str, size: int | None) -> PerfHeader:
    """From the start of a file (size: its bytes) or a stream (None). Raises CaptureError: it is none."""
    start = file.read(PIPE_HEADER_SIZE)
    if len(start) < PIPE_HEADER_SIZE or start[:8] != MAGIC:
        raise _not_perf_data(path, start)
    (header_size,) = _SECTION.unpack(start)[1:]
    if header_size == PIPE_HEADER_SIZE:
        return PerfHeader()
    if size is None:
        raise CaptureError(f"{path} is a perf.data file, not a stream", "give its path instead of -")
    start += file.read(_FILE_HEADER.size - len(start))
    if header_size < _FILE_HEADER.size or len(start) < _FILE_HEADER.size:
        raise CaptureError(f"{path}: its header is damaged or cut short", "get a fresh copy of it")
    return _read_file_header(file, start, size)


def _not_perf_data(path: str, start: bytes) -> CaptureError:
    if start[:8] == MAGIC[::-1]:
        return CaptureError(
            f"{path} was recorded on a big-endian machine", "unspool reads x86_64 and aarch64 recordings"
        )
    if not start:
        return CaptureError(f"{path} is empty", "see what perf record has printed")
    return CaptureError(f"{path} is no perf.data file", "make one with: perf record -g --call-graph dwarf …")


def _read_file_header(file: BinaryIO, start: bytes, size: int) -> PerfHeader:
    _, _, entry, attributes_at, attributes_size, data_at, data_size, *_, bits = _FILE_HEADER.unpack(start)
    header = PerfHeader(data_offset=min(data_at, size), data_size=data_size)
    if entry > _SECTION.size:
        count = min(attributes_size // entry, _MAX_ATTRIBUTES)
        header.events = [
            event
            for number in range(count)
            if (event := _read_event(file, attributes_at + number * entry, entry, size)) is not None
        ]
        if len(header.events) < attributes_size // entry:
            header.problems.append("some events of the header are damaged")
    if not header.events:
        header.problems.append("the header tells of no event")
    if not data_size:
        header.problems.append("perf record did not finish this file: what it writes at the end is missing")
        header.data_size = max(size - data_at, 0)
    elif data_at + data_size > size:
        header.problems.append(
            f"the file is cut short: {data_at + data_size - size} bytes of records are missing"
        )
        header.data_size = max(size - data_at, 0)
    else:
        _read_features(file, header, data_at + data_size, bits, size)
    return header


def _read_event(file: BinaryIO, offset: int, entry: int, size: int) -> DescribedEvent | None:
    if offset + entry > size:
        return None
    data = _read_at(file, offset, entry)
    try:
        ids_at, ids_size = _SECTION.unpack(data[-_SECTION.size :])
        attributes = EventAttributes.parse(data[: -_SECTION.size])
    except (ValueError, struct.error):
        return None
    ids_size = min(ids_size, _MAX_IDS * 8, max(size - ids_at, 0)) // 8 * 8
    ids = struct.unpack(f"<{ids_size // 8}Q", _read_at(file, ids_at, ids_size).ljust(ids_size, b"\0"))
    return DescribedEvent(attributes, ids)


def _read_features(file: BinaryIO, header: PerfHeader, offset: int, bits: bytes, size: int) -> None:
    """The sections' table follows the records: one entry for each bit that is set."""
    numbers = [number for number in range(len(bits) * 8) if bits[number // 8] >> number % 8 & 1]
    table = _read_at(file, offset, len(numbers) * _SECTION.size)
    if len(table) < len(numbers) * _SECTION.size:
        header.problems.append("the file is cut short: what perf writes at its end is missing")
        return
    for number, (at, length) in zip(numbers, _SECTION.iter_unpack(table), strict=True):
        if number not in _FEATURES:
            continue
        if length > _MAX_FEATURE or at + length > size:
            header.problems.append(f"feature {number} of the header is damaged")
            continue
        header.read_feature(number, _read_at(file, at, length))


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    """Fewer bytes if there are no more."""
    try:
        file.seek(offset)
    except (OSError, OverflowError, ValueError):
        return b""
    return file.read(size)
