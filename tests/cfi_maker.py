"""Makes call frame information at random: mostly what compilers could write, some of it nonsense.

All of it comes from one random.Random, so that a seed stands for a case.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests import dwarf_writer as dwarf
from tests.slow_cfi import ABIS

IMAGE_ADDRESS, IMAGE_BASE = 0x400000, 0x5550_0000_0000
MODULE = range(IMAGE_BASE, IMAGE_BASE + 0x10_0000)
STACK = range(0x7FFF_0000_0000, 0x7FFF_0000_0400)
FOLLOWED = {"x86_64": range(17), "aarch64": range(32)}  # registers


class Maker:
    """Makes numbers, operations, expressions and instructions for one architecture."""

    def __init__(self, random: Random, arch: str) -> None:
        self.random = random
        self.arch = arch
        self.abi = ABIS[arch]

    def word(self, code: float, stack: float) -> int:
        """Code addresses and stack addresses with these probabilities, else anything."""
        kind = self.random.random()
        if kind < code:
            return self.random.choice(MODULE)
        if kind < code + stack:
            return self.random.randrange(STACK.start // 8 - 4, STACK.stop // 8 + 4) * 8
        return self.random.choice([0, 1, 8, 1 << 63, (1 << 64) - 1, self.random.getrandbits(64)])

    def register(self, limit: int = 1 << 16) -> int:
        """Mostly those that matter; some that nobody follows."""
        kept = [self.abi.stack_pointer, self.abi.frame_pointer, *sorted(self.abi.preserved)]
        numbers: list[int] = [*kept * 3, *FOLLOWED[self.arch], 17, 33, 64, 72, 300]
        return self.random.choice([number for number in numbers if number < limit])

    def cfa_base(self) -> int:
        usual = [self.abi.stack_pointer, self.abi.frame_pointer]
        return self.random.choice([*usual * 4, self.register()])

    def operation(self) -> bytes:
        """One DWARF operation."""
        random = self.random
        small = random.randint(-40, 40)
        leaves: list[Callable[[], bytes]] = [
            lambda: dwarf.op_breg(self.register(limit=32), small),
            lambda: dwarf.op_bregx(self.register(), small),
            lambda: dwarf.op_lit(random.randint(0, 31)),
            lambda: dwarf.op_const(random.choice([1, 2, 4, 8]), random.random() < 0.5, self.word(0.1, 0.3)),
            lambda: dwarf.op_constu(self.word(0.1, 0.3)),
            lambda: dwarf.op_consts(small),
            lambda: dwarf.op_addr(IMAGE_ADDRESS + random.randrange(0x1000)),
        ]
        others: list[Callable[[], bytes]] = [
            lambda: dwarf.op_plus_uconst(random.randint(0, 64)),
            lambda: dwarf.op_pick(random.randint(0, 4)),
            lambda: dwarf.op_deref_size(random.choice([1, 2, 4, 8, 8, 3, 0, 9])),
            lambda: dwarf.op_bra(random.randint(-6, 6)),
            lambda: dwarf.op_skip(random.randint(-6, 6)),
            lambda: random.randbytes(random.randint(1, 2)),
        ]
        others += [lambda: random.choice(PLAIN_OPERATIONS)] * 12
        return random.choice([*leaves, *leaves, *others])()

    def expression(self) -> bytes:
        """Addresses in the stack, what is saved there, and whatever operations make."""
        random = self.random
        address = dwarf.op_breg(self.register(limit=32), random.randint(-16, 16) * 8)
        kind = random.random()
        if kind < 0.4:
            return address
        if kind < 0.6:
            return address + dwarf.OP_DEREF + random.choice([b"", dwarf.op_plus_uconst(8)])
        return b"".join(self.operation() for _ in range(random.randint(1, 8)))

    def instruction(self) -> bytes:
        """One call frame instruction."""
        random = self.random
        register, slot, factored = self.register(), random.randint(0, 40), random.randint(-20, 40)
        special = [dwarf.REMEMBER_STATE, dwarf.RESTORE_STATE, dwarf.gnu_args_size(16)]
        special += [dwarf.NEGATE_RA_STATE] * 2 if self.arch == "aarch64" else []
        choices: list[Callable[[], bytes]] = [
            lambda: dwarf.def_cfa(self.cfa_base(), random.randint(0, 40) * 8),
            lambda: dwarf.def_cfa_sf(self.cfa_base(), -factored),
            lambda: dwarf.def_cfa_offset(random.randint(0, 40) * 8),
            lambda: dwarf.def_cfa_register(self.cfa_base()),
            lambda: dwarf.def_cfa_expression(self.expression()),
            lambda: dwarf.offset_extended(register, slot),
            lambda: dwarf.offset_extended(register, slot),
            lambda: dwarf.offset_extended_sf(register, factored),
            lambda: dwarf.gnu_negative_offset_extended(register, slot),
            lambda: dwarf.val_offset(register, slot),
            lambda: dwarf.val_offset_sf(register, factored),
            lambda: dwarf.in_register(register, self.register()),
            lambda: dwarf.expression(register, self.expression()),
            lambda: dwarf.val_expression(register, self.expression()),
            lambda: dwarf.undefined(register),
            lambda: dwarf.same_value(register),
            lambda: dwarf.restore_extended(register),
            lambda: random.choice(special),
        ]
        choices += [lambda: dwarf.advance_loc(random.randint(1, 8))] * 5
        return random.choice(choices)()


PLAIN_OPERATIONS = (
    *(dwarf.OP_DEREF, dwarf.OP_DUP, dwarf.OP_DROP, dwarf.OP_OVER, dwarf.OP_SWAP, dwarf.OP_ROT),
    *(dwarf.OP_ABS, dwarf.OP_AND, dwarf.OP_DIV, dwarf.OP_MINUS, dwarf.OP_MOD, dwarf.OP_MUL),
    *(dwarf.OP_NEG, dwarf.OP_NOT, dwarf.OP_OR, dwarf.OP_PLUS, dwarf.OP_SHL, dwarf.OP_SHR),
    *(dwarf.OP_SHRA, dwarf.OP_XOR, dwarf.OP_EQ, dwarf.OP_GE, dwarf.OP_GT, dwarf.OP_LE),
    *(dwarf.OP_LT, dwarf.OP_NE, dwarf.OP_NOP),
)
