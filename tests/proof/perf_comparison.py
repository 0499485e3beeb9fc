"""Compares what unspool makes of a perf.data file with what `perf script` prints: the same samples and
events, and where a stack differs, of which kind the difference is.

perf prints addresses relative to files' own maps, so a frame is compared by file name and the last twelve
bits of its lookup address (perf lowers return addresses that it has unwound by one, and leaves those of frame
pointers)."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np

from unspool.capture.perf_data import PerfData
from unspool.capture.samples import BinaryKind, Lost, SampleBatch
from unspool.core_interface import GUESS
from unspool.unwind import How, StackEnd

_HEAD = re.compile(r"\s*(-?\d+)/(-?\d+)\s+(\d+)\.(\d+):\s+(\d+)\s+(.+?):\s*$")
_FRAME = re.compile(r"\s+([0-9a-f]+)(?: .*)?\((.*)\)$")
_PAGE = 0xFFF
_NOWHERE = (1 << 64) - 1  # perf's last frame where it could read no more: 0, lowered by one
NO_FILE = ("[unknown]", "deleted):")
EQUAL, OURS_GOES_ON, PERF_GOES_ON = "equal", "ours goes on", "perf goes on"
PERF_STRAYS, DIFFERS = "perf strays", "differs"
# libgcc's _Unwind_RaiseException writes its handler's registers over its own frame, the return address last.
# Of 109 such stacks 26 of perf's were false: they went on in the handler, which had called nothing. We stop:
# what would tell them apart, the linker's slot through which __cxa_throw calls, is not in a recording.
OVERWRITTEN = "perf goes unproved out of a frame that libgcc's unwinder may have overwritten"
_EXAMPLES = 3  # of each kind that are kept


class Frame(NamedTuple):
    low: int  # of the address, as perf prints it
    file: str  # name; "kernel", "jit"
    how: str = ""


Key = tuple[int, int, int, str, int]  # pid, tid, time, event, period


@dataclass
class Result:
    """kinds: stacks by how they compare; examples: some of each kind, in words."""

    samples: int = 0
    only_ours: list[Key] = field(default_factory=list)
    only_perfs: list[Key] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def same_samples(self) -> bool:
        return not self.only_ours and not self.only_perfs

    def note(self, kind: str, key: Key, ours: list[Frame], theirs: list[Frame]) -> None:
        self.kinds[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(f"{key}\n    ours {_words(ours)}\n    perf {_words(theirs)}")


def compare(path: Path) -> Result:
    """Raises CaptureError, subprocess.CalledProcessError."""
    result = Result()
    perfs = dict(perf_samples(path))
    source = PerfData(str(path))
    names = [event.name for event in source.events]
    for happening in source:
        if isinstance(happening, SampleBatch):
            for key, frames, end in our_samples(happening, names):
                result.samples += 1
                theirs = perfs.pop(key, None)
                if theirs is None:
                    result.only_ours.append(key)
                else:
                    result.note(kind_of(frames, end, theirs), key, frames, theirs)
        elif isinstance(happening, Lost):
            result.problems.append(f"{happening.count} lost: {happening.reason}")
    result.only_perfs = list(perfs)
    result.problems += source.problems
    return result


def perf_samples(path: Path) -> Iterator[tuple[Key, list[Frame]]]:
    """Every sample that perf prints."""
    command = ["perf", "script", "--no-inline", "--ns", "--max-stack", "4096", "-i", str(path), "-F"]
    command.append("pid,tid,time,event,period,ip,sym,dso")
    output = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout
    key: Key | None = None
    frames: list[Frame] = []
    for line in [*output.splitlines(), ""]:
        head = _HEAD.match(line)
        if head is not None:
            pid, tid, seconds, fraction, period, event = head.groups()
            time = int(seconds) * 10**9 + int(fraction)
            key, frames = (int(pid), int(tid), time, event, int(period)), []
        elif not line.strip() and key is not None:
            yield key, frames
            key = None
        elif (frame := _FRAME.match(line)) is not None and int(frame[1], 16) != _NOWHERE:
            frames.append(Frame(int(frame[1], 16) & _PAGE, _file_name(frame[2])))


def _file_name(path: str) -> str:
    path = path.removesuffix(" (deleted)")
    if path.startswith(("[kernel", "[guest.kernel")) or path.endswith(".ko"):
        return "kernel"
    if path.startswith("/tmp/perf-") or path in ("//anon", "[heap]", "anon"):
        return "jit"
    return PurePath(path).name if path.startswith("/") else path


def our_samples(batch: SampleBatch, names: list[str]) -> Iterator[tuple[Key, list[Frame], StackEnd]]:
    """The same of ours. Addresses are as perf prints them."""
    numbers, _ = batch.code_map.resolve(batch.addresses, batch.is_return)
    files = [
        {BinaryKind.JIT: "jit", BinaryKind.UNKNOWN: "unknown"}.get(file.kind, PurePath(file.path).name)
        for file in batch.code_map.files
    ]
    by_perf = np.isin(batch.how & np.uint8(GUESS - 1), (How.KERNEL, How.FRAME_POINTER))
    lowered = batch.addresses - (batch.is_return & ~by_perf)
    for i in range(len(batch)):
        key = (batch.pid, int(batch.tids[i]), int(batch.times[i]), names[batch.event], int(batch.weights[i]))
        frames = []
        for j in range(int(batch.offsets[i]), int(batch.offsets[i + 1])):
            how = How(int(batch.how[j]) & ~GUESS)
            file = "kernel" if how is How.KERNEL else files[int(numbers[j])]
            words = how.name.lower() + ("?" if batch.how[j] & GUESS else "")
            frames.append(Frame(int(lowered[j]) & _PAGE, file, words))
        yield key, frames, StackEnd(int(batch.ends[i]))


def kind_of(ours: list[Frame], end: StackEnd, theirs: list[Frame]) -> str:
    """In words that can be counted."""
    is_proved = end is StackEnd.ROOT and not any(frame.how.endswith("?") for frame in ours)
    for mine, yours in zip(ours, theirs, strict=False):
        # perf does not know which frames a signal interrupted, and lowers frame pointers' addresses, too.
        is_same_place = (mine.low - yours.low) & _PAGE in (0, 1, _PAGE)
        is_same_file = mine.file == yours.file or mine.file == "unknown" or yours.file in NO_FILE
        if not (is_same_place and is_same_file):
            how = f"where ours is found by {mine.how}"
            return f"{PERF_STRAYS} {how}, and reaches the root" if is_proved else f"{DIFFERS} {how}"
    if len(ours) == len(theirs):
        return EQUAL
    if len(ours) > len(theirs):
        return f"{OURS_GOES_ON} (by {ours[len(theirs)].how}), ended {end.name.lower()}"
    if end is StackEnd.BAD_RETURN_ADDRESS and ours[-1].file == "libgcc_s.so.1":
        return OVERWRITTEN
    return f"{PERF_GOES_ON}, ours ended {end.name.lower()}"


def _words(frames: list[Frame]) -> str:
    shown = frames if len(frames) < 14 else [*frames[:6], Frame(0, "..."), *frames[-6:]]
    return f"[{len(frames)}] " + " ".join(
        f"{f.file}:{f.low:03x}{'/' + f.how if f.how else ''}" for f in shown
    )
