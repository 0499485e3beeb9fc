"""Which row of `processes` and `threads` a pid and a tid mean at a time: both are used again and again."""

from __future__ import annotations

import sqlite3
from collections import deque
from dataclasses import dataclass, field

from unspool.capture.samples import (
    CodeMap,
    ProcessEnded,
    ProcessStarted,
    ThreadEnded,
    ThreadNamed,
    ThreadTime,
)
from unspool.profile.number_table import NumberTable

_KEPT = 4096  # ended processes, and ended threads, of which samples may still come


@dataclass(slots=True)
class ProcessRow:
    """threads: by tid. binaries: the numbers of code_map.files, by index; frames: of addresses under
    code_map."""

    id: int
    pid: int
    end_time: int | None = None
    threads: dict[int, ThreadRow] = field(default_factory=dict)
    code_map: CodeMap | None = None
    binaries: dict[int, int] = field(default_factory=dict)
    frames: NumberTable = field(default_factory=NumberTable)
    private: dict[str, int] = field(
        default_factory=dict
    )  # JIT and unknown code: kind -> number of the binary


@dataclass(slots=True)
class ThreadRow:
    id: int
    end_time: int | None = None


class ProcessBook:
    """Writes both tables through a connection. Memory: what lives, and the _KEPT last that ended."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._current: dict[int, ProcessRow] = {}
        self._ended: deque[ProcessRow] = deque()
        self._ended_threads: deque[tuple[ProcessRow, int, ThreadRow]] = deque()
        self.processes = 0
        self.threads = 0  # those with a tid above 0: others stand for no thread
        self._thread_rows = 0

    def current(self, pid: int) -> ProcessRow | None:
        """The last process of that pid."""
        return self._current.get(pid)

    def living(self) -> list[ProcessRow]:
        """Those that have not ended."""
        return [process for process in self._current.values() if process.end_time is None]

    def start(self, event: ProcessStarted) -> None:
        self._begin(event.pid, event.parent_pid, event.command, event.time)

    def end(self, event: ProcessEnded) -> None:
        process = self._current.get(event.pid)
        if process is None or process.end_time is not None:
            process = self._begin(event.pid, None, "", None)
        process.end_time = event.time
        process.code_map = None
        process.frames.clear()
        self._connection.execute(
            "UPDATE processes SET end_time = ?, exit_status = ? WHERE id = ?",
            (event.time, event.exit_status, process.id),
        )
        self._ended.append(process)
        if len(self._ended) > _KEPT:
            oldest = self._ended.popleft()
            if self._current.get(oldest.pid) is oldest:
                del self._current[oldest.pid]

    def process_at(self, pid: int, time: int) -> ProcessRow:
        """The process of that pid at a time; one that was not told of begins here."""
        process = self._current.get(pid)
        if process is None or (process.end_time is not None and time > process.end_time):
            process = self._begin(pid, None, "", None)
        return process

    def thread_at(self, process: ProcessRow, tid: int, time: int) -> ThreadRow:
        """The same for a thread."""
        thread = process.threads.get(tid)
        if thread is None or (thread.end_time is not None and time > thread.end_time):
            thread = self._begin_thread(process, tid, "")
        return thread

    def name_thread(self, event: ThreadNamed) -> None:
        process = self.process_at(event.pid, event.time)
        thread = process.threads.get(event.tid)
        if thread is None or thread.end_time is not None:
            self._begin_thread(process, event.tid, event.name)
        else:
            self._connection.execute(
                "UPDATE threads SET name = ? WHERE id = ?", (text(event.name), thread.id)
            )

    def end_thread(self, event: ThreadEnded) -> None:
        process = self.process_at(event.pid, event.time)
        thread = self.thread_at(process, event.tid, event.time)
        thread.end_time = event.time
        self._connection.execute("UPDATE threads SET end_time = ? WHERE id = ?", (event.time, thread.id))
        self._ended_threads.append((process, event.tid, thread))
        if len(self._ended_threads) > _KEPT:
            of_process, tid, oldest = self._ended_threads.popleft()
            if of_process.threads.get(tid) is oldest:
                del of_process.threads[tid]

    def set_time(self, event: ThreadTime) -> None:
        process = self._current.get(event.pid) or self._begin(event.pid, None, "", None)
        thread = process.threads.get(event.tid) or self._begin_thread(process, event.tid, "")
        self._connection.execute(
            "UPDATE threads SET user_time = ?, system_time = ? WHERE id = ?",
            (event.user, event.system, thread.id),
        )

    def _begin(self, pid: int, parent_pid: int | None, command: str, time: int | None) -> ProcessRow:
        replaced = self._current.get(pid)
        if replaced is not None and replaced.end_time is None:  # by exec
            replaced.end_time = time
            self._connection.execute("UPDATE processes SET end_time = ? WHERE id = ?", (time, replaced.id))
        parent = None if parent_pid is None else self._current.get(parent_pid)
        process = self._current[pid] = ProcessRow(self.processes, pid)
        self.processes += 1
        self._connection.execute(
            "INSERT INTO processes (id, pid, parent, command, start_time) VALUES (?, ?, ?, ?, ?)",
            (process.id, pid, None if parent is None else parent.id, text(command), time),
        )
        return process

    def _begin_thread(self, process: ProcessRow, tid: int, name: str) -> ThreadRow:
        thread = process.threads[tid] = ThreadRow(self._thread_rows)
        self._thread_rows += 1
        self.threads += tid > 0
        self._connection.execute(
            "INSERT INTO threads (id, process, tid, name) VALUES (?, ?, ?, ?)",
            (thread.id, process.id, tid, text(name)),
        )
        return thread


def text(value: str) -> str:
    """As UTF-8 can hold it: what is no text (os.fsdecode makes surrogates of such bytes) as \\udcNN."""
    return value.encode("utf-8", "backslashreplace").decode()
