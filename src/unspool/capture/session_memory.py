"""The memory that unspool shares with the agents of one session: made here, reached by them through /proc.

Agents open it by the path of our file descriptor, so that nothing is left of it when we are killed. What is
in an area may be anything, at any time: it is copied, then checked.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import secrets
import signal
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.capture import session_layout as layout
from unspool.capture.errors import CaptureError
from unspool.capture.session_layout import Refusal, SessionState
from unspool.core_interface import ARCHITECTURES
from unspool.core_session import AreaPointer, Doorbell, RingReader

_NAME = "unspool"
_ZONE_SIZE = 128 << 20  # bytes of unwind tables; agents map all of it, though most is never touched
_ZONE_ALIGNMENT = 64
_ADDRESS_BITS = {"x86_64": 47, "aarch64": 48}
_PUNCH_HOLE, _KEEP_SIZE = 2, 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class SessionMemory:
    """Close it in the end. ring_size: bytes for the samples of one process, a power of two. period: ns of CPU
    time between two samples. Raises CaptureError."""

    def __init__(self, period: int, ring_size: int, flags: int, arch: str | None = None) -> None:
        arch = arch or platform.machine()
        self.arch = arch
        self.area_size = layout.AREA_SIZE + ring_size
        self.cookie = secrets.randbits(63) | 1
        self._zone_offset = layout.AREAS_OFFSET + layout.AREAS * self.area_size
        self._zone_used = 0
        self._file = _make_file(self._zone_offset + _ZONE_SIZE)
        self._memory = mmap.mmap(self._file, layout.AREAS_OFFSET)
        self.header: Any = np.ndarray((), layout.HEADER, self._memory)
        self.doorbell = Doorbell(self._memory, _offset(layout.HEADER, "doorbell"))
        self.reader = RingReader(ring_size)
        self._refusals_seen = 0
        values = {
            "version": layout.VERSION,
            "arch": ARCHITECTURES[arch],
            "file_size": self._zone_offset + _ZONE_SIZE,
            "area_size": self.area_size,
            "ring_size": ring_size,
            "zone_offset": self._zone_offset,
            "zone_size": _ZONE_SIZE,
            "cookie": self.cookie,
            "period": period,
            "signal": signal.SIGPROF,
            "address_bits": _ADDRESS_BITS[arch],
            "flags": flags,
            "unspool_pid": os.getpid(),
            "state": SessionState.RUNNING,
        }
        for name, value in values.items():
            self.header[name] = value
        self.beat()
        self.header["magic"] = layout.MAGIC

    @property
    def path(self) -> str:
        """By which agents open it."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode number, by which its mappings are known."""
        status = os.fstat(self._file)
        return status.st_dev, status.st_ino

    def close(self) -> None:
        """Agents stop. What they have mapped stays theirs."""
        self.stop()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def stop(self) -> None:
        """No more samples are taken."""
        self.header["state"] = SessionState.STOPPING

    def beat(self) -> None:
        """Tell agents that unspool lives; they stop when this does."""
        self.header["heartbeat"] = time.monotonic_ns()

    def claimed(self) -> NDArray[np.intp]:
        """Numbers of the areas that processes have taken. NumPy reads twice, so it reads a copy: they may be
        taken meanwhile."""
        return np.flatnonzero(self.header["claims"].copy())

    def claimant(self, number: int) -> int:
        """The process that has taken an area, by the number that it sees itself."""
        return int(self.header["claims"][number])

    def area(self, number: int) -> Area:
        """Raises CaptureError: there is no address space left."""
        return Area(self, number, self._file)

    def free_area(self, number: int) -> None:
        """Its process is gone: the next one finds it empty."""
        offset = layout.AREAS_OFFSET + number * self.area_size
        if _libc.fallocate(self._file, _PUNCH_HOLE | _KEEP_SIZE, offset, self.area_size) == 0:
            self.header["claims"][number] = 0

    def new_refusals(self) -> list[tuple[int, Refusal]]:
        """(pid as that process sees it, why it is not recorded) since the last call."""
        count = int(self.header["refusal_count"])
        found = []
        for number in range(max(self._refusals_seen, count - layout.REFUSALS), count):
            pid, reason = (int(value) for value in self.header["refusals"][number % layout.REFUSALS])
            if reason in Refusal.__members__.values():
                found.append((pid, Refusal(reason)))
        self._refusals_seen = count
        return found

    def store_table(self, table: bytes) -> int | None:
        """Its offset in the zone, or None: there is no room."""
        place = -(-self._zone_used // _ZONE_ALIGNMENT) * _ZONE_ALIGNMENT
        if place + len(table) > _ZONE_SIZE:
            return None
        try:
            written = 0
            while written < len(table):
                written += os.pwrite(self._file, table[written:], self._zone_offset + place + written)
        except OSError:  # no memory
            return None
        self._zone_used = place + len(table)
        return place


class Area:
    """What one process shares with unspool."""

    def __init__(self, memory: SessionMemory, number: int, file: int) -> None:
        self.number = number
        offset = layout.AREAS_OFFSET + number * memory.area_size
        try:
            self._memory = mmap.mmap(file, memory.area_size, offset=offset)
        except OSError as error:
            raise CaptureError(
                f"{memory.area_size} bytes of memory can't be mapped: {error.strerror}",
                "raise the limit: ulimit -v",
            ) from None
        self.fields: Any = np.ndarray((), layout.AREA_FIELDS, self._memory)
        self.slots: Any = np.ndarray(layout.SLOTS, layout.SLOT, self._memory, layout.SLOTS_OFFSET)
        self.core = AreaPointer(self._memory, 0)

    def field(self, name: str) -> int:
        """One word, as it is now."""
        return int(self.fields[name])

    def set_field(self, name: str, value: int) -> None:
        self.fields[name] = value

    def publish(
        self,
        starts: list[int],
        ends: list[int],
        bases: list[int],
        places: list[int | None],
        pending: list[bool],
        changes: int,
    ) -> int | None:
        """Code at starts[i] <= a < ends[i], its image base, where in the zone its table is (None: there is
        none), whether it is still to come. The epoch of this list, or None: try again later."""
        buffer = self.core.free_modules()
        if buffer is None:
            return None
        count = min(len(starts), layout.MODULES)
        offset = layout.MODULE_LISTS_OFFSET + buffer * layout.MODULE_LIST.itemsize
        head: Any = np.ndarray((), layout.MODULE_LIST, self._memory, offset)
        modules: Any = np.ndarray(count, layout.MODULE, self._memory, offset + layout.MODULE_OFFSET)
        zone = min(self.field("zone_address"), (1 << 64) - _ZONE_SIZE)  # the program may have written over it
        modules["start"], modules["end"] = starts[:count], ends[:count]
        modules["image_base"] = bases[:count]
        modules["table"] = [0 if place is None else zone + place for place in places[:count]]
        head["is_pending"][:count] = pending[:count]
        head["count"], head["pending_count"] = count, sum(pending[:count])
        head["changes"] = changes
        return self.core.publish(buffer)


def _offset(dtype: np.dtype[np.void], field: str) -> int:
    assert dtype.fields is not None
    return int(dtype.fields[field][1])


def _make_file(size: int) -> int:
    try:
        file = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(file, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError as error:
        raise CaptureError(
            f"memory to share with the program can't be made: {error.strerror}",
            "see whether `ulimit -n` and `ulimit -f` leave room for it",
        ) from None
    return file
