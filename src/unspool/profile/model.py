"""A recording as arrays: what reports and exports read.

Profile.open loads a file and checks everything: indices lead to what is there, parents come before their
children, no stack is deeper than tree.MAX_DEPTH. A file that is still written is read as it is at that
moment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unspool.capture.samples import CodeFile, Event, verdicts
from unspool.core_interface import GUESS
from unspool.profile.tree import Ints, Tree

NANOSECONDS = "nanoseconds"
_LONGEST = 1e9  # seconds: 31 years


@dataclass(frozen=True, slots=True)
class Process:
    """parent: index into Profile.processes; None: not recorded. Times: nanoseconds of CLOCK_MONOTONIC; None:
    not known. exit_status: as wait(2) gives it."""

    pid: int
    parent: int | None
    command: str
    start_time: int | None
    end_time: int | None
    exit_status: int | None


@dataclass(frozen=True, slots=True)
class Thread:
    """process: index into Profile.processes. user_time, system_time: the kernel's figures, nanoseconds, of
    the time that was recorded; None: not known."""

    process: int
    tid: int
    name: str
    end_time: int | None
    user_time: int | None
    system_time: int | None

    @property
    def cpu_time(self) -> int | None:
        """Nanoseconds."""
        if self.user_time is None or self.system_time is None:
            return None
        return self.user_time + self.system_time


@dataclass(frozen=True, slots=True)
class Symbols:
    """What names a binary's frames. state: "lines" (functions, files, lines, inlined calls), "functions"
    (only functions), "none" (it has none), "missing" (the file was not found), "changed" (another file is
    there now), "" (nobody looked yet). debug_file: where lines are from. note: what else is to be known."""

    state: str
    debug_file: str | None
    note: str


@dataclass(frozen=True, slots=True)
class LostSamples:
    """process, thread: indices; None: not known whose. time: nanoseconds."""

    time: int
    process: int | None
    thread: int | None
    reason: str
    count: int


@dataclass(frozen=True, repr=False)
class Profile:
    """n samples, s nodes of stacks, f frames, k entries of lines, p places; all numbers are indices.

    meta: what the source said of the recording: started (wall clock), start_time, end_time (nanoseconds; of
    the first and the last sample, if it did not say), command, rate, via, ... is_finished: False: its writer
    still writes or died; names may be missing. binary_process: int32[binaries], whose code without a file it
    is, else -1.

    Samples: sample_event int32[n], sample_thread int32[n], sample_stack int32[n] (the innermost frame's
    node), sample_weight int64[n] (in the event's unit), sample_end uint8[n] (StackEnd), sample_flags uint8[n]
    (Flag).

    Stacks are a tree whose nodes are frames below their callers: stack_parent int32[s] (the caller's node;
    -1: outermost; less than the node's own number), stack_frame int32[s], stack_how uint8[s] (How | GUESS).

    Frames: frame_binary int32[f], frame_address uint64[f] (relative, as captured: a return address where
    frame_is_return bool[f], else the pc).

    Names of frame i: [line_offsets[i] : line_offsets[i + 1]] (int64[f + 1]), at least one, the innermost
    inlined function first, the physical function last: line_function int32[k], line_file int32[k] (-1: not
    known), line_number int32[k] (0: not known). A function without a name is called by
    where it begins, "libfoo.so+0x1200", if its binary says that, else by the frame's address.

    functions, files: their names; functions of different binaries may have the same. function_binary:
    int32[functions], -1: JIT code with a name. function_is_named: bool[functions], False: "libfoo.so+0x1200".
    """

    path: str
    meta: dict[str, str | int]
    is_finished: bool
    events: list[Event]
    processes: list[Process]
    threads: list[Thread]
    binaries: list[CodeFile]
    binary_process: NDArray[np.int32]
    binary_symbols: list[Symbols]
    lost: list[LostSamples]
    problems: list[tuple[int | None, str]]  # (process, text)

    sample_event: NDArray[np.int32]
    sample_thread: NDArray[np.int32]
    sample_stack: NDArray[np.int32]
    sample_weight: Ints
    sample_end: NDArray[np.uint8]
    sample_flags: NDArray[np.uint8]

    tree: Tree
    stack_frame: NDArray[np.int32]
    stack_how: NDArray[np.uint8]

    frame_binary: NDArray[np.int32]
    frame_address: NDArray[np.uint64]
    frame_is_return: NDArray[np.bool_]

    line_offsets: Ints
    line_function: NDArray[np.int32]
    line_file: NDArray[np.int32]
    line_number: NDArray[np.int32]
    functions: list[str]
    function_binary: NDArray[np.int32]
    function_is_named: NDArray[np.bool_]
    files: list[str]

    @staticmethod
    def open(path: str) -> Profile:
        """Load a recording; one that is still written, as it is at this moment. Raises RecordingError."""
        from unspool.profile.load import load

        return load(path)

    def __repr__(self) -> str:
        return f"<Profile {self.path}: {self.summary}>"

    @cached_property
    def summary(self) -> str:
        """ "979 samples, 4.85 s of CPU time, 99.3 % complete": of the time event, or of the first one."""
        if not self.events:
            return "no events"
        event = self.time_event or 0
        chosen = self.sample_event == event
        count, weight = int(np.count_nonzero(chosen)), self.total_weight(event)
        words = f"{count:,} sample{'' if count == 1 else 's'}, "
        words += (
            f"{weight / 1e9:.2f} s of CPU time"
            if event == self.time_event
            else f"{weight:,} {self.events[event].name}"
        )
        complete = int(self.sample_weight[chosen & self.sample_verdicts[0]].sum())
        if weight:  # what is not all is not called all
            words += f", {100.0 if complete == weight else min(100 * complete / weight, 99.9):.1f} % complete"
        return words

    @property
    def duration(self) -> int | None:
        """Nanoseconds that the recording took, or if its source did not say, from start_time to end_time;
        None: not known."""
        start, end = self.meta.get("start_time"), self.meta.get("end_time")
        known = end - start if isinstance(start, int) and isinstance(end, int) else None
        try:
            seconds = float(self.meta.get("seconds", "nan"))
        except ValueError:
            return known
        return round(seconds * 1e9) if 0 <= seconds <= _LONGEST else known

    @property
    def stack_parent(self) -> NDArray[np.int32]:
        return self.tree.parent

    @cached_property
    def sample_time(self) -> Ints:
        """int64[n], nanoseconds of CLOCK_MONOTONIC; loaded when it is first asked for. Raises
        RecordingError."""
        from unspool.profile.load import load_times

        return load_times(self.path, len(self.sample_stack))

    @cached_property
    def sample_process(self) -> NDArray[np.int32]:
        """int32[n]"""
        of_thread = np.array([thread.process for thread in self.threads], np.int32)
        return of_thread[self.sample_thread]

    @cached_property
    def time_event(self) -> int | None:
        """The event with which threads' CPU times are compared: the first in nanoseconds."""
        return next((i for i, event in enumerate(self.events) if event.unit == NANOSECONDS), None)

    # -------------------------------------------------------------- verdicts

    @cached_property
    def sample_has_guess(self) -> NDArray[np.bool_]:
        """bool[n]: a frame of the stack is a guess."""
        guesses = self.tree.sums_above((self.stack_how >= GUESS).astype(np.int64))
        return (guesses > 0)[self.sample_stack]

    @cached_property
    def sample_verdicts(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Which samples are complete, guessed, cut: bool[n] each."""
        return verdicts(self.sample_end, self.sample_has_guess, self.sample_flags)

    # -------------------------------------------------------------- weights

    def node_weights(self, event: int = 0, selected: NDArray[np.bool_] | None = None) -> Ints:
        """int64[s]: the weight of the samples whose innermost frame is that node. selected: bool[n], which
        samples count, None: all. Sums below a node: tree.sums_below."""
        chosen = self.sample_event == event
        if selected is not None:
            chosen = chosen & selected
        weights = np.zeros(len(self.tree), np.int64)
        np.add.at(weights, self.sample_stack[chosen], self.sample_weight[chosen])
        return weights

    def total_weight(self, event: int = 0) -> int:
        """Of all samples of the event (an index in events), in its unit."""
        return int(self.sample_weight[self.sample_event == event].sum())

    def self_weights(self, event: int = 0, selected: NDArray[np.bool_] | None = None) -> Ints:
        """int64[functions], in the event's unit: while it was the innermost function, inlined ones included.
        selected: as for node_weights."""
        return self._self_weights(self.line_function, len(self.functions), event, selected)

    def total_weights(self, event: int = 0, selected: NDArray[np.bool_] | None = None) -> Ints:
        """int64[functions], in the event's unit: while it was anywhere on the stack; recursion counts once.
        selected: as for node_weights."""
        return self._total_weights(self._function_uses, len(self.functions), event, selected)

    @cached_property
    def _places(self) -> tuple[Ints, NDArray[np.int32]]:
        """One line entry (an index) for each place, and each entry's place: int32[k]."""
        columns = np.stack([self.line_function, self.line_file, self.line_number])
        _, first, which = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        return first, which.reshape(-1).astype(np.int32)

    @property
    def place_function(self) -> NDArray[np.int32]:
        """int32[p]: a place is a line of a function; place_file, place_number: as line_file, line_number."""
        return self.line_function[self._places[0]]

    @property
    def place_file(self) -> NDArray[np.int32]:
        """int32[p]"""
        return self.line_file[self._places[0]]

    @property
    def place_number(self) -> NDArray[np.int32]:
        """int32[p]"""
        return self.line_number[self._places[0]]

    @property
    def line_place(self) -> NDArray[np.int32]:
        """int32[k]: each line entry's place."""
        return self._places[1]

    def place_self_weights(self, event: int = 0, selected: NDArray[np.bool_] | None = None) -> Ints:
        """int64[p]: as self_weights, by place."""
        return self._self_weights(self.line_place, len(self._places[0]), event, selected)

    def place_total_weights(self, event: int = 0, selected: NDArray[np.bool_] | None = None) -> Ints:
        """int64[p]: as total_weights, by place."""
        return self._total_weights(self._place_uses, len(self._places[0]), event, selected)

    def thread_weights(self, event: int = 0) -> Ints:
        """int64[threads], in the event's unit: of each thread's samples."""
        chosen = self.sample_event == event
        weights = np.zeros(len(self.threads), np.int64)
        np.add.at(weights, self.sample_thread[chosen], self.sample_weight[chosen])
        return weights

    def not_sampled(self) -> list[int | None]:
        """For each thread the kernel's CPU time that no sample covers, nanoseconds; negative: samples say
        more than the kernel. None: the kernel's figure is not known, or no event measures time."""
        if self.time_event is None:
            return [None] * len(self.threads)
        sampled = self.thread_weights(self.time_event).tolist()
        times = [thread.cpu_time for thread in self.threads]
        return [None if time is None else time - own for time, own in zip(times, sampled, strict=True)]

    def _self_weights(
        self, key: NDArray[np.int32], keys: int, event: int, selected: NDArray[np.bool_] | None
    ) -> Ints:
        innermost = key[self.line_offsets[:-1]]
        weights = np.zeros(keys, np.int64)
        np.add.at(weights, innermost[self.stack_frame], self.node_weights(event, selected))
        return weights

    def _total_weights(
        self, uses: tuple[Ints, Ints], keys: int, event: int, selected: NDArray[np.bool_] | None
    ) -> Ints:
        node, key = uses
        weights = np.zeros(keys, np.int64)
        np.add.at(weights, key, self.tree.sums_below(self.node_weights(event, selected))[node])
        return weights

    @cached_property
    def _function_uses(self) -> tuple[Ints, Ints]:
        return self._outermost_uses(self.line_function)

    @cached_property
    def _place_uses(self) -> tuple[Ints, Ints]:
        return self._outermost_uses(self.line_place)

    def _outermost_uses(self, key: NDArray[np.int32]) -> tuple[Ints, Ints]:
        """Pairs (node, key) such that no caller of the node has the same key, each once: what below these
        nodes is counted, is counted once."""
        offsets, keys = self._distinct_keys(key)
        starts = offsets[self.stack_frame]
        counts = offsets[self.stack_frame.astype(np.int64) + 1] - starts
        node = np.repeat(np.arange(len(self.tree)), counts)
        before = np.cumsum(counts) - counts
        keys = keys[np.arange(len(node)) + np.repeat(starts - before, counts)]
        outermost = self.tree.outermost_uses(node, keys)
        return node[outermost], keys[outermost]

    def _distinct_keys(self, key: NDArray[np.int32]) -> tuple[Ints, Ints]:
        """The keys of each frame, each once (a function may be inlined into itself): those of frame i are
        [offsets[i] : offsets[i + 1]]."""
        frames = len(self.frame_binary)
        frame = np.repeat(np.arange(frames), np.diff(self.line_offsets))
        pairs = np.unique(np.stack([frame, key.astype(np.int64)]), axis=1)
        offsets = np.searchsorted(pairs[0], np.arange(frames + 1))
        return offsets, pairs[1]
