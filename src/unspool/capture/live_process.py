"""Stacks of a running process: stop a thread, copy its registers and stack, let it go, then walk.

A thread stands still only while it is copied. Nothing is written into the process, and when this
process ends in whatever way, the kernel lets a stopped thread go on.
"""

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from unspool.binaries import BinaryError
from unspool.capture import ptrace
from unspool.capture.errors import CaptureError
from unspool.capture.memory_map import MemoryMap, open_mapped_file
from unspool.capture.process import CapturedProcess, CapturedThread
from unspool.capture.stack_copy import copy_stacks
from unspool.unwind import Snapshot, Unwinder

_SCHEDULER_PASSES = 3  # how often threads are listed again to find new ones


@dataclass(slots=True)
class LiveProcess(CapturedProcess):
    """A process to look at. Raises CaptureError where it can't be."""

    pid: int
    command: str = field(default="", init=False)
    arch: str = field(default="", init=False)
    missing: dict[str, str] = field(default_factory=dict, init=False)  # files that can't be read: why
    memory_map: MemoryMap = field(init=False)
    unwinder: Unwinder = field(init=False)

    def __post_init__(self) -> None:
        self.memory_map = _memory_map(self.pid)
        self.command = _command(self.pid)
        self.arch = _architecture(self.pid)
        self.unwinder = Unwinder(self.arch, depth_limit=1 << 16)

    def load_modules(self) -> None:
        """Open the files that are mapped and compile their tables. A file that can't be read is named
        in `missing`; its code counts as code without unwind information."""
        for entry in self.memory_map.entries:
            if not entry.executable or entry.path == "[vsyscall]":
                continue
            binary = image_base = None
            if entry.is_file or entry.path == "[vdso]":
                try:
                    binary = open_mapped_file(self.pid, entry)
                    image_base = binary.image_base(entry.start, entry.file_offset, entry.end)
                except BinaryError as error:
                    self.missing[entry.name] = str(error)
            if image_base is None:
                binary = None
            self.unwinder.add_module(
                binary, image_base, start=entry.start, end=entry.end, name=entry.name, replacing=True
            )

    def capture(self, tids: list[int] | None = None) -> Iterator[CapturedThread]:
        """Each thread, or those of tids, in turn. Threads that begin meanwhile are found, those that end
        are left out. Raises CaptureError: no right to look, or all of it is gone."""
        done: set[int] = set()
        for _ in range(_SCHEDULER_PASSES):
            new = [tid for tid in (tids or self.thread_ids()) if tid not in done]
            if not new:
                return
            for tid in new:
                done.add(tid)
                thread = self._capture_thread(tid)
                if thread is not None:
                    yield thread

    def thread_ids(self) -> list[int]:
        """Raises CaptureError: the process is gone."""
        try:
            return sorted(int(task.name) for task in Path(f"/proc/{self.pid}/task").iterdir())
        except OSError:
            raise CaptureError(f"process {self.pid} has ended", "look at another one") from None

    def _capture_thread(self, tid: int) -> CapturedThread | None:
        try:
            name, state = _name_and_state(self.pid, tid)
            memory = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except PermissionError:
            raise _not_permitted(self.pid) from None
        try:
            start = time.perf_counter()
            with ptrace.stopped(tid):
                registers = ptrace.read_registers(tid, self.arch)
                regions = copy_stacks(partial(_read, memory), self.memory_map, registers, self.arch)
            seconds = time.perf_counter() - start
            return CapturedThread(tid, name, state, registers, Snapshot(regions), seconds)
        except ptrace.NotStopped:
            return CapturedThread(tid, name, state, problem="it waits in the kernel and can't be stopped")
        except ptrace.Foreign32Bit:
            raise CaptureError(
                f"process {self.pid} runs 32-bit code", "unspool walks 64-bit programs only"
            ) from None
        except PermissionError:
            raise _not_permitted(self.pid) from None
        except OSError as error:
            if error.errno == errno.ESRCH:
                return None
            raise
        finally:
            os.close(memory)


def _memory_map(pid: int) -> MemoryMap:
    try:
        memory_map = MemoryMap.of_process(pid)
    except (FileNotFoundError, ProcessLookupError):
        raise CaptureError(f"there is no process {pid}", "see `ps -e` for those that are") from None
    except PermissionError:
        raise _not_permitted(pid) from None
    if not memory_map.entries:
        _, state = _name_and_state(pid, pid)
        if state in "ZX":
            raise CaptureError(f"process {pid} has ended (a zombie)", "its parent has yet to collect it")
        raise CaptureError(f"process {pid} has no memory of its own", "it is a kernel thread")
    return memory_map


def _architecture(pid: int) -> str:
    """Of the running program: what it is, or what the machine is if the program can't be read."""
    try:
        from unspool.binaries import Binary

        with Binary.open(f"/proc/{pid}/exe") as binary:
            return binary.arch
    except BinaryError as error:
        if "32-bit" in error.what:
            raise CaptureError(
                f"process {pid} is a 32-bit program", "unspool walks 64-bit ones only"
            ) from None
        return os.uname().machine


def _command(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return b" ".join(words).decode(errors="replace").strip()


def _name_and_state(pid: int, tid: int) -> tuple[str, str]:
    text = Path(f"/proc/{pid}/task/{tid}/stat").read_bytes()
    name = text[text.index(b"(") + 1 : text.rindex(b")")]
    return name.decode(errors="replace"), chr(text[text.rindex(b")") + 2])


def _not_permitted(pid: int) -> CaptureError:
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
        yama = f", kernel.yama.ptrace_scope = {scope}"
    except OSError:
        yama = ""
    return CaptureError(
        f"process {pid} may not be looked at (this is user {os.geteuid()}{yama})",
        f"run it as the process's own user or as root: sudo unspool stack {pid}",
    )


def _read(memory: int, address: int, size: int) -> bytes:
    """From /proc/PID/mem; nothing where nothing can be read, which includes all addresses above 2**63."""
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""
