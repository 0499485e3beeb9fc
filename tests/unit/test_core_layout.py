"""The interface that Python declares is the one that the C compiler sees."""

import re
import subprocess
import sys
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

from unspool import How, StackEnd, core, core_interface
from unspool.unwind import table

CORE = Path(__file__).parents[2] / "core"
HEADER = (CORE / "include" / "unspool.h").read_text()
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
STRUCTS = re.findall(r"^struct (\w+) \{", CODE, flags=re.M)
ENUMS = re.findall(r"^enum (\w+) \{", CODE, flags=re.M)
FUNCTIONS = re.findall(r"\b(unspool_\w+)\(", CODE)


def compiled(tmp_path: Path, lines: list[str]) -> list[int]:
    """What a C program prints for these expressions, one a line."""
    source = tmp_path / "print.c"
    body = "\n".join(f'    printf("%lld\\n", (long long)({line}));' for line in lines)
    source.write_text(
        f'#include <stdio.h>\n#include "unspool.h"\nint main(void) {{\n{body}\n    return 0;\n}}\n'
    )
    program = tmp_path / "print"
    subprocess.run(["gcc", "-I", CORE / "include", source, "-o", program], check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return [int(line) for line in output.split()]


def members(ctype: object, path: str = "") -> list[tuple[str, int, int]]:
    """Every member of a struct, nested ones too: path, offset, size, as cffi lays it out."""
    found = []
    for name, field in ctype.fields:  # type: ignore[attr-defined]
        found.append((path + name, field.offset, core.ffi.sizeof(field.type)))
        if field.type.kind == "struct":
            found += [(p, field.offset + o, s) for p, o, s in members(field.type, f"{path}{name}.")]
        if field.type.kind == "array" and field.type.item.kind == "struct":
            found += [(p, field.offset + o, s) for p, o, s in members(field.type.item, f"{path}{name}[0].")]
    return found


def test_every_struct_has_the_compilers_size_and_offsets(tmp_path: Path) -> None:
    """Size of each struct, offset and size of each member, as the compiler has them."""
    expressions, expected = [], []
    for struct in STRUCTS:
        name = f"struct {struct}"
        expressions.append(f"sizeof({name})")
        expected.append(core.ffi.sizeof(name))
        for path, offset, size in members(core.ffi.typeof(name)):
            expressions += [f"offsetof({name}, {path})", f"sizeof((({name} *)0)->{path})"]
            expected += [offset, size]
    assert len(STRUCTS) >= 15
    actual = compiled(tmp_path, expressions)
    assert dict(zip(expressions, actual, strict=True)) == dict(zip(expressions, expected, strict=True))


def test_every_enum_has_the_compilers_values(tmp_path: Path) -> None:
    """Each enumerator of the header is declared, with the same value."""
    declared: dict[str, int] = {}
    for enum in ENUMS:
        declared |= core.ffi.typeof(f"enum {enum}").relements
    bodies = re.findall(r"^enum \w+ \{(.*?)\}", CODE, flags=re.M | re.S)
    names = sorted(name for body in bodies for name in re.findall(r"UNSPOOL_\w+", body))
    assert sorted(declared) == names
    assert compiled(tmp_path, names) == [declared[name] for name in names]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_declared_and_exported(name: str) -> None:
    """Each function of the header is declared to cffi and is in the library."""
    assert re.search(rf"\b{name}\(", core_interface.DECLARATIONS)
    assert getattr(core.ffi.dlopen(str(core.library_path())), name)


def test_nothing_else_is_exported() -> None:
    """The library exports the functions of the header and nothing else."""
    command = ["nm", "-D", "--defined-only", core.library_path()]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert sorted(line.split()[-1] for line in output.splitlines()) == sorted(FUNCTIONS)


def test_the_library_does_not_need_python() -> None:
    """libunspool.so links against the C library only."""
    command = ["readelf", "-dW", core.library_path()]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output)
    assert set(needed) <= {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


@pytest.mark.parametrize(
    ("python", "prefix"),
    [
        (How, "UNSPOOL_HOW_"),
        (StackEnd, "UNSPOOL_END_"),
        (table.CfaBase, "UNSPOOL_CFA_"),
        (table.Saved, "UNSPOOL_SAVED_"),
        (table.RowFlag, "UNSPOOL_ROW_"),
        (table.ExactKind, "UNSPOOL_EXACT_"),
        (table.ProblemKind, "UNSPOOL_PROBLEM_"),
    ],
)
def test_python_enums_are_the_cores(python: type[IntEnum | IntFlag], prefix: str) -> None:
    """Each public enum has the core's names and values; left out are GUESS, a flag beside How, and the
    kernel's frames, which the core never sees."""
    expected: dict[str, int] = {}
    for enum in ENUMS:
        values = core.ffi.typeof(f"enum {enum}").relements
        expected |= {name.removeprefix(prefix): v for name, v in values.items() if name.startswith(prefix)}
    expected.pop("GUESS", None)
    found = {member.name: member.value for member in python if member is not How.KERNEL}
    assert found == expected


def test_numbers_by_name_are_the_cores() -> None:
    """Registers, architectures and section kinds have the header's numbers."""
    declared: dict[str, int] = {}
    for enum in ENUMS:
        declared |= core.ffi.typeof(f"enum {enum}").relements
    assert {arch: declared[f"UNSPOOL_{arch.upper()}"] for arch in core_interface.ARCHITECTURES} == (
        core_interface.ARCHITECTURES
    )
    assert {kind: declared[f"UNSPOOL_{kind.upper()}"] for kind in core_interface.SECTION_KINDS} == (
        core_interface.SECTION_KINDS
    )
    for arch, numbers, name in (
        ("x86_64", core_interface.PC_NUMBER, "UNSPOOL_X86_64_PC"),
        ("x86_64", core_interface.SP_NUMBER, "UNSPOOL_X86_64_RSP"),
        ("x86_64", core_interface.FP_NUMBER, "UNSPOOL_X86_64_RBP"),
        ("aarch64", core_interface.PC_NUMBER, "UNSPOOL_AARCH64_PC"),
        ("aarch64", core_interface.SP_NUMBER, "UNSPOOL_AARCH64_SP"),
        ("aarch64", core_interface.FP_NUMBER, "UNSPOOL_AARCH64_FP"),
        ("aarch64", core_interface.LR_NUMBER, "UNSPOOL_AARCH64_LR"),
    ):
        assert numbers[arch] == declared[name], name
    assert declared["UNSPOOL_HOW_GUESS"] == core_interface.GUESS
    statuses = (core_interface.OK, core_interface.NO_MEMORY, core_interface.BAD_TABLE)
    assert statuses == tuple(declared[f"UNSPOOL_{name}"] for name in ("OK", "NO_MEMORY", "BAD_TABLE"))


def test_a_table_may_outlive_the_library() -> None:
    """When Python ends, it may drop the library before the last table, which is then freed by code that must
    still be there."""
    code = (
        "import sys; from unspool import Binary, UnwindTable, core;"
        "table = UnwindTable.compile(Binary.open(sys.executable));"
        "core.ffi.dlclose(core.library); del table"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
