"""Stacks of real recordings: perf's copies of the stacks of a Python, a C++ and a Rust program.

    python -m tests.proof.perf_proof [--json FILE]

Each program is recorded with `perf record --call-graph dwarf,16384`, which copies 16 KB of the stack and all
registers at each sample. Then every stack is looked at:

* A stack that its copy did not cut must reach the root: the program's entry point, or a thread's. What does
  not is told by function. Two kinds can't: an exception on its way (docs/exactness.md), and hand-written code
  that no file describes, with a frame larger than the copy.
* A frame that was made up would stand above a call of something else: where a direct call is before a return
  address, it must lead to the function below, perhaps by tail jumps.

Exits with 1 when a complete stack has a call in it that leads elsewhere.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from subprocess import DEVNULL, run
from typing import Any

import numpy as np

from unspool.binaries import Binary
from unspool.capture.perf_data import PerfData
from unspool.capture.samples import CodeFile, SampleBatch
from unspool.core_interface import GUESS
from unspool.unwind import StackEnd

WORKLOADS = Path(__file__).parent.parent / "oracle" / "workloads"
OWN_PROGRAMS = Path(__file__).parent / "programs"
CUT_BY_COPY = {StackEnd.STACK_BYTES_ENDED}
ROOTS = {"_start", "clone3", "__clone3", "clone", "__clone", "thread_start"}
TAIL_JUMPS = 4
UNKNOWN = ("", 0)
INDIRECT = 1 << 64
LONGEST_FUNCTION = 1 << 14
JUMPS = {0x0F, 0xE9, 0xEB, 0xFF, *range(0x70, 0x80)}
PERF = ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "1999", "--call-graph", "dwarf,16384"]


@dataclass(frozen=True)
class Program:
    """What is recorded. build: the compiler's command before -o, if there is one."""

    name: str
    source: str
    argument: str
    build: tuple[str, ...] = ()

    def command(self, folder: Path) -> list[str]:
        program = folder / self.name.replace(" ", "_")
        folders = (WORKLOADS, OWN_PROGRAMS)
        source = next(path / self.source for path in folders if (path / self.source).exists())
        if not self.build:
            return [sys.executable, str(source), self.argument]
        run([*self.build, str(source), "-o", str(program)], check=True)
        return [str(program), self.argument]


PROGRAMS = [
    Program("Python and numpy", "arrays.py", "12000"),
    Program("Python", "interpreter.py", "12000"),
    Program("C++", "table.cpp", "16000", ("g++", "-std=c++17", "-O2", "-fomit-frame-pointer")),
    Program("Rust", "words.rs", "4000", ("rustc", "--edition=2021", "-O")),
]


@dataclass
class Figures:
    """What was found of one program's stacks."""

    stacks: int = 0
    frames: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    complete: int = 0
    guessed: int = 0
    hows: Counter[str] = field(default_factory=Counter)
    roots: Counter[str] = field(default_factory=Counter)
    calls: int = 0  # direct ones, of a function of the same file, in complete stacks
    tail_calls: int = 0  # of those, that lead to the function below by jumps
    elsewhere: Counter[str] = field(default_factory=Counter)
    not_at_root: Counter[str] = field(default_factory=Counter)

    @property
    def whole(self) -> int:
        """Stacks that their copy did not cut."""
        return self.stacks - sum(self.ends[end.name.lower()] for end in CUT_BY_COPY)


def jump_target(code: bytes, at: int) -> int | None:
    """Where the jump at an offset leads, as an offset; INDIRECT; None: there is no jump."""
    if code[at] == 0xFF:
        return INDIRECT if code[at + 1] >> 3 & 7 == 4 else None
    if code[at] == 0x0F and code[at + 1] & 0xF0 != 0x80:
        return None
    size = 4 if code[at] in (0x0F, 0xE9) else 1
    end = at + size + (2 if code[at] == 0x0F else 1)
    return end + int.from_bytes(code[end - size : end], "little", signed=True)


class Reader:
    """Functions and calls of the files of one recording."""

    def __init__(self, opened: Callable[[], dict[CodeFile, Binary]]) -> None:
        """opened: the files that are open by now."""
        self._opened = opened
        self._names: dict[tuple[CodeFile, int], tuple[str, int]] = {}
        self._jumps: dict[tuple[CodeFile, int], set[tuple[str, int]]] = {}

    def function(self, file: CodeFile, relative: int) -> tuple[str, int]:
        """Name and start (relative) of the function at a lookup address; ("", 0): not known."""
        key = (file, relative)
        if key not in self._names:
            binary = self._opened().get(file)
            found = binary.symbols.lookup(relative + binary.image_address) if binary else None
            self._names[key] = (found[0], relative - found[1]) if found else ("", 0)
        return self._names[key]

    def bytes_at(self, file: CodeFile, relative: int, size: int) -> bytes:
        binary = self._opened().get(file)
        return bytes(binary.code(relative + binary.image_address, size)) if binary else b""

    def direct_target(self, file: CodeFile, return_address: int) -> int | None:
        """Where the direct call before a relative return address leads; None: there is none."""
        code = self.bytes_at(file, return_address - 5, 5)
        if len(code) < 5 or code[0] != 0xE8:
            return None
        return return_address + int.from_bytes(code[1:], "little", signed=True)

    def jumps(self, file: CodeFile, start: int) -> set[tuple[str, int]]:
        """The functions that jumps in the function at start lead to; UNKNOWN: some go through a register, a
        table or a stub. What only looks like a jump is in it, too."""
        if (file, start) not in self._jumps:
            code = self.bytes_at(file, start, LONGEST_FUNCTION)
            places = (at for at in range(len(code) - 6) if code[at] in JUMPS)
            inside = takewhile(lambda at: self.function(file, start + at)[1] == start, places)
            targets = {jump_target(code, at) for at in inside} - {None}
            ends = {self.function(file, start + target) for target in targets if target != INDIRECT}
            self._jumps[file, start] = {end if end[0] else UNKNOWN for end in ends}
            if INDIRECT in targets:
                self._jumps[file, start].add(UNKNOWN)
        return self._jumps[file, start]

    def leads_to(self, file: CodeFile, start: int, function: tuple[str, int]) -> bool:
        """Whether jumps may lead from the function that begins at start to another: by stubs and tables,
        anywhere."""
        reached, new = set(), {start}
        for _ in range(TAIL_JUMPS):
            reached |= new
            found = {end for begin in new for end in self.jumps(file, begin)}
            if function in found or UNKNOWN in found:
                return True
            new = {begin for _, begin in found} - reached
        return False


def record(program: Program, folder: Path) -> Path:
    data = folder / f"{program.source}.perf"
    command = [*PERF, "-o", str(data), "--", *program.command(folder)]
    run(command, check=True, stdout=DEVNULL)
    return data


def look_at_stack(
    found: Figures, reader: Reader, frames: list[tuple[CodeFile, int]], end: StackEnd, guessed: bool
) -> None:
    """frames: file and relative address, innermost first."""
    found.stacks += 1
    found.frames += len(frames)
    found.ends[end.name.lower()] += 1
    lookups = [(file, address - (index > 0)) for index, (file, address) in enumerate(frames)]
    last = reader.function(*lookups[-1])
    where = f"{Path(lookups[-1][0].path).name} {last[0] or hex(lookups[-1][1])}"
    if end == StackEnd.ROOT:
        found.guessed += guessed
        found.complete += not guessed
        found.roots[last[0] or where] += 1
    elif end not in CUT_BY_COPY:
        found.not_at_root[f"{end.name.lower()} in {where}"] += 1
    if guessed:
        return
    for index in range(1, len(frames)):
        file, address = frames[index]
        target = reader.direct_target(file, address)
        if target is None or file != lookups[index - 1][0]:
            continue  # through a register or memory, or a stub of another file's function
        name, start = reader.function(file, target)
        below = reader.function(*lookups[index - 1])
        if not name or not below[0] or start != target:
            continue
        found.calls += 1
        if below[1] == target:
            continue
        found.tail_calls += 1
        if not reader.leads_to(file, target, below):
            found.elsewhere[f"{Path(file.path).name}: a call of {name} stands above {below[0]}"] += 1


def look_at(batch: SampleBatch, found: Figures, reader: Reader) -> None:
    starts = batch.offsets.astype(np.int64)
    is_return = np.ones(len(batch.addresses), np.bool_)
    is_return[starts[:-1][starts[:-1] < len(is_return)]] = False
    files, relative = batch.code_map.resolve(batch.addresses, is_return)
    for index in range(len(batch.ends)):
        first, last = starts[index], starts[index + 1]
        if first == last:
            continue
        hows = batch.how[first:last]
        frames = [(batch.code_map.files[files[i]], int(relative[i])) for i in range(first, last)]
        for how, count in zip(*np.unique(hows, return_counts=True), strict=True):
            found.hows[f"{int(how) & ~GUESS}{'?' * bool(how & GUESS)}"] += int(count)
        look_at_stack(found, reader, frames, StackEnd(batch.ends[index]), bool((hows & GUESS).any()))


def measure(program: Program, folder: Path) -> Figures:
    data = PerfData(str(record(program, folder)))
    found = Figures()
    reader = Reader(lambda: data.opened)
    for happening in data:
        if isinstance(happening, SampleBatch):
            look_at(happening, found, reader)
    for problem in data.problems:
        print(f"    {program.name}: {problem}")
    data.close()
    return found


def show(name: str, found: Figures) -> None:
    at_root = found.ends["root"]
    print(f"{name}: {found.stacks:,} stacks, {found.frames:,} frames; ends {dict(found.ends)}")
    print(f"    at the root {at_root:,}; of those not cut by their copy {100 * at_root / found.whole:.3f} %")
    print(f"    complete {found.complete:,}, guessed {found.guessed:,}; how {dict(found.hows)}")
    print(f"    roots {dict(found.roots)}; direct calls {found.calls:,}, by jumps {found.tail_calls:,}")
    for what, count in [*found.not_at_root.most_common(10), *found.elsewhere.most_common(20)]:
        print(f"    {count:,} {what}")


def as_json(found: Figures) -> dict[str, Any]:
    keys = ("stacks", "frames", "complete", "guessed", "calls", "tail_calls", "whole")
    counters = ("ends", "roots", "not_at_root", "elsewhere")
    return {key: getattr(found, key) for key in keys} | {key: dict(getattr(found, key)) for key in counters}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.perf_proof", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for program in PROGRAMS:
            results[program.name] = measure(program, Path(folder))
            show(program.name, results[program.name])
    if given.json:
        given.json.write_text(json.dumps({name: as_json(found) for name, found in results.items()}, indent=1))
    failed = [name for name, found in results.items() if not found.calls or found.elsewhere]
    print("\n".join(f"{name}: a frame was made up" for name in failed) or "no frame was made up")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
