"""An agent that runs in the test's own process and does what it is told: it claims an area of a session and
writes what a test wants into it, through a mapping of its own (core/src/agent/session.h)."""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from typing import Any

import numpy as np

from unspool.capture import session_layout as layout
from unspool.capture.session_layout import AreaState, Origin
from unspool.core import ffi

RING_HEAD = 256  # offset of session_area.ring_head
_RECORD = struct.Struct("<IBBBBIIQQQQQQII")
_SAMPLE, _SAMPLE_AND_COPY, _TIMER = 2, 3, 1


class FakeAgent:
    """A claimed area. path: of the session; number: of the area."""

    def __init__(self, path: str, number: int = 0, pid: int | None = None) -> None:
        file = os.open(path, os.O_RDWR)
        self._header_memory = mmap.mmap(file, layout.AREAS_OFFSET)
        self.header: Any = np.ndarray((), layout.HEADER, self._header_memory)
        area_size, self._ring_size = int(self.header["area_size"]), int(self.header["ring_size"])
        self.memory = mmap.mmap(file, area_size, offset=layout.AREAS_OFFSET + number * area_size)
        os.close(file)
        self.fields: Any = np.ndarray((), layout.AREA_FIELDS, self.memory)
        self.slots: Any = np.ndarray(layout.SLOTS, layout.SLOT, self.memory, layout.SLOTS_OFFSET)
        self._head = 0
        self.header["claims"][number] = pid or os.getpid()
        self.fields["pid"] = pid or os.getpid()
        self.fields["origin"] = Origin.START
        self.fields["first_tid"] = threading.get_native_id()
        self.fields["started"] = time.monotonic_ns()
        self.fields["area_address"] = int(ffi.cast("uintptr_t", ffi.from_buffer(self.memory)))
        self.fields["zone_address"] = 1 << 32
        self.state(AreaState.RUNNING)

    def state(self, state: AreaState) -> None:
        self.fields["state"] = state
        self.header["doorbell"] += 1

    @property
    def epoch(self) -> int:
        """Of the current list of modules."""
        return int(np.ndarray((), "<u8", self.memory, 192)) >> 8

    def modules(self) -> Any:
        """The current list: an array of MODULE."""
        buffer = int(np.ndarray((), "<u8", self.memory, 192)) & 0xFF
        offset = layout.MODULE_LISTS_OFFSET + buffer * layout.MODULE_LIST.itemsize
        head: Any = np.ndarray((), layout.MODULE_LIST, self.memory, offset)
        return np.ndarray(int(head["count"]), layout.MODULE, self.memory, offset + layout.MODULE_OFFSET)

    def sample(
        self,
        addresses: list[int],
        how: list[int],
        cpu_time: int,
        *,
        tid: int | None = None,
        end: int = 0,
        flags: int = 0,
        epoch: int | None = None,
        system_time: int = 0,
        copy: bytes = b"",
    ) -> None:
        """Write one record; how: How | GUESS. copy: struct unspool_copy and what follows."""
        size = -(-(_RECORD.size + 9 * len(addresses)) // 8) * 8 + len(copy)
        where = layout.AREA_SIZE + self._head % self._ring_size
        kind = _SAMPLE_AND_COPY if copy else _SAMPLE
        record = _RECORD.pack(
            *(size, kind, end, flags, _TIMER, tid or threading.get_native_id(), len(addresses)),
            *(time.monotonic_ns(), cpu_time, 0, 0, system_time, 0, epoch or self.epoch, 0),
        )
        frames = struct.pack(f"<{len(addresses)}Q", *addresses) + bytes(how)
        whole = (record + frames).ljust(size - len(copy), b"\0") + copy
        self.memory[where + 4 : where + size] = whole[4:]
        self.memory[where : where + 4] = record[:4]
        self._head += size
