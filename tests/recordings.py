"""Recordings with known contents: stacks of named functions that a test spells out.

    recording = Recording(tmp_path / "r.unspool")
    recording.sample(["work", "main"], weight=3)        # innermost first
    profile = recording.finish()

Functions live in /synthetic/program, 0x100 bytes each, and get their names by SyntheticNames instead of a
symbolizer. A function "inner<outer" stands for a frame of outer into which inner was inlined; several names
may be inlined: "innermost<inner<outer".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.elf_writer import Section, elf_file
from unspool import Binary, How, Location, StackEnd, Symbolizer
from unspool.capture.samples import (
    BinaryKind,
    CodeEntry,
    CodeFile,
    CodeMap,
    Event,
    Happening,
    SampleBatch,
)
from unspool.core_interface import GUESS
from unspool.profile import Profile, RecordingWriter
from unspool.symbols import Findings, Locations

PROGRAM = CodeFile("/synthetic/program", "aabbccdd", "x86_64", size=1000)
JIT = CodeFile.without_file(BinaryKind.JIT, "x86_64")
IMAGE_BASE, JIT_START, KERNEL_START = 0x10_0000, 0x7000_0000, 0xFFFF_8000_0000_0000
FUNCTION_SIZE = 0x100
CPU = Event("cpu", "nanoseconds")
CODE_MAP = CodeMap(
    [
        CodeEntry(IMAGE_BASE, IMAGE_BASE + 0x100_0000, IMAGE_BASE, PROGRAM),
        CodeEntry(JIT_START, JIT_START + 0x1000, 0, JIT),
        CodeEntry(KERNEL_START, 1 << 64, 0, CodeFile.without_file(BinaryKind.KERNEL, "x86_64")),
    ],
    "x86_64",
)


class SyntheticNames(Symbolizer):
    """Names of functions by number; each is in /synthetic/NAME.c, a line for each of its addresses."""

    def __init__(self, functions: list[str]) -> None:
        super().__init__(cache=False)
        self._functions = functions

    @contextmanager
    def loading(self, binaries: Iterable[Binary]) -> Iterator[None]:
        yield

    def lookup_many(self, binary: Binary, relative_addresses: NDArray[np.uint64]) -> Locations:
        chains = [self._chain(address) for address in relative_addresses.tolist()]
        return Locations(tuple(chains), np.arange(len(chains)))

    def findings(self, binary: Binary, *, ask_packages: bool = True) -> Findings:
        return Findings(binary.path, True, len(self._functions), ())

    def _chain(self, address: int) -> tuple[Location, ...]:
        number, line = divmod(address, FUNCTION_SIZE)
        if number >= len(self._functions):
            return ()
        *inlined, physical = self._functions[number].split("<")
        chain = [Location(name, f"raw_{name}", f"/synthetic/{name}.c", line, True) for name in inlined]
        return (*chain, Location(physical, f"raw_{physical}", f"/synthetic/{physical}.c", line, False))


@dataclass
class Recording:
    """A recording in the making, at path."""

    path: Path
    events: Sequence[Event] = (CPU,)
    meta: dict[str, str | int] = field(default_factory=dict)
    is_live: bool = False

    def __post_init__(self) -> None:
        self.writer = RecordingWriter.create(self.path, self.meta, self.events, is_live=self.is_live)
        self._functions: list[str] = []
        self._time = 1_000_000_000

    def address(self, function: str, line: int = 0x20) -> int:
        """Of a line of a function (by its number, less than FUNCTION_SIZE), which is added if it is new. ""
        is an address where no code is, "jit" and "kernel" are such code, "?" code without a name."""
        special = {
            "": 0x10,
            "jit": JIT_START + line,
            "kernel": KERNEL_START + line,
            "?": IMAGE_BASE + 0xFF_0000 + line,
        }
        if function in special:
            return special[function]
        if function not in self._functions:
            self._functions.append(function)
        return IMAGE_BASE + FUNCTION_SIZE * self._functions.index(function) + line

    def sample(
        self,
        stack: Sequence[str | tuple[str, int] | tuple[str, int, int]],
        *,
        weight: int = 1,
        pid: int = 100,
        tid: int | None = None,
        event: int = 0,
        end: StackEnd = StackEnd.ROOT,
        flags: int = 0,
        time: int | None = None,
    ) -> None:
        """One sample. A frame is a function, or (function, how), or (function, how, line); how is INTERRUPTED
        for the innermost, CFI for others."""
        self._time = self._time + 1_000_000 if time is None else time
        addresses, hows = [], []
        for depth, frame in enumerate(stack):
            name, how, line = (frame, None, 0x20) if isinstance(frame, str) else (*frame, 0x20)[:3]
            how = (How.CFI if depth else How.INTERRUPTED) if how is None else how
            called = depth > 0 and how & ~GUESS not in (How.SIGNAL_FRAME, How.INTERRUPTED)
            addresses.append(self.address(name, line) + called)
            hows.append(how)
        self.writer.add(
            SampleBatch(
                pid,
                event,
                np.array([self._time], np.uint64),
                np.array([pid if tid is None else tid], np.int64),
                np.array([weight], np.uint64),
                np.array([end], np.uint8),
                np.array([flags], np.uint8),
                np.array([0, len(stack)], np.uint64),
                np.array(addresses, np.uint64),
                np.array(hows, np.uint8),
                CODE_MAP,
            )
        )

    def add(self, *happenings: Happening) -> None:
        """Anything else that happens."""
        for happening in happenings:
            self.writer.add(happening)

    def finish(self) -> Profile:
        """Names all frames, and reads what was written."""
        with self.writer:
            opened = {PROGRAM: NO_BINARY}
            self.writer.finish(SyntheticNames(self._functions), opened)
        return Profile.open(str(self.path))


# Stands for the program's file: names come from SyntheticNames.
NO_BINARY = Binary.from_bytes(elf_file([Section(".text")]), PROGRAM.path)


def named(profile: Profile, weights: NDArray[np.int64]) -> dict[str, int]:
    """Functions that have a weight; those of one name in several binaries together."""
    sums: dict[str, int] = {}
    for name, weight in zip(profile.functions, weights.tolist(), strict=True):
        if weight:
            sums[name] = sums.get(name, 0) + weight
    return sums


def stack_names(profile: Profile, sample: int) -> list[list[str]]:
    """For each frame, innermost first, its functions, the innermost inlined first."""
    node, names = int(profile.sample_stack[sample]), []
    while node >= 0:
        frame = profile.stack_frame[node]
        entries = profile.line_function[profile.line_offsets[frame] : profile.line_offsets[frame + 1]]
        names.append([profile.functions[function] for function in entries])
        node = int(profile.stack_parent[node])
    return names
