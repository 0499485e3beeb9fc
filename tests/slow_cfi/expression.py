"""DWARF expressions (DWARF 5, 2.5; opcodes: 7.7.1), as far as call frame information may use them.

A stack machine over 64-bit words. It may not read a register that is not known, nor run on for
ever: that, and every operation that has no meaning here (6.4.2 lists those that need a compilation
unit or a frame), is an EvaluationError.
"""

from __future__ import annotations

from collections.abc import Callable

from .cursor import ADDRESS_MASK, CfiError, Cursor

MAX_STEPS = 4096
MAX_DEPTH = 64

# Reads size bytes at an address; None where nothing can be read.
ReadMemory = Callable[[int, int], bytes | None]


class EvaluationError(Exception):
    """The caller's value can't be computed: what was missing."""


class UnreadableMemory(EvaluationError):
    """Memory that is needed can't be read."""

    def __init__(self, address: int, size: int) -> None:
        super().__init__(f"{size} bytes at {address:#x} can't be read")


def signed(value: int) -> int:
    """A 64-bit word as a two's complement number."""
    return value - (1 << 64) if value >> 63 else value


class Machine:
    """Evaluates one expression. registers: those that are known, by DWARF number; load_bias: what
    turns a virtual address of the file into an address of the process."""

    def __init__(
        self, registers: dict[int, int], read_memory: ReadMemory, initial: list[int], load_bias: int = 0
    ) -> None:
        self.registers = registers
        self.read_memory = read_memory
        self.load_bias = load_bias
        self.stack = list(initial)

    def run(self, code: bytes) -> int:
        cursor = Cursor(code)
        steps = 0
        while cursor.left > 0:
            steps += 1
            if steps > MAX_STEPS:
                raise EvaluationError(f"an expression takes more than {MAX_STEPS} steps")
            try:
                self.operation(cursor.unsigned(1), cursor)
            except CfiError as error:
                raise EvaluationError(f"an operand is cut: {error}") from error
        return self.pop()

    def push(self, value: int) -> None:
        if len(self.stack) == MAX_DEPTH:
            raise EvaluationError(f"an expression pushes more than {MAX_DEPTH} values")
        self.stack.append(value & ADDRESS_MASK)

    def pop(self) -> int:
        return self.peek(0, remove=True)

    def peek(self, index: int, remove: bool = False) -> int:
        """The entry at an index from the top."""
        if index >= len(self.stack):
            raise EvaluationError("an expression takes more values than it pushed")
        return self.stack.pop() if remove else self.stack[-1 - index]

    def register(self, number: int) -> int:
        if number not in self.registers:
            raise EvaluationError(f"register {number} is not known")
        return self.registers[number]

    def memory(self, address: int, size: int) -> int:
        if not 1 <= size <= 8:
            raise EvaluationError(f"an expression reads {size} bytes")
        data = self.read_memory(address, size)
        if data is None:
            raise UnreadableMemory(address, size)
        return int.from_bytes(data, "little")

    def operation(self, opcode: int, cursor: Cursor) -> None:
        if not (
            self.literal(opcode, cursor)
            or self.register_value(opcode, cursor)
            or self.stack_operation(opcode, cursor)
            or self.arithmetic(opcode, cursor)
            or self.control_flow(opcode, cursor)
        ):
            raise EvaluationError(f"operation {opcode:#x} has no meaning in call frame information")

    # ---------------------------------------------------------- 2.5.1.1 literals

    def literal(self, opcode: int, cursor: Cursor) -> bool:
        if 0x30 <= opcode <= 0x4F:  # DW_OP_lit0 .. DW_OP_lit31
            self.push(opcode - 0x30)
        elif opcode == 0x03:  # DW_OP_addr
            self.push(cursor.unsigned(8) + self.load_bias)
        elif 0x08 <= opcode <= 0x0F:  # DW_OP_const1u, 1s, 2u, 2s, 4u, 4s, 8u, 8s
            size = 1 << ((opcode - 0x08) // 2)
            self.push(cursor.signed(size) if opcode & 1 else cursor.unsigned(size))
        elif opcode == 0x10:  # DW_OP_constu
            self.push(cursor.uleb128())
        elif opcode == 0x11:  # DW_OP_consts
            self.push(cursor.sleb128())
        else:
            return False
        return True

    # ---------------------------------------------------------- 2.5.1.2 register values

    def register_value(self, opcode: int, cursor: Cursor) -> bool:
        if 0x70 <= opcode <= 0x8F:  # DW_OP_breg0 .. DW_OP_breg31
            self.push(self.register(opcode - 0x70) + cursor.sleb128())
        elif opcode == 0x92:  # DW_OP_bregx
            number = cursor.uleb128()
            self.push(self.register(number) + cursor.sleb128())
        else:
            return False
        return True

    # ---------------------------------------------------------- 2.5.1.3 stack operations

    def stack_operation(self, opcode: int, cursor: Cursor) -> bool:
        if opcode == 0x12:  # DW_OP_dup
            self.push(self.peek(0))
        elif opcode == 0x13:  # DW_OP_drop
            self.pop()
        elif opcode == 0x14:  # DW_OP_over
            self.push(self.peek(1))
        elif opcode == 0x15:  # DW_OP_pick
            self.push(self.peek(cursor.unsigned(1)))
        elif opcode == 0x16:  # DW_OP_swap
            first, second = self.pop(), self.pop()
            self.stack += [first, second]
        elif opcode == 0x17:  # DW_OP_rot: the top becomes the third
            first, second, third = self.pop(), self.pop(), self.pop()
            self.stack += [first, third, second]
        elif opcode == 0x06:  # DW_OP_deref
            self.push(self.memory(self.pop(), 8))
        elif opcode == 0x94:  # DW_OP_deref_size
            size = cursor.unsigned(1)
            self.push(self.memory(self.pop(), size))
        else:
            return False
        return True

    # ---------------------------------------------------------- 2.5.1.4 arithmetic and logic

    def arithmetic(self, opcode: int, cursor: Cursor) -> bool:
        if opcode == 0x19:  # DW_OP_abs
            self.push(abs(signed(self.pop())))
        elif opcode == 0x1F:  # DW_OP_neg
            self.push(-self.pop())
        elif opcode == 0x20:  # DW_OP_not
            self.push(~self.pop())
        elif opcode == 0x23:  # DW_OP_plus_uconst
            self.push(self.pop() + cursor.uleb128())
        elif opcode in _BINARY:
            right, left = self.pop(), self.pop()
            self.push(_BINARY[opcode](left, right))
        else:
            return False
        return True

    # ---------------------------------------------------------- 2.5.1.5 control flow

    def control_flow(self, opcode: int, cursor: Cursor) -> bool:
        if opcode == 0x2F:  # DW_OP_skip
            self.jump(cursor, cursor.signed(2))
        elif opcode == 0x28:  # DW_OP_bra
            distance = cursor.signed(2)
            if self.pop() != 0:
                self.jump(cursor, distance)
        elif opcode != 0x96:  # DW_OP_nop (2.5.1.6)
            return False
        return True

    @staticmethod
    def jump(cursor: Cursor, distance: int) -> None:
        target = cursor.position + distance
        if not 0 <= target <= cursor.end:
            raise EvaluationError("an expression jumps out of itself")
        cursor.position = target


def _divide(left: int, right: int) -> int:
    """DW_OP_div: signed, towards zero."""
    if right == 0:
        raise EvaluationError("an expression divides by zero")
    quotient = abs(signed(left)) // abs(signed(right))
    return quotient if (left >> 63) == (right >> 63) else -quotient


def _modulo(left: int, right: int) -> int:
    """DW_OP_mod: unsigned, unlike DW_OP_div (as every consumer has it; the standard is silent)."""
    if right == 0:
        raise EvaluationError("an expression divides by zero")
    return left % right


_BINARY: dict[int, Callable[[int, int], int]] = {
    0x1A: lambda left, right: left & right,  # DW_OP_and
    0x1B: _divide,
    0x1C: lambda left, right: left - right,  # DW_OP_minus
    0x1D: _modulo,
    0x1E: lambda left, right: left * right,  # DW_OP_mul
    0x21: lambda left, right: left | right,  # DW_OP_or
    0x22: lambda left, right: left + right,  # DW_OP_plus
    0x24: lambda left, right: left << right if right < 64 else 0,  # DW_OP_shl
    0x25: lambda left, right: left >> right if right < 64 else 0,  # DW_OP_shr
    0x26: lambda left, right: signed(left) >> min(right, 63),  # DW_OP_shra
    0x27: lambda left, right: left ^ right,  # DW_OP_xor
    0x29: lambda left, right: int(left == right),  # DW_OP_eq
    0x2A: lambda left, right: int(signed(left) >= signed(right)),  # DW_OP_ge
    0x2B: lambda left, right: int(signed(left) > signed(right)),  # DW_OP_gt
    0x2C: lambda left, right: int(signed(left) <= signed(right)),  # DW_OP_le
    0x2D: lambda left, right: int(signed(left) < signed(right)),  # DW_OP_lt
    0x2E: lambda left, right: int(left != right),  # DW_OP_ne
}
