"""DWARF expressions in words."""

import pytest

from unspool.unwind.expressions import register_name, spelled_out


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("77 08 80 00 3f 1a 3b", "breg7(rsp)+8; breg16(pc)+0; lit15; and; lit11"),
        ("2a 33 24 22", "ge; lit3; shl; plus"),
        ("76 78 06", "breg6(rbp)-8; deref"),
        ("77 28 06 23 90 01", "breg7(rsp)+40; deref; plus_uconst 144"),
        ("50 6f", "reg0(rax); reg31(register 31)"),
        ("92 0c 7f", "bregx 12(r12)-1"),
        ("08 ff 09 ff 0b 00 80", "const1u 255; const1s -1; const2s -32768"),
        ("10 80 7f 11 80 7f", "constu 16256; consts -128"),
        ("2f fd ff 28 02 00 96", "skip -3; bra 2; nop"),
        ("94 04 15 02", "deref_size 4; pick 2"),
        ("", ""),
    ],
)
def test_operations_and_operands(expression: str, words: str) -> None:
    """Each operation by its DWARF name, with its operands' values and registers' names."""
    assert spelled_out(bytes.fromhex(expression), "x86_64") == words


@pytest.mark.parametrize(("expression", "words"), [("30 77", "lit0; (cut off)"), ("0c 01 02", "(cut off)")])
def test_expressions_that_are_cut_off(expression: str, words: str) -> None:
    """Where bytes are missing it says so."""
    assert spelled_out(bytes.fromhex(expression), "x86_64") == words


def test_unknown_operations_end_the_words() -> None:
    """Nobody knows how many operands an unknown operation has."""
    assert spelled_out(b"\x30\xff\x30", "aarch64") == "lit0; (unknown operation 0xff)"


def test_register_names() -> None:
    """By DWARF number; numbers without a name stay numbers."""
    assert [register_name(n, "aarch64") for n in (0, 30, 31, 64)] == ["x0", "x30", "sp", "register 64"]
    assert register_name(16, "x86_64") == "pc"
