"""The file behind a mapping: plain, deleted, replaced, of another mount namespace, the vDSO."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compilers import build
from unspool import Binary, BinaryError
from unspool.capture.mapped_file import open_mapped_file, seen_path
from unspool.capture.memory_map import MapEntry, MemoryMap
from unspool.symbols import Symbolizer

WAITING = """
#include <stdio.h>
int main(void) { puts("ready"); fflush(stdout); return getchar(); }
"""
IS_ROOT = os.geteuid() == 0


@contextmanager
def running(*command: str | Path) -> Iterator[int]:
    """The pid of a program that said it is ready."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.stdin.close()


def mapping_of(pid: int, name: str) -> MapEntry:
    entries = MemoryMap.of_process(pid).entries
    return next(m for m in entries if m.executable and m.name.endswith(name))


def test_a_plain_file(tmp_path: Path) -> None:
    path = build(tmp_path, "program", "gcc", code=WAITING)
    with running(path) as pid, open_mapped_file(pid, mapping_of(pid, "program")) as binary:
        assert binary.path == str(path)
        with Binary.open(path) as expected:
            assert binary.build_id == expected.build_id


def test_a_deleted_program(tmp_path: Path) -> None:
    path = build(tmp_path, "program", "gcc", code=WAITING)
    with Binary.open(path) as binary:
        build_id = binary.build_id
    with running(path) as pid:
        path.unlink()
        mapping = mapping_of(pid, "program")
        assert mapping.path == f"{path} (deleted)"
        with open_mapped_file(pid, mapping) as binary:
            assert binary.build_id == build_id
            assert [place.function for place in Symbolizer(cache=False).lookup(binary, main_of(binary))] == [
                "main"
            ]


def main_of(binary: Binary) -> int:
    symbols = binary.symbols
    index = next(i for i in range(len(symbols)) if symbols.name(i) == "main")
    return int(symbols.address[index]) - binary.image_address


def test_a_file_that_was_replaced_is_not_taken_for_the_mapped_one(tmp_path: Path) -> None:
    path = build(tmp_path, "program", "gcc", code=WAITING)
    other = build(tmp_path, "other", "gcc", "-O1", code=WAITING)
    with Binary.open(path) as binary:
        build_id = binary.build_id
    with running(path) as pid:
        mapping = mapping_of(pid, "program")
        other.replace(path)
        with open_mapped_file(pid, mapping) as binary:  # /proc/PID/exe still leads to it
            assert binary.build_id == build_id


def test_a_replaced_library_that_cant_be_reached_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path, "program", "gcc", code=WAITING)
    with running(path) as pid:
        mapping = mapping_of(pid, "program")
        shutil.copy(path, tmp_path / "copy")
        (tmp_path / "copy").replace(path)
        opened = Binary.open

        def without_privileges(name: str) -> Binary:
            if str(name).startswith("/proc/"):
                raise BinaryError(str(name), "may not be read")
            return opened(name)

        monkeypatch.setattr(Binary, "open", without_privileges)
        with pytest.raises(BinaryError, match=r"replaced since: run unspool as root"):
            open_mapped_file(pid, mapping)


def test_a_file_of_another_mount_namespace(tmp_path: Path) -> None:
    path = build(tmp_path, "program", "gcc", code=WAITING)
    hidden = tmp_path / "inner"
    hidden.mkdir()
    script = f"mount -t tmpfs none {hidden} && cp {path} {hidden}/program && exec {hidden}/program"
    unshare = ["unshare", "--mount"] if IS_ROOT else ["unshare", "--user", "--map-root-user", "--mount"]
    with running(*unshare, "sh", "-c", script) as pid:
        assert not (hidden / "program").exists()
        mapping = mapping_of(pid, "inner/program")
        assert seen_path(pid, mapping.name) == f"/proc/{pid}/root{hidden}/program"
        with open_mapped_file(pid, mapping) as binary:
            assert binary.path == f"/proc/{pid}/root{hidden}/program"
            assert binary.section(".text") is not None
            assert Symbolizer(cache=False).lookup(binary, main_of(binary))[-1].function == "main"


def test_the_vdso() -> None:
    mapping = next(m for m in MemoryMap.of_process(os.getpid()).entries if m.path == "[vdso]")
    with open_mapped_file(os.getpid(), mapping) as binary:
        symbols = binary.symbols
        names = {symbols.name(i): int(symbols.address[i]) for i in range(len(symbols))}
        name = "__kernel_clock_gettime" if os.uname().machine == "aarch64" else "__vdso_clock_gettime"
        (place,) = Symbolizer(cache=False).lookup(binary, names[name] + 1 - binary.image_address)
        assert place.function in names and place.line is None
        assert names[place.function] == names[name]


@pytest.mark.parametrize("path", ["", "[heap]", "[stack]", "anon_inode:[perf_event]"])
def test_memory_without_a_file(path: str) -> None:
    mapping = MapEntry(0x1000, 0x2000, "r-xp", 0, "00:00", 0, path)
    with pytest.raises(BinaryError, match="no file is mapped at 0x1000"):
        open_mapped_file(os.getpid(), mapping)


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        pid = process.pid
    mapping = MapEntry(0x1000, 0x2000, "r-xp", 0, "fe:01", 99, "/nowhere/file (deleted)")
    with pytest.raises(BinaryError, match="deleted since"):
        open_mapped_file(pid, mapping)
    vdso = MapEntry(0x1000, 0x2000, "r-xp", 0, "00:00", 0, "[vdso]")
    with pytest.raises(BinaryError, match="memory can't be read"):
        open_mapped_file(pid, vdso)


@pytest.mark.parametrize("device", ["", "fe", "x:y", "0:0:0"])
def test_a_device_that_is_none_is_no_crash(device: str) -> None:
    mapping = MapEntry(0x1000, 0x2000, "r-xp", 0, device, 99, "/bin/sh")
    with pytest.raises(BinaryError, match="replaced since"):
        open_mapped_file(os.getpid(), mapping)
