"""The memory map of a process: what lies where, and the file behind it.

Reads /proc/PID/maps (proc(5)). Files are opened where the process has them: a deleted file, or one of
another mount namespace, is still the file that is mapped.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unspool.binaries import Binary, BinaryError

_LINE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) (\d+) *(.*)")
_DELETED = " (deleted)"
_VDSO_LIMIT = 1 << 20  # bytes; it has two to four pages


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One line of /proc/PID/maps. path: "" for anonymous memory, "[stack]" and so on for the kernel's."""

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


def open_mapped_file(pid: int, entry: MapEntry) -> Binary:
    """The file behind an entry, or the vDSO. Raises BinaryError: none of its paths leads to it."""
    if entry.path == "[vdso]":
        return Binary.from_bytes(_read_memory(pid, entry), "[vdso]")
    last_error = BinaryError(entry.path, "is not the file that is mapped", remedy="it was replaced since")
    for path in (
        f"/proc/{pid}/map_files/{entry.start:x}-{entry.end:x}",
        f"/proc/{pid}/root{entry.name}",
        entry.name,
    ):
        try:
            if Path(path).stat().st_ino == entry.inode:
                return Binary.open(path)
        except OSError:
            continue
        except BinaryError as error:
            last_error = error
    raise last_error


def _read_memory(pid: int, entry: MapEntry) -> bytes:
    size = min(entry.end - entry.start, _VDSO_LIMIT)
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            return os.pread(memory.fileno(), size, entry.start)
    except OSError as error:
        raise BinaryError(entry.path, f"can't be read ({error.strerror})") from None
