"""unspool unwind-info: rows in words and as JSON, and errors in one line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.small_library import Library
from unspool.cli import unspool

LibraryOf = Callable[[str], Library]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(unspool, ["unwind-info", *arguments])


def rows(*arguments: str) -> list[dict[str, object]]:
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)["rows"]
    return found


def test_a_table(library: LibraryOf) -> None:
    """One line a row: addresses, CFA, return address, fp and source."""
    given = library("x86_64")
    result = run(given.binary.path)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    start = given.labels["outer"]
    assert [f"{start:016x}-{start + 1:016x}", "sp+8", "[CFA-8]", "same", ".eh_frame"] in lines
    body = f"{start + 4:016x}-{given.labels['outer_return'] + 1:016x}"
    assert [body, "fp+16", "[CFA-8]", "[CFA-16]", ".eh_frame"] in lines


def test_the_outermost_frame_has_no_return_address(library: LibraryOf) -> None:
    """An explicitly undefined return address is the end of the stack, and not lr."""
    for arch in ("x86_64", "aarch64"):
        (row,) = rows(library(arch).binary.path, "root")
        assert (row["return_address"], row["flags"]) == ("none", ["end"])


def test_a_leafs_return_address_is_in_lr(library: LibraryOf) -> None:
    """A return address that was not saved is in lr."""
    (row,) = rows(library("aarch64").binary.path, "inner")
    assert (row["cfa"], row["return_address"], row["fp"]) == ("sp+0", "lr", "same")


@pytest.mark.parametrize("prefix", ["0x", "", "0X0"])
def test_one_address(library: LibraryOf, prefix: str) -> None:
    """A hexadecimal virtual address selects the row that holds there."""
    given = library("x86_64")
    (row,) = rows(given.binary.path, f"{prefix}{given.labels['middle_return']:x}")
    assert (row["start"], row["cfa"]) == (given.labels["middle"] + 4, "sp+32")


def test_one_function(library: LibraryOf) -> None:
    """A function's name selects the row at its first instruction."""
    given = library("x86_64")
    (row,) = rows(given.binary.path, "middle")
    assert (row["start"], row["cfa"]) == (given.labels["middle"], "sp+8")


def test_an_expression_is_spelled_out(library: LibraryOf) -> None:
    """Where no rule can say it, CFI's own expression is printed."""
    given = library("x86_64")
    (row,) = rows(given.binary.path, "exact")
    assert row["cfa"] == "breg7(rsp)+8; deref"
    assert row["return_address"] == "[CFA-8]"
    assert row["flags"] == ["exact"]
    assert "    CFA = breg7(rsp)+8; deref\n" in run(given.binary.path).stdout


def test_a_gap_says_nothing(library: LibraryOf) -> None:
    """Between functions nothing is known."""
    given = library("x86_64")
    (row,) = rows(given.binary.path, hex(given.labels["exact"] - 1))
    assert (row["cfa"], row["source"]) == ("-", "-")


def test_an_address_outside_says_nothing(library: LibraryOf) -> None:
    """An address that no row covers is not an error: nothing is known there."""
    for address in ("0", "0xffffffffffffffff"):
        (row,) = rows(library("x86_64").binary.path, address)
        assert row["cfa"] == "-"


def test_text_and_json_hold_the_same_rows(library: LibraryOf) -> None:
    """As many rows in one as in the other."""
    given = library("aarch64")
    lines = [line for line in run(given.binary.path).stdout.splitlines() if line.startswith("0000")]
    assert len(lines) == len(rows(given.binary.path))


@pytest.mark.parametrize(
    ("address", "message"),
    [("no_such_function", "no function is called no_such_function"), ("0x12345678901234567", "hexadecimal")],
)
def test_an_address_that_means_nothing(library: LibraryOf, address: str, message: str) -> None:
    """One line: which file, what is wrong, what to do."""
    result = run(library("x86_64").binary.path, address)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("content", [None, b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01\x01"])
def test_files_that_can_not_be_read(tmp_path: Path, content: bytes | None) -> None:
    """A missing, empty, foreign or cut file is one line on standard error and exit status 1."""
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    result = run(str(path))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert str(path) in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_colours_are_for_terminals(library: LibraryOf) -> None:
    """What is not a terminal gets no escape sequences."""
    assert "\x1b" not in run(library("x86_64").binary.path).stdout
