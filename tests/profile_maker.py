"""Profiles in memory, made from stacks in words: what exporters are tested with.

    maker = ProfileMaker()
    thread = maker.thread("worker", pid=10, tid=11, cpu_time=1_000)
    maker.sample(thread, "main@app:main.c:7 | work@app:work.c:3 / add@app", weight=400)

A frame is FUNCTION@BINARY[:FILE[:LINE]]; "a | b": a calls b, "a / b": b was inlined into a. "?" before the
function: the frame is a guess; an empty function: it has no name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unspool.capture.samples import BinaryKind, CodeFile, Event
from unspool.core_interface import GUESS
from unspool.profile.model import LostSamples, Process, Profile, Symbols, Thread
from unspool.profile.tree import Tree
from unspool.unwind import How, StackEnd

_FRAME = re.compile(r"\??(.*)@([^@]+?)(?::([^:]*)(?::(\d+))?)?", re.DOTALL)
_KINDS = {"[kernel]": BinaryKind.KERNEL, "[jit]": BinaryKind.JIT, "[unknown]": BinaryKind.UNKNOWN}


class Numbers(dict[Any, int]):
    """Numbers things in the order in which they are first seen."""

    def of(self, key: Any) -> int:
        return self.setdefault(key, len(self))


@dataclass
class ProfileMaker:
    """times: nanoseconds. binary_paths: where a binary lies, if not in /usr/lib."""

    events: list[Event] = field(default_factory=lambda: [Event("cpu", "nanoseconds")])
    meta: dict[str, str | int] = field(default_factory=dict)
    lost: list[LostSamples] = field(default_factory=list)
    problems: list[tuple[int | None, str]] = field(default_factory=list)
    binary_paths: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.processes: list[Process] = []
        self.threads: list[Thread] = []
        self.binaries = Numbers()
        self.functions = Numbers()  # (name, binary)
        self.files = Numbers()
        self.frames = Numbers()  # the frame's lines
        self.stacks = Numbers()  # (parent, frame, how)
        self.samples: list[tuple[int, ...]] = []

    def thread(
        self, name: str, pid: int = 1, tid: int = 1, command: str = "app", cpu_time: int | None = None
    ) -> int:
        process = next((i for i, known in enumerate(self.processes) if known.pid == pid), None)
        if process is None:
            process = len(self.processes)
            self.processes.append(Process(pid, None, command, None, None, None))
        system = None if cpu_time is None else 0
        self.threads.append(Thread(process, tid, name, None, cpu_time, system))
        return len(self.threads) - 1

    def sample(
        self,
        thread: int,
        stack: str,
        weight: int = 1,
        end: StackEnd = StackEnd.ROOT,
        flags: int = 0,
        event: int = 0,
        times: int = 1,
    ) -> None:
        node = -1
        frames = stack.split(" | ")
        for i, words in enumerate(frames):
            lines = tuple(self._line(part) for part in reversed(words.split(" / ")))
            how = How.INTERRUPTED if i == len(frames) - 1 else How.CFI
            if words.startswith("?"):
                how, guess = How.FRAME_POINTER, GUESS
            else:
                guess = 0
            if "[kernel]" in words:
                how = How.KERNEL
            node = self.stacks.of((node, self.frames.of((lines, i < len(frames) - 1)), how | guess))
        self.samples += [(event, thread, node, weight, int(end), flags)] * times

    def _line(self, words: str) -> tuple[int, int, int, int]:
        parts = _FRAME.fullmatch(words)
        assert parts, words
        function, binary, file, line = parts.groups()
        number = self.binaries.of(binary)
        name = function or f"{binary}+{0x1000 + 16 * len(self.frames):#x}"
        return (
            number,
            self.functions.of((name, number, bool(function))),
            self.files.of(file) if file else -1,
            int(line or 0),
        )

    def profile(self) -> Profile:
        lines = [line for frame_lines, _ in self.frames for line in frame_lines]
        counts = [len(frame_lines) for frame_lines, _ in self.frames]
        columns = np.array(self.samples, np.int64).reshape(-1, 6).T
        stacks = list(self.stacks)
        return Profile(
            path="",
            meta=self.meta,
            is_finished=True,
            events=self.events,
            processes=self.processes,
            threads=self.threads,
            binaries=[self._binary(name) for name in self.binaries],
            binary_process=np.full(len(self.binaries), -1, np.int32),
            binary_symbols=[Symbols("lines", None, "")] * len(self.binaries),
            lost=self.lost,
            problems=self.problems,
            sample_event=columns[0].astype(np.int32),
            sample_thread=columns[1].astype(np.int32),
            sample_stack=columns[2].astype(np.int32),
            sample_weight=columns[3].copy(),
            sample_end=columns[4].astype(np.uint8),
            sample_flags=columns[5].astype(np.uint8),
            tree=Tree(np.array([parent for parent, _, _ in stacks], np.int32)),
            stack_frame=np.array([frame for _, frame, _ in stacks], np.int32),
            stack_how=np.array([how for _, _, how in stacks], np.uint8),
            frame_binary=np.array([lines[0][0] for lines, _ in self.frames], np.int32),
            frame_address=0x1000 + 16 * np.arange(len(self.frames), dtype=np.uint64),
            frame_is_return=np.array([called for _, called in self.frames], np.bool_),
            line_offsets=np.cumsum([0, *counts]),
            line_function=np.array([function for _, function, _, _ in lines], np.int32),
            line_file=np.array([file for _, _, file, _ in lines], np.int32),
            line_number=np.array([number for _, _, _, number in lines], np.int32),
            functions=[name for name, _, _ in self.functions],
            function_binary=np.array([binary for _, binary, _ in self.functions], np.int32),
            function_is_named=np.array([named for _, _, named in self.functions], np.bool_),
            files=list(self.files),
        )

    def _binary(self, name: str) -> CodeFile:
        kind = _KINDS.get(name, BinaryKind.FILE)
        if kind is not BinaryKind.FILE:
            return CodeFile(name, None, "x86_64", kind)
        path = self.binary_paths.get(name, f"/usr/lib/{name}")
        return CodeFile(path, name.encode().hex()[:40], "x86_64", image_address=0x400000)
