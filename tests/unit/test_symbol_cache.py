"""The cache on disk: what is damaged, old or in the way is a miss, never an error."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from tests.compilers import build
from unspool import Binary
from unspool.cache import Cache, Kind, key_of
from unspool.unwind import UnwindTable
from unspool.unwind.table_cache import cached_table

KIND = Kind("test", "1")
DATA = bytes(range(256)) * 40


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "unspool")


def path_of(tmp_path: Path, key: str = "abc") -> Path:
    return tmp_path / "unspool" / "test-1" / key


def test_what_was_written_is_read(cache: Cache) -> None:
    assert cache.read(KIND, "abc") is None
    cache.write(KIND, "abc", DATA)
    assert cache.read(KIND, "abc") == DATA
    cache.write(KIND, "abc", b"")
    assert cache.read(KIND, "abc") == b""


def test_another_version_of_a_kind_is_a_miss(cache: Cache) -> None:
    cache.write(KIND, "abc", DATA)
    assert cache.read(Kind("test", "2"), "abc") is None


def test_every_damaged_byte_is_a_miss(cache: Cache, tmp_path: Path) -> None:
    cache.write(KIND, "abc", b"content")
    whole = path_of(tmp_path).read_bytes()
    reserved = range(12, 16)
    for position in set(range(len(whole))) - set(reserved):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        path_of(tmp_path).write_bytes(damaged)
        assert cache.read(KIND, "abc") is None, position
    for size in range(len(whole)):
        path_of(tmp_path).write_bytes(whole[:size])
        assert cache.read(KIND, "abc") is None, size
    path_of(tmp_path).write_bytes(whole + b"x")
    assert cache.read(KIND, "abc") is None


def test_a_damaged_file_is_written_anew(cache: Cache, tmp_path: Path) -> None:
    cache.write(KIND, "abc", DATA)
    path_of(tmp_path).write_bytes(b"garbage")
    cache.write(KIND, "abc", DATA)
    assert cache.read(KIND, "abc") == DATA


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "unspool", max_bytes=10_000)
    for number, key in enumerate("abcde"):
        cache.write(KIND, key, bytes(1900))
        os.utime(path_of(tmp_path, key), (number, number))
    assert cache.read(KIND, "a") is not None  # now the one that was used last
    cache.write(KIND, "f", bytes(1900))
    left = {key for key in "abcdef" if path_of(tmp_path, key).exists()}
    assert left == {"a", "e", "f"}  # three quarters of the bound


def test_more_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "unspool", max_bytes=100)
    cache.write(KIND, "abc", bytes(101))
    assert cache.read(KIND, "abc") is None


def test_an_entry_may_be_too_old(cache: Cache, tmp_path: Path) -> None:
    cache.write(KIND, "abc", b"x")
    assert cache.read(KIND, "abc", max_age=60) == b"x"
    os.utime(path_of(tmp_path), (time.time() - 100, time.time() - 100))
    assert cache.read(KIND, "abc", max_age=60) is None


def test_dead_writers_leave_nothing_for_long(cache: Cache, tmp_path: Path) -> None:
    cache.write(KIND, "abc", b"x")
    fresh, old = path_of(tmp_path, ".writing-fresh"), path_of(tmp_path, ".writing-old")
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.write(KIND, "def", b"y")
    assert fresh.exists() and not old.exists()


def write_often(root: Path, fill: int) -> None:
    cache = Cache(root)
    for _ in range(200):
        cache.write(KIND, "abc", bytes([fill]) * 50_000)


def test_two_writers_at_once_leave_a_whole_file(cache: Cache, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_often, args=(tmp_path / "unspool", fill)) for fill in (1, 2)]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        data = cache.read(KIND, "abc")
        if data is not None:
            assert len(data) == 50_000 and len(set(data)) == 1
            seen.add(data[0])
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert seen
    assert [entry.name for entry in path_of(tmp_path).parent.iterdir()] == ["abc"]


def test_a_finished_file_is_kept_as_it_is(cache: Cache, tmp_path: Path) -> None:
    with cache.temporary_file(KIND) as file:
        file.write(b"as it is")
        cache.keep(KIND, "abc", file)
    path = cache.file(KIND, "abc")
    assert path is not None and path.read_bytes() == b"as it is"
    assert [entry.name for entry in path.parent.iterdir()] == ["abc"]
    assert cache.file(KIND, "def") is None


def test_a_directory_that_cant_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "unspool").write_text("a file where the directory should be")
    cache = Cache(tmp_path / "unspool")
    cache.write(KIND, "abc", DATA)
    assert cache.read(KIND, "abc") is None


def test_no_cache_keeps_nothing() -> None:
    cache = Cache.none()
    cache.write(KIND, "abc", DATA)
    assert cache.read(KIND, "abc") is None
    with cache.temporary_file(KIND) as file:
        cache.keep(KIND, "abc", file)
    assert cache.file(KIND, "abc") is None


@pytest.mark.parametrize("key", ["", "../abc", "a/b", "ABC", "a" * 201, ".x"])
def test_a_key_that_is_no_file_name_is_refused(cache: Cache, key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        cache.read(KIND, key)


def test_where_the_users_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    Cache.of_user().write(KIND, "abc", b"x")
    assert (tmp_path / "xdg/unspool/test-1/abc").exists()
    for relative in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        Cache.of_user().write(KIND, "abc", b"x")
    assert (tmp_path / ".cache/unspool/test-1/abc").exists()


def test_files_with_one_build_id_but_other_segments_have_other_keys(tmp_path: Path) -> None:
    option = "-Wl,--build-id=0x0123456789"
    with (
        Binary.open(build(tmp_path, "one", "gcc", option)) as one,
        Binary.open(build(tmp_path, "two", "gcc", option, "-static")) as two,
        Binary.open(build(tmp_path, "none", "gcc", "-Wl,--build-id=none")) as none,
    ):
        assert one.build_id == two.build_id
        assert key_of(one) != key_of(two)
        assert key_of(none) is None


def test_a_table_is_compiled_once(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Binary.open(build(tmp_path, "program", "gcc")) as binary:
        first = cached_table(binary, cache)
        expected = UnwindTable.compile(binary)
        with monkeypatch.context() as patch:
            patch.setattr(UnwindTable, "compile", lambda _: pytest.fail("compiled again"))
            second = cached_table(binary, cache)
        for table in (first, second):
            assert table.to_bytes() == expected.to_bytes()
            assert (table.problem_count, table.problems) == (expected.problem_count, expected.problems)


def test_a_damaged_table_is_compiled_anew(cache: Cache, tmp_path: Path) -> None:
    with Binary.open(build(tmp_path, "program", "gcc")) as binary:
        expected = cached_table(binary, cache).to_bytes()
        (stored,) = (path for path in tmp_path.glob("unspool/unwind-*/*"))
        key, kind = stored.name, Kind("unwind", stored.parent.name.removeprefix("unwind-"))
        data = cache.read(kind, key)
        assert data is not None
        for other in (b"", b"garbage", data[:-1], data[8:], b"\xff" * 100, data[:-4] + b"\xff\xff\xff\x7f"):
            cache.write(kind, key, other)  # its checksum is right, its content is not
            assert cached_table(binary, cache).to_bytes() == expected
            assert cache.read(kind, key) == data


def test_files_of_different_users_have_different_keys(tmp_path: Path) -> None:
    path = build(tmp_path, "program", "gcc")
    with Binary.open(path) as binary:
        assert binary.owner == os.geteuid()
        mine = key_of(binary)
        binary.owner = os.geteuid() + 1
        assert mine is not None and key_of(binary) not in (None, mine)
    with Binary.from_bytes(path.read_bytes()) as in_memory:
        assert in_memory.owner is None and key_of(in_memory) is None
