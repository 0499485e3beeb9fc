"""The caller's registers (DWARF 5, 6.4.3): a row applied to a frame's registers and memory.

It may not invent a value: a register whose value can't be computed is not in the result, and a
caller without a return address is an EvaluationError.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cursor import ADDRESS_MASK
from .entries import AARCH64, X86_64
from .expression import EvaluationError, Machine, ReadMemory
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
    address, or, above a signal frame, where the signal hit)."""

    registers: dict[int, int]
    cfa: int


def caller_registers(
    arch: str,
    row: Row,
    return_address_register: int,
    registers: dict[int, int],
    read_memory: ReadMemory,
    *,
    is_interrupted: bool = True,
    load_bias: int = 0,
    address_bits: int = 48,
) -> Caller | None:
    """One step; None when the return address is explicitly undefined: this frame has no caller.

    registers: the frame's, by DWARF number, the program counter in its own column. is_interrupted:
    the frame was interrupted (or lies below a signal frame), so that the link register is its own
    and not what its last call left there."""
    abi = ABIS[arch]
    frame = _Frame(abi, registers, read_memory, load_bias)
    cfa = frame.cfa(row)
    if isinstance(row.rules.get(return_address_register), Undefined):
        return None

    caller: dict[int, int] = {}
    for register in range(abi.last + 1):
        rule = row.rules.get(register)
        try:
            value = frame.default(register, cfa) if rule is None else frame.apply(rule, register, cfa)
        except EvaluationError:
            continue  # this one is lost; only the return address is worth an end
        if value is not None:
            caller[register] = value

    address = return_address(arch, frame, row.rules.get(return_address_register), cfa, is_interrupted)
    if arch == AARCH64:
        address &= (1 << address_bits) - 1  # above may be a pointer authentication code
    caller[abi.program_counter] = address
    return Caller(caller, cfa)


def return_address(arch: str, frame: _Frame, rule: Rule | None, cfa: int, is_interrupted: bool) -> int:
    """Without a rule the return address is still where the call left it: in the link register on
    aarch64, as long as the frame made no call itself; on x86_64 every CIE has a rule for it."""
    if rule is None or isinstance(rule, SameValue):
        if arch != AARCH64 or not is_interrupted:
            raise EvaluationError("the return address is nowhere")
        rule = InRegister(AARCH64_LR)
    value = frame.apply(rule, AARCH64_LR, cfa)
    if value is None:
        raise EvaluationError("the return address is not known")
    return value


class _Frame:
    def __init__(self, abi: Abi, registers: dict[int, int], read_memory: ReadMemory, load_bias: int) -> None:
        self.abi = abi
        self.registers = registers
        self.read_memory = read_memory
        self.load_bias = load_bias

    def cfa(self, row: Row) -> int:
        if isinstance(row.cfa, CfaExpression):
            return self.machine([]).run(row.cfa.code)
        if isinstance(row.cfa, CfaRegister):
            if row.cfa.register not in self.registers:
                raise EvaluationError(f"register {row.cfa.register} is not known")
            return (self.registers[row.cfa.register] + row.cfa.offset) & ADDRESS_MASK
        raise EvaluationError("no CFA is defined")

    def machine(self, initial: list[int]) -> Machine:
        return Machine(self.registers, self.read_memory, initial, self.load_bias)

    def apply(self, rule: Rule, register: int, cfa: int) -> int | None:
        """The rules of 6.4.1, in their order there; None is not known."""
        if isinstance(rule, Undefined):
            return None
        if isinstance(rule, SameValue):
            return self.registers.get(register)
        if isinstance(rule, Offset):
            return self.load(cfa + rule.offset)
        if isinstance(rule, ValOffset):
            return (cfa + rule.offset) & ADDRESS_MASK
        if isinstance(rule, InRegister):
            return self.registers.get(rule.register)
        if isinstance(rule, Expression):
            return self.load(self.machine([cfa]).run(rule.code))
        if isinstance(rule, ValExpression):
            return self.machine([cfa]).run(rule.code)
        raise AssertionError(rule)

    def load(self, address: int) -> int:
        address &= ADDRESS_MASK
        data = self.read_memory(address, 8)
        if data is None:
            raise EvaluationError(f"8 bytes at {address:#x} can't be read")
        return int.from_bytes(data, "little")

    def default(self, register: int, cfa: int) -> int | None:
        """6.4.1 leaves unspecified registers to the ABI: the CFA is by its definition the caller's
        stack pointer, what calls preserve is the same, all else is lost."""
        if register == self.abi.stack_pointer:
            return cfa
        if register in self.abi.preserved:
            return self.registers.get(register)
        return None
