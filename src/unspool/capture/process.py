"""What a live process and a core file have in common, for those who print stacks of either."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from unspool.capture.core_notes import Signal
from unspool.capture.memory_map import MemoryMap
from unspool.unwind import Registers, Snapshot, Stack, Unwinder


@dataclass(frozen=True, slots=True)
class CapturedThread:
    """One thread as it was. registers: None: there is no stack. problem: why there is none, or why it may
    be cut. stopped_seconds: how long it stood still, at most."""

    tid: int
    name: str
    state: str  # the letter of proc(5): R running, S sleeping, D in an uninterruptible wait; "" = not known
    registers: Registers | None = None
    memory: Snapshot | None = None
    stopped_seconds: float = 0.0
    problem: str | None = None


class CapturedProcess(ABC):
    """A process whose threads can be captured, then walked. Call load_modules before walk.

    namespace_pid: its id in its own pid namespace, None = not known. command: with its arguments. missing:
    files that can't be used: why. problems: what else can't be seen. signal: what killed it, None = nothing.
    """

    pid: int
    namespace_pid: int | None = None
    command: str
    arch: str
    missing: dict[str, str]
    problems: list[str]
    signal: Signal | None = None
    memory_map: MemoryMap
    unwinder: Unwinder

    @abstractmethod
    def load_modules(self) -> None:
        """Open the files that are mapped and compile their tables. A file that can't be read is named
        in `missing`; its code counts as code without unwind information."""

    @abstractmethod
    def thread_ids(self) -> list[int]:
        """Raises CaptureError."""

    @abstractmethod
    def capture(self, tids: list[int] | None = None) -> Iterator[CapturedThread]:
        """Each thread, or those of tids, in turn. Raises CaptureError."""

    @abstractmethod
    def close(self) -> None:
        """Release what is open; what was walked stays."""

    def walk(self, thread: CapturedThread) -> Stack | None:
        """The thread's stack; None where there is none to walk."""
        if thread.registers is None or thread.memory is None:
            return None
        return self.unwinder.walk(thread.registers, thread.memory)

    def stacks(self, tids: list[int] | None = None) -> list[tuple[CapturedThread, Stack | None]]:
        """Captures all threads, or those of tids, then walks: loading modules may take longer than threads
        stay where they are. Raises CaptureError."""
        threads = list(self.capture(tids))
        self.load_modules()
        return [(thread, self.walk(thread)) for thread in threads]
