"""What is looked at in DWARF before symbolic reads it; sound units, and damaged ones."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from tests.compilers import build, run
from unspool import Binary
from unspool.symbols import Symbolizer
from unspool.symbols.dwarf_image import dwarf_section
from unspool.symbols.dwarf_reader import Dwarf
from unspool.symbols.dwarf_units import look_at_units
from unspool.symbols.unlisted_functions import Function, _address_ranges, _made_up_units

CODE = """
#include <stdlib.h>
static inline __attribute__((always_inline)) int inner(int n) { return n * abs(n); }
__attribute__((noinline)) int outer(int n) {
    return inner(n) + 1;
}
int main(int argc, char **argv) { return outer(argc) + argv[0][0]; }
"""
ASSEMBLER_CODE = """
    .text
    .globl first_name, second_name, third_name, other
    .type first_name, {sign}function
    .type second_name, {sign}function
    .type third_name, {sign}function
    .type other, {sign}function
first_name:
second_name:
third_name:
    nop
    nop
    nop
    ret
    .size first_name, .-first_name
    .size second_name, .-second_name
    .size third_name, .-third_name
other:
    nop
    ret
    .size other, .-other
    .section .note.GNU-stack,"",{sign}progbits
"""
NOTHING = memoryview(b"")


def assembled(folder: Path, *command: str) -> Path:
    source = folder / "functions.S"
    source.write_text(ASSEMBLER_CODE.format(sign="%"))
    run(*command, "-g", "-c", "-o", folder / "functions.o", source)
    return build(folder, "program", "gcc", "-g", "-O2", str(folder / "functions.o"), code=CODE)


def dwarf_of(path: Path) -> Dwarf:
    with Binary.open(path) as binary:
        names = ("info", "abbrev", "str", "line_str")
        return Dwarf(**{name: dwarf_section(binary, name) for name in names})


def address_of(binary: Binary, name: str) -> int:
    symbols = binary.symbols
    index = next(i for i in range(len(symbols)) if symbols.name(i) == name)
    return int(symbols.address[index]) - binary.image_address


@pytest.mark.parametrize("options", [["-gdwarf-5"], ["-gdwarf-4"], ["-gdwarf-3"], ["-gdwarf-2"]])
def test_of_an_assemblers_aliases_the_last_one_is_taken(tmp_path: Path, options: list[str]) -> None:
    path = assembled(tmp_path, "gcc", *options)
    assert len(look_at_units(dwarf_of(path)).edits) == 2
    with Binary.open(path) as binary:
        symbolizer = Symbolizer(cache=False)
        (place,) = symbolizer.lookup(binary, address_of(binary, "first_name") + 1)
        address = address_of(binary, "first_name") + binary.image_address
        assert place.function == run("addr2line", "-f", "-e", path, hex(address)).split()[0]
        assert (place.file, place.line) == (str(tmp_path / "functions.S"), 12)
        (place,) = symbolizer.lookup(binary, address_of(binary, "other"))
        assert (place.function, place.line) == ("other", 19)


def test_functions_that_an_assembler_does_not_list_have_lines(tmp_path: Path) -> None:
    path = assembled(tmp_path, "clang-19")
    with Binary.open(path) as binary:
        symbolizer = Symbolizer(cache=False)
        for name, line in (("first_name", 11), ("other", 19)):
            (place,) = symbolizer.lookup(binary, address_of(binary, name))
            assert place.line == line
            assert place.file == str(tmp_path / "functions.S")
        assert place.function == "other"
        assert [p.function for p in symbolizer.lookup(binary, address_of(binary, "outer"))] == [
            "inner",
            "outer",
        ]


@pytest.mark.parametrize("options", [["-gdwarf-5"], ["-gdwarf-4"]])
def test_split_dwarf_is_named(tmp_path: Path, options: list[str]) -> None:
    path = build(tmp_path, "program", "gcc", "-g", "-O2", "-gsplit-dwarf", *options, code=CODE)
    with Binary.open(path) as binary:
        symbolizer = Symbolizer(cache=False)
        (note,) = symbolizer.findings(binary).notes
        assert "1 of 1 compilation units have their functions in .dwo files" in note.what
        assert "program.dwo), which unspool can't read" in note.what
        assert note.remedy == "build with -gno-split-dwarf"
        (place,) = symbolizer.lookup(binary, address_of(binary, "outer"))
        assert place.function == "outer"
        assert place.file == str(tmp_path / "program.c")


def test_names_that_dwz_moved_away_are_named(tmp_path: Path) -> None:
    one = build(tmp_path, "one", "gcc", "-g", "-O2", code=CODE)
    two = build(tmp_path, "two", "gcc", "-g", "-O1", code=CODE)
    run("dwz", "-m", tmp_path / "common", one, two)
    with Binary.open(one) as binary:
        symbolizer = Symbolizer(cache=False)
        inlined, physical = symbolizer.lookup(binary, address_of(binary, "outer"))
        assert (inlined.function, inlined.line, inlined.inlined) == (None, 3, True)
        assert (physical.function, physical.line) == ("outer", 5)
        assert any("dwz moved to" in note.what for note in symbolizer.findings(binary).notes)


def test_dwz_within_one_file_is_no_obstacle(tmp_path: Path) -> None:
    path = build(tmp_path, "program", "gcc", "-g", "-O2", code=CODE)
    other = tmp_path / "smaller"
    run("dwz", "-o", other, path)
    with Binary.open(path) as binary, Binary.open(other) as smaller:
        symbolizer = Symbolizer(cache=False)
        expected = symbolizer.lookup(binary, address_of(binary, "outer"))
        assert symbolizer.lookup(smaller, address_of(smaller, "outer")) == expected


@pytest.mark.parametrize("options", [["-gz"], ["-gz=zlib-gnu"], ["-gdwarf-4"], ["-gdwarf-5"], ["-gdwarf64"]])
@pytest.mark.parametrize("compiler", ["gcc", "clang-19"])
def test_forms_of_debug_information(tmp_path: Path, compiler: str, options: list[str]) -> None:
    if compiler == "clang-19":
        options = [{"-gz=zlib-gnu": "-gz=zstd"}.get(option, option) for option in options]
        options = ["-gdwarf-5", *options, "-fuse-ld=lld-19"] if "-gdwarf64" in options else options
    path = build(tmp_path, "program", compiler, "-g", "-O2", *options, code=CODE)
    with Binary.open(path) as binary:
        symbolizer = Symbolizer(cache=False)
        places = symbolizer.lookup(binary, address_of(binary, "outer") + 1)
        assert [(p.function, p.line, p.inlined) for p in places] == [("inner", 3, True), ("outer", 5, False)]
        assert not symbolizer.findings(binary).notes


# ---------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Dwarf:
    return dwarf_of(assembled(tmp_path_factory.mktemp("sound"), "gcc"))


def test_damaged_units_are_passed_over(sound: Dwarf) -> None:
    choice = random.Random(11)
    for _ in range(1500):
        info, abbreviations = bytearray(sound.info), bytearray(sound.abbreviations)
        for target in (info, abbreviations):
            for _ in range(choice.randrange(0, 6)):
                target[choice.randrange(len(target))] = choice.choice(
                    (0, 0xFF, 0x80, 0x7F, choice.randrange(256))
                )
        cut = choice.choice((len(info), choice.randrange(len(info))))
        units = look_at_units(Dwarf(memoryview(info)[:cut], memoryview(abbreviations), NOTHING, NOTHING))
        for edit in units.edits:
            assert edit.offset >= 0 and edit.offset + len(edit.data) <= cut


def test_units_that_share_a_huge_abbreviation_table_take_bounded_time() -> None:
    # 50,000 assembler units whose abbreviation stands at the end of a table of 50,000 others.
    table = b"".join(b"\xe5\x8e\x26\x2e\x00\x11\x01\x12\x07\x00\x00" for _ in range(50_000))
    table += b"\x01\x11\x00\x13\x05\x00\x00\x00"
    body = struct.pack("<HIB", 4, 0, 8) + b"\x01\x01\x80" + bytes(22)
    info = (struct.pack("<I", len(body)) + body) * 50_000
    started = time.process_time()
    look_at_units(Dwarf(memoryview(info), memoryview(table), NOTHING, NOTHING))
    assert time.process_time() - started < 20


def test_address_ranges_that_are_damaged_are_left_out() -> None:
    good = struct.pack("<IHIBB4x6Q", 60, 2, 0x77, 8, 0, 0x1000, 0x10, 0x3000, 0x20, 0, 0)
    dwarf = Dwarf(NOTHING, NOTHING, NOTHING, NOTHING)
    starts, ends, offsets = _address_ranges(dwarf, memoryview(good))
    assert starts.tolist() == [0x1000, 0x3000] and ends.tolist() == [0x1010, 0x3020]
    assert offsets.tolist() == [0x77, 0x77]
    for bad in (b"", good[:30], b"\xff" * 100, struct.pack("<I", 0) * 20, good[:10] + b"\x04" + good[11:]):
        starts, _, _ = _address_ranges(dwarf, memoryview(good + bad))
        assert starts.tolist()[:2] == [0x1000, 0x3000]
    choice = random.Random(2)
    functions = [Function(0x1000, 4, "f"), Function(0x3000, 4, "g\0g")]
    for _ in range(300):
        data = bytearray(good * 3)
        for _ in range(5):
            data[choice.randrange(len(data))] = choice.randrange(256)
        starts, ends, _ = _address_ranges(dwarf, memoryview(data))
        assert (np.diff(starts.astype(float)) >= 0).all() and len(starts) == len(ends)
        list(_made_up_units(dwarf, memoryview(data), functions))
