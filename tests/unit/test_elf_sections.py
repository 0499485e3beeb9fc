"""Sections: bytes as they were before compression, names, links to debug files; bombs are refused."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
import zstandard

from tests import elf_writer as elf
from tests.compilers import build, run
from unspool.binaries import Binary, BinaryError

TEXT = b"".join(b"some bytes %d, " % n for n in range(5000))


def one_section(name: str, data: bytes, flags: int = 0, type: int = elf.PROGBITS) -> Binary:
    return Binary.from_bytes(elf.elf_file([elf.Section(name, data, type, flags)]), "file")


def data_of(binary: Binary, name: str) -> bytes:
    section = binary.section(name)
    assert section is not None
    return bytes(section.data)


@pytest.mark.parametrize("option", ["zlib", "zstd", "zlib-gnu"])
def test_sections_that_a_tool_compressed(option: str, tmp_path: Path) -> None:
    path = build(tmp_path, "program", "gcc", "-g", "-O1")
    packed = tmp_path / "packed"
    run(
        "llvm-objcopy-19" if option == "zstd" else "objcopy",
        f"--compress-debug-sections={option}",
        path,
        packed,
    )
    plain, binary = Binary.open(path), Binary.open(packed)
    smaller = 0
    for section in plain.sections:
        if section.name.startswith(".debug_"):
            other = binary.section(section.name)
            assert other is not None
            assert bytes(other.data) == bytes(section.data)
            smaller += other.size < section.size
    assert smaller, "nothing was compressed"


def test_zlib() -> None:
    data = elf.compressed(1, len(TEXT), zlib.compress(TEXT))
    assert data_of(one_section(".debug_x", data, elf.COMPRESSED), ".debug_x") == TEXT


def test_zstd_in_several_frames() -> None:
    frames = zstandard.compress(TEXT[:1000]) + zstandard.compress(TEXT[1000:])
    data = elf.compressed(2, len(TEXT), frames)
    assert data_of(one_section(".debug_x", data, elf.COMPRESSED), ".debug_x") == TEXT


def test_zdebug_is_found_under_its_plain_name() -> None:
    data = b"ZLIB" + struct.pack(">Q", len(TEXT)) + zlib.compress(TEXT)
    binary = one_section(".zdebug_x", data)
    assert data_of(binary, ".debug_x") == data_of(binary, ".zdebug_x") == TEXT


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\1\0\0\0", "no room for the compression header"),
        (elf.compressed(3, 5, b"hello"), "unknown compression type 3"),
        (elf.compressed(1, 5, b"hello"), "bad compressed data"),
        (elf.compressed(2, 5, b"hello"), "bad compressed data"),
        (elf.compressed(1, 6, zlib.compress(b"hello")), "declares 6 bytes but holds only 5"),
        (elf.compressed(1, 4, zlib.compress(b"hello")), "declares 4 bytes but holds more"),
        (elf.compressed(2, 6, zstandard.compress(b"hello")), "declares 6 bytes but holds only 5"),
        (elf.compressed(2, 4, zstandard.compress(b"hello")), "declares 4 bytes but holds more"),
        (elf.compressed(1, 5, zlib.compress(b"hello")[:6]), "holds only"),
        (elf.compressed(1, 5, zlib.compress(b"hello")[:-1]), "zlib data ends early"),
        (elf.compressed(1, 5, zlib.compress(b"hello")[:-1] + b"x"), "bad compressed data"),
        (elf.compressed(1, 2**63, zlib.compress(b"hello")), "more than 128 times"),
    ],
)
def test_damaged_compression_is_an_error(data: bytes, what: str) -> None:
    with pytest.raises(BinaryError, match=what) as caught:
        data_of(one_section(".debug_x", data, elf.COMPRESSED), ".debug_x")
    assert caught.value.offset == 64
    assert ".debug_x" in str(caught.value)


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("declared", [1 << 28, 100 << 10])
def test_bombs_take_no_memory_out_of_proportion(kind: int, declared: int) -> None:
    """256 MiB of zeros in a few KB, once declared and once hidden behind a small size."""
    zeros = bytes(1 << 28)
    data = elf.compressed(
        kind, declared, zlib.compress(zeros, 9) if kind == 1 else zstandard.compress(zeros, 19)
    )
    binary = one_section(".debug_x", data, elf.COMPRESSED)
    tracemalloc.start()
    with pytest.raises(BinaryError, match=r"128 times|holds more"):
        data_of(binary, ".debug_x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_section_without_bytes_has_no_data() -> None:
    binary = Binary.from_bytes(elf.elf_file([elf.Section(".bss", type=elf.NOBITS, size=1 << 40)]), "file")
    assert data_of(binary, ".bss") == b""


def test_sections_that_share_the_end_of_a_name() -> None:
    """.text's name may be the end of .rela.text's, in the same bytes."""
    made = elf.layout([elf.Section(".rela.text", b"r"), elf.Section(".debug", b"d")])
    data = made.patched(made.header_of(".debug"), "I", 1 + len(".rela"))
    binary = Binary.from_bytes(data, "file")
    assert data_of(binary, ".text") == b"d"
    assert data_of(binary, ".rela.text") == b"r"
    assert binary.section(".debug") is None


def test_sections_are_a_sequence() -> None:
    binary = Binary.from_bytes(elf.elf_file([elf.Section(".a", b"1"), elf.Section(".b", b"22")]), "file")
    sections = binary.sections
    assert [s.name for s in sections] == ["", ".a", ".b", ".shstrtab"]
    assert sections[-2] == sections[2] == sections[1:3][1]
    assert [bytes(s.data) for s in sections[1:3]] == [b"1", b"22"]
    with pytest.raises(IndexError):
        sections[4]


def test_name_outside_of_the_names_is_an_error() -> None:
    made = elf.layout([elf.Section(".a", b"1")])
    binary = Binary.from_bytes(made.patched(made.header_of(".a"), "I", 1000), "file")
    assert binary.section(".a") is None
    with pytest.raises(BinaryError, match=r"the name of section 1 \(0x3e8\) lies outside"):
        binary.sections[1]


def test_names_that_are_not_text_are_shown_as_escapes() -> None:
    made = elf.layout([elf.Section(".a", b"1")])
    data = made.data.replace(b"\0.a\0", b"\0.\xff\0")
    assert Binary.from_bytes(data, "file").sections[1].name == ".\\xff"


def test_debug_link(tmp_path: Path) -> None:
    path, debug = build(tmp_path, "program", "gcc", "-g"), tmp_path / "program.debug"
    run("objcopy", "--only-keep-debug", path, debug)
    run("objcopy", f"--add-gnu-debuglink={debug}", path)
    assert Binary.open(path).debug_link == ("program.debug", zlib.crc32(debug.read_bytes()))
    assert Binary.open(debug).debug_link is None


@pytest.mark.parametrize("name", ["a", "abc", "abcd"])
def test_debug_link_is_padded(name: str) -> None:
    text = name.encode() + b"\0"
    data = text + bytes(-len(text) % 4) + struct.pack("<I", 0x12345678)
    assert one_section(".gnu_debuglink", data).debug_link == (name, 0x12345678)


def test_debug_alt_link() -> None:
    binary = one_section(".gnu_debugaltlink", b"../x.debug\0\1\2\3")
    assert binary.debug_alt_link == ("../x.debug", b"\1\2\3")


def test_damaged_debug_links_are_errors() -> None:
    with pytest.raises(BinaryError, match="no checksum"):
        one_section(".gnu_debuglink", b"abc\0\1\2\3").debug_link  # noqa: B018
    with pytest.raises(BinaryError, match="no build id"):
        one_section(".gnu_debugaltlink", b"abc").debug_alt_link  # noqa: B018


BUILD_ID = bytes(range(20))


def test_build_id_in_a_section() -> None:
    data = elf.note(b"GNU\0", 1, b"1234") + elf.note(b"Go\0\0", 3, b"none") + elf.note(b"GNU\0", 3, BUILD_ID)
    assert one_section(".note.other", data, type=elf.NOTE).build_id == BUILD_ID


@pytest.mark.parametrize("alignment", [4, 8])
def test_build_id_in_a_segment(alignment: int) -> None:
    notes = elf.note(b"GNU\0", 5, b"x" * 12, alignment) + elf.note(b"GNU\0", 3, BUILD_ID, alignment)
    data = elf.elf_file(
        [elf.Section("notes", notes)],
        [elf.Segment(0x1000, "notes", elf.NOTES, alignment=alignment)],
        with_section_headers=False,
    )
    assert Binary.from_bytes(data, "file").build_id == BUILD_ID


def test_damaged_note_ends_its_section_only() -> None:
    bad = struct.pack("<III", 4, 0xFFFFFFFF, 3) + b"GNU\0"
    sections = [
        elf.Section(".a", bad, elf.NOTE),
        elf.Section(".b", elf.note(b"GNU\0", 3, BUILD_ID), elf.NOTE),
    ]
    assert Binary.from_bytes(elf.elf_file(sections), "file").build_id == BUILD_ID


def test_file_without_notes_has_no_build_id() -> None:
    assert one_section(".a", b"").build_id is None
