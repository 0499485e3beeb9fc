"""Call frame instructions as the core runs them: each condition is built in front of the reader."""

from dataclasses import replace

import pytest

from tests.cfi_tables import ENTRY, SIZE, START, Compiled, aarch64, x86_64
from tests.dwarf_writer import (
    AARCH64_CIE,
    FP,
    LR,
    NEGATE_RA_STATE,
    NOP,
    OP_DEREF,
    PC,
    PCREL,
    R10,
    RBP,
    RBX,
    REMEMBER_STATE,
    RESTORE_STATE,
    RSP,
    SDATA4,
    SP,
    UDATA8,
    X19,
    X86_64_CIE,
    X86_64_DEBUG_CIE,
    advance_loc,
    advance_loc1,
    advance_loc2,
    advance_loc4,
    debug_frame,
    def_cfa,
    def_cfa_expression,
    def_cfa_offset,
    def_cfa_register,
    eh_frame,
    gnu_args_size,
    offset,
    offset_extended,
    op_breg,
    restore,
    same_value,
    set_loc,
    u8,
    u32,
    u64,
    undefined,
)

UNKNOWN_INSTRUCTION = u8(0x3F)


# ---------------------------------------------------------------- 6.4.2.1 row creation


@pytest.mark.parametrize("code_alignment", [1, 4])
@pytest.mark.parametrize(
    ("advance", "delta"),
    [
        (advance_loc(0x3F), 0x3F),
        (advance_loc1(0xFF), 0xFF),
        (advance_loc2(0xFFF), 0xFFF),
        (advance_loc4(0xFFE), 0xFFE),
    ],
)
def test_advance_is_multiplied_by_the_code_alignment(advance: bytes, delta: int, code_alignment: int) -> None:
    compiled = x86_64(advance, def_cfa_offset(16), cie=replace(X86_64_CIE, code_alignment=code_alignment))
    assert compiled.says(START + delta * code_alignment - 1) == ENTRY
    assert compiled.says(START + delta * code_alignment) == "rsp+16 ra=c-8 fp=s"


def test_advance_of_zero_makes_no_row() -> None:
    compiled = x86_64(
        def_cfa_offset(16), advance_loc(0), def_cfa_offset(24), advance_loc(1), def_cfa_offset(32)
    )
    assert compiled.says(START) == "rsp+24 ra=c-8 fp=s"
    assert compiled.says(START + 1) == "rsp+32 ra=c-8 fp=s"


def test_row_that_changes_nothing_is_not_kept() -> None:
    compiled = x86_64(advance_loc(1), NOP, advance_loc(1), def_cfa_offset(8), advance_loc(1))
    assert compiled.says(START + 3) == ENTRY
    assert compiled.table.row_count() == 2  # the function, and nothing behind it


def test_what_lies_behind_the_end_is_nobodys() -> None:
    compiled = x86_64(advance_loc(0x30), def_cfa_offset(16), advance_loc(8), def_cfa_offset(24), size=0x30)
    assert compiled.says(START + 0x2F) == ENTRY
    assert compiled.says(START + 0x30) == "nothing"
    assert compiled.says(START + 0x38) == "nothing"
    assert compiled.problem_count == 0


def test_set_loc_in_the_cies_encoding() -> None:
    section = eh_frame()
    absolute = replace(X86_64_CIE, pointer_encoding=UDATA8)
    section.fde(section.cie(absolute), START, SIZE, set_loc(u64(START + 5)), def_cfa_offset(16))
    compiled = Compiled(section)
    assert compiled.says(START + 4) == ENTRY
    assert compiled.says(START + 5) == "rsp+16 ra=c-8 fp=s"


def test_set_loc_absolute_in_an_image_that_starts_elsewhere() -> None:
    section = debug_frame()
    section.fde(section.cie(X86_64_DEBUG_CIE), 0x401000, SIZE, set_loc(u64(0x401005)), def_cfa_offset(16))
    compiled = Compiled(section, image_address=0x400000)
    assert compiled.says(0x401004) == ENTRY
    assert compiled.says(0x401005) == "rsp+16 ra=c-8 fp=s"


def test_set_loc_relative_to_where_it_stands() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    operand_at = section.address + len(section.data) + 4 + 4 + 8 + 1 + 1
    assert cie.spec.pointer_encoding == PCREL | SDATA4
    section.fde(cie, START, SIZE, set_loc(u32(START + 5 - operand_at)), def_cfa_offset(16))
    compiled = Compiled(section)
    assert compiled.says(START + 4) == ENTRY
    assert compiled.says(START + 5) == "rsp+16 ra=c-8 fp=s"


def test_set_loc_backwards_is_malformed() -> None:
    section = debug_frame()
    fde = section.fde(
        section.cie(X86_64_DEBUG_CIE),
        START,
        SIZE,
        advance_loc(8),
        set_loc(u64(START + 7)),
        def_cfa_offset(16),
    )
    compiled = Compiled(section)
    assert compiled.says(START + 7) == ENTRY
    assert compiled.says(START + 8) == "nothing"
    assert compiled.problems == [("INSTRUCTION", fde)]


def test_set_loc_below_the_image_is_malformed() -> None:
    section = debug_frame()
    cie = section.cie(X86_64_DEBUG_CIE)
    section.fde(cie, 0x401000, SIZE, advance_loc(8), def_cfa_offset(16), set_loc(u64(0x3FFFFF)))
    compiled = Compiled(section, image_address=0x400000)
    assert compiled.says(0x401007) == ENTRY
    assert compiled.says(0x401008) == "nothing"


def test_advance_around_the_end_of_addresses_is_malformed() -> None:
    compiled = x86_64(
        advance_loc(8),
        advance_loc4(0xFFFFFFFF),
        cie=replace(X86_64_CIE, code_alignment=(1 << 64) // 0xFFFFFFFF),
        size=1 << 30,
    )
    assert compiled.says(START) == ENTRY


# ---------------------------------------------------------------- 6.4.2.4 row state


def test_restore_state_restores_registers_and_cfa() -> None:
    compiled = x86_64(
        advance_loc(1), def_cfa_offset(16), offset(RBP, 2), def_cfa_register(RBP), REMEMBER_STATE,
        advance_loc(1), def_cfa(RSP, 8), restore(RBP),
        advance_loc(1), RESTORE_STATE,
    )  # fmt: skip
    assert compiled.says(START + 1) == "rbp+16 ra=c-8 fp=c-16"
    assert compiled.says(START + 2) == ENTRY
    assert compiled.says(START + 3) == "rbp+16 ra=c-8 fp=c-16"


def test_restore_state_restores_a_cfa_expression() -> None:
    compiled = x86_64(
        def_cfa_expression(op_breg(RBP, -8) + OP_DEREF), REMEMBER_STATE,
        advance_loc(1), def_cfa(RSP, 8), advance_loc(1), RESTORE_STATE,
    )  # fmt: skip
    assert compiled.says(START + 1) == ENTRY
    assert compiled.says(START + 2) == "exp ra=c-8 fp=- exact"


def test_remembered_states_nest() -> None:
    compiled = x86_64(
        REMEMBER_STATE, def_cfa_offset(16), REMEMBER_STATE, def_cfa_offset(24),
        advance_loc(1), RESTORE_STATE, advance_loc(1), RESTORE_STATE,
    )  # fmt: skip
    assert compiled.says(START) == "rsp+24 ra=c-8 fp=s"
    assert compiled.says(START + 1) == "rsp+16 ra=c-8 fp=s"
    assert compiled.says(START + 2) == ENTRY


def test_remember_state_overflow_is_malformed_from_there_on() -> None:
    compiled = x86_64(def_cfa_offset(16), advance_loc(1), *[REMEMBER_STATE] * 1000, def_cfa_offset(24))
    assert compiled.says(START) == "rsp+16 ra=c-8 fp=s"
    assert compiled.says(START + 1) == "nothing"
    assert [kind for kind, _ in compiled.problems] == ["INSTRUCTION"]


def test_eight_states_can_be_remembered() -> None:
    compiled = x86_64(*[REMEMBER_STATE] * 8, def_cfa_offset(16), *[RESTORE_STATE] * 8)
    assert compiled.says(START) == ENTRY


def test_restore_state_without_a_remembered_one_is_malformed() -> None:
    compiled = x86_64(advance_loc(1), RESTORE_STATE, advance_loc(1), def_cfa_offset(16))
    assert compiled.says(START) == ENTRY
    assert compiled.says(START + 1) == "nothing"
    assert [kind for kind, _ in compiled.problems] == ["INSTRUCTION"]


# ---------------------------------------------------------------- extensions


def test_gnu_args_size_changes_no_register() -> None:
    compiled = x86_64(advance_loc(1), gnu_args_size(0x1234), def_cfa_offset(16), gnu_args_size(0))
    assert compiled.says(START + 1) == "rsp+16 ra=c-8 fp=s"
    assert compiled.problem_count == 0


def test_negate_ra_state_toggles() -> None:
    compiled = aarch64(
        advance_loc(1), NEGATE_RA_STATE, advance_loc(1), def_cfa_offset(16), offset(FP, 2), offset(LR, 1),
        advance_loc(1), NEGATE_RA_STATE,
    )  # fmt: skip
    assert compiled.says(START) == "sp+0 ra=s fp=s"
    assert compiled.says(START + 4) == "sp+0 ra=s fp=s signed"
    assert compiled.says(START + 8) == "sp+16 ra=c-8 fp=c-16 signed"
    assert compiled.says(START + 12) == "sp+16 ra=c-8 fp=c-16"


def test_remember_state_keeps_whether_the_return_address_is_signed() -> None:
    compiled = aarch64(
        NEGATE_RA_STATE, REMEMBER_STATE, advance_loc(1), NEGATE_RA_STATE, advance_loc(1), RESTORE_STATE
    )
    assert compiled.says(START) == "sp+0 ra=s fp=s signed"
    assert compiled.says(START + 4) == "sp+0 ra=s fp=s"
    assert compiled.says(START + 8) == "sp+0 ra=s fp=s signed"


def test_signed_from_the_cie_on() -> None:
    cie = replace(AARCH64_CIE, instructions=AARCH64_CIE.instructions + NEGATE_RA_STATE)
    assert aarch64(advance_loc(1), NEGATE_RA_STATE, cie=cie).says(START) == "sp+0 ra=s fp=s signed"


def test_negate_ra_state_means_nothing_on_x86_64() -> None:
    compiled = x86_64(advance_loc(1), NEGATE_RA_STATE)
    assert compiled.says(START + 1) == "nothing"
    assert [kind for kind, _ in compiled.problems] == ["INSTRUCTION"]


# ---------------------------------------------------------------- aarch64


def test_return_address_by_omission_is_lr_on_aarch64() -> None:
    assert aarch64().says(START) == "sp+0 ra=s fp=s"


def test_explicitly_undefined_lr_is_the_end_on_aarch64() -> None:
    assert aarch64(undefined(LR)).says(START) == "sp+0 ra=u fp=s end"


def test_same_value_of_lr_is_lr() -> None:
    assert aarch64(same_value(LR)).says(START) == "sp+0 ra=s fp=s"


def test_prologue_of_aarch64() -> None:
    compiled = aarch64(
        advance_loc(1), def_cfa_offset(144), advance_loc(1), offset(FP, 18), offset(LR, 17), offset(X19, 16),
        advance_loc(1), def_cfa(FP, 144), advance_loc(5), def_cfa(SP, 0), restore(FP), restore(LR),
    )  # fmt: skip
    assert compiled.says(START + 4) == "sp+144 ra=s fp=s"
    assert compiled.says(START + 8) == "sp+144 ra=c-136 fp=c-144"
    assert compiled.says(START + 12) == "x29+144 ra=c-136 fp=c-144"
    assert compiled.says(START + 32) == "sp+0 ra=s fp=s"


def test_return_address_column_pc_on_aarch64() -> None:
    cie = replace(AARCH64_CIE, instructions=def_cfa(SP, 0) + offset(PC, 1), return_address_register=PC)
    assert aarch64(cie=cie).says(START) == "sp+0 ra=c-8 fp=- exact"


def test_vector_registers_saved_on_aarch64_are_dropped() -> None:
    compiled = aarch64(advance_loc(1), def_cfa_offset(16), offset_extended(72, 2), offset_extended(79, 1))
    assert compiled.says(START + 4) == "sp+16 ra=s fp=s"


# ---------------------------------------------------------------- malformed programs


@pytest.mark.parametrize(
    "cut",
    [
        UNKNOWN_INSTRUCTION,
        u8(0x1C),
        u8(0x17),
        u8(0x0C) + b"\x87",
        u8(0x02),
        u8(0x04) + b"\0\0\0",
        u8(0x0F) + b"\x05\x77\x08",
        u8(0x16) + b"\x06\x7f\x00",
        u8(0x0E) + b"\x80" * 10 + b"\x01",
        u8(0x0E) + b"\xff" * 9 + b"\x02",
        u8(0x80),
    ],
    ids=[
        "unknown", "vendor", "reserved", "leb128_cut", "advance1_cut", "advance4_cut", "expression_cut",
        "value_expression_cut", "leb128_too_long", "leb128_too_big", "offset_cut",
    ],
)  # fmt: skip
def test_malformed_instruction(cut: bytes) -> None:
    """Rows before it hold, nothing is known of the rest. It is the last of the FDE: no filler follows."""
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    before = advance_loc(1) + def_cfa_offset(16) + advance_loc(1)
    filler = -(4 + 4 + 8 + 1 + len(before) + len(cut)) % 8
    fde = section.fde(cie, START, SIZE, NOP * filler + before + cut)
    compiled = Compiled(section)
    assert compiled.says(START) == ENTRY
    assert compiled.says(START + 1) == "rsp+16 ra=c-8 fp=s"
    assert compiled.says(START + 2) == "nothing"
    assert compiled.says(START + SIZE - 1) == "nothing"
    assert compiled.problems == [("INSTRUCTION", fde)]


@pytest.mark.parametrize("instruction", [UNKNOWN_INSTRUCTION, RESTORE_STATE, advance_loc(1), restore(RBP)])
def test_malformed_instruction_in_the_cie_leaves_the_fde_out(instruction: bytes) -> None:
    compiled = x86_64(cie=replace(X86_64_CIE, instructions=X86_64_CIE.instructions + instruction))
    assert compiled.says(START) == "nothing"
    assert [kind for kind, _ in compiled.problems] == ["INSTRUCTION"]


def test_a_malformed_fde_does_not_touch_its_neighbours() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    section.fde(cie, 0x1000, 0x20, def_cfa_offset(16))
    section.fde(cie, 0x1020, 0x20, UNKNOWN_INSTRUCTION)
    section.fde(cie, 0x1040, 0x20, def_cfa_offset(24))
    compiled = Compiled(section)
    assert compiled.says(0x101F) == "rsp+16 ra=c-8 fp=s"
    assert compiled.says(0x1020) == "nothing"
    assert compiled.says(0x1040) == "rsp+24 ra=c-8 fp=s"


def test_leb128_may_be_padded() -> None:
    assert x86_64(u8(0x0E) + b"\x90\x80\x80\x00").says(START) == "rsp+16 ra=c-8 fp=s"


def test_exact_rows_of_one_function_are_told_apart() -> None:
    compiled = x86_64(
        def_cfa(RBX, 8), advance_loc(1), def_cfa(R10, 16), advance_loc(1), def_cfa_expression(op_breg(RSP, 8))
    )
    assert compiled.says(START) == "rbx+8 ra=c-8 fp=- exact"
    assert compiled.says(START + 1) == "r10+16 ra=c-8 fp=- exact"
    assert compiled.says(START + 2) == "exp ra=c-8 fp=- exact"


def test_exact_row_of_an_outer_fde_behind_an_inner_one() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    section.fde(cie, START, 0x40, advance_loc(8), def_cfa(RBX, 8), advance_loc(0x28), def_cfa(R10, 8))
    section.fde(cie, START + 0x10, 0x10, def_cfa_offset(64))
    compiled = Compiled(section)
    assert compiled.says(START + 0xF) == "rbx+8 ra=c-8 fp=- exact"
    assert compiled.says(START + 0x10) == "rsp+64 ra=c-8 fp=s"
    assert compiled.says(START + 0x20) == "rbx+8 ra=c-8 fp=- exact"
    assert compiled.says(START + 0x30) == "r10+8 ra=c-8 fp=- exact"


@pytest.mark.parametrize("rules", [400, 66000])
def test_more_rules_than_there_are_numbers(rules: int) -> None:
    """Rule numbers have 16 bits; what finds no number is exact, not lost."""
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    for first in range(0, rules, 1000):
        rows = [advance_loc(1) + def_cfa_offset(8 * n) for n in range(first, min(first + 1000, rules))]
        section.fde(cie, START + 2 * first, 1001, *rows)
    compiled = Compiled(section)
    for n in (0, 1, rules // 2, rules - 1):
        said = compiled.says(START + 2 * (n - n % 1000) + n % 1000 + 1)
        assert said.startswith(f"rsp+{8 * n} ra=c-8 fp=")
    assert said.endswith("exact") == (rules > 65535)
