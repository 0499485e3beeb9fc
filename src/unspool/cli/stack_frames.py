"""Symbolized threads: the facts that `unspool stack` prints as text or as JSON."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from unspool.capture.process import CapturedThread
from unspool.symbols import Location, PerfMap, Symbolizer
from unspool.unwind import Frame, How, Module, Stack

STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting uninterruptibly",
    "T": "stopped",
    "t": "traced",
    "I": "idle",
    "Z": "ended",
    "X": "ended",
}

HOW = {How.INTERRUPTED: "", How.CFI: "", How.CFI_EXACT: "", How.SIGNAL_FRAME: "interrupted by a signal"}


@dataclass(frozen=True, slots=True)
class Line:
    """One function of a frame: the physical one (location.inlined is False) or one inlined into it."""

    frame: Frame
    location: Location

    @property
    def binary(self) -> str:
        return PurePosixPath(self.frame.module.name).name if self.frame.module else ""

    @property
    def how(self) -> str:
        """In words, where it was not the file's own information."""
        words = HOW.get(self.frame.how, self.frame.how.name.lower().replace("_", " "))
        return f"guess: {words}" if self.frame.guessed else words


@dataclass(frozen=True, slots=True)
class ThreadLines:
    """A thread with its stack in words. lines: innermost first; None: there is no stack, see problem."""

    thread: CapturedThread
    stack: Stack | None
    lines: list[Line]


UNKNOWN = Location(None, None, None, None, False)


def symbolize_threads(
    threads: Iterable[tuple[CapturedThread, Stack | None]],
    symbolizer: Symbolizer,
    jit_names: PerfMap | None,
    limit: int | None,
    *,
    inlines: bool = True,
) -> list[ThreadLines]:
    """Every frame of every thread, each binary asked once. jit_names: of code without a file. limit: at most
    so many frames a thread. inlines: with the functions that were inlined."""
    walked = [(thread, stack, list(_asked(stack))[:limit]) for thread, stack in threads]
    wanted: dict[Module, set[int]] = {}
    for _, _, asked in walked:
        for frame, addresses in asked:
            if frame.module and frame.module.binary:
                wanted.setdefault(frame.module, set()).update(addresses)
    known: dict[tuple[Module, int], tuple[Location, ...]] = {}
    for module, all_addresses in wanted.items():
        assert module.binary
        array = np.fromiter(all_addresses, np.uint64, len(all_addresses))
        found = symbolizer.lookup_many(module.binary, array)
        for address, which in zip(all_addresses, found.which, strict=True):
            known[module, address] = found.chains[which]
    result = []
    for thread, stack, asked in walked:
        lines = [line for frame, addresses in asked for line in _lines(frame, addresses, known, jit_names)]
        shown = [line for line in lines if inlines or not line.location.inlined]
        result.append(ThreadLines(thread, stack, shown))
    return result


def _asked(stack: Stack | None) -> Iterator[tuple[Frame, list[int]]]:
    """Each frame, and the relative addresses at which its function is looked up: the first with an answer
    counts. Nobody called the code that returns from a signal handler, nor what lies below some first
    functions of a stack: these begin at the return address itself."""
    frames = list(stack or ())
    for frame, caller in zip_longest(frames, frames[1:]):
        usual, itself = frame.relative_lookup_address, frame.relative_address
        if usual is None or itself is None:
            yield frame, []
        elif caller is None:
            yield frame, [usual, itself]
        else:
            yield frame, [itself if caller.how is How.SIGNAL_FRAME else usual]


def _lines(
    frame: Frame,
    addresses: list[int],
    known: dict[tuple[Module, int], tuple[Location, ...]],
    jit_names: PerfMap | None,
) -> list[Line]:
    locations: tuple[Location, ...] = ()
    module = frame.module
    if module is not None:
        locations = next((found for address in addresses if (found := known.get((module, address)))), ())
        if not locations and module.binary is None and jit_names is not None:
            name = jit_names.lookup(frame.lookup_address)
            locations = (UNKNOWN._replace(function=name, raw_name=name),)
    return [Line(frame, location) for location in locations or (UNKNOWN,)]


def as_object(thread: ThreadLines) -> dict[str, Any]:
    """A thread as JSON has it. Addresses are hexadecimal strings."""
    captured, stack = thread.thread, thread.stack
    registers = captured.registers
    known = {} if registers is None else {"pc": registers.pc, "sp": registers.sp, "fp": registers.fp}
    if registers is not None:
        known |= {"lr": registers.lr, **registers.others}
    return {
        "tid": captured.tid,
        "name": captured.name,
        "state": STATES.get(captured.state, captured.state),
        "problem": captured.problem,
        "stopped_seconds": captured.stopped_seconds,
        "end": stack.end.name.lower() if stack else None,
        "complete": stack.complete if stack else False,
        "guessed": stack.guessed if stack else False,
        "registers": {name: f"{value:#x}" for name, value in known.items() if value is not None},
        "frame_count": len(stack) if stack else 0,
        "frames": [_line_as_object(line) for line in thread.lines],
    }


def _line_as_object(line: Line) -> dict[str, Any]:
    frame, location = line.frame, line.location
    return {
        "address": f"{frame.address:#x}",
        "relative_address": None if frame.relative_address is None else f"{frame.relative_address:#x}",
        "binary": frame.module.name if frame.module else None,
        "function": location.function,
        "raw_name": location.raw_name,
        "file": location.file,
        "line": location.line,
        "inlined": location.inlined,
        "how": frame.how.name.lower(),
        "guessed": frame.guessed,
    }
