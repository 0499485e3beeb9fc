"""The memory map of a process: what lies where, and the file behind it.

Reads /proc/PID/maps (proc(5)); mapped_file.py opens the files.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) (\d+) *(.*)")
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One line of /proc/PID/maps. path: as the process' mount namespace has it, with " (deleted)"; "" for
    anonymous memory, "[stack]" and so on for the kernel's. device: "major:minor", hexadecimal."""

    start: int
    end: int
    permissions: str  # "r-xp"
    file_offset: int
    device: str
    inode: int
    path: str

    @property
    def executable(self) -> bool:
        return self.permissions[2] == "x"

    @property
    def is_file(self) -> bool:
        return self.inode != 0

    @property
    def name(self) -> str:
        """How people know it: the path without " (deleted)", or "[anonymous]"."""
        return self.path.removesuffix(_DELETED) or "[anonymous]"


class MemoryMap:
    """All entries, by address."""

    def __init__(self, entries: Sequence[MapEntry]) -> None:
        self.entries = entries
        self._starts = [entry.start for entry in entries]

    @classmethod
    def parse(cls, data: bytes) -> "MemoryMap":
        """From the text of /proc/PID/maps; lines that are none of it are passed over."""
        entries = []
        for line in data.splitlines():
            match = _LINE.fullmatch(line)
            if match is None:
                continue
            start, end, permissions, offset, device, inode, path = match.groups()
            entries.append(
                MapEntry(
                    int(start, 16),
                    int(end, 16),
                    permissions.decode(),
                    int(offset, 16),
                    device.decode(),
                    int(inode),
                    os.fsdecode(path.replace(b"\\012", b"\n")),
                )
            )
        return cls(entries)

    @classmethod
    def of_process(cls, pid: int) -> "MemoryMap":
        """Raises OSError."""
        return cls.parse(Path(f"/proc/{pid}/maps").read_bytes())

    def find(self, address: int) -> MapEntry | None:
        """The entry that holds an address."""
        index = bisect_right(self._starts, address) - 1
        if index >= 0 and address < self.entries[index].end:
            return self.entries[index]
        return None
