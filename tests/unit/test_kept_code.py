"""Large code is read from a copy that is mapped; its bytes are the file's own."""

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.elf_writer import ALLOC, EXEC, Section, Segment, elf_file
from unspool.binaries import Binary
from unspool.unwind.kept_code import segment_code

SIZE = (2 << 20) + 123  # two pieces and a little


def open_large(folder: Path) -> tuple[Binary, bytes]:
    """A file with more code than is kept in memory."""
    code = random.Random(7).randbytes(SIZE)
    path = folder / "large"
    text = Section(".text", code, flags=ALLOC | EXEC, address=0x1000)
    path.write_bytes(elf_file([text], [Segment(0x1000, ".text")]))
    return Binary.open(path), code


def test_large_code_is_the_files_own(tmp_path: Path) -> None:
    """All bytes, and the same view the second time."""
    binary, code = open_large(tmp_path)
    (segment,) = binary.segments
    kept = segment_code(binary, segment)
    assert bytes(kept) == code
    assert segment_code(binary, segment) is kept


def test_code_stays_when_its_file_is_cut_short(tmp_path: Path) -> None:
    """The program's file is not mapped: emptying it neither changes what was read nor ends this process."""
    binary, code = open_large(tmp_path)
    kept = segment_code(binary, binary.segments[0])
    (tmp_path / "large").write_bytes(b"")
    assert bytes(kept) == code


def test_where_there_is_no_room_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs memory, not code."""

    def no_room(**_: Any) -> None:
        raise OSError(28, "No space left on device")

    binary, code = open_large(tmp_path)
    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    assert bytes(segment_code(binary, binary.segments[0])) == code
