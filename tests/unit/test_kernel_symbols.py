"""Names of the kernel's code, from lines such as those of /proc/kallsyms."""

import pytest

from unspool.symbols import KernelSymbols

LINES = b"""ffffffff81000000 T _text
ffffffff81000100 t do_one
ffffffff81000100 T alias
ffffffff81000200 D data
ffffffffc0000000 t in_module\t[nf_tables]
not a line
zzz T x
"""


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (0xFFFF_FFFF_8100_0000, "_text"),
        (0xFFFF_FFFF_8100_00FF, "_text"),
        (0xFFFF_FFFF_8100_0100, "do_one"),
        (0xFFFF_FFFF_8100_0200, "do_one"),
        (0xFFFF_FFFF_C000_0010, "in_module [nf_tables]"),
        (0xFFFF_FFFF_80FF_FFFF, None),
        (0, None),
    ],
)
def test_an_address_has_the_name_of_the_symbol_before_it(address: int, name: str | None) -> None:
    """Of code only; the first of several names."""
    assert KernelSymbols(LINES).lookup(address) == name


def test_hidden_addresses_are_no_names() -> None:
    """Without privileges all addresses are zero."""
    assert len(KernelSymbols(b"0000000000000000 T _text\n0000000000000000 t do_one\n")) == 0
