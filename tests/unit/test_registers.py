"""Registers by name and by DWARF number; lookup and return addresses."""

import pytest

from unspool import How, Registers
from unspool.core import RegisterValues
from unspool.unwind.addresses import lookup_address
from unspool.unwind.registers import REGISTER_NAMES, from_core, to_core


def test_unknown_registers_are_absent_not_zero() -> None:
    """Only what was given is known."""
    assert to_core(Registers(pc=1, sp=2), "x86_64").values == {16: 1, 7: 2}


def test_x86_64_numbers() -> None:
    """DWARF's numbers of the System V ABI: rbp 6, rsp 7, rbx 3, r12 12, pc 16."""
    registers = Registers(pc=1, sp=2, fp=3, others={"rbx": 4, "r12": 5, "rdx": 6})
    assert to_core(registers, "x86_64").values == {16: 1, 7: 2, 6: 3, 3: 4, 12: 5, 1: 6}


def test_aarch64_numbers() -> None:
    """DWARF's numbers of AADWARF64: x29 29, x30 30, sp 31; the pc's slot is 32."""
    registers = Registers(pc=1, sp=2, fp=3, lr=4, others={"x19": 5})
    assert to_core(registers, "aarch64").values == {32: 1, 31: 2, 29: 3, 30: 4, 19: 5}


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_values_come_back(arch: str) -> None:
    """What goes to the core comes back the same."""
    lr = 4 if arch == "aarch64" else None
    others = {"rbx": 5} if arch == "x86_64" else {"x20": 5}
    given = Registers(pc=1, sp=2, fp=3, lr=lr, others=others, pc_is_return_address=True, how=How.CFI)
    assert from_core(to_core(given, arch), arch, How.CFI, False) == given


def test_unknown_registers_stay_unknown_on_the_way_back() -> None:
    """What the core does not know is None or absent."""
    back = from_core(RegisterValues({32: 1, 31: 2}, False), "aarch64", How.LEAF, True)
    assert back == Registers(pc=1, sp=2, how=How.LEAF, guessed=True)


@pytest.mark.parametrize(
    ("arch", "others"), [("x86_64", "x19"), ("aarch64", "rbx"), ("x86_64", "rsp"), ("x86_64", "pc")]
)
def test_names_of_other_registers_are_checked(arch: str, others: str) -> None:
    """A register that the architecture lacks, or that has its own field, is refused by name."""
    with pytest.raises(ValueError, match=others):
        to_core(Registers(pc=1, sp=2, others={others: 3}), arch)


def test_x86_64_has_no_link_register() -> None:
    """A value for lr on x86_64 is a mistake, not something to leave out."""
    with pytest.raises(ValueError, match="x86_64 has no lr"):
        to_core(Registers(pc=1, sp=2, lr=3), "x86_64")


def test_every_number_has_one_name() -> None:
    """17 registers on x86_64, 33 on aarch64, no name twice."""
    assert [len(set(names)) for names in REGISTER_NAMES.values()] == [17, 33]


def test_lookup_address() -> None:
    """An interrupted pc is looked up as it is; a return address one byte before."""
    assert lookup_address(0x1000, is_return_address=False) == 0x1000
    assert lookup_address(0x1000, is_return_address=True) == 0xFFF
