"""Fuzzes the ELF reader with damaged files: nothing but BinaryError may come out, soon, in little memory.

    python -m tests.fuzz.elf SECONDS [SEED]

Inputs are small whole files (seeds, written here) with a few fields of their structures overwritten by
values that break readers. A failing input is kept in out/fuzz/elf-FAILURE.bin with its steps.
"""

from __future__ import annotations

import lzma
import os
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import zstandard

from tests import elf_writer as elf
from tests.fuzz.loop import TIME_LIMIT, Step, fuzz
from unspool.binaries import Binary, BinaryError


def seeds() -> list[bytes]:
    """Small files that together lead through every path of the reader."""
    return [_library(True), _library(False), _object(elf.X86_64), _object(elf.AARCH64), _core()]


def _symbols(*names: str) -> tuple[bytes, bytes]:
    blob, offsets = elf.strings(*names)
    rows = bytes(24) + b"".join(elf.symbol(offsets[n], 0x1000 + 8 * i, 8 * i) for i, n in enumerate(names))
    return rows, blob


def _eh_frame() -> bytes:
    cie = struct.pack("<II", 16, 0) + b"\1zR\0\1\x78\x10\1\x1b" + bytes(3)
    return cie + struct.pack("<IIiI", 16, 24, -0x1000, 16) + bytes(4) + bytes(4)


def _library(with_section_headers: bool) -> bytes:
    rows, names = _symbols("first", "second@@V1", "third", "x" * 40)
    inner = elf.elf_file(
        [elf.Section(".symtab", rows, elf.SYMTAB, link=".strtab"), elf.Section(".strtab", names, elf.STRTAB)]
    )
    text = b"some text, some text, some text"
    dynamic_tags = [(5, 0x6000), (6, 0x5000), (10, len(names)), (0x6FFFFEF5, 0x7000), (3, 0x4000), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in dynamic_tags)
    hash_table = struct.pack("<4IQI4I", 1, 1, 1, 0, 0, 1, 2, 4, 6, 9)
    header = b"\1\x1b\x03\x3b" + struct.pack("<iIii", 0x2000 - 0x3004, 1, -0x2000, 0x2014 - 0x3000)
    sections = [
        elf.Section(".interp", b"/lib/ld.so\0"),
        elf.Section(".note.gnu.build-id", elf.note(b"GNU\0", 3, bytes(20)), elf.NOTE),
        elf.Section(".text", bytes(range(64)), flags=elf.ALLOC | elf.EXEC, address=0x1000),
        elf.Section(".eh_frame", _eh_frame(), flags=elf.ALLOC, address=0x2000, alignment=8),
        elf.Section(".eh_frame_hdr", header, flags=elf.ALLOC, address=0x3000),
        elf.Section(".got", bytes(8), flags=elf.ALLOC, address=0x4000),
        elf.Section(".dynsym", rows, elf.DYNSYM, elf.ALLOC, 0x5000, link=".dynstr"),
        elf.Section(".dynstr", names, elf.STRTAB, elf.ALLOC, 0x6000),
        elf.Section(".gnu.hash", hash_table, flags=elf.ALLOC, address=0x7000),
        elf.Section(".dynamic", dynamic, flags=elf.ALLOC, address=0x8000),
        elf.Section(".symtab", rows, elf.SYMTAB, link=".strtab"),
        elf.Section(".strtab", names, elf.STRTAB),
        elf.Section(".debug_frame", elf.compressed(1, len(text), zlib.compress(text)), flags=elf.COMPRESSED),
        elf.Section(
            ".debug_info", elf.compressed(2, len(text), zstandard.compress(text)), flags=elf.COMPRESSED
        ),
        elf.Section(".zdebug_frame", b"ZLIB" + struct.pack(">Q", len(text)) + zlib.compress(text)),
        elf.Section(".gnu_debuglink", b"name.debug\0\0" + bytes(4)),
        elf.Section(".gnu_debugaltlink", b"name.alt\0" + bytes(20)),
        elf.Section(".gnu_debugdata", lzma.compress(inner)),
    ]
    loads = [s for s in sections if s.address]
    segments = [elf.Segment(s.address, s.name, flags=5 if s.name == ".text" else 4) for s in loads]
    segments += [
        elf.Segment(0, ".interp", elf.INTERP),
        elf.Segment(0, ".note.gnu.build-id", elf.NOTES, alignment=4),
        elf.Segment(0x3000, ".eh_frame_hdr", elf.GNU_EH_FRAME),
        elf.Segment(0x8000, ".dynamic", elf.DYNAMIC),
    ]
    return elf.elf_file(sections, segments, with_section_headers=with_section_headers)


def _object(machine: int) -> bytes:
    rows, names = _symbols("first", "second", "third")
    absolute, relative = (1, 2) if machine == elf.X86_64 else (257, 261)
    relocations = struct.pack("<QQqQQq", 8, 1 << 32 | absolute, 4, 28, 2 << 32 | relative, 0)
    sections = [
        elf.Section(".text", bytes(64), flags=elf.ALLOC | elf.EXEC, alignment=16),
        elf.Section(".eh_frame", _eh_frame(), flags=elf.ALLOC, alignment=8),
        elf.Section(".rela.eh_frame", relocations, elf.RELA, link=".symtab", info=".eh_frame"),
        elf.Section(".debug_frame", bytes(48)),
        elf.Section(".rela.debug_frame", relocations, elf.RELA, link=".symtab", info=".debug_frame"),
        elf.Section(".symtab", rows, elf.SYMTAB, link=".strtab"),
        elf.Section(".strtab", names, elf.STRTAB),
        elf.Section(".symtab_shndx", bytes(4 * len(rows) // 24), elf.SYMTAB_SHNDX, link=".symtab"),
        elf.Section(".bss", type=elf.NOBITS, flags=elf.ALLOC | elf.WRITE, size=100),
    ]
    return elf.elf_file(sections, type=elf.REL, machine=machine)


def _core() -> bytes:
    stack = elf.Section("stack", bytes(256))
    segments = [elf.Segment(0x7FFF0000, "stack", flags=6), elf.Segment(0, "stack", elf.NOTES)]
    return elf.elf_file([stack], segments, type=elf.CORE, with_section_headers=False)


# Values that break readers: limits of every width, off by one, powers of two, and small numbers.
VALUES = [
    *range(20),
    *(2**bits + delta for bits in (7, 8, 15, 16, 24, 31, 32, 47, 62, 63, 64) for delta in (-2, -1, 0, 1)),
    *(0xFF00, 0xFFF1, 0xFFF2, 0x800, 0x1000, 0x10000, 0x6474E550, 0x6FFFFEF5, 0x7FFFFFF8, 0x40404040),
]


def mutated(data: bytes, steps: Sequence[Step]) -> bytes:
    """The file with each step's damage done, in order."""
    out = bytearray(data)
    for kind, place, value in steps:
        if not out:
            break
        _DAMAGE[kind % len(_DAMAGE)](out, place, value)
    return bytes(out)


def overwrite(out: bytearray, offset: int, width: int, value: int) -> None:
    """Puts a number, often one that breaks readers, over so many bytes."""
    number = VALUES[value % len(VALUES)] if value % 3 else value
    packed = (number & (1 << 8 * width) - 1).to_bytes(width, "little")[: max(0, len(out) - offset)]
    out[offset : offset + len(packed)] = packed


def _field_of(table_at: int, count_at: int, entry: int) -> Callable[[bytearray, int, int], None]:
    """Overwrites a field of a program or section header, where the file header says that they are."""

    def damage(out: bytearray, place: int, value: int) -> None:
        table = int.from_bytes(out[table_at : table_at + 8], "little")
        count = int.from_bytes(out[count_at : count_at + 2], "little")
        offset = table + place % max(1, count * entry // 4) * 4
        if offset < len(out):
            overwrite(out, offset, 8 if place % 2 else 4, value)

    return damage


def _file_header(out: bytearray, place: int, value: int) -> None:
    offset, width = (
        (16, 2),
        (18, 2),
        (24, 8),
        (32, 8),
        (40, 8),
        (54, 2),
        (56, 2),
        (58, 2),
        (60, 2),
        (62, 2),
    )[place % 10]
    overwrite(out, offset, width, value)


def _anywhere(out: bytearray, place: int, value: int) -> None:
    overwrite(out, place % len(out), (1, 2, 4, 8)[value % 4], value // 4)


def _flip(out: bytearray, place: int, value: int) -> None:
    out[place % len(out)] ^= 1 << value % 8


def _cut(out: bytearray, place: int, value: int) -> None:
    del out[place % len(out) :]


def _remove(out: bytearray, place: int, value: int) -> None:
    start = place % len(out)
    del out[start : start + 1 + value % 64]


def _insert(out: bytearray, place: int, value: int) -> None:
    start = place % len(out)
    out[start:start] = bytes([value % 256]) * (1 + value // 256 % 64)


def _copy(out: bytearray, place: int, value: int) -> None:
    """Puts one part of the file over another: a header of another section, a table over a string."""
    source, size = place % len(out), 8 * (1 + value % 16)
    target = value // 16 % len(out)
    piece = out[source : source + size][: len(out) - target]
    out[target : target + len(piece)] = piece


# What may happen to a file of any format.
GENERAL_DAMAGE: list[Callable[[bytearray, int, int], None]] = [
    _anywhere,
    _anywhere,
    _flip,
    _cut,
    _remove,
    _insert,
    _copy,
]
_DAMAGE: list[Callable[[bytearray, int, int], None]] = [
    _field_of(40, 60, elf.SECTION_HEADER_SIZE),
    _field_of(40, 60, elf.SECTION_HEADER_SIZE),
    _field_of(32, 56, elf.PROGRAM_HEADER_SIZE),
    _file_header,
    *GENERAL_DAMAGE,
]


def exercise(data: bytes) -> int:
    """Asks a file for everything, from memory and from a file. Returns how many questions it answered."""
    answered, began = 0, time.process_time()
    descriptor = os.memfd_create("fuzz")
    try:
        os.write(descriptor, data)
        for opened in (
            lambda: Binary.from_bytes(data, "memory"),
            lambda: Binary.open(f"/proc/self/fd/{descriptor}"),
        ):
            try:
                binary = opened()
            except BinaryError as error:
                _check(error, data)
                continue
            with binary:
                answered += _ask_everything(binary, data)
    finally:
        os.close(descriptor)
    assert time.process_time() - began < TIME_LIMIT
    return answered


def _ask_everything(binary: Binary, data: bytes) -> int:
    answered = 0
    for question in _questions(binary, len(data)):
        try:
            question()
            answered += 1
        except BinaryError as error:
            _check(error, data)
    return answered


def _check(error: BinaryError, data: bytes) -> None:
    assert str(error).startswith(error.path)
    assert error.offset is None or error.offset >= 0


def _questions(binary: Binary, size: int) -> Iterator[Callable[[], object]]:
    yield lambda: (binary.build_id, binary.interpreter)
    yield lambda: (binary.text_address, binary.data_address)
    yield lambda: binary.debug_link
    yield lambda: binary.debug_alt_link
    yield lambda: [repr(section) for section in binary.sections[:100]]
    for name in (".text", ".debug_info", ".debug_frame", ".gnu_debugdata"):
        yield lambda name=name: binary.section(name)  # type: ignore[misc]
    for index in range(min(len(binary.sections), 40)):
        yield lambda index=index: _check_data(binary, index, size)  # type: ignore[misc]
    yield lambda: _check_unwind_sections(binary, size)
    yield lambda: _check_symbols(binary)
    yield lambda: _check_addresses(binary, size)


def _check_data(binary: Binary, index: int, size: int) -> None:
    assert len(binary.sections[index].data) <= 128 * size + (1 << 20)


def _check_unwind_sections(binary: Binary, size: int) -> None:
    for section in binary.unwind_sections():
        assert section.kind in ("eh_frame", "debug_frame")
        assert 0 <= section.address < 1 << 64
        assert len(section.data) <= 128 * size + (1 << 20)


def _check_symbols(binary: Binary) -> None:
    symbols = binary.symbols
    addresses = np.concatenate((symbols.address, symbols.address + symbols.size))[:2000]
    for address, index in zip(addresses.tolist(), symbols.find(addresses).tolist(), strict=True):
        found = symbols.lookup(address)
        assert (found is None) == (index < 0)
        assert found is None or found == (symbols.name(index), address - int(symbols.address[index]))
    for index in range(min(len(symbols), 100)):
        symbols.name(index)


def _check_addresses(binary: Binary, size: int) -> None:
    assert 0 <= binary.image_address < 1 << 64
    for segment in binary.segments[:100]:
        code = binary.code(segment.address, segment.file_size)
        assert len(code) <= size
        base = binary.image_base(1 << 40, segment.file_offset // 4096 * 4096, (1 << 40) + 4096)
        assert base is None or isinstance(base, int)


def main(seconds: float, seed: int) -> int:
    return int(fuzz("elf", seeds(), mutated, exercise, seconds, seed) is None)


if __name__ == "__main__":
    random_seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "little")
    sys.exit(main(float(sys.argv[1]), random_seed))
