"""Names as the programmer wrote them, and names that would cost too much left as they are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compilers import run
from unspool.symbols.demangle import demangle
from unspool.symbols.symbolizer import _full_name


@pytest.mark.parametrize(
    ("mangled", "expected"),
    [
        ("_ZN3foo3barEi", "foo::bar(int)"),
        ("_ZL6helperi", "helper(int)"),
        (
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "std::vector<int, std::allocator<int>>::push_back(int const&)",
        ),
        ("_ZN3foo3barEv.cold", "foo::bar() (.cold)"),
        ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
        (
            "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
            "<Test + 'static as foo::Bar<Test>>::bar",
        ),
        ("_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function"),
    ],
)
def test_mangled_names(mangled: str, expected: str) -> None:
    assert demangle(mangled) == expected


@pytest.mark.parametrize(
    "name", ["main", "", "_Z", "_R", "_ZN", "_start", "?foo@@YAXXZ", "_Z3foo\udcff", "_Zü"]
)
def test_other_names_stay(name: str) -> None:
    assert demangle(name) == name


def doubling_template(levels: int) -> str:
    """A<int, int>, then at every level A<the last, the last>."""
    name, last = "_Z1f1AIiiE", "S0_"
    for level in range(levels):
        name += f"S_I{last}{last}E"
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        last = f"S{digits[level + 1]}_"
    return name


def test_a_name_that_would_grow_exponentially_stays() -> None:
    assert demangle(doubling_template(4)) != doubling_template(4)
    for levels in (20, 26, 33):  # 33 MB and 2 GB of output; 60 s for the last
        assert demangle(doubling_template(levels)) == doubling_template(levels)


def test_rust_back_references_that_would_grow_exponentially_stay() -> None:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def reference(position: int) -> str:
        text = ""
        position -= 1
        while True:
            text = digits[position % 62] + text
            position //= 62
            if not position:
                return f"B{text}_"

    body = "INvC1a1b"
    last = len(body)
    body += "TmmE"
    for _ in range(30):
        here = len(body)
        body += f"T{reference(last)}{reference(last)}E"
        last = here
    assert demangle(f"_R{body}E") == f"_R{body}E"


@pytest.mark.parametrize("unit", ["P", "1AI", "N", "M", "F", "DT", "ng", "R", "_Z"])
def test_deep_nesting_is_no_crash(unit: str) -> None:
    for prefix in ("_Z1f", "_RMC0"):
        for size in (100, 1900, 100_000):
            name = prefix + unit * (size // len(unit))
            assert demangle(name)


def test_the_names_of_a_real_library_are_as_llvm_has_them() -> None:
    library = next(Path("/usr/lib").glob("*-linux-gnu/libstdc++.so.6"))
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    names = sorted({line.split()[-1].partition("@")[0] for line in lines if " _Z" in line})
    assert len(names) > 3000
    output = subprocess.run(
        ["llvm-cxxfilt-19"], input="\n".join(names), capture_output=True, text=True, check=True
    )
    expected = output.stdout.splitlines()
    different = [name for name, text in zip(names, expected, strict=True) if demangle(name) != text]
    # "_ZGTt", transaction clones: neither knows them.
    assert different == []


@pytest.mark.parametrize(
    ("name", "symbol", "expected"),
    [
        ("passes", "_ZN4demoL6passesEv", "_ZN4demoL6passesEv"),
        ("passes", "_ZN4demoL6passesEv.part.0.cold", "_ZN4demoL6passesEv"),
        ("foo<int>", "_ZN12_GLOBAL__N_13fooIiEEvT_", "_ZN12_GLOBAL__N_13fooIiEEvT_"),
        ("passes", "_ZN4demoL8passes_2Ev", "passes"),  # what was merged with it
        ("passes", "_ZN6passes5otherEv.cold", "passes"),  # what was split off, and lies behind it
        ("helper", "helper.cold", "helper"),  # C
        ("helper", None, "helper"),
        ("", "helper.cold", "helper.cold"),  # DWARF names nothing
        ("", None, None),
    ],
)
def test_names_of_internal_functions_are_made_full(
    name: str, symbol: str | None, expected: str | None
) -> None:
    """DWARF says only the last part of the name of a function that other files can't call."""
    assert _full_name(name, symbol) == expected
