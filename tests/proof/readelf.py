"""What GNU readelf says: `readelf --debug-dump=frames-interp`, read row by row.

It may not judge: it only turns the text into values. Facts about that text (binutils 2.40):

- An FDE whose instructions are all DW_CFA_nop is printed without rows: its CIE's row holds.
- `u` stands for an explicit DW_CFA_undefined and for a register without any rule: the text can't tell
  the two apart. A register that no instruction of FDE or CIE names has no column.
- A row is printed at every advance, also where nothing changed since the row before or where the
  location did not move (then the last one holds), and behind the FDE's end.
- What DW_CFA_AARCH64_negate_ra_state and DW_CFA_GNU_args_size say is not in the rows.

What it gets wrong, found on sections that were written for it (llvm-dwarfdump 19 agrees with us unless
said otherwise); none of it occurs in the proof's files:

- .eh_frame with 64-bit lengths: it takes the CIE pointer for 8 bytes (LSB: 4) and finds no CIE.
- DW_EH_PE_uleb128 and _sleb128, and an aligned personality pointer: it reads on at the wrong place.
- DW_EH_PE_textrel and _datarel: it adds no base (llvm-dwarfdump neither).
- CFA offsets of 2 GiB and more are cut to 32 bits (by llvm-dwarfdump too).
- Malformed programs go on: after an unknown instruction, a restore_state without a remembered state, or
  a def_cfa_register where the CFA is an expression (which gets an offset from before).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Claim(NamedTuple):
    """What a row says of CFA, return address and fp, in readelf's notation: `rsp+8`, `c-8`, `u`."""

    cfa: str
    ra: str
    fp: str


@dataclass
class ReadelfFde:
    """One FDE. rows: its start addresses with their claims; at least one."""

    section: str
    offset: int
    start: int
    end: int
    rows: list[tuple[int, Claim]] = field(default_factory=list)


ENTRY = re.compile(
    r"(?P<offset>[0-9a-f]+) [0-9a-f]+ (?P<id>[0-9a-f]+) "
    r"(?:(?P<cie>CIE)|FDE cie=(?P<of>[0-9a-f]+) pc=(?P<start>[0-9a-f]+)\.\.(?P<end>[0-9a-f]+))"
)
REGISTER = re.compile(r"r\d+ \((\w+)\)")  # "r5 (rdi)": in another register
UNSAID = "u"


def read_fdes(path: Path, frame_pointer: str) -> Iterator[ReadelfFde]:
    """All FDEs of .eh_frame and .debug_frame, in the file's order. frame_pointer: its name there."""
    command = ["readelf", "--wide", "--debug-dump=frames-interp", "--debug-dump=no-follow-links", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:
        assert process.stdout
        yield from parse(process.stdout, frame_pointer)


def parse(lines: Iterable[str], frame_pointer: str) -> Iterator[ReadelfFde]:
    section = ""
    of_cies: dict[int, Claim] = {}  # the row of each CIE of the section
    claims: dict[tuple[str, str], Claim] = {}  # a file has few distinct lines: read each once
    fde: ReadelfFde | None = None
    cie_offset = 0
    header = ""
    for line in lines:
        entry = ENTRY.match(line)
        if fde and (entry or line.startswith("Contents of the ")):
            yield finished(fde, of_cies[cie_offset])
            fde = None
        if line.startswith("Contents of the "):
            section, of_cies = line.split()[3], {}
        elif entry and entry["cie"]:
            cie_offset = int(entry["offset"], 16)
            of_cies[cie_offset] = Claim("", UNSAID, UNSAID)
        elif entry:
            cie_offset = int(entry["of"], 16)
            offset, start, end = (int(entry[name], 16) for name in ("offset", "start", "end"))
            fde = ReadelfFde(section, offset, start, end)
        elif line.startswith("   LOC"):
            header = line
        elif line[:1] in HEX_DIGITS and "ZERO terminator" not in line:
            address, said = line.split(" ", 1)
            claim = claims.get((header, said))
            if claim is None:
                claim = claims[header, said] = read_claim(header, said, frame_pointer)
            if fde:
                fde.rows.append((int(address, 16), claim))
            else:
                of_cies[cie_offset] = claim
    if fde:
        yield finished(fde, of_cies[cie_offset])


HEX_DIGITS = frozenset("0123456789abcdef")


def read_claim(header: str, said: str, frame_pointer: str) -> Claim:
    said = REGISTER.sub(r"\1", said)
    values = dict(zip(header.split()[1:], said.split(), strict=True))
    return Claim(values["CFA"], values.get("ra", UNSAID), values.get(frame_pointer, UNSAID))


def finished(fde: ReadelfFde, of_cie: Claim) -> ReadelfFde:
    """Where no row stands at the FDE's start, the CIE's row holds there."""
    if not fde.rows:
        fde.rows.append((fde.start, of_cie))
    return fde
