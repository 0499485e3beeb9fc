"""One step of the walk, differential: random CFI, registers and memory; the caller's registers that
Unwinder.step finds, by table rows and by the exact evaluator, equal the slow evaluator's.

The cases are the same in every run; UNSPOOL_FIRST_SEED and UNSPOOL_SEEDS choose others.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from tests import dwarf_writer as dwarf
from tests.cfi_maker import IMAGE_ADDRESS, IMAGE_BASE, MODULE, STACK, Maker
from tests.slow_cfi import (
    ABIS,
    CfaRegister,
    Cie,
    EvaluationError,
    Frame,
    Row,
    Section,
    Undefined,
    UnreadableMemory,
    read_entries,
    read_rows,
)
from unspool import Registers, StackBytes, StackEnd, Unwinder, UnwindTable
from unspool.core import CompileInput, SectionInput, Table
from unspool.unwind.registers import REGISTER_NAMES
from unspool.unwind.table import RowFlag

FIRST_SEED = int(os.environ.get("UNSPOOL_FIRST_SEED", "0"))
EXAMPLES = int(os.environ.get("UNSPOOL_SEEDS", "4000"))
ADDRESS_BITS = {"x86_64": 47, "aarch64": 48}
FUNCTION, FUNCTION_SIZE = 0x401000, 0x100  # virtual addresses of the file
LR = 30
CIES = {"x86_64": dwarf.X86_64_CIE, "aarch64": dwarf.AARCH64_CIE}


class Case:
    """A function's CFI, a frame that stands in it, and its memory; the same for the same seed."""

    def __init__(self, arch: str, seed: int) -> None:
        self.arch = arch
        random = Random(f"{arch} {seed}")
        maker = Maker(random, arch)
        augmentation = "zRS" if random.random() < 0.1 else "zR"
        data_alignment = -4 if random.random() < 0.05 else -8
        spec = replace(CIES[arch], augmentation=augmentation, data_alignment=data_alignment)
        self.section = dwarf.eh_frame(IMAGE_ADDRESS + 0x8000)
        program = [maker.instruction() for _ in range(random.randint(0, random.choice([4, 12])))]
        if arch == "aarch64" and random.random() < 0.7:
            program.insert(0, dwarf.offset(LR, random.randint(1, 20)))
        self.section.fde(self.section.cie(spec), FUNCTION, FUNCTION_SIZE, *program)
        fde = read_entries(Section(self.section.data, True, self.section.address)).fdes[0]
        self.cie: Cie = fde.cie
        self.rows = read_rows(fde, arch).rows

        self.is_interrupted = random.random() < 0.5
        self.lookup_address = FUNCTION + random.randrange(40)
        self.stack = b"".join(dwarf.u64(maker.word(0.75, 0.2)) for _ in range(len(STACK) // 8))
        numbers = [number for number in range(maker.abi.last + 1) if random.random() < 0.8]
        self.registers = {number: maker.word(0.9 if number == LR else 0.2, 0.6) for number in numbers}
        self.registers[maker.abi.stack_pointer] = random.choice(STACK[:256:8])
        pc = self.lookup_address - IMAGE_ADDRESS + IMAGE_BASE
        self.registers[maker.abi.program_counter] = pc if self.is_interrupted else pc + 1

    def row(self) -> Row | None:
        return next((row for row in self.rows if row.start <= self.lookup_address < row.end), None)

    def read_memory(self, address: int, size: int) -> bytes | None:
        start = address - STACK.start
        return self.stack[start : start + size] if 0 <= start <= len(self.stack) - size else None

    def table(self) -> UnwindTable:
        given = SectionInput("eh_frame", self.section.data, self.section.address, False)
        table, _, _ = Table.compile(CompileInput(self.arch, [given], IMAGE_ADDRESS, 0, 0, 0))
        return UnwindTable(table)


# ---------------------------------------------------------------- what is expected


UNREADABLE = {StackEnd.UNREADABLE_MEMORY, StackEnd.STACK_BYTES_ENDED}


def expected_step(case: Case, is_exact: bool) -> dict[int, int] | set[StackEnd]:
    """The caller's registers by number; or one of the ways in which the stack may end there. Beyond
    what CFI says, the walk demands progress and a return address in a module."""
    row = case.row()
    if row is None or row.cfa is None:
        return {StackEnd.NO_UNWIND_INFO}
    abi = ABIS[case.arch]
    frame = Frame(
        case.arch,
        case.registers,
        case.read_memory,
        case.is_interrupted,
        IMAGE_BASE - IMAGE_ADDRESS,
        ADDRESS_BITS[case.arch],
    )
    if isinstance(row.rules.get(case.cie.return_address_register), Undefined):
        return {StackEnd.ROOT}
    if not is_exact and leads_down(case, row):
        return {StackEnd.LOOP, StackEnd.NO_UNWIND_INFO, *UNREADABLE}
    try:
        caller = frame.caller(case.cie, row)
    except EvaluationError as error:
        return ends_of(error)
    assert caller
    needed = [caller.lost.get(abi.stack_pointer), caller.lost.get(abi.frame_pointer)]
    if needed[0] or isinstance(needed[1], UnreadableMemory):  # an unknown fp alone is no end
        return set().union(*(ends_of(error) for error in needed if error))
    return after_demands(case, caller.registers, is_exact)


def ends_of(error: EvaluationError) -> set[StackEnd]:
    if isinstance(error, UnreadableMemory):
        return UNREADABLE
    return {StackEnd.NO_UNWIND_INFO}


def leads_down(case: Case, row: Row) -> bool:
    """The CFA lies below sp, so that whatever is found is no progress: there must be an end, and which
    reason comes first does not matter."""
    if not isinstance(row.cfa, CfaRegister) or row.cfa.register not in case.registers:
        return False
    cfa = (case.registers[row.cfa.register] + row.cfa.offset) % (1 << 64)
    return cfa < case.registers[ABIS[case.arch].stack_pointer]


def after_demands(case: Case, caller: dict[int, int], is_exact: bool) -> dict[int, int] | set[StackEnd]:
    abi = ABIS[case.arch]
    pc, sp = caller[abi.program_counter], caller[abi.stack_pointer]
    before_pc, before_sp = case.registers[abi.program_counter], case.registers[abi.stack_pointer]
    if is_exact:  # such code may switch stacks
        is_progress = (pc, sp) != (before_pc, before_sp)
    else:
        is_progress = sp > before_sp or (case.is_interrupted and sp == before_sp and pc != before_pc)
    if not is_progress:
        return {StackEnd.LOOP}
    if not case.cie.is_signal_frame and pc - 1 not in MODULE:
        return {StackEnd.BAD_RETURN_ADDRESS}
    return caller


# ---------------------------------------------------------------- the test


def found_step(case: Case) -> tuple[dict[int, int] | StackEnd, bool]:
    """What the core finds, in the same form, and whether its row is an exact one."""
    names, abi = REGISTER_NAMES[case.arch], ABIS[case.arch]
    table = case.table()
    row = table.lookup(case.lookup_address - IMAGE_ADDRESS)
    unwinder = Unwinder(case.arch)
    unwinder.add_module(None, IMAGE_BASE, start=MODULE.start, end=MODULE.stop, table=table)
    known = dict(case.registers)
    before = Registers(
        pc=known.pop(abi.program_counter),
        sp=known.pop(abi.stack_pointer),
        fp=known.pop(abi.frame_pointer, None),
        lr=known.pop(LR, None) if case.arch == "aarch64" else None,
        others={names[number]: value for number, value in known.items()},
        pc_is_return_address=not case.is_interrupted,
    )
    after = unwinder.step(before, StackBytes(STACK.start, case.stack))
    is_exact = row is not None and bool(row.flags & RowFlag.EXACT)
    if isinstance(after, StackEnd):
        return after, is_exact
    assert after.pc_is_return_address == (not case.cie.is_signal_frame)
    found = {names.index(name): value for name, value in after.others.items()}
    found |= {abi.program_counter: after.pc, abi.stack_pointer: after.sp}
    found |= {abi.frame_pointer: after.fp} if after.fp is not None else {}
    found |= {LR: after.lr} if after.lr is not None else {}
    return found, is_exact


def without_lr(arch: str, registers: dict[int, int]) -> dict[int, int]:
    """In a caller lr is only what its last call left there: nobody may use it."""
    return {n: value for n, value in registers.items() if arch == "x86_64" or n != LR}


def describes_no_frame(case: Case) -> bool:
    """On aarch64, a CFA in x0 to x7 is memory that longjmp or setcontext is to load registers from, and a
    return address in another column than lr's is where no instruction before it left one: the walk ends."""
    cfa = case.row().cfa
    in_argument = isinstance(cfa, CfaRegister) and cfa.register < 8
    return case.arch == "aarch64" and (in_argument or case.cie.return_address_register != LR)


def check(arch: str, seed: int) -> str:
    """Which kind of step this was."""
    case = Case(arch, seed)
    found, is_exact = found_step(case)
    expected = expected_step(case, is_exact)
    told = f"UNSPOOL_FIRST_SEED={seed}: {case.row()}, found {found}, expected {expected}"
    if is_exact and describes_no_frame(case):
        assert isinstance(found, StackEnd), told
        return "no frame"
    if isinstance(found, StackEnd):
        assert isinstance(expected, set) and found in expected, told
        return found.name
    assert isinstance(expected, dict), told
    assert without_lr(arch, found) == without_lr(arch, expected), told
    return "exact" if is_exact else "rule"


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_step_equals_the_slow_evaluators(arch: str) -> None:
    kinds = Counter(check(arch, seed) for seed in range(FIRST_SEED, FIRST_SEED + EXAMPLES))
    assert kinds["rule"] > EXAMPLES / 20 and kinds["exact"] > EXAMPLES / 20, kinds
    if EXAMPLES >= 4000:
        ends = ("ROOT", "LOOP", "NO_UNWIND_INFO", "UNREADABLE_MEMORY", "BAD_RETURN_ADDRESS")
        assert all(kinds[end] for end in ends), kinds
