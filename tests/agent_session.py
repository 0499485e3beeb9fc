"""A session as tests need it: plays the unspool process towards agents, plainly and step by step.

Tables are compiled before they are published, maps are read when asked for, threads are found by looking into
/proc. Nothing here is shared with the real thing but the memory and the core's side of it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from unspool import Binary, UnwindTable, core
from unspool.capture.mapped_file import open_mapped_file
from unspool.capture.memory_map import MemoryMap
from unspool.capture.session_layout import AreaState, LostReason, SlotState, Wish
from unspool.capture.session_memory import Area, SessionMemory
from unspool.unwind import How, StackEnd

AGENT = core.library_path().parent / "libunspool_agent.so"
RING = 1 << 20
SI_QUEUE = -1
SYS_RT_TGSIGQUEUEINFO = {"x86_64": 297, "aarch64": 240}[platform.machine()]

_libc = ctypes.CDLL(None, use_errno=True)


class AgentSample(NamedTuple):
    """One record of a ring."""

    values: Any  # core_session.SAMPLE
    addresses: list[int]
    how: list[int]
    copy: bytes | None  # struct unspool_copy and what follows

    @property
    def end(self) -> StackEnd:
        return StackEnd(int(self.values["end"]))

    @property
    def complete(self) -> bool:
        return self.end is StackEnd.ROOT and not any(how & 0x80 for how in self.how)

    @property
    def kinds(self) -> list[How]:
        return [How(how & 0x7F) for how in self.how]


@dataclass
class Watched:
    """One process with an agent."""

    number: int
    area: Area
    pid: int
    map: MemoryMap
    samples: list[AgentSample] = field(default_factory=list)
    slots: dict[int, int] = field(default_factory=dict)  # by tid

    @property
    def state(self) -> AreaState:
        return AreaState(self.area.field("state"))

    def lost(self, reason: LostReason) -> int:
        return int(self.area.fields["lost"][reason])

    def of_thread(self, tid: int) -> list[AgentSample]:
        return [sample for sample in self.samples if sample.values["tid"] == tid]


class AgentSession:
    """rate: samples per second of CPU time. maps: of emulated processes, by pid."""

    def __init__(
        self,
        rate: int = 199,
        ring_size: int = RING,
        flags: int = 0,
        arch: str | None = None,
        maps: dict[int, MemoryMap] | None = None,
    ) -> None:
        self.memory = SessionMemory(10**9 // rate, ring_size, flags, arch)
        self._maps = maps
        self.processes: list[Watched] = []
        self.tells_stacks = True  # of main threads
        self._programs: list[subprocess.Popen[str]] = []  # killed in the end
        self._places: dict[tuple[str, int], tuple[Binary, int | None]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in self._programs:
            if program.stdout and not program.stdout.closed:
                program.kill()
                program.communicate()
        self.memory.close()

    def environment(self, **others: str) -> dict[str, str]:
        return {**os.environ, "LD_PRELOAD": str(AGENT), "UNSPOOL_SESSION": self.memory.path, **others}

    def start(self, *command: str | Path, **options: Any) -> subprocess.Popen[str]:
        """A program with an agent in it, its output in pipes."""
        options = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": self.environment(),
            **options,
        }
        self._programs.append(subprocess.Popen([*command], text=True, **options))
        return self._programs[-1]

    def finish(self, program: subprocess.Popen[str], seconds: float = 180) -> tuple[str, str]:
        """Serve it until it has ended, which its input does first: what it printed."""
        if program.stdin:
            program.stdin.close()
            program.stdin = None
        self.serve(lambda: program.poll() is not None, seconds)
        output = program.communicate(timeout=10)
        self.look()
        return output

    def run(self, *command: str | Path, **options: Any) -> tuple[int, str, str]:
        """Exit status and output of a program that was served until its end."""
        program = self.start(*command, **options)
        output, errors = self.finish(program)
        return program.returncode, output, errors

    def serve(self, is_done: Callable[[], bool], seconds: float = 180) -> None:
        """Until is_done, which must be in time."""
        end = time.monotonic() + seconds
        while True:
            # Asked first: it may end at any time.
            runs = any(program.poll() is None for program in self._programs)
            if is_done():
                return
            assert time.monotonic() < end, "it took too long"
            assert runs, "it has ended"
            self.look()
            self.memory.doorbell.wait(0.01)

    def look(self) -> None:
        """Everything that the unspool process does regularly, once."""
        self.memory.beat()
        known = {watched.number for watched in self.processes}
        for number in self.memory.claimed():
            if int(number) not in known:
                self._greet(int(number))
        for watched in self.processes:
            self.drain(watched)
            if watched.state is AreaState.RUNNING:
                self._find_threads(watched)

    def _greet(self, number: int) -> None:
        area = self.memory.area(number)
        if area.field("state") == AreaState.CLAIMED:
            return
        watched = Watched(number, area, area.field("pid"), MemoryMap([]))
        self.processes.append(watched)
        with suppress(OSError):  # it has ended already
            self.publish(watched)

    def publish(self, watched: Watched, pending: tuple[str, ...] = ()) -> None:
        """The process' modules as they are now. pending: ends of paths whose table is still to come."""
        rows = []
        changes = watched.area.field("changes")
        if self._maps is None:
            watched.map = MemoryMap.of_process(watched.pid)
        elif watched.pid in self._maps:
            watched.map = self._maps[watched.pid]
        else:
            return
        for entry in watched.map.entries:
            if not entry.executable or entry.path == "[vsyscall]":
                continue
            if not entry.is_file and entry.path != "[vdso]":
                rows.append((entry.start, entry.end, 0, None, False))
                continue
            key = (entry.path, entry.inode)
            if key not in self._places:
                is_emulated = self._maps is not None
                binary = Binary.open(entry.path) if is_emulated else open_mapped_file(watched.pid, entry)
                table = UnwindTable.compile(binary).to_bytes()
                self._places[key] = binary, self.memory.store_table(table)
            binary, place = self._places[key]
            base = binary.image_base(entry.start, entry.file_offset, entry.end)
            is_pending = entry.path.endswith(pending) if pending else False
            rows.append((entry.start, entry.end, base or 0, None if is_pending else place, is_pending))
        starts, ends, bases, places, is_pending_ = (list(column) for column in zip(*rows, strict=True))
        assert watched.area.publish(starts, ends, bases, places, is_pending_, changes) is not None

    def send_signal(self, watched: Watched, tid: int) -> None:
        """One of ours, so that the thread runs the agent's code."""
        info = struct.pack("<iii4xiIQ", signal.SIGPROF, 0, SI_QUEUE, os.getpid(), 0, self.memory.cookie)
        _libc.syscall(SYS_RT_TGSIGQUEUEINFO, watched.pid, tid, signal.SIGPROF, info.ljust(128, b"\0"))

    def _tell_main_stack(self, watched: Watched, slot: int) -> None:
        stack = next(entry for entry in watched.map.entries if entry.path == "[stack]")
        watched.area.core.set_stack(slot, stack.start, stack.end, is_main=True)

    def drain(self, watched: Watched) -> None:
        more = True
        while more:
            ring, more = self.memory.reader.read(watched.area.core)
            for i, values in enumerate(ring.samples):
                frames = slice(int(ring.offsets[i]), int(ring.offsets[i + 1]))
                addresses, how = ring.addresses[frames].tolist(), ring.how[frames].tolist()
                watched.samples.append(AgentSample(values, addresses, how, ring.copies.get(i)))
            self.memory.reader.copy_room.give_back(ring.copies.values())

    def _find_threads(self, watched: Watched) -> None:
        try:
            tids = {int(path.name) for path in Path(f"/proc/{watched.pid}/task").iterdir()}
        except OSError:
            tids = set()
        for tid in tids - watched.slots.keys():
            slot = watched.area.core.add_thread(tid, Wish.TIMER, 0)
            if slot is not None:
                watched.slots[tid] = slot
                if tid == watched.pid and self.tells_stacks:
                    self._tell_main_stack(watched, slot)
                if watched.area.slots["state"][slot] == SlotState.FREE:
                    self.send_signal(watched, tid)
        for tid in watched.slots.keys() - tids:
            watched.area.core.change_thread(watched.slots.pop(tid), Wish.END)
