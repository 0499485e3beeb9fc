"""Where functions begin, by .eh_frame_hdr: against the symbol table, and where there is nothing to read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compilers import build
from tests.elf_writer import ALLOC, Section, elf_file
from unspool import Binary, UnwindTable
from unspool.binaries.symbol_table import FUNCTION
from unspool.unwind.function_starts import function_starts


def starts(binary: Binary, lookups: list[int]) -> list[int]:
    return function_starts(binary, UnwindTable.compile(binary), np.array(lookups, np.uint64)).tolist()


def test_every_byte_of_a_function_leads_to_its_start(tmp_path: Path) -> None:
    """As the symbol table has it; what lies between functions leads nowhere."""
    with Binary.open(build(tmp_path, "program", "gcc", "-O2")) as binary:
        symbols = binary.symbols
        names = [symbols.name(i) for i in range(len(symbols))]
        for name in ("twice", "weak_one", "main"):
            index = names.index(name)
            assert symbols.type[index] == FUNCTION
            start = int(symbols.address[index]) - binary.image_address
            size = int(symbols.size[index])
            assert starts(binary, [start, start + 1, start + size - 1]) == [start] * 3
        assert starts(binary, [0, 0x20, 1 << 40, (1 << 64) - 1]) == [-1] * 4


HEADER = bytes([1, 0x1B, 0x03, 0x3B]) + bytes(4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEADER,
        HEADER + b"\xff\xff\xff\xff",  # more entries than bytes
        HEADER + b"\x02\0\0\0" + bytes(9),
        bytes([2]) + HEADER[1:] + bytes(100),
        bytes([1, 0x1B, 0x03, 0xFF]) + bytes(100),  # no table
    ],
)
def test_damaged_tables_say_nothing(data: bytes) -> None:
    """Nor do they fail."""
    binary = Binary.from_bytes(elf_file([Section(".eh_frame_hdr", data, flags=ALLOC, address=0x1000)]))
    assert starts(binary, [0, 0x1000, 0x2000]) == [-1] * 3
