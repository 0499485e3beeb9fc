"""The files whose code is mapped, opened once each, and closed where there are too many."""

import os
import platform
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compilers import build
from unspool import Binary
from unspool.cache import Cache
from unspool.capture import mapped_code
from unspool.capture.mapped_code import CodeFiles, KnownFile, MappedCode
from unspool.capture.memory_map import MapEntry, MemoryMap

HEADER, PT_LOAD, PF_X = "<IIQQQQQQ", 1, 1


def test_a_file_under_many_inode_numbers_is_closed_under_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path, "program", "gcc", code="int main(void) { return 0; }")
    own = MemoryMap.of_process(os.getpid()).entries
    mapping = next(entry for entry in own if entry.executable and entry.is_file)
    is_open: dict[Binary, bool] = {}

    def open_again(pid: int, entry: MapEntry) -> Binary:
        binary = Binary.open(path)
        is_open[binary], close = True, binary.close

        def close_once() -> None:
            is_open[binary] = False
            close()

        monkeypatch.setattr(binary, "close", close_once)
        return binary

    monkeypatch.setattr(mapped_code, "open_mapped_file", open_again)
    monkeypatch.setattr(mapped_code, "_MAX_OPEN", 2)
    with closing(CodeFiles(platform.machine(), lambda table: 0, Cache(tmp_path / "cache"))) as files:
        for inode in range(1, 7):
            known = files._file(0, replace(mapping, inode=inode))
            assert isinstance(known, KnownFile)
            if known.pending is not None:
                known.pending.result()
            files.take_finished()
            assert known.is_open
            kept = {*known.copies, known.binary}
            assert {binary for binary, flag in is_open.items() if flag} == kept
            assert len(kept) <= 3


def program_with_segments(folder: Path, change: Callable[[list[list[int]], int], None]) -> tuple[Path, int]:
    """A program whose program headers (type, flags, offset, address, physical address, sizes, alignment) were
    changed; and where the code is in the file. change: gets all, and the number of the code's."""
    path = build(folder, "program", "gcc", code="int main(void) { return 0; }")
    data = bytearray(path.read_bytes())
    (at,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    headers = [list(struct.unpack_from(HEADER, data, at + n * size)) for n in range(count)]
    code = next(n for n, header in enumerate(headers) if header[0] == PT_LOAD and header[1] & PF_X)
    change(headers, code)
    for n, header in enumerate(headers):
        struct.pack_into(HEADER, data, at + n * size, *header)
    path.unlink()
    path.write_bytes(data)
    return path, headers[code][2]


def mapped_at(path: Path, start: int, size: int, file_offset: int) -> MappedCode:
    status = path.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    entry = MapEntry(start, start + size, "r-xp", file_offset, device, status.st_ino, str(path))
    with closing(CodeFiles(platform.machine(), lambda table: 0, Cache.none())) as files:
        return files.mapped(os.getpid(), [entry])


def test_a_file_may_be_mapped_below_its_own_offsets(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"no code")
    code_map = mapped_at(path, 0x10_0000, 0x1000, 1 << 40).code_map(platform.machine())
    assert [entry.image_base for entry in code_map.entries] == [0]


def test_segments_that_lie_further_up_than_they_are_mapped(tmp_path: Path) -> None:
    def far_up(headers: list[list[int]], code: int) -> None:
        headers[code][3] += 1 << 40

    path, offset = program_with_segments(tmp_path, far_up)
    code_map = mapped_at(path, 0x10_0000, 0x1000, offset & ~0xFFF).code_map(platform.machine())
    assert [entry.start for entry in code_map.entries] == [0x10_0000]


def test_segments_that_overlap(tmp_path: Path) -> None:
    def twice(headers: list[list[int]], code: int) -> None:
        other = next(n for n, header in enumerate(headers) if header[0] != PT_LOAD and n > code)
        headers[other] = list(headers[code])

    path, offset = program_with_segments(tmp_path, twice)
    code_map = mapped_at(path, 0x7000_0000, 0x1000, offset & ~0xFFF).code_map(platform.machine())
    assert [entry.start for entry in code_map.entries] == [0x7000_0000]
