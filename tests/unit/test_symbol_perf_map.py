"""perf maps: names of JIT code, from a file that anybody may have written."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unspool.symbols import PerfMap, perf_map


def test_lines_are_start_size_and_a_name_with_spaces() -> None:
    found = PerfMap(b"1000 10 LazyCompile:~f /x.js:1:2\n0x2000 0x8 g\n")
    assert len(found) == 2
    assert found.lookup(0xFFF) is None
    assert found.lookup(0x1000) == found.lookup(0x100F) == "LazyCompile:~f /x.js:1:2"
    assert found.lookup(0x1010) is None
    assert found.lookup(0x2007) == "g"
    assert found.lookup(0x2008) is None


def test_a_later_line_replaces_what_it_overlaps() -> None:
    found = PerfMap(b"1000 100 old\n1040 10 new\n10f0 20 newest\n")
    names = [found.lookup(a) for a in (0x103F, 0x1040, 0x104F, 0x1050, 0x10EF, 0x10F0, 0x110F, 0x1110)]
    assert names == ["old", "new", "new", "old", "old", "newest", "newest", None]


def test_ranges_agree_with_the_last_line_that_covers_an_address() -> None:
    choice = random.Random(3)
    entries = [(choice.randrange(300), choice.randrange(1, 60), f"n{i}") for i in range(60)]
    found = PerfMap("".join(f"{start:x} {size:x} {name}\n" for start, size, name in entries).encode())
    for address in range(400):
        covering = [name for start, size, name in entries if start <= address < start + size]
        assert found.lookup(address) == (covering[-1] if covering else None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n\n",
        b"zzz 10 name\n",
        b"1000 name\n",
        b"1000 10\n",
        b"1000 0 empty\n",
        b"-1000 10 negative\n",
        b"10000000000000000 10 too many digits\n",
        b"\x00\xff\xfe" * 1000,
        os.urandom(100_000),
    ],
)
def test_what_is_no_line_is_passed_over(data: bytes) -> None:
    found = PerfMap(data + b"\n5000 10 good\n")
    assert found.lookup(0x5000) == "good"
    assert len(found) == 1


def test_an_entry_at_the_end_of_the_addresses() -> None:
    found = PerfMap(b"fffffffffffffff0 ffffffffffffffff last\n")
    assert found.lookup(0xFFFFFFFFFFFFFFFF) == "last"


def test_a_name_that_is_not_text_is_escaped() -> None:
    assert PerfMap(b"1000 10 a\xffb\n").lookup(0x1000) == "a\\xffb"


def test_many_lines_take_seconds_at_most() -> None:
    # All of them overlap: the worst case for the arrangement.
    data = b"".join(b"%x %x n%d\n" % (i, 1 << 30, i) for i in range(200_000))
    started = time.process_time()
    found = PerfMap(data)
    assert found.lookup(199_999) == "n199999"
    assert found.lookup(5) == "n5"
    assert time.process_time() - started < 10


def test_only_the_end_of_a_huge_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_map, "_MAX_BYTES", 1000)
    path = tmp_path / "perf-1.map"
    path.write_bytes(b"".join(b"%x 1 n%d\n" % (0x1000 + i, i) for i in range(1000)))
    data = perf_map._read_owned(str(path), {os.geteuid()})
    assert data is not None and len(data) < 1000
    found = PerfMap(data)
    assert found.lookup(0x1000 + 999) == "n999"
    assert found.lookup(0x1000) is None


def test_the_map_of_a_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    path = Path(f"/tmp/perf-{process.pid}.map")
    try:
        assert PerfMap.of_process(process.pid) is None
        path.write_text("7f0000001000 20 jitted\n")
        found = PerfMap.of_process(process.pid)
        assert found is not None and found.lookup(0x7F0000001010) == "jitted"
        path.unlink()
        os.mkfifo(path)  # to open it would wait for a writer
        assert PerfMap.of_process(process.pid) is None
    finally:
        path.unlink(missing_ok=True)
        process.communicate(b"\n")
    assert PerfMap.of_process(process.pid) is None


def test_a_file_of_another_user_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "perf-1.map"
    path.write_text("1000 10 forged\n")
    assert perf_map._read_owned(str(path), {os.geteuid()}) is not None
    assert perf_map._read_owned(str(path), {os.geteuid() + 1}) is None
