"""Call frame instructions (DWARF 5, 6.4.2; opcodes: 7.24): what a CIE's and an FDE's programs say,
row by row.

Each row holds for a range of addresses and says how to find the caller's registers. It may not
go on after an instruction that is malformed: the rows before it hold, nothing is known of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from . import pointers
from .cursor import ADDRESS_MASK, CfiError, Cursor
from .entries import AARCH64, Cie, Fde

MAX_REMEMBERED_STATES = 16  # compilers nest one or two; a bound for hostile files


# ------------------------------------------------------------- register rules (6.4.1)


@dataclass(frozen=True)
class Undefined:
    """The caller's value is lost."""


@dataclass(frozen=True)
class SameValue:
    """The register still holds the caller's value."""


@dataclass(frozen=True)
class Offset:
    """Saved in memory at CFA + offset."""

    offset: int


@dataclass(frozen=True)
class ValOffset:
    """The value is CFA + offset."""

    offset: int


@dataclass(frozen=True)
class InRegister:
    """Saved in another register."""

    register: int


@dataclass(frozen=True)
class Expression:
    """Saved in memory at the address that the DWARF expression yields (the CFA is pushed first)."""

    code: bytes


@dataclass(frozen=True)
class ValExpression:
    """The value is what the DWARF expression yields (the CFA is pushed first)."""

    code: bytes


Rule = Undefined | SameValue | Offset | ValOffset | InRegister | Expression | ValExpression


@dataclass(frozen=True)
class CfaRegister:
    """CFA = register + offset."""

    register: int
    offset: int


@dataclass(frozen=True)
class CfaExpression:
    """CFA = what the DWARF expression yields."""

    code: bytes


@dataclass(frozen=True)
class Row:
    """What holds for start <= address < end. A register that has no rule is unspecified: the ABI
    says what becomes of it, and for the return address that differs from Undefined."""

    start: int
    end: int
    cfa: CfaRegister | CfaExpression | None
    rules: dict[int, Rule]
    is_signed: bool  # the return address carries a pointer authentication code (aarch64)
    args_size: int  # bytes of arguments pushed (DW_CFA_GNU_args_size); no register depends on it


@dataclass
class State:
    """The row under construction, and what else a program changes."""

    location: int
    cfa: CfaRegister | CfaExpression | None = None
    rules: dict[int, Rule] = field(default_factory=dict)
    is_signed: bool = False
    args_size: int = 0


@dataclass(frozen=True)
class Rows:
    """The rows of an FDE: ascending, none empty, and without a gap from its start. They reach its
    end unless there is a problem."""

    rows: list[Row]
    problem: CfiError | None


def read_rows(fde: Fde, arch: str) -> Rows:
    program = _Program(fde, arch)
    try:
        program.run()
    except CfiError as error:
        return Rows(program.rows, error)
    return Rows(program.rows, None)


class _Program:
    """The machine that runs the instructions. rows: those that are complete."""

    def __init__(self, fde: Fde, arch: str) -> None:
        self.fde = fde
        self.cie: Cie = fde.cie
        self.arch = arch
        self.state = State(fde.start)
        self.initial: State | None = None  # after the CIE's instructions: for DW_CFA_restore
        self.remembered: list[State] = []
        self.rows: list[Row] = []

    def run(self) -> None:
        self.execute(self.cie.instructions)
        self.initial = self.copy_of(self.state)
        self.execute(self.fde.instructions)
        self.finish_row(self.fde.end)

    def execute(self, instructions: tuple[int, int]) -> None:
        """What follows a location at or after the FDE's end concerns no one."""
        cursor = Cursor(self.cie.section.data, *instructions)
        while cursor.left > 0 and self.state.location < self.fde.end:
            offset = cursor.position
            opcode = cursor.unsigned(1)
            if not (
                self.create_row(opcode, cursor)
                or self.define_cfa(opcode, cursor)
                or self.set_rule(opcode, cursor)
                or self.keep_or_restore_state(opcode, offset)
                or self.extension(opcode, cursor)
            ):
                raise CfiError(f"call frame instruction {opcode:#x} is unknown", offset)

    # ---------------------------------------------------------- 6.4.2.1 row creation

    def create_row(self, opcode: int, cursor: Cursor) -> bool:
        factor = self.cie.code_alignment_factor
        offset = cursor.position - 1
        if opcode == 0x01:  # DW_CFA_set_loc
            bases = self.cie.section.bases(self.fde.start)
            location = pointers.read_pointer(cursor, self.cie.pointer_encoding, bases, self.cie.address_size)
        elif opcode >> 6 == 1:  # DW_CFA_advance_loc
            location = self.state.location + (opcode & 0x3F) * factor
        elif opcode in (0x02, 0x03, 0x04):  # DW_CFA_advance_loc1, _loc2, _loc4
            location = self.state.location + cursor.unsigned(1 << (opcode - 2)) * factor
        else:
            return False
        if self.initial is None:
            raise CfiError("a CIE's instructions move the location", offset)
        if location < self.state.location or location > ADDRESS_MASK:
            raise CfiError(f"the location moves from {self.state.location:#x} to {location:#x}", offset)
        self.finish_row(location)
        self.state.location = location
        return True

    def finish_row(self, next_location: int) -> None:
        state, end = self.state, min(next_location, self.fde.end)
        if state.location < end:
            self.rows.append(
                Row(state.location, end, state.cfa, dict(state.rules), state.is_signed, state.args_size)
            )

    # ---------------------------------------------------------- 6.4.2.2 CFA definition

    def define_cfa(self, opcode: int, cursor: Cursor) -> bool:
        factor = self.cie.data_alignment_factor
        if opcode == 0x0C:  # DW_CFA_def_cfa
            self.state.cfa = CfaRegister(cursor.uleb128(), cursor.uleb128())
        elif opcode == 0x12:  # DW_CFA_def_cfa_sf
            self.state.cfa = CfaRegister(cursor.uleb128(), cursor.sleb128() * factor)
        elif opcode == 0x0D:  # DW_CFA_def_cfa_register
            self.state.cfa = replace(self.cfa_as_register(cursor), register=cursor.uleb128())
        elif opcode == 0x0E:  # DW_CFA_def_cfa_offset
            self.state.cfa = replace(self.cfa_as_register(cursor), offset=cursor.uleb128())
        elif opcode == 0x13:  # DW_CFA_def_cfa_offset_sf
            self.state.cfa = replace(self.cfa_as_register(cursor), offset=cursor.sleb128() * factor)
        elif opcode == 0x0F:  # DW_CFA_def_cfa_expression
            self.state.cfa = CfaExpression(cursor.take(cursor.uleb128()))
            if not self.state.cfa.code:  # it yields no value
                raise CfiError("the CFA is an empty expression", cursor.position)
        else:
            return False
        return True

    def cfa_as_register(self, cursor: Cursor) -> CfaRegister:
        """These instructions are valid only where the CFA is a register plus an offset."""
        if not isinstance(self.state.cfa, CfaRegister):
            raise CfiError("there is no CFA of register and offset to change", cursor.position - 1)
        return self.state.cfa

    # ---------------------------------------------------------- 6.4.2.3 register rules

    def set_rule(self, opcode: int, cursor: Cursor) -> bool:
        factor, rules = self.cie.data_alignment_factor, self.state.rules
        if opcode == 0x07:  # DW_CFA_undefined
            rules[cursor.uleb128()] = Undefined()
        elif opcode == 0x08:  # DW_CFA_same_value
            rules[cursor.uleb128()] = SameValue()
        elif opcode >> 6 == 2:  # DW_CFA_offset
            rules[opcode & 0x3F] = Offset(cursor.uleb128() * factor)
        elif opcode == 0x05:  # DW_CFA_offset_extended
            register = cursor.uleb128()
            rules[register] = Offset(cursor.uleb128() * factor)
        elif opcode == 0x11:  # DW_CFA_offset_extended_sf
            register = cursor.uleb128()
            rules[register] = Offset(cursor.sleb128() * factor)
        elif opcode == 0x14:  # DW_CFA_val_offset
            register = cursor.uleb128()
            rules[register] = ValOffset(cursor.uleb128() * factor)
        elif opcode == 0x15:  # DW_CFA_val_offset_sf
            register = cursor.uleb128()
            rules[register] = ValOffset(cursor.sleb128() * factor)
        elif opcode == 0x09:  # DW_CFA_register
            register = cursor.uleb128()
            rules[register] = InRegister(cursor.uleb128())
        elif opcode == 0x10:  # DW_CFA_expression
            register = cursor.uleb128()
            rules[register] = Expression(cursor.take(cursor.uleb128()))
        elif opcode == 0x16:  # DW_CFA_val_expression
            register = cursor.uleb128()
            rules[register] = ValExpression(cursor.take(cursor.uleb128()))
        elif opcode >> 6 == 3:  # DW_CFA_restore
            self.restore(opcode & 0x3F, cursor.position - 1)
        elif opcode == 0x06:  # DW_CFA_restore_extended
            self.restore(cursor.uleb128(), cursor.position - 1)
        else:
            return False
        return True

    def restore(self, register: int, offset: int) -> None:
        """The rule that the CIE's instructions gave, which may be none."""
        if self.initial is None:
            raise CfiError("a CIE's instructions restore what they are to define", offset)
        self.state.rules.pop(register, None)
        if register in self.initial.rules:
            self.state.rules[register] = self.initial.rules[register]

    # ---------------------------------------------------------- 6.4.2.4 row state, 6.4.2.5 padding

    def keep_or_restore_state(self, opcode: int, offset: int) -> bool:
        """The rules are kept with the CFA and with RA_SIGN_STATE, a register of its own on aarch64
        (DWARF for the Arm 64-bit architecture, 4.1); the location and args_size go on."""
        if opcode == 0x0A:  # DW_CFA_remember_state
            if len(self.remembered) == MAX_REMEMBERED_STATES:
                raise CfiError("too many states are remembered", offset)
            self.remembered.append(self.copy_of(self.state))
        elif opcode == 0x0B:  # DW_CFA_restore_state
            if not self.remembered:
                raise CfiError("no state is remembered", offset)
            kept = self.remembered.pop()
            kept.location, kept.args_size = self.state.location, self.state.args_size
            self.state = kept
        elif opcode != 0x00:  # DW_CFA_nop
            return False
        return True

    @staticmethod
    def copy_of(state: State) -> State:
        return replace(state, rules=dict(state.rules))

    # ---------------------------------------------------------- vendors' extensions

    def extension(self, opcode: int, cursor: Cursor) -> bool:
        """LSB Core 5.0, 10.5.2; DWARF for the Arm 64-bit architecture, 4.4."""
        if opcode == 0x2E:  # DW_CFA_GNU_args_size
            self.state.args_size = cursor.uleb128()
        elif opcode == 0x2F:  # DW_CFA_GNU_negative_offset_extended
            register = cursor.uleb128()
            self.state.rules[register] = Offset(-cursor.uleb128() * self.cie.data_alignment_factor)
        elif opcode in (0x2C, 0x2D) and self.arch == AARCH64:
            # DW_CFA_AARCH64_negate_ra_state_with_pc, DW_CFA_AARCH64_negate_ra_state
            self.state.is_signed = not self.state.is_signed
        else:  # 0x2d elsewhere is DW_CFA_GNU_window_save, which only SPARC's register windows need
            return False
        return True
