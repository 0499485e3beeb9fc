"""What our table and the slow evaluator say, in the words of readelf or of the table.

It may not decide who is right: it only translates.
"""

from __future__ import annotations

from collections.abc import Hashable

from tests.proof.readelf import UNSAID, Claim
from tests.slow_cfi import (
    ABIS,
    CfaExpression,
    CfaRegister,
    Cie,
    Expression,
    InRegister,
    Offset,
    Rule,
    SameValue,
    Undefined,
    ValExpression,
    ValOffset,
)
from tests.slow_cfi import (
    Row as SlowRow,
)
from unspool.core import ExactRow, ExactRule, Row
from unspool.unwind.registers import REGISTER_NAMES
from unspool.unwind.table import CfaBase, ExactKind, RowFlag, Saved

# readelf's names, by DWARF number.
READELF_NAMES = {
    "x86_64": (*REGISTER_NAMES["x86_64"][:16], "rip"),
    "aarch64": (*REGISTER_NAMES["aarch64"][:32], "pc"),
}
SAME = "s"


def register_name(arch: str, number: int) -> str:
    names = READELF_NAMES[arch]
    return names[number] if number < len(names) else f"r{number}"


# ---------------------------------------------------------------- the slow evaluator, as readelf


def said_by_rule(arch: str, rule: Rule | None) -> str:
    match rule:
        case None | Undefined():
            return UNSAID
        case SameValue():
            return SAME
        case Offset(offset):
            return f"c{offset:+d}"
        case ValOffset(offset):
            return f"v{offset:+d}"
        case InRegister(register):
            return register_name(arch, register)
        case Expression():
            return "exp"
        case ValExpression():
            return "vexp"


def slow_as_readelf(arch: str, cie: Cie, row: SlowRow) -> Claim:
    match row.cfa:
        case CfaRegister(register, offset):
            cfa = f"{register_name(arch, register)}{offset:+d}"
        case CfaExpression():
            cfa = "exp"
        case None:
            cfa = ""
    return Claim(
        cfa,
        said_by_rule(arch, row.rules.get(cie.return_address_register)),
        said_by_rule(arch, row.rules.get(ABIS[arch].frame_pointer)),
    )


# ---------------------------------------------------------------- the table, as readelf


def table_as_readelf(arch: str, row: Row) -> Claim:
    """A row that is not exact."""
    number = ABIS[arch].frame_pointer if row.cfa_base == CfaBase.FP else ABIS[arch].stack_pointer
    return Claim(
        f"{register_name(arch, number)}{row.cfa_offset:+d}",
        _said_by_saved(row.ra, row.ra_offset),
        _said_by_saved(row.fp, row.fp_offset),
    )


def _said_by_saved(saved: int, offset: int) -> str:
    return {Saved.SAME: SAME, Saved.AT_CFA: f"c{offset:+d}", Saved.UNKNOWN: UNSAID}[Saved(saved)]


def exact_as_readelf(arch: str, row: ExactRow) -> Claim:
    cfa = "exp" if row.cfa_expression else f"{register_name(arch, row.cfa_register)}{row.cfa_offset:+d}"
    return Claim(
        cfa,
        UNSAID
        if row.return_address_register == NOT_FOLLOWED
        else _said_by_exact(arch, row.rules[row.return_address_register]),
        _said_by_exact(arch, row.rules[ABIS[arch].frame_pointer]),
    )


def _said_by_exact(arch: str, rule: ExactRule) -> str:
    match ExactKind(rule.kind):
        case ExactKind.UNDEFINED | ExactKind.UNSPECIFIED:
            return UNSAID
        case ExactKind.SAME:
            return SAME
        case ExactKind.OFFSET:
            return f"c{rule.value:+d}"
        case ExactKind.VAL_OFFSET:
            return f"v{rule.value:+d}"
        case ExactKind.REGISTER:
            return register_name(arch, rule.value)
        case ExactKind.EXPRESSION:
            return "exp"
        case ExactKind.VAL_EXPRESSION:
            return "vexp"


def agrees(readelf: Claim, table: Claim) -> bool:
    """readelf writes `u` also for a register without a rule, which keeps its value."""
    return readelf.cfa == table.cfa and all(
        said == ours or (said == UNSAID and ours == SAME)
        for said, ours in ((readelf.ra, table.ra), (readelf.fp, table.fp))
    )


# ---------------------------------------------------------------- the slow evaluator, as the table

NOT_FOLLOWED = 33  # stands for every register from there on, as CFA register and return-address column
SLOT = 8  # the table keeps offsets from the CFA in units of 8 bytes
CALLER_SAVED_LOST = (Undefined, type(None))


def slow_as_table(arch: str, cie: Cie, is_eh_frame: bool, row: SlowRow) -> Hashable:
    """What the table must have: ("rule", the fields of Row without its range) where a rule can hold
    it, else ("exact", everything that the CFI says)."""
    flags = (RowFlag.SIGNAL if cie.is_signal_frame else 0) | (0 if is_eh_frame else RowFlag.DEBUG_FRAME)
    as_rule = _as_rule(arch, cie, row, flags)
    return ("rule", *as_rule) if as_rule else ("exact", flags, *slow_as_exact(arch, cie, row))


def slow_as_exact(arch: str, cie: Cie, row: SlowRow) -> tuple[Hashable, ...]:
    cfa = row.cfa
    if isinstance(cfa, CfaRegister):
        cfa = CfaRegister(min(cfa.register, NOT_FOLLOWED), cfa.offset)
    rules = tuple((number, row.rules.get(number)) for number in tracked(arch))
    return (cfa, min(cie.return_address_register, NOT_FOLLOWED), rules)


def tracked(arch: str) -> range:
    """The registers that the core follows: vector registers and the like are not needed to walk."""
    return range(ABIS[arch].program_counter + 1)


def _as_rule(arch: str, cie: Cie, row: SlowRow, flags: int) -> tuple[int, ...] | None:
    abi = ABIS[arch]
    return_address = 30 if arch == "aarch64" else abi.program_counter
    if not isinstance(row.cfa, CfaRegister) or cie.return_address_register != return_address:
        return None
    if row.cfa.register not in (abi.stack_pointer, abi.frame_pointer) or abs(row.cfa.offset) >= 1 << 31:
        return None
    for number, rule in row.rules.items():
        if number in abi.preserved | {return_address}:
            if _as_saved(rule) is None:
                return None
        elif number == abi.stack_pointer or (number in tracked(arch) and not isinstance(rule, Undefined)):
            return None
    ra, ra_offset = _as_saved(row.rules.get(return_address)) or (0, 0)
    fp, fp_offset = _as_saved(row.rules.get(abi.frame_pointer)) or (0, 0)
    if ra == Saved.SAME and arch == "x86_64":
        return None
    flags |= (RowFlag.END if ra == Saved.UNKNOWN else 0) | (RowFlag.SIGNED if row.is_signed else 0)
    base = CfaBase.FP if row.cfa.register == abi.frame_pointer else CfaBase.SP
    return (row.cfa.offset, ra_offset, fp_offset, int(base), int(ra), int(fp), int(flags))


def _as_saved(rule: Rule | None) -> tuple[Saved, int] | None:
    match rule:
        case None | SameValue():
            return Saved.SAME, 0
        case Undefined():
            return Saved.UNKNOWN, 0
        case Offset(offset) if offset % SLOT == 0 and abs(offset // SLOT) < 1 << 15:
            return Saved.AT_CFA, offset
        case _:
            return None


def exact_as_slow(arch: str, flags: int, row: ExactRow) -> tuple[Hashable, ...]:
    """The table's exact row, in the form of slow_as_table."""
    cfa: CfaRegister | CfaExpression = CfaRegister(row.cfa_register, row.cfa_offset)
    if row.cfa_expression:
        cfa = CfaExpression(row.cfa_expression)
    rules = tuple((number, _as_rule_of_slow(row.rules[number])) for number in tracked(arch))
    kept = flags & (RowFlag.SIGNAL | RowFlag.DEBUG_FRAME)
    return ("exact", int(kept), cfa, row.return_address_register, rules)


def _as_rule_of_slow(rule: ExactRule) -> Rule | None:
    match ExactKind(rule.kind):
        case ExactKind.UNSPECIFIED:
            return None
        case ExactKind.UNDEFINED:
            return Undefined()
        case ExactKind.SAME:
            return SameValue()
        case ExactKind.OFFSET:
            return Offset(rule.value)
        case ExactKind.VAL_OFFSET:
            return ValOffset(rule.value)
        case ExactKind.REGISTER:
            return InRegister(rule.value)
        case ExactKind.EXPRESSION:
            return Expression(rule.expression)
        case ExactKind.VAL_EXPRESSION:
            return ValExpression(rule.expression)
