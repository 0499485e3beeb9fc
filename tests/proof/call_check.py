"""Callers in a recording that can't be: a frame that was made up would stand above a call of something else.

Where a call with a known target is before a return address (direct, or through a stub or a slot of the
linker, resolved as readelf shows it), it must lead to the function below, perhaps by tail jumps. Functions
are told apart by where they begin, as the file's unwind information says, also where names were stripped.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import capstone
import numpy as np

from tests.proof.perf_proof import UNKNOWN, Reader
from unspool.binaries import Binary, BinaryError
from unspool.capture.samples import BinaryKind, CodeFile
from unspool.profile.model import Profile
from unspool.unwind import UnwindTable
from unspool.unwind.function_starts import all_starts
from unspool.unwind.table import RowFlag

STUBS = (".plt", ".plt.got", ".plt.sec")
ENDBR, BND = b"\xf3\x0f\x1e\xfa", b"\xf2"
NOWHERE = ("", -1)
LONGEST_FUNCTION = 1 << 18
DISASSEMBLER = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
DISASSEMBLER.skipdata = True
Function = tuple[str, int]


@dataclass
class Calls:
    """Distinct pairs of a caller's return address and a function below it. checked: whose call's target is
    known; of those by_stub: through the linker's slots; by_jump: that went on by jumps to the function below.
    elsewhere: what can't be."""

    checked: int = 0
    by_stub: int = 0
    by_jump: int = 0
    elsewhere: Counter[str] = field(default_factory=Counter)


class FunctionReader(Reader):
    """As Reader, but functions begin where the unwind information says; stubs are no functions."""

    def __init__(self, opened: dict[CodeFile, Binary]) -> None:
        super().__init__(lambda: opened)
        self._tables = {file: UnwindTable.compile(binary) for file, binary in opened.items()}
        self._starts = {file: all_starts(binary) for file, binary in opened.items()}

    def function(self, file: CodeFile, relative: int) -> Function:
        key = (file, relative)
        if key not in self._names:
            self._names[key] = self._function(file, relative)
        return self._names[key]

    def _function(self, file: CodeFile, relative: int) -> Function:
        binary = self._opened().get(file)
        if binary is None or relative < 0 or self.is_stub(file, relative):
            return UNKNOWN
        row = self._tables[file].lookup(relative)
        starts = self._starts[file]
        index = int(np.searchsorted(starts, relative, "right")) - 1
        has_start = index >= 0 and row is not None and not row.flags & RowFlag.NONE
        start = int(starts[index]) if has_start else -1
        named = binary.symbols.lookup(relative + binary.image_address)
        if named is not None and relative - named[1] >= start:
            return named[0], relative - named[1]
        return (f"{Path(file.path).name}+{start:#x}", start) if start >= 0 else UNKNOWN

    def is_stub(self, file: CodeFile, relative: int) -> bool:
        return any(start <= relative < end for start, end in self._stubs(file))

    @cache  # noqa: B019 — as many as there are files
    def _stubs(self, file: CodeFile) -> list[tuple[int, int]]:
        binary = self._opened()[file]
        sections = [section for section in binary.sections if section.name in STUBS]
        return [
            (section.address - binary.image_address, section.address - binary.image_address + section.size)
            for section in sections
        ]

    def jumps(self, file: CodeFile, start: int) -> set[Function]:
        """As in Reader, by instructions; jumps inside the function are none."""
        if (file, start) not in self._jumps:
            found: set[Function] = set()
            following = int(np.searchsorted(self._starts[file], start, "right"))
            end = int(self._starts[file][following]) if following < len(self._starts[file]) else start
            code = self.bytes_at(file, start, min(end - start, LONGEST_FUNCTION))
            for _, _, name, operands in DISASSEMBLER.disasm_lite(code, start):
                if not name.removeprefix("notrack ").removeprefix("bnd ").startswith("j"):
                    continue
                is_direct = operands.startswith("0x")
                if not is_direct or not start <= int(operands, 16) < end:
                    found.add(self.function(file, int(operands, 16)) if is_direct else UNKNOWN)
            self._jumps[file, start] = found
        return self._jumps[file, start]

    def slot_of_call(self, file: CodeFile, return_address: int) -> int | None:
        """The linker's slot that the call before a return address goes through, relative; None: none."""
        target = self.direct_target(file, return_address)
        if target is None:
            code = self.bytes_at(file, return_address - 6, 6)
            return return_address + _displacement(code) if code[:2] == b"\xff\x15" else None
        if not self.is_stub(file, target):
            return None
        code = self.bytes_at(file, target, 16)
        skipped = len(code)
        code = code.removeprefix(ENDBR).removeprefix(BND)
        skipped -= len(code)
        return target + skipped + 6 + _displacement(code) if code[:2] == b"\xff\x25" else None


def _displacement(code: bytes) -> int:
    return int.from_bytes(code[2:6], "little", signed=True)


@dataclass
class Linked:
    """What readelf says of the dynamic symbols of files."""

    slots: dict[CodeFile, dict[int, str]] = field(default_factory=dict)  # relative address -> name
    definers: dict[str, list[tuple[CodeFile, int]]] = field(default_factory=dict)  # name -> relative starts
    chosen_late: set[str] = field(default_factory=set)  # IFUNC: the program chooses among functions

    def add(self, file: CodeFile, path: str) -> None:
        slots = self.slots.setdefault(file, {})
        for words in _readelf("-rW", path):
            if len(words) >= 5 and words[2].endswith(("JUMP_SLO", "JUMP_SLOT", "GLOB_DAT")):
                slots[int(words[0], 16) - file.image_address] = words[4].split("@")[0]
        for words in _readelf("--dyn-syms -W", path):
            if len(words) < 8 or words[6] == "UND" or words[3] not in ("FUNC", "IFUNC"):
                continue
            name = words[7].split("@")[0]
            self.definers.setdefault(name, []).append((file, int(words[1], 16) - file.image_address))
            if words[3] == "IFUNC":
                self.chosen_late.add(name)


def _readelf(options: str, path: str) -> list[list[str]]:
    done = subprocess.run(["readelf", *options.split(), path], capture_output=True, text=True, check=False)
    return [line.split() for line in done.stdout.splitlines()]


def check_calls(profile: Profile) -> Calls:
    """Of the complete stacks."""
    opened, linked = _open(profile)
    reader = FunctionReader(opened)
    found = Calls()
    complete = np.bincount(profile.sample_stack[profile.sample_verdicts[0]], minlength=len(profile.tree))
    nodes = np.flatnonzero(profile.tree.sums_below(complete.astype(np.int64)) > 0)
    seen = set()
    for node in nodes[profile.stack_parent[nodes] >= 0].tolist():
        below, above = int(profile.stack_frame[node]), int(profile.stack_frame[profile.stack_parent[node]])
        if not profile.frame_is_return[above]:
            continue
        lookup = int(profile.frame_address[below]) - int(profile.frame_is_return[below])
        callee = profile.binaries[profile.frame_binary[below]]
        caller = profile.binaries[profile.frame_binary[above]]
        if callee not in opened or caller not in opened:
            continue
        function = reader.function(callee, lookup)
        pair = (above, callee, function)
        if pair not in seen and function != UNKNOWN:
            seen.add(pair)
            _check(found, reader, linked, caller, int(profile.frame_address[above]), callee, function)
    for binary in opened.values():
        binary.close()
    return found


def _open(profile: Profile) -> tuple[dict[CodeFile, Binary], Linked]:
    opened, linked = {}, Linked()
    for file in profile.binaries:
        if file.kind is not BinaryKind.FILE:
            continue
        try:
            binary = Binary.open(file.path)
        except (BinaryError, OSError):
            continue
        if (binary.build_id or b"").hex() == (file.build_id or ""):
            opened[file] = binary
            linked.add(file, file.path)
        else:
            binary.close()
    return opened, linked


def _check(
    found: Calls,
    reader: FunctionReader,
    linked: Linked,
    caller: CodeFile,
    return_address: int,
    callee: CodeFile,
    function: Function,
) -> None:
    slot = reader.slot_of_call(caller, return_address)
    if slot is not None:
        name = linked.slots[caller].get(slot)
        if name is None or name in linked.chosen_late or name not in linked.definers:
            return
        if Path(callee.path).name.startswith("ld-"):  # which resolves names when they are first called
            return
        targets = linked.definers[name]
    else:
        target = reader.direct_target(caller, return_address)
        if target is None or reader.is_stub(caller, target):
            return
        start = reader.function(caller, target)
        if start == UNKNOWN:
            return
        name, targets = start[0], [(caller, target)]
    found.checked += 1
    found.by_stub += slot is not None
    if (callee, function[1]) in targets:
        return
    found.by_jump += 1
    if any(_leads_on(reader, file, target, callee, function) for file, target in targets):
        return
    found.elsewhere[
        f"elsewhere: a call of {name} at {Path(caller.path).name}+{return_address:#x} stands above "
        f"{function[0]} of {Path(callee.path).name}"
    ] += 1


def _leads_on(
    reader: FunctionReader, file: CodeFile, target: int, callee: CodeFile, function: Function
) -> bool:
    """Whether jumps may lead from the function at target to another."""
    start = reader.function(file, target)
    if start == UNKNOWN or (start == function and file == callee):
        return True
    return reader.leads_to(file, start[1], function if file == callee else NOWHERE)
