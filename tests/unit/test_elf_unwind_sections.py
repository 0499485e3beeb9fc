"""Every way in which a file can bring its unwind entries leads to the right bytes at the right address."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest

from tests import elf_writer as elf
from tests.compilers import build, run
from tests.slow_cfi import Fde, Section, read_entries
from unspool.binaries import Binary, BinaryError, UnwindSection
from unspool.binaries.symbol_table import FUNCTION

NATIVE, ARM = "gcc", "aarch64-linux-gnu-gcc"
CLANG_ARM = ("clang-19", "--target=aarch64-linux-gnu")

CODE = """
struct pair { long a, b; };
__attribute__((noinline, section(".text.first"))) int first(struct pair *p) { return p->a + p->b; }
__attribute__((noinline, section(".text.second"))) int second(int n) {
    volatile char room[1000]; room[n] = 1; return room[n / 2];
}
__attribute__((noinline)) static int third(int n) { struct pair p = {n, second(n)}; return first(&p) + 1; }
int start(int n) { return third(n) + second(n + 1); }
int main(void) { return start(1); }
"""


def fdes(section: UnwindSection) -> list[Fde]:
    entries = read_entries(Section(bytes(section.data), section.kind == "eh_frame", section.address))
    assert not entries.problems
    return entries.fdes


def functions(binary: Binary) -> set[tuple[int, int]]:
    """[start, end) of every sized function."""
    table = binary.symbols
    return {
        (int(table.address[i]), int(table.address[i] + table.size[i]))
        for i in range(len(table))
        if table.type[i] == FUNCTION and table.size[i]
    }


def only_section(binary: Binary, kind: str) -> UnwindSection:
    (section,) = binary.unwind_sections()
    assert (section.kind, section.open_ended) == (kind, False)
    return section


NO_EH = ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-g")
OBJECTS = {
    "gcc": ("eh_frame", NATIVE, "-O2"),
    "gcc-large": ("eh_frame", NATIVE, "-O2", "-fno-pic", "-mcmodel=large"),
    "clang-sections": ("eh_frame", "clang-19", "-O2", "-ffunction-sections"),
    "gcc-debug": ("debug_frame", NATIVE, *NO_EH),
    "gcc-debug-compressed": ("debug_frame", NATIVE, *NO_EH, "-gz"),
    "aarch64": ("eh_frame", ARM, "-O2"),
    "aarch64-sections": ("eh_frame", *CLANG_ARM, "-ffunction-sections"),
    "aarch64-debug": ("debug_frame", ARM, *NO_EH),
    "aarch64-debug-zstd": ("debug_frame", *CLANG_ARM, *NO_EH, "-gz=zstd"),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_object_file_is_laid_out_and_relocated(name: str, tmp_path: Path) -> None:
    kind, *command = OBJECTS[name]
    binary = Binary.open(build(tmp_path, f"{name}.o", *command, "-c", code=CODE))
    section = only_section(binary, kind)
    found = {(fde.start, fde.end) for fde in fdes(section)}
    assert found == functions(binary)
    assert len(found) == 5
    ranges = sorted((s.address, s.address + s.memory_size) for s in binary.segments)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
    assert ranges[0][0] == binary.image_address > 0


def test_object_file_relocates_as_the_linker_does(tmp_path: Path) -> None:
    """Linked with the same addresses, .eh_frame has the same entries."""
    path = build(tmp_path, "one.o", NATIVE, "-O2", "-c", code=CODE)
    binary = Binary.open(path)
    places = [f"{s.name} {s.address:#x} : {{ *({s.name}) }}" for s in binary.sections if s.flags & elf.ALLOC]
    script = tmp_path / "script"
    script.write_text("SECTIONS { " + " ".join(places) + " }")
    linked = tmp_path / "linked"
    run("ld", "--no-ld-generated-unwind-info", "-e", "main", "-T", script, "-o", linked, path)
    ours = [(fde.start, fde.end) for fde in fdes(only_section(binary, "eh_frame"))]
    assert ours == [(fde.start, fde.end) for fde in fdes(only_section(Binary.open(linked), "eh_frame"))]


@pytest.mark.parametrize("compiler", [NATIVE, ARM])
def test_without_section_headers(compiler: str, tmp_path: Path) -> None:
    """.eh_frame is found through PT_GNU_EH_FRAME and ends with the last FDE (before the terminator)."""
    path = build(tmp_path, "program", compiler, "-O2", code=CODE)
    by_header = only_section(Binary.open(path), "eh_frame")
    stripped = Binary.from_bytes(without_section_headers(path.read_bytes()), "stripped")
    assert len(stripped.sections) == 0
    section = only_section(stripped, "eh_frame")
    assert section.address == by_header.address
    assert bytes(by_header.data) == bytes(section.data) + bytes(4)


def without_section_headers(data: bytes) -> bytes:
    copy = bytearray(data)
    struct.pack_into("<Q", copy, 40, 0)
    struct.pack_into("<HH", copy, 60, 0, 0)
    return bytes(copy)


# One CIE and two FDEs, then what is none: a file whose .eh_frame only its header tells.
CIE = struct.pack("<II", 12, 0) + b"\1\0\1\x78\x10\0\0\0"
EH_FRAME_ADDRESS, HEADER_ADDRESS = 0x2000, 0x3000


def fde(at: int, size: int) -> bytes:
    return struct.pack("<II", size, at + 4) + bytes(size - 4)


EH_FRAME = CIE + fde(16, 20) + fde(40, 28)
BEHIND = b"\xff" * 40


def with_header(header: bytes) -> Binary:
    data = elf.elf_file(
        [elf.Section("eh", EH_FRAME + BEHIND), elf.Section("header", header)],
        [
            elf.Segment(EH_FRAME_ADDRESS, "eh", flags=4),
            elf.Segment(HEADER_ADDRESS, "header", flags=4),
            elf.Segment(HEADER_ADDRESS, "header", type=elf.GNU_EH_FRAME, flags=4),
        ],
        with_section_headers=False,
    )
    return Binary.from_bytes(data, "file")


def relative_to_header(*values: int) -> bytes:
    return b"".join(struct.pack("<i", value - HEADER_ADDRESS) for value in values)


POINTER = struct.pack("<i", EH_FRAME_ADDRESS - HEADER_ADDRESS - 4)  # pcrel, at offset 4
FIRST, SECOND = EH_FRAME_ADDRESS + 16, EH_FRAME_ADDRESS + 40


def check(binary: Binary, data: bytes, open_ended: bool) -> None:
    assert binary.unwind_sections() == [
        UnwindSection("eh_frame", EH_FRAME_ADDRESS, memoryview(data), open_ended)
    ]


def test_header_with_search_table() -> None:
    table = relative_to_header(0x1000, FIRST, 0x1100, SECOND)
    check(with_header(b"\1\x1b\x03\x3b" + POINTER + struct.pack("<I", 2) + table), EH_FRAME, False)


def test_header_with_unsorted_search_table() -> None:
    table = relative_to_header(0x1100, SECOND, 0x1000, FIRST)
    check(with_header(b"\1\x1b\x03\x3b" + POINTER + struct.pack("<I", 2) + table), EH_FRAME, False)


def test_header_with_wide_search_table() -> None:
    table = struct.pack("<4q", *(n - HEADER_ADDRESS for n in (0x1000, FIRST, 0x1100, SECOND)))
    check(with_header(b"\1\x1b\x03\x3c" + POINTER + struct.pack("<I", 2) + table), EH_FRAME, False)


def test_header_with_absolute_pointer_and_table() -> None:
    table = struct.pack("<4Q", 0x1000, FIRST, 0x1100, SECOND)
    head = b"\1\x04\x03\x04" + struct.pack("<QI", EH_FRAME_ADDRESS, 2)
    check(with_header(head + table), EH_FRAME, False)


def test_header_with_pointer_relative_to_itself() -> None:
    table = relative_to_header(0x1000, FIRST, 0x1100, SECOND)
    head = b"\1\x3b\x03\x3b" + relative_to_header(EH_FRAME_ADDRESS) + struct.pack("<I", 2)
    check(with_header(head + table), EH_FRAME, False)


@pytest.mark.parametrize(
    "rest",
    {
        "no table": b"\1\x1b\xff\xff" + POINTER,
        "table of another encoding": b"\1\x1b\x03\x11" + POINTER + struct.pack("<I", 2) + bytes(16),
        "empty table": b"\1\x1b\x03\x3b" + POINTER + struct.pack("<I", 0),
        "table longer than the header": b"\1\x1b\x03\x3b" + POINTER + struct.pack("<I", 3) + bytes(16),
        "table leads elsewhere": b"\1\x1b\x03\x3b"
        + POINTER
        + struct.pack("<I", 1)
        + relative_to_header(0, 0),
        "last FDE too long": (
            b"\1\x1b\x03\x3b"
            + POINTER
            + struct.pack("<I", 1)
            + relative_to_header(0x1000, EH_FRAME_ADDRESS + len(EH_FRAME))
        ),
    }.values(),
    ids=lambda rest: rest[:4].hex(),
)
def test_header_without_usable_table(rest: bytes) -> None:
    """The entries end somewhere before their segment does."""
    check(with_header(rest), EH_FRAME + BEHIND, True)


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (b"\2\x1b\x03\x3b" + POINTER, "version 2"),
        (b"\1\x1b\x03\x3b\0\0", "cut short"),
        (b"\1\x1b\x03\x3b" + POINTER, "cut short"),
        (b"\1\x5b\x03\x3b" + POINTER, "pointer encoding 0x5b"),
        (b"\1\x1f\x03\x3b" + POINTER, "pointer encoding 0x1f"),
        (b"\1\x04\xff\xff" + struct.pack("<Q", 0x4321), "points to 0x4321"),
    ],
)
def test_unusable_header_is_an_error(header: bytes, what: str) -> None:
    header += b"" if what == "cut short" else bytes(1)
    with pytest.raises(BinaryError, match=what):
        with_header(header).unwind_sections()


def test_debug_file_has_no_eh_frame(tmp_path: Path) -> None:
    """`strip --only-keep-debug` keeps the headers of .eh_frame and PT_GNU_EH_FRAME, not the bytes."""
    path = build(tmp_path, "program", NATIVE, "-g", *NO_EH, code=CODE)
    run("strip", "--only-keep-debug", path)
    assert {section.kind for section in Binary.open(path).unwind_sections()} == {"debug_frame"}


def test_eh_frame_and_debug_frame_together(tmp_path: Path) -> None:
    path = build(tmp_path, "program", NATIVE, *NO_EH, "-gz", code=CODE)
    binary = Binary.open(path)
    eh_frame, debug_frame = binary.unwind_sections()  # the former is the C library's start code
    assert (eh_frame.kind, debug_frame.kind, debug_frame.address) == ("eh_frame", "debug_frame", 0)
    assert {(f.start, f.end) for f in fdes(debug_frame)} <= functions(binary)
    assert len(fdes(debug_frame)) == 5


def test_zdebug_frame(tmp_path: Path) -> None:
    path = build(tmp_path, "program", NATIVE, *NO_EH, code=CODE)
    plain = Binary.open(path).unwind_sections()[1]
    run("objcopy", "--compress-debug-sections=zlib-gnu", path)
    binary = Binary.open(path)
    assert ".zdebug_frame" in [section.name for section in binary.sections] or plain.data == b""
    assert binary.unwind_sections()[1] == plain


def relocation_object(*rows: tuple[int, int, int, int], flags: int = elf.ALLOC, **changes: int) -> elf.Layout:
    """.eh_frame of 16 bytes; rows: (offset, symbol, type, addend). Symbol 1 is .text+0x10, 2 is undefined."""
    symbols = bytes(24) + elf.symbol(0, 0x10, 4, section=1) + elf.symbol(0, 0, 0, section=0)
    relocations = b"".join(
        struct.pack("<QQq", at, number << 32 | kind, add) for at, number, kind, add in rows
    )
    return elf.layout(
        [
            elf.Section(".text", bytes(0x20), flags=elf.ALLOC | elf.EXEC, alignment=16),
            elf.Section(".eh_frame", bytes(16), flags=flags, alignment=8),
            elf.Section(".symtab", symbols, elf.SYMTAB, link=".strtab", entry_size=24),
            elf.Section(".strtab", b"\0", elf.STRTAB),
            elf.Section(
                ".rela", relocations, changes.get("type", elf.RELA), link=".symtab", info=".eh_frame"
            ),
        ],
        type=elf.REL,
        machine=changes.get("machine", elf.X86_64),
    )


TEXT, EH = 0x10000, 0x10020
TARGET = TEXT + 0x10


@pytest.mark.parametrize(
    ("machine", "kind", "form", "value"),
    [
        (elf.X86_64, 1, "<q", TARGET + 5),
        (elf.X86_64, 2, "<i", TARGET + 5 - EH - 8),
        (elf.X86_64, 4, "<i", TARGET + 5 - EH - 8),
        (elf.X86_64, 10, "<I", TARGET + 5),
        (elf.X86_64, 11, "<i", TARGET + 5),
        (elf.X86_64, 24, "<q", TARGET + 5 - EH - 8),
        (elf.AARCH64, 257, "<q", TARGET + 5),
        (elf.AARCH64, 258, "<I", TARGET + 5),
        (elf.AARCH64, 260, "<q", TARGET + 5 - EH - 8),
        (elf.AARCH64, 261, "<i", TARGET + 5 - EH - 8),
        (elf.AARCH64, 314, "<i", TARGET + 5 - EH - 8),
    ],
)
def test_relocation_types(machine: int, kind: int, form: str, value: int) -> None:
    data = relocation_object((8, 1, kind, 5), machine=machine).data
    (section,) = Binary.from_bytes(data).unwind_sections()
    assert section.address == EH
    expected = bytearray(16)
    struct.pack_into(form, expected, 8, value)
    assert bytes(section.data) == bytes(expected)


def test_relocation_against_undefined_symbol_changes_nothing() -> None:
    (section,) = Binary.from_bytes(relocation_object((8, 2, 1, 5)).data).unwind_sections()
    assert bytes(section.data) == bytes(16)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ((9, 1, 1, 0), "offset 0x9 lies outside of its section"),
        ((2**64 - 4, 1, 1, 0), "lies outside of its section"),
        ((0, 3, 1, 0), "symbol 3 of 3"),
        ((0, 1, 9, 0), "type 9 can't occur"),
        ((0, 1, 2, 1 << 32), "does not fit into 4 bytes"),
        ((0, 1, 10, -(1 << 20)), "does not fit into 4 bytes"),
        ((0, 1, 14, 0), "does not fit into 1 bytes"),
    ],
)
def test_bad_relocation_is_an_error(row: tuple[int, int, int, int], what: str) -> None:
    with pytest.raises(BinaryError, match=what):
        Binary.from_bytes(relocation_object(row).data).unwind_sections()


def test_relocations_without_addends_are_an_error() -> None:
    with pytest.raises(BinaryError, match="without addends"):
        Binary.from_bytes(relocation_object((0, 1, 1, 0), type=9).data).unwind_sections()


def test_several_relocation_sections_are_an_error() -> None:
    made = relocation_object()
    data = made.patched(made.header_of(".symtab") + 4, "I", elf.RELA)
    data = elf.Layout(data, made.section_headers, indices=made.indices).patched(
        made.header_of(".symtab") + 44, "I", made.indices[".eh_frame"]
    )
    with pytest.raises(BinaryError, match="section 2 has 2 relocation sections"):
        Binary.from_bytes(data).unwind_sections()


def test_alignment_that_is_no_power_of_two_is_an_error() -> None:
    made = relocation_object()
    data = made.patched(made.header_of(".text") + 48, "Q", 24)
    with pytest.raises(BinaryError, match="not a power of two"):
        Binary.from_bytes(data)


def test_sections_larger_than_an_address_space_are_an_error() -> None:
    made = relocation_object()
    data = made.patched(made.header_of(".text") + 32, "Q", 1 << 50)
    with pytest.raises(BinaryError, match="does not fit into an address space"):
        Binary.from_bytes(data)


def test_too_many_unwind_sections_are_an_error() -> None:
    sections = [elf.Section(".eh_frame", b"\0\0\0\0", flags=elf.ALLOC)] * 17
    with pytest.raises(BinaryError, match="more than 16 unwind sections"):
        Binary.from_bytes(elf.elf_file(sections)).unwind_sections()


def test_bases_of_relative_pointers(tmp_path: Path) -> None:
    binary = Binary.open(build(tmp_path, "program", NATIVE, code=CODE))
    for section in binary.sections:
        if section.name == ".text":
            assert binary.text_address == section.address
        if section.name == ".got":
            assert binary.data_address == section.address
    assert binary.text_address
    assert binary.data_address
