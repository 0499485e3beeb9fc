"""Compiles sections that dwarf_writer wrote, by the core and by the slow evaluator, for unit tests.

What a test asks of an address is answered by the core; the slow evaluator must say the same, or the
test fails.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from tests.dwarf_writer import (
    AARCH64_CIE,
    RBP,
    X86_64_CIE,
    CieSpec,
    FrameSection,
    advance_loc,
    def_cfa_offset,
    eh_frame,
    offset,
)
from tests.proof import claims
from tests.proof.step_function import NOTHING, Claimant, StepFunction, pieces
from tests.slow_cfi import ABIS, Cie, Section, read_entries, read_rows
from tests.slow_cfi import Row as SlowRow
from unspool.core import CompileInput, SectionInput, Table
from unspool.unwind.table import ExactKind, ProblemKind, RowFlag

FLAG_NAMES = {RowFlag.SIGNAL: "signal", RowFlag.SIGNED: "signed", RowFlag.END: "end", RowFlag.EXACT: "exact"}


class Slow(NamedTuple):
    in_table: Hashable
    exact: Hashable


class Compiled:
    """A table and what the slow evaluator makes of the same sections. says(address) is one of

    "rsp+16 ra=c-8 fp=c-16"         in readelf's notation: s the same, u lost, c at CFA + n
    "r10+0 ra=c-8 fp=exp exact"     and flags: exact, signal, signed, end
    "nothing"
    """

    def __init__(
        self,
        *sections: FrameSection,
        arch: str = "x86_64",
        image_address: int = 0,
        open_ended: bool = False,
    ) -> None:
        self.arch = arch
        self.image_address = image_address
        self.table, self.problem_count, problems = Table.compile(
            CompileInput(
                arch,
                [
                    SectionInput(
                        "eh_frame" if s.is_eh_frame else "debug_frame", s.data, s.address, open_ended
                    )
                    for s in sections
                ],
                image_address=image_address,
                text_address=sections[0].text_address,
                data_address=sections[0].data_address,
                entry_address=0,
            )
        )
        self.problems = [(ProblemKind(problem.kind).name, problem.offset) for problem in problems]
        self.slow_problems: list[str] = []
        claimants = [claimant for section in sections for claimant in self._claimants(section)]
        self._slow = StepFunction.of_pieces(pieces(claimants))

    def _claimants(self, written: FrameSection) -> list[Claimant]:
        text, data = written.text_address or None, written.data_address or None  # 0 = not known
        section = Section(written.data, written.is_eh_frame, written.address, text, data)
        entries = read_entries(section)
        self.slow_problems += [problem.message for problem in entries.problems]
        found = []
        for fde in entries.fdes:
            if fde.start < self.image_address or fde.end > self.image_address + (1 << 32) - 1:
                self.slow_problems.append(f"{fde.start:#x} is too far from the image")
                continue
            rows = read_rows(fde, self.arch)
            values: list[tuple[int, Hashable]] = [
                (row.start, self._said(fde.cie, written.is_eh_frame, row)) for row in rows.rows
            ]
            if rows.problem:
                self.slow_problems.append(str(rows.problem))
                values.append((rows.rows[-1].end if rows.rows else fde.start, NOTHING))
            found.append(Claimant(written.is_eh_frame, fde.offset, fde.start, fde.end, values))
        return found

    def _said(self, cie: Cie, is_eh_frame: bool, row: SlowRow) -> Hashable:
        """A row as the slow evaluator has it: as a rule if one can hold it, and as an exact row."""
        if row.cfa is None:
            return NOTHING
        exact = claims.slow_as_exact(self.arch, cie, row)
        return Slow(claims.slow_as_table(self.arch, cie, is_eh_frame, row), exact)

    def says(self, address: int) -> str:
        """What holds at a virtual address of the file."""
        row = self.table.lookup(address - self.image_address)
        slow = self._slow.values[self._slow.at(np.array([address], np.uint64))[0]]
        if row is None or row.flags & RowFlag.NONE:
            assert slow == NOTHING, f"only the slow evaluator says something at {address:#x}: {slow}"
            return "nothing"
        assert row.start <= address - self.image_address < row.end
        if row.flags & RowFlag.EXACT:
            exact = self.table.exact(address - self.image_address)
            assert exact is not None, f"an exact row without CFI at {address:#x}"
            assert isinstance(slow, Slow)
            assert claims.exact_as_slow(self.arch, row.flags, exact)[2:] == slow.exact
            claim = claims.exact_as_readelf(self.arch, exact)
            kinds = [*(rule.kind for rule in exact.rules), ExactKind.UNSPECIFIED]  # and NOT_FOLLOWED's
            if kinds[exact.return_address_register] == ExactKind.UNSPECIFIED:
                claim = claim._replace(ra="-")
            if kinds[ABIS[self.arch].frame_pointer] == ExactKind.UNSPECIFIED:
                claim = claim._replace(fp="-")
        else:
            assert isinstance(slow, Slow)
            assert ("rule", *row[2:]) == slow.in_table
            claim = claims.table_as_readelf(self.arch, row)
        flags = [f" {name}" for flag, name in FLAG_NAMES.items() if row.flags & flag]
        return f"{claim.cfa} ra={claim.ra} fp={claim.fp}{''.join(flags)}"

    def boundaries(self) -> list[int]:
        """Virtual addresses at which a row of the core or of the slow evaluator begins, ascending."""
        starts = {int(start) + self.image_address for start in self.table.rows()["start"]}
        return sorted(starts | {int(start) for start in self._slow.starts if start >= self.image_address})

    def is_from_debug_frame(self, address: int) -> bool:
        row = self.table.lookup(address - self.image_address)
        return row is not None and bool(row.flags & RowFlag.DEBUG_FRAME)


# ---------------------------------------------------------------- functions for tests

PUSHED = (advance_loc(1), def_cfa_offset(16), offset(RBP, 2))
ENTRY, AFTER_PUSH = "rsp+8 ra=c-8 fp=s", "rsp+16 ra=c-8 fp=c-16"


def assert_pushed(compiled: Compiled, start: int = 0x1000, size: int = 0x20, flags: str = "") -> None:
    """The function that PUSHED describes is there, and nothing around it."""
    assert compiled.says(start) == ENTRY + flags
    assert compiled.says(start + 1) == AFTER_PUSH + flags
    assert compiled.says(start + size - 1) == AFTER_PUSH + flags
    assert compiled.says(start + size) == "nothing"
    assert compiled.says(start - 1) == "nothing"


START, SIZE = 0x1000, 0x4000


def x86_64(*instructions: bytes, cie: CieSpec = X86_64_CIE, size: int = SIZE) -> Compiled:
    section = eh_frame()
    section.fde(section.cie(cie), START, size, *instructions)
    return Compiled(section)


def aarch64(*instructions: bytes, cie: CieSpec = AARCH64_CIE) -> Compiled:
    section = eh_frame()
    section.fde(section.cie(cie), START, SIZE, *instructions)
    return Compiled(section, arch="aarch64")
