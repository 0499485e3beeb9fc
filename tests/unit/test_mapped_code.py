"""The files whose code is mapped, opened once each, and closed where there are too many."""

import os
import platform
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compilers import build
from unspool import Binary
from unspool.cache import Cache
from unspool.capture import mapped_code
from unspool.capture.mapped_code import CodeFiles, KnownFile
from unspool.capture.memory_map import MapEntry, MemoryMap


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
