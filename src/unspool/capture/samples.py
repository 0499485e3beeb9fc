"""What every source of samples yields: stacks of addresses with weights, and what happened to processes.

A source is an iterator of `Happening`s in the order in which they happened. It knows nothing of names or
recordings; profile/recording.py writes what it yields. Times are nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unspool.core_interface import GUESS
from unspool.unwind import How, StackEnd, stacks_with_guess


class Event(NamedTuple):
    """What is sampled, and in what a sample's weight counts: ("cpu", "nanoseconds"), ("faults", "count")."""

    name: str
    unit: str


class BinaryKind(StrEnum):
    """Where code is from."""

    FILE = "file"
    VDSO = "vdso"
    JIT = "jit"  # executable memory without a file; one a process
    KERNEL = "kernel"  # with its modules; one a recording
    UNKNOWN = "unknown"  # addresses where no code was; one a process


_NAMES = {BinaryKind.JIT: "[jit]", BinaryKind.KERNEL: "[kernel]", BinaryKind.UNKNOWN: "[unknown]"}


@dataclass(frozen=True, slots=True)
class CodeFile:
    """The identity of a binary in a recording.

    path: by which it can be opened, or a name in brackets. build_id: hexadecimal; None: it has none, and size
    (bytes) and mtime (nanoseconds) tell whether a file of that path is still the same; 0 = not known.
    image_address: the file's virtual address of relative address 0, as Binary.image_address.
    A relative address is an address minus the image base; in code without a file the address itself.
    """

    path: str
    build_id: str | None
    arch: str
    kind: BinaryKind = BinaryKind.FILE
    image_address: int = 0
    size: int = 0
    mtime: int = 0

    @classmethod
    def without_file(cls, kind: BinaryKind, arch: str) -> CodeFile:
        """For JIT, KERNEL and UNKNOWN."""
        return cls(_NAMES[kind], None, arch, kind)


class CodeEntry(NamedTuple):
    """Code of a file lies at the addresses start <= a < end. image_base: the address of relative address 0;
    0 for code without a file."""

    start: int
    end: int
    image_base: int
    file: CodeFile


class CodeMap:
    """Which code lies where in one process, at one time. It never changes.

    files: each distinct one once; files[0] stands for addresses where no code is.
    """

    def __init__(self, entries: Iterable[CodeEntry], arch: str) -> None:
        """ValueError: two entries claim an address, or one is empty."""
        ordered = sorted(entries, key=lambda entry: entry.start)
        for entry, following in pairwise(ordered):
            if entry.end > following.start:
                raise ValueError(f"two entries of a code map claim address {following.start:#x}")
        if any(entry.start >= entry.end for entry in ordered):
            raise ValueError("an entry of a code map is empty")
        unknown = CodeFile.without_file(BinaryKind.UNKNOWN, arch)
        self.entries = tuple(ordered)
        self.files = tuple(dict.fromkeys([unknown, *(entry.file for entry in ordered)]))
        numbers = {file: number for number, file in enumerate(self.files)}
        self._starts = np.array([entry.start for entry in ordered], np.uint64)
        # The last address, since an end may be 2^64.
        self._lasts = np.array([entry.end - 1 for entry in ordered], np.uint64)
        self._bases = np.array([entry.image_base for entry in ordered], np.uint64)
        self._files = np.array([numbers[entry.file] for entry in ordered], np.int32)

    def resolve(
        self, addresses: NDArray[np.uint64], is_return: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
        """For each frame's address (uint64[m]; is_return bool[m]: it is a return address) the index of its
        file in `files`, int32[m], and the relative address, uint64[m]. A return address belongs to the file
        that has the byte before it."""
        files = np.zeros(len(addresses), np.int32)
        relative = addresses.copy()
        if not self.entries:
            return files, relative
        lookups = addresses - is_return.astype(np.uint64)  # wraps at 0, where no code is
        index = np.searchsorted(self._starts, lookups, "right") - 1
        known = (index >= 0) & (lookups <= self._lasts[index])
        index = index[known]
        files[known] = self._files[index]
        relative[known] -= self._bases[index]
        return files, relative


class Flag(IntFlag):
    """What else is to be known about a sample. None of these samples is complete."""

    STALE_MODULES = 1  # the memory map changed meanwhile
    NO_TABLE_YET = 2  # a library's unwind table was not there yet
    KERNEL_CALLER_UNKNOWN = 4  # time in the kernel, and nobody knows who called it
    JOINED = 8  # the kernel's chain of frame pointers goes on where the walk could not


FLAGS = {
    Flag.STALE_MODULES: "the memory map changed meanwhile",
    Flag.NO_TABLE_YET: "a library's unwind table was not there yet",
    Flag.KERNEL_CALLER_UNKNOWN: "time in the kernel, its caller not known",
    Flag.JOINED: "continued by the kernel's chain of frame pointers",
}


def causes_of_cuts(flags: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8[n]: of the flags of n samples that were cut the one Flag that says why, whatever their walks met
    where they ended; 0: none does."""
    causes = (Flag.KERNEL_CALLER_UNKNOWN, Flag.NO_TABLE_YET, Flag.STALE_MODULES)
    return np.select(
        [(flags & cause) != 0 for cause in causes], [np.uint8(cause) for cause in causes], np.uint8(0)
    )


@dataclass(frozen=True)
class SampleBatch:
    """n samples of one process under one code map, m frames in all; stacks are innermost first.

    pid: the process. event: index into the recording's events. times: uint64[n], nanoseconds. tids: int64[n].
    weights: uint64[n], in the event's unit. ends: uint8[n], StackEnd. flags: uint8[n], Flag.
    Frames of sample i are [offsets[i] : offsets[i + 1]] of addresses (uint64[m]) and how (uint8[m], How with
    GUESS (0x80) where nothing proves the frame); offsets: uint64[n + 1]. Frames of the kernel come before the
    user frame that it interrupted. A stack may be empty. ValueError: the arrays do not fit together.
    """

    pid: int
    event: int
    times: NDArray[np.uint64]
    tids: NDArray[np.int64]
    weights: NDArray[np.uint64]
    ends: NDArray[np.uint8]
    flags: NDArray[np.uint8]
    offsets: NDArray[np.uint64]
    addresses: NDArray[np.uint64]
    how: NDArray[np.uint8]
    code_map: CodeMap = field(repr=False)

    def __post_init__(self) -> None:
        n, m = len(self.times), len(self.addresses)
        lengths = {len(array) for array in (self.tids, self.weights, self.ends, self.flags)}
        if lengths != {n} or len(self.offsets) != n + 1 or len(self.how) != m:
            raise ValueError("the arrays of a sample batch have different lengths")
        offsets = self.offsets
        if offsets[0] != 0 or offsets[-1] != m or (offsets[1:] < offsets[:-1]).any():
            raise ValueError("the offsets of a sample batch do not divide its frames")

    def __len__(self) -> int:
        return len(self.times)

    @cached_property
    def is_return(self) -> NDArray[np.bool_]:
        """bool[m]: the frame's address is a return address. It is none in the innermost frame, in a frame
        that was interrupted (by a sample's signal or another), and in the code that returns from a signal
        handler, which nobody called: that begins at the address."""
        kind = self.how & np.uint8(GUESS - 1)
        innermost = np.zeros(len(kind) + 1, np.bool_)
        innermost[self.offsets] = True  # of an empty stack: the next one's
        after_signal = (kind == How.SIGNAL_FRAME) & ~innermost[:-1]
        is_return: NDArray[np.bool_] = (
            ~innermost[:-1] & (kind != How.INTERRUPTED) & (kind != How.SIGNAL_FRAME)
        )
        is_return[:-1] &= ~after_signal[1:]
        return is_return

    @cached_property
    def has_guess(self) -> NDArray[np.bool_]:
        """bool[n]: which stacks have a guess in them."""
        return stacks_with_guess(self.how, self.offsets)

    @property
    def complete(self) -> NDArray[np.bool_]:
        """bool[n], as `verdicts` says."""
        return verdicts(self.ends, self.has_guess, self.flags)[0]

    @property
    def guessed(self) -> NDArray[np.bool_]:
        """bool[n], as `verdicts` says."""
        return verdicts(self.ends, self.has_guess, self.flags)[1]

    @property
    def cut(self) -> NDArray[np.bool_]:
        """bool[n], as `verdicts` says."""
        return verdicts(self.ends, self.has_guess, self.flags)[2]


def verdicts(
    ends: NDArray[np.uint8], has_guess: NDArray[np.bool_], flags: NDArray[np.uint8]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Which samples are complete, guessed, cut (bool[n] each; exactly one holds). Complete: at the root,
    every frame proved, no flag. Cut: not at the root, or the kernel's caller is not known. Guessed: the rest.
    """
    cut = (ends != StackEnd.ROOT) | ((flags & Flag.KERNEL_CALLER_UNKNOWN) != 0)
    guessed = ~cut & (has_guess | (flags != 0))
    return ~cut & ~guessed, guessed, cut


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """A process begins: it was there when recording began, was forked, or called exec. The same pid again,
    with or without a ProcessEnded between, is a new process. parent_pid: None = not recorded or not known."""

    pid: int
    parent_pid: int | None
    command: str
    time: int


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """exit_status: as wait(2) gives it; None: not known (also when recording ended first)."""

    pid: int
    time: int
    exit_status: int | None = None


@dataclass(frozen=True, slots=True)
class ThreadNamed:
    """A thread has this name (from now on). After its ThreadEnded, the same tid is a new thread."""

    pid: int
    tid: int
    name: str
    time: int


@dataclass(frozen=True, slots=True)
class ThreadEnded:
    """Samples that were taken before `time` may still follow."""

    pid: int
    tid: int
    time: int


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """The kernel's own figure: what the thread used of the CPU in nanoseconds while it was recorded, up to
    now. A later one replaces an earlier one, so give totals, not differences."""

    pid: int
    tid: int
    user: int
    system: int


@dataclass(frozen=True, slots=True)
class Lost:
    """`count` samples that were taken, or should have been, and are not there; reason: by what, in words.
    pid, tid: None = not known whose."""

    pid: int | None
    tid: int | None
    reason: str
    count: int
    time: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What could not be recorded, and what helps, in a sentence. pid: None: of the whole recording. is_note:
    it is good to know, but no sample is missing because of it."""

    pid: int | None
    text: str
    is_note: bool = False


@dataclass(frozen=True, slots=True)
class CodeNames:
    """Who names code without a file: the kernel's (pid None) or a process' JIT code. lookup: from a lookup
    address to a name or None. A later one replaces an earlier one. It is asked when the process ended and
    when the recording is finished; JIT code of other processes is named by their perf maps, as of then."""

    pid: int | None
    lookup: Callable[[int], str | None]


Happening: TypeAlias = (
    SampleBatch
    | ProcessStarted
    | ProcessEnded
    | ThreadNamed
    | ThreadEnded
    | ThreadTime
    | Lost
    | Problem
    | CodeNames
)
