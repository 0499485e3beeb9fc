"""Which file is taken for a binary's debug file, and what proves that it belongs to it."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import pytest

from tests.compilers import build, run
from tests.elf_writer import Section, elf_file
from unspool import Binary
from unspool.symbols import Symbolizer, debug_packages
from unspool.symbols.debug_files import find_debug_file

CODE = """
#include <stdlib.h>
static inline __attribute__((always_inline)) int inner(int n) { return n * abs(n); }
__attribute__((noinline)) int outer(int n) { return inner(n) + 1; }
int main(int argc, char **argv) { return outer(argc) + argv[0][0]; }
"""


class Split:
    """A stripped program and its debug file apart; `link` is the debug link's name."""

    def __init__(self, folder: Path, *options: str, link: str = "program.debug") -> None:
        whole = build(folder, "whole", "gcc", "-g", "-O2", *options, code=CODE)
        self.program, self.debug = folder / "program", folder / link
        run("objcopy", "--only-keep-debug", whole, self.debug)
        run("objcopy", "--strip-all", f"--add-gnu-debuglink={self.debug}", whole, self.program)

    def found(self, *directories: Path) -> tuple[str | None, list[str]]:
        with Binary.open(self.program) as binary:
            search = find_debug_file(binary, [str(directory) for directory in directories])
            if search.found is None:
                return None, search.rejected
            search.found.close()
            return search.found.path, search.rejected

    def moved(self, target: Path) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        return self.debug.rename(target)

    def build_id_path(self) -> str:
        with Binary.open(self.program) as binary:
            assert binary.build_id is not None
            name = binary.build_id.hex()
        return f".build-id/{name[:2]}/{name[2:]}.debug"


def test_the_binary_itself(tmp_path: Path) -> None:
    with Binary.open(build(tmp_path, "program", "gcc", "-g", code=CODE)) as binary:
        assert find_debug_file(binary, []).found is binary


def test_by_build_id(tmp_path: Path) -> None:
    split = Split(tmp_path)
    path = split.moved(tmp_path / "directory" / split.build_id_path())
    assert split.found() == (None, [])
    assert split.found(tmp_path / "directory") == (str(path), [])


@pytest.mark.parametrize("folder", ["", ".debug"])
def test_by_debug_link_beside_the_binary(tmp_path: Path, folder: str) -> None:
    split = Split(tmp_path, "-Wl,--build-id=none")
    path = split.moved(tmp_path / folder / "program.debug")
    assert split.found() == (str(path), [])


@pytest.mark.parametrize("mirrored", [True, False])
def test_by_debug_link_in_a_directory_of_the_user(tmp_path: Path, mirrored: bool) -> None:
    split = Split(tmp_path, "-Wl,--build-id=none")
    directory = tmp_path / "directory"
    folder = directory / str(tmp_path)[1:] if mirrored else directory
    path = split.moved(folder / "program.debug")
    assert split.found(directory) == (str(path), [])


def test_through_a_symbolic_link_to_the_program(tmp_path: Path) -> None:
    split = Split(tmp_path, "-Wl,--build-id=none")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/name").symlink_to(split.program)
    with Binary.open(tmp_path / "bin/name") as binary:
        found = find_debug_file(binary, []).found
        assert found is not None and found.path == str(split.debug)
        found.close()


def test_another_checksum_is_rejected(tmp_path: Path) -> None:
    split = Split(tmp_path, "-Wl,--build-id=none")
    checksum = zlib.crc32(split.debug.read_bytes())
    with split.debug.open("ab") as file:
        file.write(b"x")
    found, rejected = split.found()
    assert found is None
    other = zlib.crc32(split.debug.read_bytes())
    assert rejected == [f"{split.debug}: its checksum is {other:#010x}, not {checksum:#010x}"]


def test_another_build_id_is_rejected(tmp_path: Path) -> None:
    split = Split(tmp_path)
    (tmp_path / "other").mkdir()
    other = Split(tmp_path / "other", "-O1")
    shutil.copy(other.debug, split.debug)
    found, rejected = split.found()
    assert found is None
    assert rejected[0].startswith(f"{split.debug}: its build id") and rejected[0].endswith("is another one")


def test_a_right_file_behind_a_wrong_one_is_found(tmp_path: Path) -> None:
    split = Split(tmp_path)
    right = split.moved(tmp_path / "second" / split.build_id_path())
    wrong = tmp_path / "first" / split.build_id_path()
    wrong.parent.mkdir(parents=True)
    wrong.write_bytes(b"not an ELF file")
    found, rejected = split.found(tmp_path / "first", tmp_path / "second")
    assert found == str(right)
    assert len(rejected) == 1 and rejected[0].startswith(str(wrong))


def test_a_directory_or_a_fifo_in_its_place_is_no_file(tmp_path: Path) -> None:
    split = Split(tmp_path)
    path = tmp_path / "directory" / split.build_id_path()
    path.mkdir(parents=True)
    split.debug.unlink()
    os.mkfifo(split.debug)
    assert split.found(tmp_path / "directory") == (None, [])


@pytest.mark.parametrize("name", [b"../secret", b"/etc/passwd", b"..", b"", b"\xff\xfe"])
def test_a_debug_link_that_leads_elsewhere_is_not_followed(tmp_path: Path, name: bytes) -> None:
    link = name + bytes(4 - len(name) % 4) + b"\1\2\3\4"
    path = tmp_path / "folder" / "program"
    path.parent.mkdir()
    path.write_bytes(elf_file([Section(".gnu_debuglink", link)]))
    shutil.copy(build(tmp_path, "secret", "gcc", "-g", code=CODE), tmp_path / "secret.debug")
    with Binary.open(path) as binary:
        search = find_debug_file(binary, [])
        assert search.found is None and search.rejected == []


def test_a_debug_link_to_the_program_itself(tmp_path: Path) -> None:
    split = Split(tmp_path, "-Wl,--build-id=none", link="program")
    assert split.found() == (None, [])


def test_a_file_with_symbols_only_is_taken(tmp_path: Path) -> None:
    whole = build(tmp_path, "whole", "gcc", "-O2", code=CODE)
    run("objcopy", "--only-keep-debug", whole, tmp_path / "program.debug")
    link = f"--add-gnu-debuglink={tmp_path / 'program.debug'}"
    run("objcopy", "--strip-all", link, whole, tmp_path / "program")
    with Binary.open(whole) as binary:
        symbols = binary.symbols
        outer = next(int(symbols.address[i]) for i in range(len(symbols)) if symbols.name(i) == "outer")
        outer -= binary.image_address
    with Binary.open(tmp_path / "program") as binary:
        symbolizer = Symbolizer(cache=False)
        (place,) = symbolizer.lookup(binary, outer)
        assert (place.function, place.file, place.line, place.inlined) == ("outer", None, None, False)
        assert any("no debug information" in note.what for note in symbolizer.findings(binary).notes)


def test_lines_through_a_separate_file(tmp_path: Path) -> None:
    split = Split(tmp_path)
    with Binary.open(tmp_path / "whole") as whole, Binary.open(split.program) as stripped:
        symbols = whole.symbols
        outer = next(int(symbols.address[i]) for i in range(len(symbols)) if symbols.name(i) == "outer")
        symbolizer = Symbolizer(cache=False)
        expected = symbolizer.lookup(whole, outer - whole.image_address)
        assert [place.function for place in expected] == ["inner", "outer"]
        assert symbolizer.lookup(stripped, outer - stripped.image_address) == expected
        assert symbolizer.findings(stripped).debug_file == str(split.debug)
        assert symbolizer.findings(stripped).notes == ()


def test_the_command_that_brings_debug_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outputs = {
        "dpkg-query": ["diversion by x from: /lib/libc.so.6", "libc6:amd64: /lib/libc.so.6"],
        "apt-cache": ["libc6-dbg", "libc6-dev"],
    }
    monkeypatch.setattr(debug_packages, "_output", lambda *command: outputs[command[0]])
    monkeypatch.setattr(debug_packages.shutil, "which", lambda name: name if name == "dpkg-query" else None)
    assert debug_packages.install_command("/lib/libc.so.6") == "apt install libc6-dbg"
    outputs["apt-cache"] = []
    assert debug_packages.install_command("/lib/libc.so.6").startswith(
        "apt install libc6-dbgsym (from the debug"
    )
    outputs["dpkg-query"] = []
    assert debug_packages.install_command("/lib/libc.so.6") == ""
    assert debug_packages.install_command("[vdso]") == ""
    outputs["rpm"] = ["glibc"]
    monkeypatch.setattr(debug_packages.shutil, "which", lambda name: name if name == "rpm" else None)
    assert debug_packages.install_command("/lib64/libc.so.6") == "dnf debuginfo-install glibc"
    monkeypatch.undo()
    assert debug_packages._output("/nonexistent/command") == []
