"""`unspool unwind-info`: what a file's unwind table says, and which section says it.

Rows become Line records first; those are printed as a table or as JSON, so that both hold the same facts.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

import click
import numpy as np

from unspool.binaries import Binary, BinaryError
from unspool.core_interface import FP_NUMBER
from unspool.unwind.expressions import register_name, spelled_out
from unspool.unwind.table import CfaBase, ExactKind, ExactRow, ExactRule, Row, RowFlag, Saved, UnwindTable

_FLAGS = (RowFlag.SIGNAL, RowFlag.SIGNED, RowFlag.END, RowFlag.EXACT)


@dataclass
class Line:
    """One row, in words. start, end: virtual addresses of the file, start <= a < end."""

    start: int
    end: int
    cfa: str = "-"
    return_address: str = "-"
    fp: str = "-"
    flags: list[str] = field(default_factory=list)
    source: str = "-"
    registers: dict[str, str] = field(default_factory=dict)  # exact rows: all that CFI says of others


@click.command("unwind-info", short_help="What a file's unwind table says.")
@click.argument("file")
@click.argument("address", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def unwind_info(file: str, address: str | None, as_json: bool) -> None:
    """Print FILE's unwind table: where CFA, return address and fp are at which addresses.

    With ADDRESS, a hexadecimal virtual address of the file or a function's name, only the row that holds
    there. Addresses are the ones that readelf and objdump show.
    """
    try:
        with Binary.open(file) as binary:
            table = UnwindTable.compile(binary)
            if address is None:
                lines = all_lines(table, binary)
            else:
                lines = (line_at(table, binary, value) for value in addresses_of(binary, address))
            if as_json:
                click.echo(json.dumps(as_object(table, binary, lines), indent=1))
            else:
                click.echo("\n".join(as_text(table, binary, lines)))
    except BinaryError as error:
        raise click.ClickException(str(error)) from None


# ---------------------------------------------------------------- which rows


def addresses_of(binary: Binary, text: str) -> list[int]:
    """The virtual addresses that ADDRESS means: functions of that name, else a hexadecimal number."""
    functions = [] if text.lower().startswith("0x") else functions_named(binary, text)
    if functions:
        return functions
    if re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,16}", text):
        return [int(text, 16)]
    raise click.ClickException(
        f"{binary.path}: no function is called {text}: list them with nm, or give a hexadecimal address"
    )


def functions_named(binary: Binary, name: str) -> list[int]:
    """The virtual addresses of the symbols of that name in code, in order."""
    symbols = binary.symbols
    starts = [match.start() for match in re.finditer(re.escape(name.encode()) + rb"[\0@]", symbols.names)]
    candidates = np.flatnonzero(np.isin(symbols.name_offset, starts) & (symbols.section != 0))
    code = [(s.address, s.address + s.memory_size) for s in binary.segments if s.executable]
    addresses = {int(symbols.address[i]) for i in candidates if symbols.name(int(i)) == name}
    return sorted(a for a in addresses if any(start <= a < end for start, end in code))


def all_lines(table: UnwindTable, binary: Binary) -> Iterator[Line]:
    """Every row; an exact one in as many lines as CFI has rows there."""
    for values in table.rows.tolist():
        row = Row(*values)
        address = row.start
        while row.flags & RowFlag.EXACT and address < row.end:
            exact = table.exact(address)
            if exact is None or exact.end <= address:
                break
            yield exact_line(row, exact, binary)
            address = exact.end
        if address < row.end:
            yield plain_line(row, binary)


def line_at(table: UnwindTable, binary: Binary, address: int) -> Line:
    """The row that holds at a virtual address."""
    relative = address - binary.image_address
    row = table.lookup(relative) if 0 <= relative < 1 << 64 else None
    if row is None:
        return Line(address, address + 1)
    exact = table.exact(relative) if row.flags & RowFlag.EXACT else None
    return plain_line(row, binary) if exact is None else exact_line(row, exact, binary)


# ---------------------------------------------------------------- in words


def plain_line(row: Row, binary: Binary) -> Line:
    """A row that a rule says."""
    line = Line(row.start + binary.image_address, row.end + binary.image_address)
    if row.flags & RowFlag.NONE:
        return line
    line.flags = [str(flag.name).lower() for flag in _FLAGS if row.flags & flag]
    line.source = ".debug_frame" if row.flags & RowFlag.DEBUG_FRAME else ".eh_frame"
    if row.flags & RowFlag.CODE:
        line.source = "code"
    if row.flags & RowFlag.EXACT:
        return line
    line.cfa = f"{CfaBase(row.cfa_base).name.lower()}{row.cfa_offset:+d}"
    line.return_address = "none" if row.flags & RowFlag.END else _saved(row.ra, row.ra_offset, "lr")
    line.fp = _saved(row.fp, row.fp_offset, "same")
    return line


def _saved(kind: int, offset: int, same: str) -> str:
    if kind == Saved.AT_CFA:
        return f"[CFA{offset:+d}]"
    return same if kind == Saved.SAME else "unknown"


def exact_line(row: Row, exact: ExactRow, binary: Binary) -> Line:
    """A row that only the exact evaluator can execute: what its CFI says."""
    arch = binary.arch
    line = plain_line(row, binary)
    line.start, line.end = exact.start + binary.image_address, exact.end + binary.image_address
    if exact.cfa_expression:
        line.cfa = spelled_out(exact.cfa_expression, arch)
    else:
        line.cfa = f"{register_name(exact.cfa_register, arch)}{exact.cfa_offset:+d}"
    for number, rule in enumerate(exact.rules):
        words = _exact_rule(rule, arch)
        if number == exact.return_address_register:
            line.return_address = {"unknown": "none", "same": "lr"}.get(words, words)
        elif number == FP_NUMBER[arch]:
            line.fp = words
        elif rule.kind != ExactKind.UNSPECIFIED:
            line.registers[register_name(number, arch)] = words
    return line


def _exact_rule(rule: ExactRule, arch: str) -> str:
    match ExactKind(rule.kind):
        case ExactKind.OFFSET:
            return f"[CFA{rule.value:+d}]"
        case ExactKind.VAL_OFFSET:
            return f"CFA{rule.value:+d}"
        case ExactKind.REGISTER:
            return register_name(rule.value, arch)
        case ExactKind.EXPRESSION:
            return f"[{spelled_out(rule.expression, arch)}]"
        case ExactKind.VAL_EXPRESSION:
            return spelled_out(rule.expression, arch)
        case ExactKind.UNDEFINED:
            return "unknown"
        case _:
            return "same"


# ---------------------------------------------------------------- output


def as_object(table: UnwindTable, binary: Binary, lines: Iterable[Line]) -> dict[str, object]:
    """The facts for JSON. Addresses and sizes are numbers; addresses are virtual addresses of the file."""
    return {
        "file": binary.path,
        "arch": binary.arch,
        "build_id": binary.build_id.hex() if binary.build_id else None,
        "rows": [asdict(line) for line in lines],
        "problem_count": table.problem_count,
        "problems": [
            {"kind": problem.kind.name.lower(), "section": f".{problem.section}", "offset": problem.offset}
            for problem in table.problems
        ],
    }


def as_text(table: UnwindTable, binary: Binary, lines: Iterable[Line]) -> Iterator[str]:
    """The facts as text, a line each."""
    build_id = binary.build_id.hex() if binary.build_id else "none"
    yield f"{binary.path}: {binary.arch}, build id {build_id}, {len(table)} rows"
    head = f"{'addresses':35}{'CFA':14}{'return address':16}{'fp':12}{'source':14}flags"
    yield click.style(head, bold=True)
    for line in lines:
        yield from _row_text(line)
    for problem in table.problems:
        where = f".{problem.section} at offset {problem.offset:#x}"
        yield click.style(f"left out: {where}: {problem.kind.name.lower().replace('_', ' ')}", fg="yellow")
    if table.problem_count > len(table.problems):
        yield click.style(f"left out: {table.problem_count - len(table.problems)} more", fg="yellow")


def _row_text(line: Line) -> Iterator[str]:
    addresses = f"{line.start:016x}-{line.end:016x}"
    if "exact" not in line.flags:
        flags = " ".join(line.flags)
        text = f"{line.cfa:14}{line.return_address:16}{line.fp:12}{line.source:14}{flags}"
        yield f"{addresses:35}{text}".rstrip()
        return
    # What an expression says does not fit into a column.
    yield f"{addresses:35}{'':42}{line.source:14}{' '.join(line.flags)}"
    rules = {"CFA": line.cfa, "return address": line.return_address, "fp": line.fp, **line.registers}
    for name, words in rules.items():
        yield f"    {name} = {words}"
