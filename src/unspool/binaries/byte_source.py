"""Where a file's bytes come from. Every access to a file goes through `read`, which checks the range.

Files are read with pread, never mapped: a mapped file that shrinks kills the reader with SIGBUS.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from abc import ABC, abstractmethod
from pathlib import Path

from unspool.binaries.binary import DAMAGED, BinaryError

MAX_READ = 1 << 32  # the most that one part of a file may take, whatever a (sparse) file claims


# A hole in a sparse file costs its author nothing, and us memory: large parts must be mostly data.
HOLES_ALLOWED = 1 << 26
MAX_HOLES_RATIO = 16
_MAX_PIECES = 1000


class ByteSource(ABC):
    """`size` bytes, named `path` in errors."""

    path: str
    size: int
    owner: int | None = None  # the file's user; None: it is no file
    complete: bool  # False: an image from memory, parts of which may never have been loaded

    def read(self, offset: int, size: int, what: str) -> memoryview:
        """Bytes offset .. offset + size, all of them or BinaryError; `what` names them in the error."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise BinaryError(self.path, f"{what} ({size} bytes) reaches past the end of the file", offset)
        if size > MAX_READ:
            remedy = f"unspool reads at most {MAX_READ} bytes at once"
            raise BinaryError(self.path, f"{what} is too large ({size} bytes)", offset, remedy)
        return self._read(offset, size, what)

    def error(self, what: str, offset: int | None = None, remedy: str = DAMAGED) -> BinaryError:
        return BinaryError(self.path, what, offset, remedy)

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _read(self, offset: int, size: int, what: str) -> memoryview: ...


class MemorySource(ByteSource):
    complete = False

    def __init__(self, data: bytes | bytearray | memoryview, name: str) -> None:
        self.path = name
        self._data = memoryview(bytes(data))
        self.size = len(self._data)

    def close(self) -> None:
        self._data = memoryview(b"")
        self.size = 0

    def _read(self, offset: int, size: int, what: str) -> memoryview:
        return self._data[offset : offset + size]


class FileSource(ByteSource):
    """A regular file; anything else (directory, FIFO, device) is refused before it is opened."""

    complete = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            if not stat.S_ISREG(Path(path).stat().st_mode):
                raise self.error("not a regular file", None, "name a program, a library or an object file")
            # Between the two calls the path may have become a FIFO: O_NONBLOCK keeps open from waiting.
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except (OSError, ValueError) as problem:
            raise self._unreadable(problem) from problem
        self._close = weakref.finalize(self, os.close, self._fd)
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise self.error("not a regular file", None, "name a program, a library or an object file")
        self.size = status.st_size
        self.owner = status.st_uid

    def close(self) -> None:
        self._close()
        self._fd = -1

    def _read(self, offset: int, size: int, what: str) -> memoryview:
        if self._fd < 0:
            raise self.error("the file was closed", None, "read what you need before you close it")
        try:
            if size > HOLES_ALLOWED and self._data_size(offset, size) * MAX_HOLES_RATIO < size:
                remedy = "the file is sparse, with almost nothing in that place: get a real copy of it"
                raise self.error(f"{what} ({size} bytes) is mostly a hole", offset, remedy)
            data = os.pread(self._fd, size, offset)
            if len(data) < size:  # one call yields 2 GiB at most
                data = self._read_rest(data, offset, size)
        except (OSError, MemoryError, OverflowError) as problem:
            raise self._unreadable(problem, offset) from problem
        if len(data) < size:
            remedy = "it was cut short while it was read; open it again"
            raise self.error(f"{what} is no longer there", offset + len(data), remedy)
        return memoryview(data)

    def _data_size(self, offset: int, size: int) -> int:
        """How many bytes of a range are not holes, of the first pieces of data at least."""
        end, total = offset + size, 0
        for _ in range(_MAX_PIECES):
            try:
                offset = os.lseek(self._fd, offset, os.SEEK_DATA)
            except OSError as problem:
                if problem.errno == errno.ENXIO:  # no more data
                    break
                raise
            if offset >= end:
                break
            hole = min(os.lseek(self._fd, offset, os.SEEK_HOLE), end)
            total += hole - offset
            offset = hole
        return total

    def _read_rest(self, data: bytes, offset: int, size: int) -> bytes:
        parts = [data]
        got = len(data)
        while got < size and (part := os.pread(self._fd, size - got, offset + got)):
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    def _unreadable(self, problem: Exception, offset: int | None = None) -> BinaryError:
        reason = (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem)
        what = f"can't be read ({reason or type(problem).__name__})"
        return self.error(what, offset, "check that the file exists and may be read")
