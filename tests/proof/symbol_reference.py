"""What others say about an address: llvm-symbolizer, and addr2line as the third opinion.

llvm-symbolizer prefers the symbol table's name for the outermost function (`f.cold`, `f.part.0`) to what
DWARF says. The proof is about DWARF's names, so it is given a copy whose symbol table is hidden, and the
original only where DWARF names no function.
"""

from __future__ import annotations

import json
import posixpath
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LLVM = "llvm-symbolizer-19"
SHT_NULL, SHT_SYMTAB, SHT_DYNSYM = 0, 2, 11


class Claim(NamedTuple):
    """One function at an address. name: mangled, '' = unknown; line: 0 = unknown; file: normalized, '' where
    the line is unknown (compilers then name any file, or none)."""

    name: str
    file: str
    line: int


Chain = tuple[Claim, ...]  # innermost first


def without_symbols(path: Path, target: Path) -> Path:
    """A copy in which the sections of symbols are marked unused."""
    data = bytearray(path.read_bytes())
    (headers,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    for header in range(headers, headers + 64 * count, 64):
        if struct.unpack_from("<I", data, header + 4)[0] in (SHT_SYMTAB, SHT_DYNSYM):
            struct.pack_into("<I", data, header + 4, SHT_NULL)
    target.write_bytes(data)
    return target


def llvm(path: Path, addresses: Sequence[int]) -> list[Chain]:
    """What llvm-symbolizer says about virtual addresses."""
    chains = []
    for line in _output([LLVM, f"--obj={path}", "--output-style=JSON", "--no-demangle"], addresses):
        symbols = json.loads(line).get("Symbol", [])
        claims = (claim(s["FunctionName"], s["FileName"], s["Line"]) for s in symbols)
        chains.append(tuple(c for c in claims if c != Claim("", "", 0)))
    assert len(chains) == len(addresses)
    return chains


def addr2line(path: Path, addresses: Sequence[int]) -> list[Chain]:
    """What addr2line says about virtual addresses. It can't tell an unknown line from line 0."""
    chains: list[Chain] = []
    claims: list[Claim] = []
    lines = iter(_output(["addr2line", "-a", "-i", "-f", "-e", str(path)], addresses))
    for line in lines:
        if line.startswith("0x"):
            chains.append(tuple(claims))
            claims = []
            line = next(lines)
        file, _, number = next(lines).partition(" (discriminator")[0].rpartition(":")
        known = number.isdecimal()
        name = "" if line == "??" else line
        claims.append(claim(name, "" if file == "??" else file, int(number) if known else 0))
    chains.append(tuple(claims))
    assert len(chains) == len(addresses) + 1
    return chains[1:]


def claim(name: str | None, file: str | None, line: int | None) -> Claim:
    return Claim(name or "", posixpath.normpath(file) if file and line else "", line or 0)


def _output(command: list[str], addresses: Sequence[int]) -> list[str]:
    text = "".join(f"{address:#x}\n" for address in addresses)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.splitlines()
