"""Core files as files: which memory they hold, cut short, damaged, compressed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from tests.core_writer import Memory, core_file, thread
from tests.elf_writer import elf_file
from unspool.binaries import BinaryError
from unspool.capture import CaptureError
from unspool.capture import core_file as module
from unspool.capture.core_file import CoreFile

PAGE = 0x1000
Written = Callable[[bytes], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(data: bytes) -> Path:
        path = tmp_path / "the.core"
        path.write_bytes(data)
        return path

    return write


def two_neighbours() -> bytes:
    """Two segments side by side, then one of which only a part was dumped, then one far away."""
    return core_file(
        [
            Memory(0x1000, b"a" * PAGE),
            Memory(0x2000, b"b" * PAGE, flags=5),
            Memory(0x3000, b"c" * 16, size=PAGE),
            Memory(0x9000, b"", size=PAGE, flags=0),
        ],
        [thread(1)],
    )


def test_memory_is_read_as_far_as_it_is_there(written: Written) -> None:
    """Over the border of two segments, but never over a gap; what was not dumped is not zero."""
    with closing(CoreFile(written(two_neighbours()))) as core:
        assert core.read(0x1FF0, 32) == b"a" * 16 + b"b" * 16
        assert core.read(0x2FF0, 1 << 40) == b"b" * 16 + b"c" * 16
        assert [core.read(address, 8) for address in (0xFFF, 0x3010, 0x9000, 0xA000, 1 << 63)] == [b""] * 5
        assert core.read(0x1000, 0) == b"" and core.read(0x1000, -1) == b""
        assert [(segment.start, segment.end, segment.permissions) for segment in core.segments] == [
            (0x1000, 0x2000, "rw-"),
            (0x2000, 0x3000, "r-x"),
            (0x3000, 0x4000, "rw-"),
            (0x9000, 0xA000, "---"),
        ]
        assert (core.problems, core.lost_ranges) == ([], [])


def test_of_a_core_that_was_cut_short_the_rest_is_there(written: Written) -> None:
    """Every length: the memory that is there is right, the rest is told."""
    data = two_neighbours()
    first = data.index(b"a" * PAGE)
    for size in [*range(first, first + 2 * PAGE + 16, 509), len(data)]:
        with closing(CoreFile(written(data[:size]))) as core:
            there = min(size - first, 2 * PAGE + 16)
            assert core.read(0x1000, 4 * PAGE) == (b"a" * PAGE + b"b" * PAGE + b"c" * 16)[:there]
            assert core.lost_ranges == ([(0x1000 + there, 0x3010)] if there < 2 * PAGE + 16 else [])
            assert core.notes == thread(1)


def test_notes_that_are_cut_off(written: Written) -> None:
    data = two_neighbours()
    end = data.index(b"a" * PAGE) - 8
    start = data.index(thread(1)[:20])
    with closing(CoreFile(written(data[:end]))) as core:
        assert core.notes == thread(1)[: end - start]
        assert core.problems == [f"of {len(thread(1))} bytes of notes only {end - start} could be read"]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 100])
def test_headers_that_are_cut_off(size: int, written: Written) -> None:
    with pytest.raises(BinaryError, match=r"the\.core: "):
        CoreFile(written(two_neighbours()[:size]))


def test_section_headers_do_not_matter(written: Written) -> None:
    """gdb writes them at the end of the file: they are gone when the core is cut short."""
    data = bytearray(two_neighbours())
    struct.pack_into("<Q", data, 40, len(data))  # e_shoff
    struct.pack_into("<HHH", data, 58, 64, 5, 4)
    with closing(CoreFile(written(bytes(data)))) as core:
        assert core.read(0x1000, 4) == b"aaaa"


def test_segments_that_overlap(written: Written) -> None:
    """The first of them has the address."""
    data = core_file(
        [Memory(0x2000, b"b" * PAGE), Memory(0x1000, b"a" * (2 * PAGE)), Memory(0x2800, b"c")], [thread(1)]
    )
    with closing(CoreFile(written(data))) as core:
        assert core.read(0x1000, 4 * PAGE) == b"a" * (2 * PAGE)
        assert core.problems == ["2 segments overlap others, from 0x2000 on"]


def test_segments_at_the_end_of_the_address_space(written: Written) -> None:
    """x86_64's vsyscall page is near; sizes that wrap are cut."""
    data = core_file([Memory((1 << 64) - PAGE, b"v" * PAGE, size=PAGE * 4)], [thread(1)])
    with closing(CoreFile(written(data))) as core:
        assert core.segments[0].end == (1 << 64) - 1
        assert core.read((1 << 64) - 16, 64) == b"v" * 15


def test_a_hundred_segments_of_the_same_bytes(written: Written) -> None:
    """A damaged file makes no more memory than it has bytes."""
    data = bytearray(core_file([Memory(0x1000 * n, b"x" * PAGE) for n in range(1, 101)], [thread(1)]))
    (offset,) = struct.unpack_from("<Q", data, 64 + 56 + 8)
    for index in range(100):
        struct.pack_into("<Q", data, 64 + 56 * (index + 1) + 8, offset)
    data = data[: offset + PAGE]
    with closing(CoreFile(written(bytes(data)))) as core:
        assert len(core.read(0x1000, 1 << 30)) == len(data)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (elf_file([]), "is not a core file"),
        (b"#!/bin/sh\n" + bytes(100), "not an ELF file"),
        (b"\x7fELF\x01\x01\x01" + bytes(100), "32-bit"),
        (b"\x1f\x8b" + bytes(100), "is compressed: unpack it first, with gunzip"),
        (b"\xfd7zXZ\0" + bytes(100), "is compressed: unpack it first, with unxz"),
    ],
)
def test_what_is_no_core_file(data: bytes, error: str, written: Written) -> None:
    with pytest.raises((CaptureError, BinaryError), match=error):
        CoreFile(written(data))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match="No such file"):
        CoreFile(tmp_path / "nothing")
    with pytest.raises(BinaryError, match="not a regular file"):
        CoreFile(tmp_path)


# ---------------------------------------------------------------- zstd


def compressed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def test_a_compressed_core(written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in several frames, as parallel compressors write them. The unpacked file leaves no name behind."""
    (tmp_path / "unpacked").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "unpacked"))
    data = two_neighbours()
    for packed in (compressed(data), compressed(data[:5000]) + compressed(data[5000:])):
        with closing(CoreFile(written(packed))) as core:
            assert core.size == len(data)
            assert core.read(0x1FF0, 32) == b"a" * 16 + b"b" * 16
            assert core.problems == []
            assert list((tmp_path / "unpacked").iterdir()) == []


def test_zeros_take_no_room(written: Written) -> None:
    """Most of a core's stacks was never used."""
    data = core_file([Memory(0x1000, bytes(8 << 20)), Memory(0x1000000, b"x")], [thread(1)])
    with closing(CoreFile(written(compressed(data)))) as core:
        assert core.size == len(data)
        assert core.read(0x1000, 1 << 30) == bytes(8 << 20)
        assert core.read(0x1000000, 1) == b"x"
        (unpacked,) = Path("/proc/self/fd").glob(str(core._source._fd))
        assert unpacked.stat().st_blocks * 512 < 1 << 20


def test_a_compressed_core_that_was_cut_short(written: Written) -> None:
    data = core_file([Memory(0x1000, bytes(range(256)) * 4096), Memory(0x900000, b"x" * PAGE)], [thread(1)])
    packed = compressed(data[:400_000]) + compressed(data[400_000:])
    with closing(CoreFile(written(packed[:-20]))) as core:
        assert core.problems[0] == "the compressed file is cut short"
        assert len(core.read(0x1000, 1 << 30)) >= 390_000
        assert core.lost_ranges[-1] == (0x900000, 0x901000)
    with pytest.raises(CaptureError, match="is cut short: nothing of it can be unpacked"):
        CoreFile(written(packed[:12]))


def test_a_compressed_core_that_is_damaged(written: Written) -> None:
    packed = bytearray(compressed(two_neighbours()))
    packed[-1] ^= 1  # of the checksum
    with pytest.raises(CaptureError, match=r"the\.core: damaged zstd data"):
        CoreFile(written(bytes(packed)))
    with pytest.raises(CaptureError, match="damaged zstd data"):
        CoreFile(written(compressed(two_neighbours()) + b"rubbish after the end"))


def test_a_compressed_core_that_would_fill_the_disk(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 MiB of one byte in a few KiB: ratios as no memory has them."""
    monkeypatch.setattr(module, "_MAX_RATIO", 10)
    monkeypatch.setattr(module, "_RATIO_SLACK", 1 << 20)
    with pytest.raises(CaptureError, match="would unpack to more than"):
        CoreFile(written(compressed(b"\xaa" * (64 << 20))))
    monkeypatch.setattr(module, "_MAX_UNPACKED", 1 << 20)
    with pytest.raises(CaptureError, match="would unpack to more than"):
        CoreFile(written(compressed(bytes(64 << 20))))


def test_no_room_to_unpack(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(target: object, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_write_sparsely", full)
    with pytest.raises(CaptureError, match=r"No space left on device.*set TMPDIR"):
        CoreFile(written(compressed(two_neighbours())))
