"""CFA definitions and register rules, and which of them a row can hold: each condition is built in front
of the reader."""

from dataclasses import replace

import pytest

from tests.cfi_tables import ENTRY, START, x86_64
from tests.dwarf_writer import (
    OP_DEREF,
    R10,
    R12,
    RAX,
    RBP,
    RBX,
    RDI,
    RIP,
    RSP,
    X86_64_CIE,
    CieSpec,
    advance_loc,
    def_cfa,
    def_cfa_expression,
    def_cfa_offset,
    def_cfa_offset_sf,
    def_cfa_register,
    def_cfa_sf,
    expression,
    gnu_negative_offset_extended,
    in_register,
    offset,
    offset_extended,
    offset_extended_sf,
    op_breg,
    restore,
    restore_extended,
    same_value,
    undefined,
    val_expression,
    val_offset,
    val_offset_sf,
)

# ---------------------------------------------------------------- 6.4.2.2 CFA definition


@pytest.mark.parametrize(
    ("instructions", "cfa"),
    [
        ([def_cfa(RBP, 16)], "rbp+16"),
        ([def_cfa_sf(RSP, -2)], "rsp+16"),
        ([def_cfa_sf(RSP, 2)], "rsp-16"),
        ([def_cfa_register(RBP)], "rbp+8"),
        ([def_cfa_offset(0x7FFFFFFF)], "rsp+2147483647"),
        ([def_cfa_offset_sf(-3)], "rsp+24"),
        ([def_cfa_offset_sf(1)], "rsp-8"),
        ([def_cfa_offset(24), def_cfa_register(RBP)], "rbp+24"),
    ],
)
def test_cfa(instructions: list[bytes], cfa: str) -> None:
    assert x86_64(*instructions).says(START) == f"{cfa} ra=c-8 fp=s"


@pytest.mark.parametrize(
    ("instruction", "cfa"),
    [
        (def_cfa(RBX, 16), "rbx+16"),
        (def_cfa(R10, 0), "r10+0"),
        (def_cfa_expression(op_breg(RBP, -8) + OP_DEREF), "exp"),
        (def_cfa_offset(0x80000000), "rsp+2147483648"),
        (def_cfa_sf(RSP, 0x10000001), "rsp-2147483656"),
    ],
)
def test_cfa_that_no_rule_holds_is_exact(instruction: bytes, cfa: str) -> None:
    compiled = x86_64(advance_loc(1), instruction, advance_loc(1), def_cfa(RSP, 16))
    assert compiled.says(START) == ENTRY
    assert compiled.says(START + 1) == f"{cfa} ra=c-8 fp=- exact"
    assert compiled.says(START + 2) == "rsp+16 ra=c-8 fp=s"


@pytest.mark.parametrize("instruction", [def_cfa_register(RBP), def_cfa_offset(16), def_cfa_offset_sf(-2)])
def test_changing_a_cfa_that_is_an_expression_is_malformed(instruction: bytes) -> None:
    """6.4.2.2: valid only if the current CFA rule is a register and an offset."""
    compiled = x86_64(
        advance_loc(1), def_cfa_expression(op_breg(RSP, 8)), advance_loc(1), instruction, advance_loc(1)
    )
    assert compiled.says(START + 1) == "exp ra=c-8 fp=- exact"
    assert compiled.says(START + 2) == "nothing"
    assert [kind for kind, _ in compiled.problems] == ["INSTRUCTION"]


@pytest.mark.parametrize("instruction", [def_cfa_register(RSP), def_cfa_offset(16), def_cfa_offset_sf(-2)])
def test_changing_a_cfa_that_was_never_defined_is_malformed(instruction: bytes) -> None:
    compiled = x86_64(instruction, advance_loc(1), cie=replace(X86_64_CIE, instructions=offset(RIP, 1)))
    assert compiled.says(START) == "nothing"
    assert [kind for kind, _ in compiled.problems] == ["INSTRUCTION"]


def test_empty_cfa_expression_is_malformed() -> None:
    compiled = x86_64(advance_loc(1), def_cfa_expression(b""), advance_loc(1), def_cfa(RSP, 8))
    assert compiled.says(START) == ENTRY
    assert compiled.says(START + 1) == "nothing"
    assert [kind for kind, _ in compiled.problems] == ["INSTRUCTION"]


def test_rows_before_the_cfa_is_defined_say_nothing() -> None:
    compiled = x86_64(advance_loc(1), def_cfa(RSP, 8), cie=replace(X86_64_CIE, instructions=offset(RIP, 1)))
    assert compiled.says(START) == "nothing"
    assert compiled.says(START + 1) == ENTRY


# ---------------------------------------------------------------- 6.4.2.3 register rules


@pytest.mark.parametrize(
    ("instruction", "fp"),
    [
        (offset(RBP, 2), "c-16"),
        (offset_extended(RBP, 2), "c-16"),
        (offset_extended_sf(RBP, 2), "c-16"),
        (offset_extended_sf(RBP, -2), "c+16"),
        (gnu_negative_offset_extended(RBP, 2), "c+16"),
        (offset(RBP, 0), "c+0"),
        (same_value(RBP), "s"),
        (undefined(RBP), "u"),
        (offset(RBP, 0x7FFF), "c-262136"),
    ],
)
def test_fp(instruction: bytes, fp: str) -> None:
    assert x86_64(instruction).says(START) == f"rsp+8 ra=c-8 fp={fp}"


@pytest.mark.parametrize(
    ("instruction", "fp"),
    [
        (val_offset(RBP, 2), "v-16"),
        (val_offset_sf(RBP, -2), "v+16"),
        (in_register(RBP, RAX), "rax"),
        (expression(RBP, op_breg(RSP, 0)), "exp"),
        (val_expression(RBP, op_breg(RSP, 0)), "vexp"),
        (offset(RBP, 0x10000), "c-524288"),
        (offset_extended_sf(RBP, -0x8000), "c+262144"),
    ],
)
def test_fp_that_no_rule_holds_is_exact(instruction: bytes, fp: str) -> None:
    compiled = x86_64(advance_loc(1), instruction, advance_loc(1), restore(RBP))
    assert compiled.says(START) == ENTRY
    assert compiled.says(START + 1) == f"rsp+8 ra=c-8 fp={fp} exact"
    assert compiled.says(START + 2) == ENTRY


def test_offset_that_is_no_multiple_of_8_is_exact() -> None:
    compiled = x86_64(offset(RBP, 12), offset(RIP, 4), cie=replace(X86_64_CIE, data_alignment=-1))
    assert compiled.says(START) == "rsp+8 ra=c-4 fp=c-12 exact"


@pytest.mark.parametrize(
    ("instruction", "ra"),
    [
        (in_register(RIP, RDI), "rdi"),
        (val_offset(RIP, 1), "v-8"),
        (expression(RIP, op_breg(RSP, 0)), "exp"),
        (val_expression(RIP, op_breg(RDI, 0)), "vexp"),
        (same_value(RIP), "s"),
    ],
)
def test_return_address_that_no_rule_holds_is_exact(instruction: bytes, ra: str) -> None:
    assert x86_64(instruction).says(START) == f"rsp+8 ra={ra} fp=- exact"


@pytest.mark.parametrize(
    "instruction",
    [
        val_offset(RBX, 2),
        in_register(R12, RAX),
        expression(RBX, op_breg(RSP, 0)),
        offset(RBX, 0x10000),
        offset(RAX, 2),
        in_register(RDI, R10),
        val_offset(RSP, 0),
        undefined(RSP),
    ],
)
def test_rule_for_another_register_that_no_row_holds_is_exact(instruction: bytes) -> None:
    assert x86_64(instruction).says(START) == "rsp+8 ra=c-8 fp=- exact"


@pytest.mark.parametrize("instruction", [offset(RBX, 2), undefined(RBX), same_value(R12), undefined(RAX)])
def test_rule_for_another_register_that_a_row_holds_is_not_exact(instruction: bytes) -> None:
    assert x86_64(instruction).says(START) == ENTRY


@pytest.mark.parametrize("register", [17, 32, 63, 64, 1000, 1 << 63])
def test_registers_that_nobody_needs_are_read_and_dropped(register: int) -> None:
    compiled = x86_64(
        offset_extended(register, 2),
        in_register(register, register),
        expression(register, op_breg(RSP, 0)),
        restore_extended(register),
        advance_loc(1),
        def_cfa_offset(16),
    )
    assert compiled.says(START) == ENTRY
    assert compiled.says(START + 1) == "rsp+16 ra=c-8 fp=s"
    assert compiled.problem_count == 0


def test_another_return_address_register_is_exact() -> None:
    compiled = x86_64(cie=CieSpec(def_cfa(RSP, 8) + offset(RDI, 1), return_address_register=RDI))
    assert compiled.says(START) == "rsp+8 ra=c-8 fp=- exact"


def test_explicitly_undefined_return_address_is_the_end() -> None:
    compiled = x86_64(advance_loc(2), undefined(RIP), advance_loc(2), offset(RIP, 1))
    assert compiled.says(START) == ENTRY
    assert compiled.says(START + 2) == "rsp+8 ra=u fp=s end"
    assert compiled.says(START + 4) == ENTRY


def test_undefined_return_address_is_the_end_also_where_the_row_is_exact() -> None:
    assert x86_64(undefined(RIP), def_cfa(RBX, 8)).says(START) == "rbx+8 ra=u fp=- end exact"


def test_return_address_by_omission_is_exact_on_x86_64() -> None:
    """No register could hold it, so that no row can say it; the exact evaluator ends the stack."""
    compiled = x86_64(cie=replace(X86_64_CIE, instructions=def_cfa(RSP, 8)))
    assert compiled.says(START) == "rsp+8 ra=- fp=- exact"


@pytest.mark.parametrize("instruction", [restore(RBP), restore_extended(RBP)])
def test_restore_gives_the_cies_initial_rule(instruction: bytes) -> None:
    cie = replace(X86_64_CIE, instructions=X86_64_CIE.instructions + offset(RBP, 4))
    compiled = x86_64(offset(RBP, 2), advance_loc(1), instruction, cie=cie)
    assert compiled.says(START) == "rsp+8 ra=c-8 fp=c-16"
    assert compiled.says(START + 1) == "rsp+8 ra=c-8 fp=c-32"


@pytest.mark.parametrize("instruction", [restore(RBP), restore_extended(RBP)])
def test_restore_of_a_register_that_the_cie_does_not_name_makes_it_unspecified(instruction: bytes) -> None:
    compiled = x86_64(offset(RBP, 2), undefined(RIP), advance_loc(1), instruction, restore(RIP))
    assert compiled.says(START + 1) == ENTRY
