"""UnwindTable: rows, look-ups, exact rows, bytes and what is left out."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.dwarf_writer import u32
from tests.small_library import Library
from unspool import Binary, TableError, UnwindTable
from unspool.binaries import UnwindSection
from unspool.unwind.table import CfaBase, ExactKind, RowFlag, Saved, table_of

LibraryOf = Callable[[str], Library]


def test_rows_of_a_function(library: LibraryOf) -> None:
    """outer: before its push, after it, with its frame pointer, and after the pop."""
    given = library("x86_64")
    table = UnwindTable.compile(given.binary)
    start = given.labels["outer"]
    rows = [
        table.lookup(address) for address in (start, start + 1, start + 4, given.labels["outer_return"] + 1)
    ]
    assert [(row.cfa_base, row.cfa_offset, row.fp) for row in rows if row] == [
        (CfaBase.SP, 8, Saved.SAME),
        (CfaBase.SP, 16, Saved.AT_CFA),
        (CfaBase.FP, 16, Saved.AT_CFA),
        (CfaBase.SP, 8, Saved.AT_CFA),
    ]
    assert all((row.ra, row.ra_offset) == (Saved.AT_CFA, -8) for row in rows if row)


def test_a_return_address_in_lr_is_told_from_none(library: LibraryOf) -> None:
    """On aarch64 a leaf's return address is in lr; the root's is explicitly undefined."""
    given = library("aarch64")
    table = UnwindTable.compile(given.binary)
    leaf, root = table.lookup(given.labels["inner"]), table.lookup(given.labels["root"])
    assert leaf is not None
    assert root is not None
    assert (leaf.ra, leaf.flags & RowFlag.END) == (Saved.SAME, 0)
    assert root.flags & RowFlag.END


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_rows_are_sorted_without_gap_and_equal_look_ups(library: LibraryOf, arch: str) -> None:
    """The array holds what lookup finds at each first and last address of a row."""
    table = UnwindTable.compile(library(arch).binary)
    rows = table.rows
    assert len(rows) == len(table) > 8
    assert np.array_equal(rows["end"][:-1], rows["start"][1:])
    for row in rows.tolist():
        assert table.lookup(row[0]) == table.lookup(row[1] - 1) == row


@pytest.mark.parametrize("first", [1, 4096])
def test_gaps_are_the_rows_that_say_nothing(
    library: LibraryOf, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unspool.core._GAPS_AT_FIRST", first)
    table = UnwindTable.compile(library("x86_64").binary)
    rows = table.rows
    gaps = rows[(rows["flags"] & RowFlag.NONE) != 0]
    assert len(gaps) > 1
    for least in (0, 1, int((gaps["end"] - gaps["start"]).max()), 1 << 40):
        expected = gaps[gaps["end"] - gaps["start"] >= least]
        assert table.core_table.gaps(least).tolist() == expected.tolist()


def test_outside_of_all_rows_nothing_is_found(library: LibraryOf) -> None:
    """Before the first row and after the last there is no row, and between functions one that says so."""
    given = library("x86_64")
    table = UnwindTable.compile(given.binary)
    assert table.lookup(int(table.rows["start"][0]) - 1) is None
    assert table.lookup(int(table.rows["end"][-1])) is None
    gap = table.lookup(given.labels["exact"] - 1)
    assert gap is not None
    assert gap.flags == RowFlag.NONE


def test_an_expression_is_kept_exactly(library: LibraryOf) -> None:
    """A CFA that no rule can say is kept as CFI says it."""
    given = library("x86_64")
    table = UnwindTable.compile(given.binary)
    row, exact = table.lookup(given.labels["exact"]), table.exact(given.labels["exact"])
    assert row is not None
    assert exact is not None
    assert row.flags == RowFlag.EXACT
    assert exact.cfa_expression == bytes([0x77, 8, 6])
    assert exact.rules[exact.return_address_register] == (ExactKind.OFFSET, -8, b"")
    assert table.exact(given.labels["outer"]) is None


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_bytes_make_the_same_table(library: LibraryOf, arch: str) -> None:
    """A table from its own bytes has the same rows."""
    table = UnwindTable.compile(library(arch).binary)
    again = UnwindTable.from_bytes(table.to_bytes())
    assert np.array_equal(again.rows, table.rows)
    assert again.to_bytes() == table.to_bytes()


def test_unaligned_bytes_are_fine(library: LibraryOf) -> None:
    """from_bytes copies, so that the bytes may lie anywhere and may go away."""
    data = UnwindTable.compile(library("x86_64").binary).to_bytes()
    assert UnwindTable.from_bytes(memoryview(b"x" + data)[1:]).to_bytes() == data


def test_damaged_bytes_are_refused_or_harmless(library: LibraryOf) -> None:
    """Cut anywhere, the bytes are no table. With any byte changed they are refused, or can be used."""
    data = UnwindTable.compile(library("x86_64").binary).to_bytes()
    for size in range(len(data)):
        with pytest.raises(TableError):
            UnwindTable.from_bytes(data[:size])
    for index in range(len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 0xFF
        try:
            table = UnwindTable.from_bytes(damaged)
        except TableError:
            continue
        for row in table.rows.tolist():
            table.lookup(row[0])
            table.exact(row[0])


def test_what_is_left_out_is_told() -> None:
    """An FDE that names no CIE is left out, with its kind, section and offset."""

    class Damaged:
        """As much of a Binary as compiling asks for."""

        arch = "x86_64"
        image_address = text_address = data_address = entry = 0
        segments = ()

        def unwind_sections(self) -> list[object]:
            data = memoryview(u32(12) + u32(0x1000) + bytes(8) + u32(0))
            return [UnwindSection("eh_frame", 0x2000, data, False)]

    table = UnwindTable.compile(Damaged())  # type: ignore[arg-type]
    assert table.problem_count == 1
    problem = table.problems[0]
    assert (problem.kind.name, problem.section, problem.offset) == ("CIE_MISSING", "eh_frame", 0)
    assert len(table) == 0
    assert len(table.rows) == 0


def test_a_files_table_is_compiled_once(library: LibraryOf) -> None:
    """Two mappings of a Binary share its table."""
    binary = Binary.open(library("x86_64").binary.path)
    assert table_of(binary) is table_of(binary)
