"""The caller's registers (DWARF 5, 6.4.3): a row applied to a frame's registers and memory.

It may not invent a value: a register whose value can't be computed is not in the result, and a
caller without a return address is an EvaluationError.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cursor import ADDRESS_MASK
from .entries import AARCH64, X86_64, Cie
from .expression import EvaluationError, Machine, ReadMemory, UnreadableMemory
from .program import (
    CfaExpression,
    CfaRegister,
    Expression,
    InRegister,
    Offset,
    Row,
    Rule,
    SameValue,
    Undefined,
    ValExpression,
    ValOffset,
)


@dataclass(frozen=True)
class Abi:
    """What the psABI says about DWARF's registers."""

    stack_pointer: int
    frame_pointer: int
    program_counter: int
    preserved: frozenset[int]  # by a call, other than the stack pointer
    last: int  # the last register that is followed, the program counter apart


ABIS = {
    X86_64: Abi(7, 6, 16, frozenset({3, 6, 12, 13, 14, 15}), 15),
    AARCH64: Abi(31, 29, 32, frozenset(range(19, 30)), 31),
}
AARCH64_LR = 30


@dataclass(frozen=True)
class Caller:
    """registers: those that are known, by DWARF number, the program counter among them (a return
    address, or, above a signal frame, where the signal hit). lost: why others are not."""

    registers: dict[int, int]
    lost: dict[int, EvaluationError]


@dataclass(frozen=True)
class Frame:
    """A frame before the step. registers: those that are known, by DWARF number, the program counter
    in its own column. is_interrupted: the program counter is the next instruction (a sample, or below
    a signal frame), not a return address. load_bias: address in the process - address in the file."""

    arch: str
    registers: dict[int, int]
    read_memory: ReadMemory
    is_interrupted: bool = True
    load_bias: int = 0
    address_bits: int = 48

    def caller(self, cie: Cie, row: Row) -> Caller | None:
        """One step. None: the return address is explicitly undefined, so nobody called this frame.
        EvaluationError: CFA or return address can't be computed."""
        if isinstance(row.rules.get(cie.return_address_register), Undefined):
            return None
        abi = ABIS[self.arch]
        rules = _Rules(self, abi, cie, row)
        known: dict[int, int] = {}
        lost: dict[int, EvaluationError] = {}
        for register in range(abi.last + 1):
            try:
                known[register] = rules.value(register)
            except EvaluationError as error:
                lost[register] = error
        known[abi.program_counter] = rules.return_address()
        return Caller(known, lost)


class _Rules:
    """The rules of one row over one frame; every method raises EvaluationError for what is not known."""

    def __init__(self, frame: Frame, abi: Abi, cie: Cie, row: Row) -> None:
        self.frame = frame
        self.abi = abi
        self.cie = cie
        self.row = row
        self.cfa = self.canonical_frame_address()

    def canonical_frame_address(self) -> int:
        cfa = self.row.cfa
        if isinstance(cfa, CfaExpression):
            return self.evaluate(cfa.code, [])
        if isinstance(cfa, CfaRegister):
            return (self.register(cfa.register) + cfa.offset) & ADDRESS_MASK
        raise EvaluationError("no CFA is defined")

    def return_address(self) -> int:
        """Without a rule the return address is still where the call left it: in the link register on
        aarch64, as long as the frame made no call itself; on x86_64 every CIE has a rule for it."""
        column = self.cie.return_address_register
        rule = self.row.rules.get(column)
        is_aarch64 = self.frame.arch == AARCH64
        if rule is None or isinstance(rule, SameValue):
            if not is_aarch64 or column != AARCH64_LR or not self.frame.is_interrupted:
                raise EvaluationError("the return address is nowhere")
            rule = SameValue()
        address = self.apply(rule, column)
        # Above the bits of an address there may be a pointer authentication code.
        return address & (1 << self.frame.address_bits) - 1 if is_aarch64 else address

    def value(self, register: int) -> int:
        """The caller's value. 6.4.1 leaves unspecified registers to the ABI: the CFA is by its
        definition the caller's stack pointer, what calls preserve is the same, all else is lost."""
        rule = self.row.rules.get(register)
        if rule is not None:
            return self.apply(rule, register)
        if register == self.abi.stack_pointer:
            return self.cfa
        if register in self.abi.preserved:
            return self.register(register)
        raise EvaluationError(f"register {register} is not preserved")

    def apply(self, rule: Rule, register: int) -> int:
        """The rules of 6.4.1, in their order there."""
        match rule:
            case Undefined():
                raise EvaluationError(f"register {register} is undefined")
            case SameValue():
                return self.register(register)
            case Offset(offset):
                return self.saved(self.cfa + offset, register)
            case ValOffset(offset):
                return (self.cfa + offset) & ADDRESS_MASK
            case InRegister(other):
                return self.register(other)
            case Expression(code):
                return self.saved(self.evaluate(code, [self.cfa]), register)
            case ValExpression(code):
                return self.evaluate(code, [self.cfa])

    def saved(self, address: int, register: int) -> int:
        """What was saved at an address."""
        address &= ADDRESS_MASK
        if self.was_popped(address, register):
            return self.register(register)
        data = self.frame.read_memory(address, 8)
        if data is None:
            raise UnreadableMemory(address, 8)
        return int.from_bytes(data, "little")

    def was_popped(self, address: int, register: int) -> bool:
        """Below the stack pointer nothing is saved any more: some compilers' CFI goes on saying so in an
        epilogue that has popped the register, which holds the caller's value again.

        That takes a frame that was interrupted there, and a register that can be popped (neither the
        stack pointer nor x86_64's return address). In a signal frame, and where another register than the
        stack pointer gives a CFA that lies below it, too, it is no frame that is taken down, but a context
        that is restored."""
        stack_pointer = self.register(self.abi.stack_pointer)
        is_in_epilogue = self.frame.is_interrupted and not self.cie.is_signal_frame
        can_be_popped = register not in (self.abi.stack_pointer, self.abi.program_counter)
        cfa = self.row.cfa
        is_frame = stack_pointer <= self.cfa or (
            isinstance(cfa, CfaRegister) and cfa.register == self.abi.stack_pointer
        )
        return is_in_epilogue and can_be_popped and address < stack_pointer and is_frame

    def register(self, number: int) -> int:
        if number not in self.frame.registers:
            raise EvaluationError(f"register {number} is not known")
        return self.frame.registers[number]

    def evaluate(self, code: bytes, initial: list[int]) -> int:
        frame = self.frame
        return Machine(frame.registers, frame.read_memory, initial, frame.load_bias).run(code)
