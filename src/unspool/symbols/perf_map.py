"""Names of JIT code, from the map that runtimes write for perf: /tmp/perf-PID.map.

One function a line: start and size in hexadecimal, then the name, which may hold spaces. Runtimes append to
the file while they run, and a later line replaces what it overlaps: code is moved and its memory used again.
Format: Linux, tools/perf/Documentation/jit-interface.txt. The file is as trustworthy as the program: what is
no such line is passed over, and size and number of lines are bounded, in favour of the last ones.
"""

from __future__ import annotations

import heapq
import os
import re
import stat
from bisect import bisect_right
from pathlib import Path

_MAX_BYTES = 1 << 26
_MAX_LINES = 1 << 20
_MAX_NAME = 1 << 12
_LINE = re.compile(rb"(?:0x)?([0-9a-fA-F]{1,16})[ \t]+(?:0x)?([0-9a-fA-F]{1,16})[ \t]+([^\n]+)")
_ADDRESSES = 1 << 64


class PerfMap:
    """Sorted, non-overlapping ranges of addresses in a process, each with a name."""

    def __init__(self, data: bytes) -> None:
        """`data`: the file's bytes."""
        entries: list[tuple[int, int, bytes]] = []
        for line in data.split(b"\n")[-_MAX_LINES:]:
            match = _LINE.match(line)
            if match is not None:
                start, size = int(match[1], 16), int(match[2], 16)
                if size:
                    entries.append((start, min(start + size, _ADDRESSES), match[3][:_MAX_NAME]))
        self._starts: list[int] = []
        self._names: list[bytes | None] = []  # None: nothing is there
        self._arrange(entries)

    @classmethod
    def of_process(cls, pid: int) -> PerfMap | None:
        """The map of a process, as it is now; None if it has none. A process in a container names its file
        by its number there, and puts it into the /tmp that it sees."""
        uid = _process_uid(pid)
        for path in (f"/proc/{pid}/root/tmp/perf-{_inner_pid(pid)}.map", f"/tmp/perf-{pid}.map"):
            data = _read_owned(path, {0, os.geteuid()} if uid is None else {0, uid})
            if data is not None:
                return cls(data)
        return None

    def lookup(self, address: int) -> str | None:
        """The name of the code at a lookup address (of the process, not relative)."""
        index = bisect_right(self._starts, address) - 1
        name = self._names[index] if index >= 0 else None
        return None if name is None else name.decode("utf-8", "backslashreplace")

    def __len__(self) -> int:
        return sum(name is not None for name in self._names)

    def _arrange(self, entries: list[tuple[int, int, bytes]]) -> None:
        """Cuts the addresses at all starts and ends; each piece belongs to the last entry that covers it."""
        order = sorted(range(len(entries)), key=lambda i: entries[i][0])
        cuts = sorted({cut for start, end, _ in entries for cut in (start, end)})
        active: list[int] = []  # a heap of negated line numbers
        position = 0
        for cut in cuts:
            while position < len(order) and entries[order[position]][0] <= cut:
                heapq.heappush(active, -order[position])
                position += 1
            while active and entries[-active[0]][1] <= cut:
                heapq.heappop(active)
            name = entries[-active[0]][2] if active else None
            if not self._names or name != self._names[-1]:
                self._starts.append(cut)
                self._names.append(name)


def _read_owned(path: str, owners: set[int]) -> bytes | None:
    """The last _MAX_BYTES of a regular file that the process' user or root owns, as perf demands: anybody may
    write to /tmp. None if there is no such file."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in owners:
                return None
            if status.st_size > _MAX_BYTES:
                file.seek(status.st_size - _MAX_BYTES)
                file.readline(_MAX_BYTES)  # the rest of a line
            return file.read(_MAX_BYTES)
    except OSError:
        return None


def _status_field(pid: int, name: str) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return []
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.split()
    return []


def _process_uid(pid: int) -> int | None:
    fields = _status_field(pid, "Uid")
    return int(fields[1]) if len(fields) > 1 else None


def _inner_pid(pid: int) -> int:
    """The process' number in its own pid namespace."""
    fields = _status_field(pid, "NSpid")
    return int(fields[-1]) if fields else pid
