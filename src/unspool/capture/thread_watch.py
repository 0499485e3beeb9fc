"""The threads of one process as /proc shows them: which there are, their names, their CPU time.

Reading is all that is done here; a process or a thread that ends meanwhile is no error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

_NAMES_SECONDS = 1.0  # between two readings of names and CPU times
_LOOK_COST = 0.02  # of the time at most goes into listing threads
_COST = 0.005  # of the time at most goes into such readings, however many threads there are
_FIRST_LOOKS = 3  # of a thread: it often names itself just after its start
_MAP_TRIES = 20  # where the main thread has ended, and others live less long than it takes to list them
_UTIME, _STIME, _STARTTIME, _STARTSTACK = 11, 12, 19, 25  # fields of /proc/PID/task/TID/stat behind the name


@dataclass(slots=True)
class WatchedThread:
    """cpu_time: nanoseconds as last seen, at most a second before the thread's end. system_share: of it."""

    tid: int
    name: str = ""
    cpu_time: int = 0
    system_share: float = 0.0
    is_renamed: bool = False  # since somebody looked
    program: bytes = b""  # where its stack began: another place after exec
    start_time: bytes = b""  # as the kernel tells it: another one if the id is another thread's by now


class ThreadWatch:
    """Close it in the end. Raises ProcessLookupError: there is no such process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.threads: dict[int, WatchedThread] = {}
        try:
            self._folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ProcessLookupError(pid) from None
        self.next_look = 0.0  # of time.monotonic: before it, `look` finds nothing
        self._next_reading = 0.0
        self.fresh: dict[int, int] = {}  # threads that began lately: looks until they have not
        self._replaced: set[int] = set()  # threads whose ids are other threads' by now

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def look(self) -> tuple[list[int], list[WatchedThread]]:
        """(ids of threads that are new, threads that have ended) since the last look. An id that was
        used again is in both. Raises ProcessLookupError: all of it has ended."""
        started = time.monotonic()
        if started < self.next_look:
            return [], []
        used = time.thread_time()
        tids = self._tids()
        self.next_look = started + (time.thread_time() - used) / _LOOK_COST
        gone = (self.threads.keys() - tids) | (self.threads.keys() & self._replaced)
        self._replaced.clear()
        ended = [self.threads.pop(tid) for tid in gone]
        new = [tid for tid in tids if tid not in self.threads]
        self.fresh = {tid: left - 1 for tid, left in self.fresh.items() if left and tid in self.threads}
        for tid in self.fresh:
            self._read(self.threads[tid])
        for tid in new:
            self.threads[tid] = WatchedThread(tid)
            self.fresh[tid] = _FIRST_LOOKS
            self._read(self.threads[tid])
        return new, ended

    def read_if_due(self, now: float) -> bool:
        """Names and CPU times anew, once in a while. now: of time.monotonic. Returns whether it did."""
        if now < self._next_reading:
            return False
        used = time.thread_time()
        self.read()
        self._next_reading = now + max(_NAMES_SECONDS, (time.thread_time() - used) / _COST)
        return True

    def read(self) -> None:
        """Names and CPU times anew."""
        for thread in self.threads.values():
            self._read(thread)

    def cpu_times(self, tids: Iterable[int]) -> dict[int, int]:
        """Nanoseconds that these threads have used by now."""
        return {tid: self._cpu_time(tid) for tid in tids}

    def process_cpu_time(self) -> int:
        """Nanoseconds of CPU time of all threads, those that have ended too; until its parent has collected
        it. Raises ProcessLookupError."""
        try:
            # CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) makes it.
            return time.clock_gettime_ns((~self.pid << 3) | 2)
        except OSError:
            raise ProcessLookupError(self.pid) from None

    def memory_map(self) -> bytes:
        """The text of /proc/PID/maps, through a thread that lives. Raises ProcessLookupError,
        PermissionError."""
        for _ in range(_MAP_TRIES):
            tids = sorted(self._tids(), reverse=True)  # the youngest ones live longest
            for path in ("maps", *(f"task/{tid}/maps" for tid in tids)):
                text = self._text(path)
                if text:
                    return text
        raise ProcessLookupError(self.pid)

    def command(self) -> str:
        """With its arguments; "" if the process has hidden them."""
        try:
            words = self._text("cmdline").split(b"\0")
        except OSError:
            return ""
        return b" ".join(words).decode(errors="replace").strip()

    def seccomp(self) -> tuple[int, int]:
        """The mode (0 none, 1 strict, 2 filters) and how many filters there are (0: the kernel does not
        tell). They are inherited and can only become more."""
        mode = int(self._status("status", b"Seccomp:") or b"0")
        return mode, int(self._status("status", b"Seccomp_filters:") or b"0")

    def program(self, tid: int) -> bytes:
        """What tells the program that a thread runs from the one before and the one after an exec: where its
        stack began, which is random. b"" or b"0" = not known."""
        return self._stat_field(tid, _STARTSTACK)

    def start_time(self) -> bytes:
        """When the process began, as the kernel tells it; exec does not change it. b"" = not known."""
        return self._stat_field(self.pid, _STARTTIME)

    def _stat_field(self, tid: int, number: int) -> bytes:
        with suppress(FileNotFoundError, ProcessLookupError):
            stat = self._text(f"task/{tid}/stat")
            fields = stat[stat.rfind(b")") + 2 :].split()
            return fields[number] if len(fields) > number else b""
        return b""

    def blocks(self, tid: int, number: int) -> bool:
        """Whether a thread has blocked a signal."""
        mask = int(self._status(f"task/{tid}/status", b"SigBlk:") or b"0", 16)
        return bool(mask >> (number - 1) & 1)

    def _status(self, path: str, field: bytes) -> bytes:
        lines = self._text(path).splitlines()
        return next((line[len(field) :].strip() for line in lines if line.startswith(field)), b"")

    def _tids(self) -> set[int]:
        try:
            folder = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folder)
        except (FileNotFoundError, ProcessLookupError):
            raise ProcessLookupError(self.pid) from None
        try:
            return {int(name) for name in os.listdir(folder)}  # noqa: PTH208 (a descriptor has no Path)
        except (FileNotFoundError, ProcessLookupError):
            raise ProcessLookupError(self.pid) from None
        finally:
            os.close(folder)

    def _read(self, thread: WatchedThread) -> None:
        with suppress(FileNotFoundError, ProcessLookupError, ValueError, IndexError):
            path = f"task/{thread.tid}"
            cpu_time = self._cpu_time(thread.tid)
            stat = self._text(f"{path}/stat")
            name_end = stat.rindex(b")")
            fields = stat[name_end + 2 :].split()
            user, system = int(fields[_UTIME]), int(fields[_STIME])
            thread.start_time = thread.start_time or fields[_STARTTIME]
            if fields[_STARTTIME] != thread.start_time:
                self._replaced.add(thread.tid)
                return
            thread.program = thread.program or fields[_STARTSTACK]
            if fields[_STARTSTACK] in (thread.program, b"0"):  # else exec has named it anew; 0: not known
                name = stat[stat.index(b"(") + 1 : name_end].decode(errors="replace")
                thread.is_renamed |= name != thread.name
                thread.name = name
            thread.system_share = system / (user + system) if user + system else 0.0
            thread.cpu_time = max(thread.cpu_time, cpu_time)

    def _cpu_time(self, tid: int) -> int:
        words = self._text(f"task/{tid}/schedstat").split()
        return int(words[0]) if words else 0

    def _text(self, path: str) -> bytes:
        """Empty where the process has ended."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except (FileNotFoundError, ProcessLookupError):
            return b""
        try:
            parts = []
            while part := os.read(file, 1 << 16):
                parts.append(part)
            return b"".join(parts)
        except ProcessLookupError:
            return b""
        finally:
            os.close(file)
