"""One file: our table, the slow evaluator and readelf at every address where any of them changes.

It may not pass over an address: what is not compared (FDEs that lie outside the image) is counted.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tests.proof import claims
from tests.proof.readelf import Claim, read_fdes
from tests.proof.step_function import NOTHING, Claimant, Piece, StepFunction, pieces
from tests.slow_cfi import ABIS, Section, read_entries, read_rows
from unspool import Binary
from unspool.core import Row
from unspool.unwind.table import RowFlag, UnwindTable

ADDRESS_LIMIT = (1 << 32) - 1  # a table's rows have 4 bytes of address


class Said(NamedTuple):
    """What we say at an address, in readelf's words and in full."""

    claim: Claim
    full: Hashable


class Difference(NamedTuple):
    """Where not all agree: the first address, and how many addresses are like it."""

    address: int  # virtual, of the file
    section: str
    fde_offset: int
    readelf: Hashable
    table: Hashable
    slow: Hashable
    llvm: str
    alike: int


@dataclass
class Comparison:
    path: Path
    arch: str
    fdes: int = 0
    rows: int = 0  # that readelf prints
    compared: int = 0  # addresses at which all three were compared
    exact: int = 0  # of these, where the table has an exact row
    needlessly_exact: int = 0  # of these, where a rule could say it
    root: int = 0  # where the return address is explicitly undefined
    outside: int = 0  # FDEs outside the image: nobody's code
    overlaps: int = 0  # addresses where a piece starts that more than one FDE claims
    problems: int = 0  # what the table could not compile
    slow_problems: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def compare(path: Path) -> Comparison:
    with Binary.open(path) as binary:
        table = UnwindTable.compile(cast(Binary, _WithoutCode(binary)))
        result = Comparison(path, binary.arch, problems=table.problem_count)
        slow_claimants = list(inside(binary, slow_fdes(binary, result)))
        readelf_claimants = list(inside(binary, readelf_fdes(binary, path, result), result))
        result.fdes = len(readelf_claimants) + result.outside
        held = pieces(readelf_claimants)
        result.overlaps = count_overlaps(readelf_claimants)
        readelf = StepFunction.of_pieces(held)
        slow = StepFunction.of_pieces(pieces(slow_claimants))
        rows = table.rows
        starts = rows["start"] + np.uint64(binary.image_address)
        at = np.unique(np.concatenate([readelf.starts, slow.starts, starts]))
        ours = table_values(table, binary, rows, starts, at)
        count_kinds(result, slow, ours, at)
        result.differences = list(find_differences(path, held, readelf, slow, ours, at))
        return result


# ---------------------------------------------------------------- the three sources


def readelf_fdes(binary: Binary, path: Path, result: Comparison) -> Iterator[Claimant]:
    frame_pointer = claims.register_name(binary.arch, ABIS[binary.arch].frame_pointer)
    for fde in read_fdes(path, frame_pointer):
        result.rows += len(fde.rows)
        yield Claimant(fde.section == ".eh_frame", fde.offset, fde.start, fde.end, fde.rows)


def slow_fdes(binary: Binary, result: Comparison) -> Iterator[Claimant]:
    for unwind_section in binary.unwind_sections():
        is_eh_frame = unwind_section.kind == "eh_frame"
        section = Section(
            bytes(unwind_section.data),
            is_eh_frame,
            unwind_section.address,
            binary.text_address or None,
            binary.data_address or None,
        )
        entries = read_entries(section)
        result.slow_problems += [f"{problem.message}" for problem in entries.problems]
        for fde in entries.fdes:
            found = read_rows(fde, binary.arch)
            if found.problem:
                result.slow_problems.append(f"FDE {fde.offset:#x}: {found.problem}")
            rows: list[tuple[int, Hashable]] = []
            for row in found.rows:
                claim = claims.slow_as_readelf(binary.arch, fde.cie, row)
                said = Said(claim, claims.slow_as_table(binary.arch, fde.cie, is_eh_frame, row))
                rows.append((row.start, said))
                if row.start <= binary.entry < row.end and binary.entry:
                    rows += [(binary.entry, at_entry_point(said)), (binary.entry + 1, said)]
            yield Claimant(is_eh_frame, fde.offset, fde.start, fde.end, rows)


def at_entry_point(said: Said) -> Said:
    """Nobody called a program's first instruction, whatever its CFI says: the table ends the stack."""
    full = cast(tuple[Any, ...], said.full)
    return Said(said.claim, (*full[:-1], full[-1] | RowFlag.END)) if full[0] == "rule" else said


def inside(
    binary: Binary, claimants: Iterable[Claimant], result: Comparison | None = None
) -> Iterator[Claimant]:
    """Those in the image: what a linker threw away may have left FDEs at addresses that are none."""
    for claimant in claimants:
        if binary.image_address <= claimant.start and claimant.end <= binary.image_address + ADDRESS_LIMIT:
            yield claimant
        elif result:
            result.outside += 1


@dataclass
class TableValues:
    """What the table says at each address that is compared: values[ids[i]]."""

    ids: NDArray[np.int64]
    values: list[Hashable]
    flags: NDArray[np.uint8]


def table_values(
    table: UnwindTable,
    binary: Binary,
    rows: NDArray[np.void],
    starts: NDArray[np.uint64],
    at: NDArray[np.uint64],
) -> TableValues:
    if not len(rows):
        return TableValues(np.zeros(len(at), np.int64), [NOTHING], np.full(len(at), RowFlag.NONE, np.uint8))
    index = np.searchsorted(starts, at, side="right").astype(np.int64) - 1
    fields = [name for name in Row._fields if name not in ("start", "end")]
    as_bytes = np.ascontiguousarray(rows[fields].astype([(n, rows.dtype[n]) for n in fields]))
    distinct, number_of_row = np.unique(as_bytes, return_inverse=True)
    values: list[Hashable] = [table_value(binary.arch, row) for row in distinct]
    numbers = {value: number for number, value in enumerate(values)}
    nothing = numbers.setdefault(NOTHING, len(numbers))
    if nothing == len(values):
        values.append(NOTHING)
    ids = np.where(index >= 0, number_of_row[index], nothing)
    flags = np.where(index >= 0, rows["flags"][index], np.uint8(RowFlag.NONE))
    for i in np.flatnonzero(flags & RowFlag.EXACT):
        row = table.exact(int(at[i]) - binary.image_address)
        value: Hashable = "no exact row"
        if row:
            claim = claims.exact_as_readelf(binary.arch, row)
            value = Said(claim, claims.exact_as_slow(binary.arch, int(flags[i]), row))
        ids[i] = numbers.setdefault(value, len(numbers))
        if ids[i] == len(values):
            values.append(value)
    return TableValues(ids, values, flags)


class _WithoutCode:
    """A Binary whose code can't be seen, so that its table says what its CFI says and nothing else."""

    segments = ()

    def __init__(self, binary: Binary) -> None:
        self._binary = binary

    def code(self, address: int, size: int) -> memoryview:
        return memoryview(b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._binary, name)


def table_value(arch: str, fields: np.void) -> Hashable:
    values = tuple(int(value) for value in fields.item())
    row = Row(0, 0, *values)
    if row.flags & RowFlag.NONE:
        return NOTHING
    if row.flags & RowFlag.EXACT:
        return ("exact", *values)  # its value is told apart by address
    return Said(claims.table_as_readelf(arch, row), ("rule", *values))


# ---------------------------------------------------------------- comparing


def count_kinds(result: Comparison, slow: StepFunction, ours: TableValues, at: NDArray[np.uint64]) -> None:
    result.compared = len(at)
    is_exact = (ours.flags & RowFlag.EXACT) != 0
    result.exact = int(np.count_nonzero(is_exact))
    result.root = int(np.count_nonzero(ours.flags & RowFlag.END))
    for number in slow.at(at)[is_exact]:
        value = slow.values[number]
        result.needlessly_exact += isinstance(value, Said) and cast(tuple[str], value.full)[0] == "rule"


def count_overlaps(claimants: list[Claimant]) -> int:
    ordered = sorted((c for c in claimants if c.start < c.end), key=lambda claimant: claimant.start)
    reached, count = 0, 0
    for claimant in ordered:
        count += claimant.start < reached
        reached = max(reached, claimant.end)
    return count


def find_differences(
    path: Path,
    held: list[Piece],
    readelf: StepFunction,
    slow: StepFunction,
    ours: TableValues,
    at: NDArray[np.uint64],
) -> Iterator[Difference]:
    together = np.stack([readelf.at(at), slow.at(at), ours.ids], axis=1)
    distinct, first, counts = np.unique(together, axis=0, return_index=True, return_counts=True)
    for (of_readelf, of_slow, of_table), index, count in zip(distinct, first, counts, strict=True):
        says_readelf = readelf.values[of_readelf]
        says_slow, says_table = slow.values[of_slow], ours.values[of_table]
        if all_agree(says_readelf, says_slow, says_table):
            continue
        address = int(at[index])
        yield difference(path, held, address, says_readelf, says_table, says_slow, int(count))


def all_agree(readelf: Hashable, slow: Hashable, table: Hashable) -> bool:
    if not (isinstance(readelf, Claim) and isinstance(slow, Said) and isinstance(table, Said)):
        return readelf == slow == table == NOTHING
    if slow.claim != readelf or not claims.agrees(readelf, table.claim):
        return False
    if slow.full == table.full:
        return True
    # An exact row where a rule could say the same is no difference, only slow; it is counted.
    return cast(tuple[str], table.full)[0] == "exact" and slow.claim == table.claim


def difference(
    path: Path,
    held: list[Piece],
    address: int,
    readelf: Hashable,
    table: Hashable,
    slow: Hashable,
    count: int,
) -> Difference:
    holder = next((piece.claimant for piece in held if piece.start <= address < piece.end), None)
    if holder is None:
        return Difference(address, "", 0, readelf, table, slow, "", count)
    section = ".eh_frame" if holder.is_eh_frame else ".debug_frame"
    llvm = said_by_llvm(path, section, holder.offset, address)
    return Difference(address, section, holder.offset, readelf, table, slow, llvm, count)


LLVM_ROW = re.compile(r"^\s+0x([0-9a-f]+): (CFA=.*)$")


def said_by_llvm(path: Path, section: str, offset: int, address: int) -> str:
    """The third opinion: llvm-dwarfdump's row for an address."""
    option = "--eh-frame" if section == ".eh_frame" else "--debug-frame"
    command = ["llvm-dwarfdump-19", f"{option}={offset:#x}", str(path)]
    said = ""
    for line in subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines():
        if (row := LLVM_ROW.match(line)) and int(row[1], 16) <= address:
            said = row[2]
    return said
