"""A slice of the symbol proof that is fast enough for every run; `make proof` runs all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.compilers import build
from tests.proof import symbol_corpus, symbol_proof
from tests.proof.symbol_corpus import Subject
from tests.proof.symbol_proof import KINDS, compare, lines_of
from tests.proof.symbol_reference import Chain, Claim, llvm

ADDRESSES = 400


@pytest.mark.parametrize(
    "make",
    [
        symbol_corpus.rust,
        lambda folder: symbol_corpus.cxx(folder, "gz", "g++", "-gz", "-g", "-O2"),
        symbol_corpus.pgo,
    ],
    ids=["rust", "cxx-gz", "pgo-lto"],
)
def test_program_that_is_built_here(make: Callable[[Path], Path], tmp_path: Path) -> None:
    result = compare(Subject("program", make(tmp_path)), tmp_path, ADDRESSES)
    assert result.compared == ADDRESSES and result.inlined > 50
    assert len(result.differences) <= 1, "\n".join(lines_of(result))  # 0.25 %; none where it was written


def test_libc(tmp_path: Path) -> None:
    result = compare(Subject("libc", symbol_corpus.LIBRARIES / "libc.so.6"), tmp_path, ADDRESSES)
    assert len(result.differences) <= 1, "\n".join(lines_of(result))


@pytest.mark.parametrize("kind", KINDS)
def test_one_difference_in_a_hundred_is_found(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_an_error(path: Path, addresses: Sequence[int]) -> list[Chain]:
        chains = llvm(path, addresses)
        first = chains[7][0]
        wrong = {
            "name": (first._replace(name="another"), *chains[7][1:]),
            "file": (first._replace(file="another.c"), *chains[7][1:]),
            "line": (first._replace(line=first.line + 1), *chains[7][1:]),
            "depth": (Claim("inlined", "x.h", 1), *chains[7]),
        }
        chains[7] = wrong[kind]
        return chains

    code = "#include <stdlib.h>\nint main(int n, char **v) { return abs(n) * atoi(v[0]); }"
    path = build(tmp_path, "program", "gcc", "-g", "-O0", code=code)
    monkeypatch.setattr(symbol_proof, "llvm", with_an_error)
    monkeypatch.setattr(symbol_proof, "code_addresses", lambda binary, *_: [main_of(path)] * 100)
    result = compare(Subject("program", path), tmp_path)
    assert not result.proved
    assert [difference.kinds for difference in result.differences] == [(kind,)]
    assert result.share(kind) == 0.99


def main_of(path: Path) -> int:
    with symbol_proof.Binary.open(path) as binary:
        symbols = binary.symbols
        return next(int(symbols.address[i]) for i in range(len(symbols)) if symbols.name(i) == "main")
