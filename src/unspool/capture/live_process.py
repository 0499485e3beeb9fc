"""Stacks of a running process: stop a thread, copy its registers and stack, let it go, then walk.

A thread stands still only while it is copied. Nothing is written into the process. Threads are stopped by
a thread of ours that ends right after: whatever happens to it, the kernel then lets all of them go on.
"""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from unspool.binaries import Binary, BinaryError
from unspool.capture import ptrace
from unspool.capture.errors import CaptureError
from unspool.capture.kernel_wait import KernelWait
from unspool.capture.mapped_file import open_mapped_file
from unspool.capture.memory_map import MapEntry, MemoryMap
from unspool.capture.permission import not_permitted
from unspool.capture.process import CapturedProcess, CapturedThread
from unspool.capture.stack_copy import FIRST_LIMIT, STACK_LIMIT, copy_stacks
from unspool.capture.task_status import TaskStatus
from unspool.unwind import Registers, Snapshot, Stack, StackEnd, Unwinder
from unspool.unwind.table_cache import cached_table

_LISTINGS = 3  # how often threads are listed again to find new ones
_ATTEMPTS = 3  # at copies during which no module came or went
_DEPTH_LIMIT = 1 << 16
_STOP_SECONDS = 5.0  # a thread that runs stops when it gets a processor, which a crowded machine may delay
_WAIT_SECONDS = 0.01  # one in an uninterruptible wait (state D) that has not stopped by now rarely will
_CUT_BY_COPY = (StackEnd.STACK_BYTES_ENDED, StackEnd.UNREADABLE_MEMORY)


class LiveProcess(CapturedProcess):
    """A process to look at. Raises CaptureError where it can't be.

    given: its id, or that of one of its threads. namespace_pid: its id in its own pid namespace.
    """

    def __init__(self, given: int) -> None:
        self.pid = _status(given).process_id
        self.namespace_pid = (_status(self.pid).namespace_ids or [self.pid])[-1]
        self.missing = {}
        self.problems = []
        if given != self.pid:
            self.problems.append(
                f"{given} is a thread of process {self.pid}: --thread {given} shows it alone"
            )
        # The main thread may have ended before the others: /proc/PID has no memory then, /proc/TID has.
        self._view = _living_thread(self.pid)
        self.memory_map = self._read_map()
        self.command = _command(self._view)
        self.arch = _architecture(self.pid, self._view)
        self.unwinder = Unwinder(self.arch, depth_limit=_DEPTH_LIMIT)

    def close(self) -> None:
        """Nothing stays open between calls but files, which close themselves."""

    def load_modules(self) -> None:
        opened: dict[tuple[str, int], Binary | None] = {}
        for entry in self.memory_map.entries:
            if not entry.executable or entry.path == "[vsyscall]":
                continue
            binary = image_base = table = None
            if entry.is_file or entry.path == "[vdso]":
                key = (entry.device, entry.inode)
                if key not in opened:
                    opened[key] = self._open(entry)
                binary = opened[key]
            if binary is not None:
                image_base = binary.image_base(entry.start, entry.file_offset, entry.end)
            if binary is not None and image_base is not None:
                table = cached_table(binary)
            self.unwinder.add_module(
                binary if table else None,
                image_base,
                start=entry.start,
                end=entry.end,
                table=table,
                name=entry.name,
                replacing=True,
            )

    def _open(self, entry: MapEntry) -> Binary | None:
        try:
            return open_mapped_file(self._view, entry)
        except BinaryError as error:
            self.missing[entry.name] = str(error)
            return None

    def thread_ids(self) -> list[int]:
        return _thread_ids(self.pid)

    def stacks(self, tids: list[int] | None = None) -> list[tuple[CapturedThread, Stack | None]]:
        for _ in range(_ATTEMPTS):
            before = _code(self.memory_map)
            threads = list(self.capture(tids))
            self.memory_map = self._read_map()
            if _code(self.memory_map) == before:
                break
            self.command = _command(self._view)  # it may be another program
        else:
            self.problems.append("it loads or unloads code all the time: stacks may be wrong")
        self.load_modules()
        return [self._walk_whole(thread) for thread in threads]

    def capture(self, tids: list[int] | None = None) -> Iterator[CapturedThread]:
        """Each thread, or those of tids. Threads that begin meanwhile are found, those that end are left out.
        Raises CaptureError: no right to look, or all of it is gone."""
        yield from _Capture(self, tids).run()

    def _walk_whole(self, thread: CapturedThread) -> tuple[CapturedThread, Stack | None]:
        """The thread's stack; where it is cut because only so much of it was copied, of a larger copy."""
        stack = self.walk(thread)
        if stack is None or stack.end not in _CUT_BY_COPY or not self._is_limited(thread):
            return thread, stack
        for again in _Capture(self, [thread.tid], whole=True).run():
            return again, self.walk(again)
        return thread, stack

    def _is_limited(self, thread: CapturedThread) -> bool:
        regions = thread.memory.regions if thread.memory is not None else []
        for address, data in regions:
            entry = self.memory_map.find(address)
            if entry is not None and len(data) < min(entry.end - address, STACK_LIMIT):
                return True
        return False

    def _read_map(self) -> MemoryMap:
        try:
            memory_map = MemoryMap.of_process(self._view)
        except PermissionError:
            raise not_permitted(self.pid) from None
        except OSError:
            raise _ended(self.pid) from None
        if memory_map.entries:
            return memory_map
        status = _status(self.pid)
        if status.is_kernel_thread:
            raise CaptureError(f"process {self.pid} is a kernel thread", "it has no stack of a program")
        raise _ended(self.pid)


@dataclass
class _Capture:
    """One pass over the threads of a process. whole: copies more of a stack than one usually needs."""

    process: LiveProcess
    tids: list[int] | None
    whole: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)

    def run(self) -> list[CapturedThread]:
        """In a thread of its own: Ctrl-C does not interrupt it between two calls, and its end is the end of
        all tracing. Raises CaptureError."""
        result: list[CapturedThread] = []
        failure: list[BaseException] = []

        def body() -> None:
            try:
                self._all_threads(result)
            except BaseException as error:
                failure.append(error)

        worker = threading.Thread(target=body, name="unspool capture")
        collects = gc.isenabled()
        gc.disable()  # a collection takes longer than a thread may stand still
        try:
            worker.start()
            worker.join()
        finally:
            self.cancelled.set()
            worker.join()
            if collects:
                gc.enable()
        if failure:
            raise failure[0]
        return result

    def _all_threads(self, result: list[CapturedThread]) -> None:
        ptrace.use_short_sleeps()
        try:
            memory = os.open(f"/proc/{self.process._view}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            raise not_permitted(self.process.pid) from None
        except OSError:
            raise _ended(self.process.pid) from None
        try:
            done: set[int] = set()
            for _ in range(_LISTINGS):
                new = [tid for tid in (self.tids or self.process.thread_ids()) if tid not in done]
                for tid in new:
                    if self.cancelled.is_set():
                        return
                    done.add(tid)
                    thread = self._thread(tid, memory)
                    if thread is not None:
                        result.append(thread)
                if not new:
                    return
        finally:
            os.close(memory)

    def _thread(self, tid: int, memory: int) -> CapturedThread | None:
        """None: it is gone."""
        pid = self.process.pid
        try:
            status = TaskStatus.of(pid, tid)
            if status.state in "ZX":
                return CapturedThread(tid, status.name, status.state, problem="it has ended")
            try:
                return self._stopped_thread(status, tid, memory)
            except ptrace.NotStopped:
                return self._waiting_thread(status, tid, memory)
        except ptrace.Foreign32Bit:
            raise CaptureError(
                f"process {pid} runs 32-bit code", "unspool walks 64-bit programs only"
            ) from None
        except PermissionError:
            if _has_ended(pid, tid):
                return None
            raise not_permitted(pid) from None
        except OSError as error:
            if error.errno in (errno.ESRCH, errno.ENOENT, errno.ECHILD):
                return None
            raise

    def _stopped_thread(self, status: TaskStatus, tid: int, memory: int) -> CapturedThread:
        arch = self.process.arch
        with ptrace.stopped(tid, partial(self._gives_up, tid)) as since:
            registers, thread_pointer = ptrace.read_registers(tid, arch)
            regions = self._copy(registers, memory, thread_pointer)
            bits = ptrace.address_bits(tid) if arch == "aarch64" else None
        seconds = time.monotonic() - since
        if bits is not None:
            self.process.unwinder.address_bits = bits
        return CapturedThread(tid, status.name, status.state, registers, self._snapshot(regions), seconds)

    def _waiting_thread(self, status: TaskStatus, tid: int, memory: int) -> CapturedThread:
        """What can be known of a thread that waits in the kernel and does not stop: as long as it waits, its
        stack does not change."""
        wait = KernelWait.of(self.process.pid, tid)
        if wait is not None:
            registers = wait.registers(self.process.arch)
            regions = self._copy(registers, memory)
            if KernelWait.of(self.process.pid, tid) == wait:
                problem = "it can't be stopped: only the registers of its system call are known"
                return CapturedThread(
                    tid, status.name, "D", registers, self._snapshot(regions), problem=problem
                )
        problem = "it has ended" if _has_ended(self.process.pid, tid) else "it did not stop"
        return CapturedThread(tid, status.name, status.state, problem=problem)

    def _snapshot(self, regions: list[tuple[int, bytes]]) -> Snapshot:
        """Stacks as they were; code is still where it was when it is needed."""
        return Snapshot(regions, code_pid=self.process._view)

    def _copy(
        self, registers: Registers, memory: int, thread_pointer: int | None = None
    ) -> list[tuple[int, bytes]]:
        process = self.process
        return copy_stacks(
            partial(_read, memory),
            process.memory_map,
            registers,
            process.arch,
            None if self.whole else thread_pointer,
            limit=STACK_LIMIT if self.whole else FIRST_LIMIT,
        )

    def _gives_up(self, tid: int, seconds: float) -> bool:
        if seconds < _WAIT_SECONDS:
            return False
        if seconds > _STOP_SECONDS or self.cancelled.is_set():
            return True
        return TaskStatus.of(self.process.pid, tid).state in "DZX"


def _status(pid: int) -> TaskStatus:
    gone = CaptureError(f"there is no process {pid}", "see `ps -e` for those that are")
    if pid < 1:
        raise gone
    try:
        return TaskStatus.of(pid)
    except PermissionError:
        raise not_permitted(pid) from None
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise gone from None
    except PermissionError:
        pass
    raise CaptureError(f"process {pid} is hidden (/proc is mounted with hidepid)", "run unspool as root")


def _living_thread(pid: int) -> int:
    """The main thread, or if that has ended, one that has not."""
    for tid in sorted(_thread_ids(pid), key=lambda tid: tid != pid):
        if not _has_ended(pid, tid):
            return tid
    raise CaptureError(
        f"process {pid} has ended (a zombie)",
        "nothing is left of its stacks; its parent has yet to collect it",
    )


def _has_ended(pid: int, tid: int) -> bool:
    try:
        return TaskStatus.of(pid, tid).state in "ZX"
    except OSError:
        return True


def _thread_ids(pid: int) -> list[int]:
    try:
        return sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    except PermissionError:
        raise not_permitted(pid) from None
    except OSError:
        raise _ended(pid) from None


def _ended(pid: int) -> CaptureError:
    return CaptureError(f"process {pid} has ended", "look at another one")


def _code(memory_map: MemoryMap) -> set[tuple[int, int, int, int]]:
    """Which file's code lies where. JIT code does not count: it changes all the time, and no file says
    anything about it."""
    return {
        (entry.start, entry.end, entry.file_offset, entry.inode)
        for entry in memory_map.entries
        if entry.executable and entry.is_file
    }


def _architecture(pid: int, view: int) -> str:
    """Of the running program: what it is, or what the machine is if the program can't be read."""
    try:
        with Binary.open(f"/proc/{view}/exe") as binary:
            return binary.arch
    except BinaryError as error:
        if "32-bit" in error.what:
            what = f"process {pid} is a 32-bit program"
            raise CaptureError(what, "unspool walks 64-bit ones only; try gdb") from None
        return os.uname().machine


def _command(view: int) -> str:
    try:
        words = Path(f"/proc/{view}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace").strip()


def _read(memory: int, address: int, size: int) -> bytes:
    """From /proc/PID/mem; nothing where nothing can be read, which includes all addresses above 2**63."""
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""
