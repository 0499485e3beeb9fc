"""Symbols: every table joined without doubles, and the best name for an address."""

from __future__ import annotations

import lzma
import os
import random
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests import elf_writer as elf
from tests.compilers import build, run
from unspool.binaries import Binary, BinaryError, SymbolTable
from unspool.binaries.symbol_table import FUNCTION, GLOBAL, LOCAL, NOTYPE, OBJECT, RESERVED, TLS, WEAK

Row = tuple[str, int, int, int, int]  # name, address, size, type, binding


def table(*rows: Row, code: Sequence[tuple[int, int]] = ((0x1000, 0x9000),)) -> SymbolTable:
    names, offsets = elf.strings(*(row[0] for row in rows))
    return SymbolTable(
        np.array([row[1] for row in rows], np.uint64),
        np.array([row[2] for row in rows], np.uint64),
        np.array([row[3] for row in rows], np.uint8),
        np.array([row[4] for row in rows], np.uint8),
        np.ones(len(rows), np.uint32),
        np.array([offsets[row[0]] for row in rows], np.uint64),
        names,
        code,
    )


def test_lookup_gives_name_and_offset() -> None:
    symbols = table(("a", 0x1000, 0x10, FUNCTION, GLOBAL), ("b", 0x1020, 0x10, FUNCTION, LOCAL))
    assert symbols.lookup(0x1000) == ("a", 0)
    assert symbols.lookup(0x100F) == ("a", 15)
    assert symbols.lookup(0x1010) is None
    assert symbols.lookup(0x1025) == ("b", 5)
    assert symbols.lookup(0x1030) is None
    assert symbols.lookup(0xFFF) is None
    assert symbols.lookup(-1) is None
    assert symbols.lookup(1 << 64) is None


def test_functions_go_before_data_and_labels() -> None:
    symbols = table(
        ("data", 0x1000, 0x100, OBJECT, GLOBAL),
        ("label", 0x1008, 0, NOTYPE, GLOBAL),
        ("function", 0x1000, 0x10, FUNCTION, LOCAL),
    )
    assert symbols.lookup(0x1009) == ("function", 9)
    assert symbols.lookup(0x1010) == ("label", 8)


def test_global_names_and_plain_names_go_first() -> None:
    symbols = table(
        ("local", 0x1000, 8, FUNCTION, LOCAL),
        ("__libc_write", 0x1000, 8, FUNCTION, GLOBAL),
        ("_write", 0x1000, 8, FUNCTION, GLOBAL),
        ("write", 0x1000, 8, FUNCTION, WEAK),
        ("later", 0x1000, 8, FUNCTION, WEAK),
    )
    assert symbols.lookup(0x1001) == ("write", 1)


def test_aliases_of_different_sizes() -> None:
    symbols = table(("short", 0x1000, 4, FUNCTION, GLOBAL), ("long", 0x1000, 16, FUNCTION, LOCAL))
    assert symbols.lookup(0x1003) == ("short", 3)
    assert symbols.lookup(0x1004) == ("long", 4)


def test_of_nested_functions_the_innermost() -> None:
    symbols = table(
        ("outer", 0x1000, 0x100, FUNCTION, GLOBAL),
        ("middle", 0x1020, 0x80, FUNCTION, GLOBAL),
        ("inner", 0x1040, 0x10, FUNCTION, GLOBAL),
    )
    assert [symbols.lookup(a) for a in (0x1010, 0x1030, 0x1040, 0x1050, 0x109F, 0x10A0, 0x1100)] == [
        ("outer", 0x10),
        ("middle", 0x10),
        ("inner", 0),
        ("middle", 0x30),
        ("middle", 0x7F),
        ("outer", 0xA0),
        None,
    ]


def test_label_holds_until_the_next_symbol_or_the_end_of_its_section() -> None:
    symbols = table(
        ("label", 0x1000, 0, NOTYPE, LOCAL),
        ("next", 0x1010, 4, FUNCTION, GLOBAL),
        ("last", 0x8FF0, 0, FUNCTION, GLOBAL),
        ("end", 0x9000, 0, NOTYPE, GLOBAL),
    )
    assert symbols.lookup(0x100F) == ("label", 15)
    assert symbols.lookup(0x1014) is None
    assert symbols.lookup(0x8FFF) == ("last", 15)
    assert symbols.lookup(0x9000) is None


def test_marks_in_code_are_no_names() -> None:
    symbols = table(
        ("$x", 0x1000, 0, NOTYPE, LOCAL), ("", 0x1000, 0, NOTYPE, LOCAL), (".L1", 0x1000, 0, NOTYPE, LOCAL)
    )
    assert symbols.lookup(0x1000) is None


def test_thread_local_symbols_have_no_address() -> None:
    assert table(("errno", 0x1000, 4, TLS, GLOBAL)).lookup(0x1000) is None


def test_symbol_that_reaches_past_the_address_space() -> None:
    symbols = table(("huge", 0x1000, 2**64 - 1, FUNCTION, GLOBAL))
    assert symbols.lookup(2**64 - 2) == ("huge", 2**64 - 2 - 0x1000)


def test_empty_table() -> None:
    symbols = table()
    assert len(symbols) == 0
    assert symbols.lookup(0) is None
    assert symbols.find(np.array([0, 5], np.uint64)).tolist() == [-1, -1]


def test_find_is_lookup_for_many_and_right_for_any_overlap() -> None:
    """Against the plain definition: of the functions that cover the address the one that starts last."""
    generator = random.Random(1)
    for _ in range(100):
        rows: list[Row] = [
            (f"f{i}", 0x1000 + generator.randrange(60), generator.randrange(1, 40), FUNCTION, GLOBAL)
            for i in range(generator.randrange(1, 40))
        ]
        symbols = table(*rows)
        addresses = np.arange(0x1000 - 2, 0x1000 + 110, dtype=np.uint64)
        found = symbols.find(addresses).tolist()
        for address, index in zip(addresses.tolist(), found, strict=True):
            covering = [i for i, row in enumerate(rows) if row[1] <= address < row[1] + row[2]]
            best = max(covering, key=lambda i: (rows[i][1], -i), default=-1)
            assert index == best
            assert symbols.lookup(address) == (None if best < 0 else (f"f{best}", address - rows[best][1]))


def test_nested_symbols_take_no_quadratic_time() -> None:
    """200,000 functions, each inside the one before: half of the addresses lie behind the end of 100,000."""
    count = 200_000
    start = np.arange(count, dtype=np.uint64) + np.uint64(0x1000)
    ones = np.ones(count, np.uint64)
    symbols = SymbolTable(
        start,
        np.uint64(2 * count) - np.uint64(2) * (start - start[0]),
        np.full(count, FUNCTION, np.uint8),
        np.full(count, GLOBAL, np.uint8),
        ones.astype(np.uint32),
        ones,
        b"\0name\0",
        [(0x1000, 1 << 30)],
    )
    began = time.process_time()
    assert symbols.lookup(0x1000 + 2 * count - 1) == ("name", 2 * count - 1)
    assert time.process_time() - began < 5


def test_speed_for_75000_symbols(tmp_path: Path) -> None:
    """Well under 50 ms on a quiet machine; ten times that here, to hold on any."""
    count = 75_000
    names = [f"_ZN5space9functionE{n}" for n in range(count)]
    blob, offsets = elf.strings(*names)
    rows = b"".join(
        elf.symbol(offsets[name], 0x1000 + 16 * n, 16, binding=n % 3) for n, name in enumerate(names)
    )
    path = tmp_path / "file"
    path.write_bytes(
        elf.elf_file(
            [
                elf.Section(".text", b"", elf.NOBITS, elf.ALLOC | elf.EXEC, 0x1000, size=16 * count),
                elf.Section(".symtab", rows, elf.SYMTAB, link=".strtab", entry_size=24),
                elf.Section(".strtab", blob, elf.STRTAB),
            ]
        )
    )
    began = time.process_time()
    symbols = Binary.open(path).symbols
    assert symbols.lookup(0x1000 + 16 * 777 + 3) == (names[777], 3)
    assert time.process_time() - began < 0.5


def with_tables(*parts: tuple[str, int, list[tuple[str, int]]]) -> list[elf.Section]:
    """Symbol sections: (name, type, [(symbol, address)]); each symbol is a function of 16 bytes."""
    sections = [elf.Section(".text", bytes(0x100), flags=elf.ALLOC | elf.EXEC, address=0x1000)]
    for name, kind, symbols in parts:
        blob, offsets = elf.strings(*(symbol for symbol, _ in symbols))
        rows = bytes(24) + b"".join(elf.symbol(offsets[symbol], at, 16) for symbol, at in symbols)
        sections.append(elf.Section(name, rows, kind, link=f"{name}.names", entry_size=24))
        sections.append(elf.Section(f"{name}.names", blob, elf.STRTAB))
    return sections


def names_of(symbols: SymbolTable) -> list[tuple[str, int]]:
    return [(symbols.name(i), int(symbols.address[i])) for i in range(len(symbols))]


def test_tables_are_joined_without_doubles() -> None:
    long = "x" * 5000
    sections = with_tables(
        (".symtab", elf.SYMTAB, [("a", 0x1000), ("b@@V1", 0x1010), ("c", 0x1020), ("12345678", 0x1030)]),
        (
            ".dynsym",
            elf.DYNSYM,
            [("b", 0x1010), ("a", 0x1010), ("c", 0x1020), ("123456789", 0x1030), (long, 0)],
        ),
    )
    assert names_of(Binary.from_bytes(elf.elf_file(sections)).symbols) == [
        ("a", 0x1000),
        ("b", 0x1010),
        ("c", 0x1020),
        ("12345678", 0x1030),
        ("a", 0x1010),
        ("123456789", 0x1030),
        (long, 0),
    ]


def test_names_too_long_to_compare_are_never_doubles() -> None:
    first, second = "x" * 2000 + "1", "x" * 2000 + "2"
    sections = with_tables(
        (".symtab", elf.SYMTAB, [(first, 0x1000)]), (".dynsym", elf.DYNSYM, [(second, 0x1000)])
    )
    assert names_of(Binary.from_bytes(elf.elf_file(sections)).symbols) == [(first, 0x1000), (second, 0x1000)]


def test_mini_debug_information() -> None:
    """.gnu_debugdata adds what strip took away."""
    inner = elf.elf_file(with_tables((".symtab", elf.SYMTAB, [("hidden", 0x1010), ("seen", 0x1000)])))
    sections = with_tables((".dynsym", elf.DYNSYM, [("seen", 0x1000)]))
    sections.append(elf.Section(".gnu_debugdata", lzma.compress(inner)))
    symbols = Binary.from_bytes(elf.elf_file(sections)).symbols
    assert names_of(symbols) == [("seen", 0x1000), ("hidden", 0x1010)]
    assert symbols.lookup(0x1011) == ("hidden", 1)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "xz data ends early"),
        (b"no xz at all", "bad xz data"),
        (lzma.compress(b"x" * 1000)[:-30], "xz data ends early"),
        (lzma.compress(bytes(64 << 20)), "128 times larger"),
        (lzma.compress(b"not an ELF file" * 9), "not an ELF file"),
        (lzma.compress(elf.elf_file([])), "no .symtab"),
    ],
)
def test_damaged_mini_debug_information_is_an_error(data: bytes, what: str) -> None:
    binary = Binary.from_bytes(elf.elf_file([elf.Section(".gnu_debugdata", data)]), "file")
    with pytest.raises(BinaryError, match=what):
        binary.symbols  # noqa: B018


def test_section_indices_beyond_65279() -> None:
    """SHN_XINDEX: the index stands in SHT_SYMTAB_SHNDX. Absolute symbols keep their own mark."""
    names, offsets = elf.strings("far", "absolute")
    rows = elf.symbol(offsets["far"], 4, 1, section=0xFFFF) + elf.symbol(
        offsets["absolute"], 5, 1, section=0xFFF1
    )
    sections = [
        elf.Section(".text", bytes(16), flags=elf.ALLOC | elf.EXEC),
        elf.Section(".symtab", rows, elf.SYMTAB, link=".strtab"),
        elf.Section(".strtab", names, elf.STRTAB),
        elf.Section(".wide", (1).to_bytes(4, "little") + bytes(4), elf.SYMTAB_SHNDX, link=".symtab"),
    ]
    symbols = Binary.from_bytes(elf.elf_file(sections, type=elf.REL)).symbols
    assert symbols.section.tolist() == [1, RESERVED | 0xFFF1]
    assert names_of(symbols) == [("far", 0x10004), ("absolute", 5)]
    assert symbols.lookup(0x10004) == ("far", 0)
    assert symbols.lookup(5) is None


def symbol_file(**changes: int) -> bytes:
    made = elf.layout(with_tables((".symtab", elf.SYMTAB, [("a", 0x1000)])))
    header = made.header_of(".symtab")
    places = {
        "link": (header + 40, "I"),
        "size": (header + 32, "Q"),
        "name": (made.offsets[".symtab"] + 24, "I"),
    }
    (field, value), *_ = changes.items()
    return made.patched(*places[field], value)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"link": 99}, "the names of symbol section 2 are in section 99"),
        ({"size": 47}, "no multiple of 24"),
        ({"size": 1 << 40}, "more than 16777216 symbols"),
        ({"size": 4800}, "past the end of the file"),
        ({"name": 99}, "the name of symbol 1 lies outside"),
    ],
)
def test_damaged_symbol_sections_are_errors(change: dict[str, int], what: str) -> None:
    with pytest.raises(BinaryError, match=what):
        Binary.from_bytes(symbol_file(**change), "file").symbols  # noqa: B018


@pytest.mark.parametrize("style", ["gnu", "sysv"])
@pytest.mark.parametrize("compiler", ["gcc", "aarch64-linux-gnu-gcc"])
def test_dynamic_symbols_without_section_headers(compiler: str, style: str, tmp_path: Path) -> None:
    path = build(tmp_path, "lib.so", compiler, "-shared", "-fPIC", f"-Wl,--hash-style={style}")
    run("strip" if compiler == "gcc" else "aarch64-linux-gnu-strip", path)
    whole = Binary.open(path).symbols
    data = bytearray(path.read_bytes())
    data[40:48] = bytes(8)
    data[60:64] = bytes(4)
    symbols = Binary.from_bytes(data).symbols
    assert names_of(symbols) == names_of(whole)
    assert "twice" in dict(names_of(symbols))
    address = dict(names_of(symbols))["twice"]
    assert symbols.lookup(address + 1) == ("twice", 1)


def dynamic_file(tags: dict[int, int], hash_table: bytes = b"") -> Binary:
    """Without section headers: symbols at 0x5000, names at 0x6000, a hash table at 0x7000."""
    blob, offsets = elf.strings("first", "second")
    rows = bytes(24) + elf.symbol(offsets["first"], 0x1000, 8) + elf.symbol(offsets["second"], 0x1008, 8)
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags.items())
    parts = {0x5000: rows, 0x6000: blob, 0x7000: hash_table, 0x8000: dynamic}
    sections = [elf.Section(f"{address:#x}", data) for address, data in parts.items()]
    segments = [elf.Segment(address, f"{address:#x}", flags=4) for address in parts]
    segments.append(elf.Segment(0x8000, "0x8000", elf.DYNAMIC))
    return Binary.from_bytes(elf.elf_file(sections, segments, with_section_headers=False), "file")


TAGS = {6: 0x5000, 5: 0x6000, 10: 14}  # DT_SYMTAB, DT_STRTAB, DT_STRSZ
SYSV, GNU = {4: 0x7000}, {0x6FFFFEF5: 0x7000}


def gnu_hash(buckets: Sequence[int], chain: Sequence[int], first: int = 1) -> bytes:
    head = struct.pack("<4IQ", len(buckets), first, 1, 0, 0)
    return head + struct.pack(f"<{len(buckets) + len(chain)}I", *buckets, *chain)


@pytest.mark.parametrize(
    ("tags", "hash_table", "count"),
    [
        ({}, b"", 0),
        ({6: 0x5000}, b"", 0),
        (TAGS, b"", 0),
        (TAGS | SYSV, struct.pack("<II", 1, 3), 2),
        (TAGS | GNU, gnu_hash([1], [2, 3]), 2),
        (TAGS | GNU, gnu_hash([2, 1], [3, 3]), 2),
        (TAGS | GNU, gnu_hash([0], []), 0),
        (TAGS | GNU, gnu_hash([], []), 0),
        ({0: 0} | TAGS | SYSV, struct.pack("<II", 1, 3), 0),  # DT_NULL ends the section
    ],
)
def test_number_of_dynamic_symbols(tags: dict[int, int], hash_table: bytes, count: int) -> None:
    assert len(dynamic_file(tags, hash_table).symbols) == count


@pytest.mark.parametrize(
    ("tags", "hash_table", "what"),
    [
        (TAGS | SYSV, struct.pack("<II", 1, 1 << 31), "has 2147483648 symbols, more than"),
        (TAGS | SYSV, struct.pack("<II", 1, 4), "nothing at virtual address 0x5000"),
        (TAGS | SYSV, b"", "nothing at virtual address 0x7000"),
        (TAGS | {10: 15} | SYSV, struct.pack("<II", 1, 3), "nothing at virtual address 0x6000"),
        (TAGS | {10: 3} | SYSV, struct.pack("<II", 1, 3), "the name of symbol 2 lies outside"),
        (TAGS | GNU, gnu_hash([1], [2, 2]), "no end"),
        (TAGS | GNU, gnu_hash([1 << 31], [2, 3]), "no end"),
    ],
)
def test_damaged_dynamic_symbols_are_errors(tags: dict[int, int], hash_table: bytes, what: str) -> None:
    with pytest.raises(BinaryError, match=what):
        dynamic_file(tags, hash_table).symbols  # noqa: B018


def test_vdso() -> None:
    """The vDSO is only in memory; its symbols are what the C library calls."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            start, end = (int(n, 16) for n in line.split()[0].split("-"))
            break
    else:
        pytest.skip("no vDSO")
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        data = os.pread(memory, end - start, start)
    finally:
        os.close(memory)
    binary = Binary.from_bytes(data)
    assert binary.path == "[vdso]"
    assert binary.type == "dyn"
    assert binary.build_id
    assert [section.kind for section in binary.unwind_sections()] == ["eh_frame"]
    assert {"clock_gettime", "__vdso_clock_gettime", "__kernel_clock_gettime"} & {
        name for name, _ in names_of(binary.symbols)
    }
    assert binary.image_base(start, 0, end) == start
