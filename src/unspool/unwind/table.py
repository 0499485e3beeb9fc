"""The unwind table of one file: what it says at every address about CFA, return address and fp.

All addresses here are relative to the image: virtual address - Binary.image_address. The core compiles
tables (core/src/dwarf_cfi.c) and defines their format (core/src/unwind_table.h).
"""

from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum, IntFlag
from typing import NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from unspool.binaries import Binary, BinaryError
from unspool.core import (
    Buffer,
    CompileInput,
    ExactRow,
    ExactRule,
    LookupTable,
    Row,
    SectionInput,
    Table,
    TablePool,
)
from unspool.core import Problem as CoreProblem
from unspool.unwind.kept_code import segment_code

__all__ = [
    "CfaBase",
    "ExactKind",
    "ExactRow",
    "ExactRule",
    "Problem",
    "ProblemKind",
    "Row",
    "RowFlag",
    "Saved",
    "TableError",
    "UnwindTable",
]


class TableError(ValueError):
    """Bytes that are not an unwind table of this version, or a damaged one."""


class CfaBase(IntEnum):
    """The register that a row's CFA counts from."""

    SP = 0
    FP = 1
    RBX = 2  # of hand-written code that has no unwind information


class Saved(IntEnum):
    """Where the caller's value of a register is (return address: SAME is lr)."""

    SAME = 0
    AT_CFA = 1  # in memory at CFA + offset
    UNKNOWN = 2


class RowFlag(IntFlag):
    """What else a row says."""

    SIGNAL = 1  # the frame below was interrupted by a signal
    SIGNED = 2  # the return address carries a PAC
    END = 4  # the outermost frame
    EXACT = 8  # no rule can say it: see UnwindTable.exact
    NONE = 16  # nothing is known here
    DEBUG_FRAME = 32  # from .debug_frame, not from .eh_frame
    DOUBTED = 64  # the function has one row, though its code moves sp: its code is asked, too
    CODE = 128  # from the code itself, which no unwind information describes


class ExactKind(IntEnum):
    """DWARF's register rules."""

    UNDEFINED = 0
    SAME = 1
    OFFSET = 2  # at CFA + value
    VAL_OFFSET = 3  # is CFA + value
    REGISTER = 4  # in register number value
    EXPRESSION = 5  # at the address that the expression yields
    VAL_EXPRESSION = 6  # is what the expression yields
    UNSPECIFIED = 7  # CFI says nothing: the ABI's default holds


class ProblemKind(IntEnum):
    """Why an entry was left out."""

    TRUNCATED = 1
    CIE_MISSING = 2
    CIE_UNSUPPORTED = 3
    POINTER_ENCODING = 4
    INSTRUCTION = 5
    RANGE = 6
    OVERLAP = 7


class Problem(NamedTuple):
    """An entry that was left out: why, and where it stands."""

    kind: ProblemKind
    section: str  # "eh_frame" or "debug_frame"
    offset: int  # in the section


# Code is read whole to find hand-written functions whose unwind information is not true. Where there is
# more of it, reading takes longer than all the rest, and such files are what compilers wrote, but for what
# no unwind information covers: that is read if it may hold functions that keep their frame by rbx.
_CODE_LIMIT = 16 << 20
_MOST_SEGMENTS = 64  # real files have three
_MOST_GAPS = 1024  # OpenBLAS has 210


def _code(binary: Binary) -> list[tuple[int, memoryview]]:
    """The executable segments, by virtual address, as far as they can be read (a core file may hold a file's
    unwind information without its code); none when they are large or too many."""
    executable = [segment for segment in binary.segments if segment.executable]
    if sum(segment.file_size for segment in executable) > _CODE_LIMIT or len(executable) > _MOST_SEGMENTS:
        return []
    pieces = []
    for segment in sorted(executable, key=lambda segment: segment.address):
        with suppress(BinaryError):
            pieces.append((segment.address, binary.code(segment.address, segment.file_size)))
    return pieces


_LEAST_GAP = 64
_MOVES_TO_RBX = (b"\x48\x89\xe3", b"\x48\x8b\xdc")  # mov %rsp, %rbx


def _uncovered_code(binary: Binary, table: Table) -> list[tuple[int, memoryview]]:
    """What _code leaves out, where the table says nothing: the longest gaps, by virtual address."""
    if sum(segment.executable for segment in binary.segments) > _MOST_SEGMENTS:
        return []
    gaps = table.gaps(_LEAST_GAP)
    gaps = gaps[np.sort(np.argsort(gaps["end"] - gaps["start"])[-_MOST_GAPS:])]
    pieces = []
    left = _CODE_LIMIT
    for start, end in zip(gaps["start"].tolist(), gaps["end"].tolist(), strict=True):
        with suppress(BinaryError):
            code = binary.code(start + binary.image_address, min(end - start, left))
            left -= len(code)
            searched = bytes(code)
            if any(move in searched for move in _MOVES_TO_RBX):
                pieces.append((start + binary.image_address, code))
    return pieces


def section_inputs(binary: Binary) -> list[SectionInput]:
    """A file's unwind sections, as they are compiled. Raises BinaryError."""
    return [SectionInput(s.kind, s.data, s.address, s.open_ended) for s in binary.unwind_sections()]


def _input(
    binary: Binary, sections: Sequence[SectionInput], code: Sequence[tuple[int, Buffer]]
) -> CompileInput:
    return CompileInput(
        binary.arch,
        sections,
        image_address=binary.image_address,
        text_address=binary.text_address,
        data_address=binary.data_address,
        entry_address=binary.entry,
        code=code,
    )


def compile_sections(
    binary: Binary, sections: Sequence[SectionInput], code: Sequence[tuple[int, Buffer]] = ()
) -> tuple[Table, int, list[CoreProblem]]:
    """As Table.compile, of the unwind sections of a file and what its table is to know of its code."""
    return Table.compile(_input(binary, sections, code))


class WalkTable:
    """What walks by a file's unwind information need of it."""

    def __init__(self, table: LookupTable) -> None:
        self._table = table

    @classmethod
    def begin(cls, binary: Binary, pool: TablePool) -> "WalkTable | None":
        """A table that is compiled function by function, as walks ask for it. None: .eh_frame_hdr does not
        serve for that. Raises BinaryError when the sections can't be read."""
        index = binary.section(".eh_frame_hdr")
        sections = section_inputs(binary)
        if index is None or [section.kind for section in sections] != ["eh_frame"]:
            return None
        code = [(s.address, segment_code(binary, s)) for s in binary.segments if s.executable]
        table = pool.begin(_input(binary, sections, code[:_MOST_SEGMENTS]), (index.address, index.data))
        return None if table is None else WalkTable(table)

    @property
    def core_table(self) -> LookupTable:
        """What the core walks by."""
        return self._table

    def lookup(self, relative_address: int) -> Row | None:
        """The row that holds at a relative lookup address, or None."""
        return self.core_table.lookup(relative_address)

    def exact(self, relative_address: int) -> ExactRow | None:
        """All that CFI says where the row has RowFlag.EXACT, else None."""
        return self.core_table.exact(relative_address)


class UnwindTable(WalkTable):
    """Sorted rows, compiled from .eh_frame and .debug_frame together. It never changes."""

    def __init__(self, table: Table, problem_count: int = 0, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(table)
        self._whole = table
        self.problem_count = problem_count  # entries that were left out
        self.problems = problems  # the first of them

    @property
    def core_table(self) -> Table:
        """What the core walks by, and more."""
        return self._whole

    @classmethod
    def compile(cls, binary: Binary) -> Self:
        """Compile a file's unwind sections. What can't be read is left out and told in `problems`.
        Raises BinaryError when the sections themselves can't be read."""
        sections = section_inputs(binary)
        code = _code(binary)
        table, count, first = compile_sections(binary, sections, code)
        if not code and binary.arch == "x86_64" and (uncovered := _uncovered_code(binary, table)):
            table, count, first = compile_sections(binary, sections, uncovered)
        problems = (Problem(ProblemKind(p.kind), sections[p.section].kind, p.offset) for p in first)
        return cls(table, count, tuple(problems))

    @classmethod
    def from_bytes(cls, data: Buffer) -> Self:
        """A table from what to_bytes gave, which is not trusted: every part is checked. TableError."""
        try:
            return cls(Table.load(data))
        except ValueError as error:
            raise TableError(str(error)) from None

    def to_bytes(self) -> bytes:
        """The table as one relocatable block."""
        return self.core_table.to_bytes()

    @property
    def rows(self) -> NDArray[np.void]:
        """All rows, made at each access: a structured array with the fields of Row. They are sorted
        and leave no gap between the first start and the last end."""
        return self.core_table.rows()

    def __len__(self) -> int:
        return self.core_table.row_count()


_tables: WeakKeyDictionary[Binary, UnwindTable] = WeakKeyDictionary()


def table_of(binary: Binary) -> UnwindTable:
    """The file's table, compiled at the first use and kept as long as the Binary is."""
    table = _tables.get(binary)
    if table is None:
        table = _tables[binary] = UnwindTable.compile(binary)
    return table
