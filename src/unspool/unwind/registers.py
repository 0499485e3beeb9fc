"""Registers of one frame, by the names that their architecture gives them.

A register that is not known is absent. It is never zero: a walk that needs it ends, or goes on without.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from unspool.core import RegisterValues
from unspool.core_interface import FP_NUMBER, LR_NUMBER, PC_NUMBER, SP_NUMBER
from unspool.unwind.stack import How

# By DWARF number (System V ABI for x86_64, AADWARF64 for aarch64).
_X86_64 = ("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", *(f"r{n}" for n in range(8, 16)))
_AARCH64 = (*(f"x{n}" for n in range(31)), "sp")
REGISTER_NAMES: dict[str, tuple[str, ...]] = {"x86_64": (*_X86_64, "pc"), "aarch64": (*_AARCH64, "pc")}

_OTHERS = {
    arch: {
        name: number
        for number, name in enumerate(names)
        if number not in (PC_NUMBER[arch], SP_NUMBER[arch], FP_NUMBER[arch], LR_NUMBER.get(arch))
    }
    for arch, names in REGISTER_NAMES.items()
}


@dataclass(slots=True, kw_only=True)
class Registers:
    """What is known of one frame's registers. Values are 0 <= v < 2**64.

    pc_is_return_address: False for an interrupted frame, True for one that called. how, guessed: how the
    frame was found; registers that a caller brings are the interrupted frame's own.
    """

    pc: int
    sp: int
    fp: int | None = None  # rbp, x29
    lr: int | None = None  # x30; x86_64 has none
    others: Mapping[str, int] = field(default_factory=dict)  # "rbx", "r12", "x19", ...
    pc_is_return_address: bool = False
    how: How = How.INTERRUPTED
    guessed: bool = False


def to_core(registers: Registers, arch: str) -> RegisterValues:
    """Registers by DWARF number. ValueError: a name that the architecture does not have."""
    values = {PC_NUMBER[arch]: registers.pc, SP_NUMBER[arch]: registers.sp}
    if registers.fp is not None:
        values[FP_NUMBER[arch]] = registers.fp
    if registers.lr is not None:
        if arch not in LR_NUMBER:
            raise ValueError(f"{arch} has no lr")
        values[LR_NUMBER[arch]] = registers.lr
    for name, value in registers.others.items():
        number = _OTHERS[arch].get(name)
        if number is None:
            raise ValueError(f"{name!r} is none of {arch}'s other registers: {', '.join(_OTHERS[arch])}")
        values[number] = value
    return RegisterValues(values, registers.pc_is_return_address)


def from_core(registers: RegisterValues, arch: str, how: How, guessed: bool) -> Registers:
    """Registers by name, from their DWARF numbers."""
    values = registers.values
    return Registers(
        pc=values[PC_NUMBER[arch]],
        sp=values[SP_NUMBER[arch]],
        fp=values.get(FP_NUMBER[arch]),
        lr=values.get(LR_NUMBER[arch]) if arch in LR_NUMBER else None,
        others={name: values[number] for name, number in _OTHERS[arch].items() if number in values},
        pc_is_return_address=registers.pc_is_return_address,
        how=how,
        guessed=guessed,
    )
