"""Stacks of a running process: stop a thread, copy its registers and stack, let it go, then walk.

A thread stands still only while it is copied. Nothing is written into the process, and when this
process ends in whatever way, the kernel lets a stopped thread go on.
"""

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unspool.binaries import BinaryError
from unspool.capture import ptrace
from unspool.capture.errors import CaptureError
from unspool.capture.memory_map import MemoryMap, open_mapped_file
from unspool.unwind import Registers, Snapshot, Stack, Unwinder

_STACK_LIMIT = 64 << 20  # bytes copied of a stack; more than any stack in use
_HEAP_STACK_LIMIT = 1 << 20  # the same where the mapping is no stack of its own (coroutines, arenas)
_HEAP_MAPPING = 16 << 20  # a mapping larger than this may be such a one
_SCAN_LIMIT = 256 << 10  # bytes of a stack that are searched for the place of a signal frame
_SCHEDULER_PASSES = 3  # how often threads are listed again to find new ones

# Where struct ucontext has the interrupted sp, in words from its start (signal_frame.c has the layout).
_SP_IN_UCONTEXT = {"x86_64": 20, "aarch64": 54}


@dataclass(frozen=True, slots=True)
class CapturedThread:
    """One thread as it was. stopped_seconds: how long it stood still. problem: why there is no stack."""

    tid: int
    name: str
    state: str  # the letter of proc(5): R running, S sleeping, D waiting for a device, T stopped, ...
    registers: Registers | None = None
    memory: Snapshot | None = None
    stopped_seconds: float = 0.0
    problem: str | None = None


@dataclass(slots=True)
class LiveProcess:
    """A process to look at. Raises CaptureError where it can't be."""

    pid: int
    arch: str = field(default="", init=False)
    missing: dict[str, str] = field(default_factory=dict, init=False)  # files that can't be read: why
    memory_map: MemoryMap = field(init=False)
    unwinder: Unwinder = field(init=False)

    def __post_init__(self) -> None:
        self.memory_map = _memory_map(self.pid)
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

    def walk(self, thread: CapturedThread) -> Stack | None:
        """The thread's stack; None where there is none to walk."""
        if thread.registers is None or thread.memory is None:
            return None
        return self.unwinder.walk(thread.registers, thread.memory)

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
                regions = _copy_stacks(memory, self.memory_map, registers, self.arch)
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


def _copy_stacks(
    memory: int, memory_map: MemoryMap, registers: Registers, arch: str
) -> list[tuple[int, bytes]]:
    """The stack from sp up, and where a signal handler runs on a stack of its own, the one below it."""
    regions: list[tuple[int, bytes]] = []
    pending = [registers.sp]
    while pending and len(regions) < 4:
        sp = pending.pop()
        if any(address <= sp < address + len(data) for address, data in regions):
            continue
        data = _copy_stack(memory, memory_map, sp)
        following = min((address for address, _ in regions if address >= sp), default=1 << 64)
        data = data[: following - sp]
        if data:
            regions.append((sp, data))
            pending += _interrupted_sps(data, sp, arch)
    return regions


def _copy_stack(memory: int, memory_map: MemoryMap, sp: int) -> bytes:
    entry = memory_map.find(sp)
    if entry is None:  # mapped since: one try
        size = _HEAP_STACK_LIMIT
    else:
        size = entry.end - sp
        is_stack = entry.path == "[stack]" or entry.end - entry.start <= _HEAP_MAPPING
        size = min(size, _STACK_LIMIT if is_stack else _HEAP_STACK_LIMIT)
    try:
        return os.pread(memory, size, sp)
    except OSError:
        return b""


def _interrupted_sps(stack: bytes, sp: int, arch: str) -> list[int]:
    """Where signal frames on this copy may say that the interrupted stack is. Only to know what to copy:
    the walk relies on none of it."""
    words = np.frombuffer(stack[: min(len(stack), _SCAN_LIMIT) & ~7], dtype=np.uint64)
    sp_word = _SP_IN_UCONTEXT[arch]
    count = len(words) - sp_word
    if count <= 0:
        return []
    # struct ucontext: uc_flags, uc_link (0), then the alternate stack: its start, flags, size.
    starts, sizes = words[2 : 2 + count], words[4 : 4 + count]
    here = np.uint64(sp)
    candidates = (
        (words[:count] < 16) & (words[1 : 1 + count] == 0) & (starts <= here) & (here - starts < sizes)
    )
    return [int(words[index + sp_word]) for index in np.flatnonzero(candidates)]
