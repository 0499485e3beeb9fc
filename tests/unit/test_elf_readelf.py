"""Headers, sections, symbols and build ids of real files are what GNU readelf prints."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.compilers import build, run
from unspool.binaries import Binary
from unspool.binaries.symbol_table import RESERVED

SYSTEM_FILES = 30
MAX_SIZE = 8 << 20  # readelf takes seconds for larger ones

SECTION = re.compile(r" *\[ *(\d+)\] (.*?) +(\S+) +([0-9a-f]{16}) ([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+) (.*)")
LOAD = re.compile(r"  LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+) (0x\w+) ([R ][W ][E ]) (0x\w+)")
SYMBOL = re.compile(
    r" *(\d+): ([0-9a-f]{16}) +(0x[0-9a-f]+|\d+) (\S+) +(\S+) +\S+ +(?:\[.*?\] +)?(\S+)(?: (.*))?$"
)
TYPES = {"NOTYPE": 0, "OBJECT": 1, "FUNC": 2, "SECTION": 3, "FILE": 4, "COMMON": 5, "TLS": 6, "IFUNC": 10}
BINDINGS = {"LOCAL": 0, "GLOBAL": 1, "WEAK": 2, "UNIQUE": 10}


def system_files() -> list[Path]:
    """Some programs and libraries that every Debian has, then whatever else there is."""
    folders = ("/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
    found: dict[Path, None] = {}
    for folder in map(Path, folders):
        for path in sorted(folder.glob("*")) if folder.is_dir() else []:
            real = path.resolve()
            if real.is_file() and 0 < real.stat().st_size < MAX_SIZE:
                with real.open("rb") as file:
                    if file.read(5) == b"\x7fELF\x02":
                        found[real] = None
    files = list(found)
    return files[:: max(1, len(files) // SYSTEM_FILES)]


def readelf(option: str, path: Path) -> str:
    command = ["readelf", "--wide", "--debug-dump=no-follow-links", option, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout


def check_sections(binary: Binary, path: Path) -> None:
    said = [m.groups() for m in map(SECTION.fullmatch, readelf("-S", path).splitlines()) if m]
    assert len(said) == len(binary.sections)
    for number, name, _, address, offset, size, _, _ in said:
        section = binary.sections[int(number)]
        assert section.name == name
        if binary.type != "rel":
            assert section.address == int(address, 16)
        assert (section.offset, section.size) == (int(offset, 16), int(size, 16))


def check_segments(binary: Binary, path: Path) -> None:
    if binary.type == "rel":
        return
    said = [m.groups() for m in map(LOAD.fullmatch, readelf("-l", path).splitlines()) if m]
    ours = [
        (
            *(hex(n) for n in (s.file_offset, s.address, s.file_size, s.memory_size)),
            s.readable * "R" + s.writable * "W" + s.executable * "E",
            hex(s.alignment),
        )
        for s in binary.segments
    ]
    plain = [
        (*(hex(int(n, 16)) for n in row[:4]), row[4].replace(" ", ""), hex(int(row[5], 16))) for row in said
    ]
    assert ours == plain
    assert binary.image_address == min(int(row[1], 16) for row in plain) & ~0xFFF


def check_symbols(binary: Binary, path: Path) -> None:
    text = readelf("-s", path)
    said = Counter[tuple[int, int, int, int, int, str]]()
    for line in text.splitlines():
        if (match := SYMBOL.fullmatch(line.rstrip())) and match[6] != "UND":
            number, value, size, kind, binding, section, name = match.groups()
            if kind == "SECTION" or number == "0":  # readelf shows the section's name instead of none
                continue
            name = name[0] + name[1:].partition("@")[0] if name else ""
            index = int(section) if section.isdigit() else RESERVED
            said[(int(value, 16), int(size, 0), TYPES[kind], BINDINGS[binding], index, name)] += 1
    table = binary.symbols
    ours = Counter[tuple[int, int, int, int, int, str]]()
    for i in np.flatnonzero(table.type != TYPES["SECTION"]):
        section = int(table.section[i])
        base = int(binary.sections[section].address) if binary.type == "rel" and section < RESERVED else 0
        value, kind, binding = int(table.address[i]) - base, int(table.type[i]), int(table.binding[i])
        ours[(value, int(table.size[i]), kind, binding, min(section, RESERVED), table.name(int(i)))] += 1
    if text.count("Symbol table '") > 1:  # .symtab and .dynsym are joined: no symbol is there twice
        said = Counter(set(said))
    assert ours == said


def check_build_id(binary: Binary, path: Path) -> None:
    found = re.search(r"Build ID: ([0-9a-f]+)", readelf("-n", path))
    assert binary.build_id == (bytes.fromhex(found[1]) if found else None)


def check_header(binary: Binary, path: Path) -> None:
    header = readelf("-h", path)
    assert binary.entry == int(re.search(r"Entry point address: +(0x\w+)", header)[1], 16)  # type: ignore[index]
    machine = re.search(r"Machine: +(.*)", header)
    assert machine is not None
    assert binary.arch == {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}[machine[1]]
    kind = re.search(r"Type: +(\w+)", header)
    assert kind is not None
    assert binary.type.upper() == kind[1]
    found = re.search(r"Requesting program interpreter: (.*)\]", readelf("-l", path))
    assert binary.interpreter == (found[1] if found else None)


def check_all(path: Path) -> None:
    with Binary.open(path) as binary:
        check_header(binary, path)
        check_sections(binary, path)
        check_segments(binary, path)
        check_symbols(binary, path)
        check_build_id(binary, path)


def test_there_are_enough_system_files() -> None:
    assert len(system_files()) >= SYSTEM_FILES


@pytest.mark.parametrize("path", system_files(), ids=lambda path: path.name)
def test_system_file(path: Path) -> None:
    check_all(path)


BUILDS = {
    "x86_64-gcc-o": ("gcc", "-O1", "-g", "-c"),
    "x86_64-gcc-exe": ("gcc", "-O1", "-g", "-no-pie"),
    "x86_64-static": ("gcc", "-static"),
    "x86_64-lld": ("clang-19", "-fuse-ld=lld-19", "-O1"),
    "aarch64-gcc-o": ("aarch64-linux-gnu-gcc", "-O1", "-g", "-c"),
    "aarch64-gcc-exe": ("aarch64-linux-gnu-gcc", "-O1", "-g"),
    "aarch64-gcc-so": ("aarch64-linux-gnu-gcc", "-shared", "-fPIC"),
    "aarch64-static": ("aarch64-linux-gnu-gcc", "-static"),
    "aarch64-lld-so": (
        *("clang-19", "--target=aarch64-linux-gnu", "-fuse-ld=lld-19", "-shared", "-fPIC", "-nostdlib"),
        "-Wl,--build-id=sha1",
    ),
    "aarch64-clang-sections-o": ("clang-19", "--target=aarch64-linux-gnu", "-ffunction-sections", "-c"),
}


@pytest.mark.parametrize("name", BUILDS)
def test_built_file(name: str, tmp_path: Path) -> None:
    check_all(build(tmp_path, name, *BUILDS[name]))


@pytest.mark.parametrize("option", ["--strip-all", "--strip-debug", "--only-keep-debug"])
def test_stripped_file(option: str, tmp_path: Path) -> None:
    path = build(tmp_path, "program", "gcc", "-g", "-O1")
    run("strip", option, path)
    check_all(path)
