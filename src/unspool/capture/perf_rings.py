"""Events of perf_event_open(2) for the threads of a process, and the rings into which the kernel writes what
they record.

There is one ring a processor: an event that follows a thread and all that it starts (inherit) can be mapped
only if it is bound to one processor, so that there is one event a thread and processor; those of one
processor write into the same ring. When the descriptors are closed, however that comes about, the kernel ends
the events."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import select
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unspool.capture.perf_attributes import EventAttributes
from unspool.capture.perf_open import open_event
from unspool.core import PerfRing

_IOC_ENABLE, _IOC_DISABLE, _IOC_SET_OUTPUT = 0x2400, 0x2401, 0x2405
_IOC_ID = 0x80082407
_ALL_RINGS = 64 << 20  # bytes that the rings of all processors together may have
_LARGEST_RING, _SMALLEST_RING = 8 << 20, 128 << 10  # bytes


class PerfRings:
    """The rings of all processors. Add threads, then read. Close it in the end."""

    def __init__(self, attributes: EventAttributes) -> None:
        self.ids: list[int] = []  # that records bear
        self._attributes = attributes
        self._processors = _online_processors()
        self._events: list[int] = []  # descriptors
        self._outputs: dict[int, int] = {}  # by processor, the event whose ring it is
        self._mappings: list[mmap.mmap] = []
        self._rings: list[PerfRing] = []
        self._buffer: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._poll = select.poll()

    @property
    def ring_bytes(self) -> int:
        """Of the smallest ring."""
        return min((ring.size for ring in self._rings), default=0)

    def add_thread(self, tid: int) -> None:
        """Follow a thread, and what it starts from now on. 0: the calling one. Raises PerfForbidden,
        ProcessLookupError, OSError (no descriptors left)."""
        attributes = self._attributes.pack()
        for processor in self._processors:
            try:
                event = open_event(attributes, tid, processor)
            except OSError as error:
                if error.errno == errno.ENODEV:  # the processor went offline
                    continue
                raise
            self._events.append(event)
            self._connect(processor, event)

    def enable(self) -> None:
        """Begin."""
        for event in self._events:
            fcntl.ioctl(event, _IOC_ENABLE, 0)

    def disable(self) -> None:
        """No more samples."""
        for event in self._events:
            with suppress(OSError):
                fcntl.ioctl(event, _IOC_DISABLE, 0)

    def wait(self, milliseconds: int) -> None:
        """Until a ring is half full, at most so long."""
        for descriptor, ready in self._poll.poll(milliseconds):
            if ready & ~select.POLLIN:  # its thread has ended; those that it started may go on
                self._poll.unregister(descriptor)

    def read(self) -> list[bytes]:
        """What is in the rings, each ring's records for themselves."""
        parts = []
        for ring in self._rings:
            count = ring.read_into(self._buffer)
            if count:
                parts.append(self._buffer[:count].tobytes())
        return parts

    def close(self) -> None:
        for ring in self._rings:
            ring.close()
        for mapping in self._mappings:
            mapping.close()
        for event in self._events:
            os.close(event)
        self._rings, self._mappings, self._events = [], [], []

    # ------------------------------------------------------------ one event

    def _connect(self, processor: int, event: int) -> None:
        identifier = bytearray(8)
        fcntl.ioctl(event, _IOC_ID, identifier)
        if processor in self._outputs:
            fcntl.ioctl(event, _IOC_SET_OUTPUT, self._outputs[processor])
        else:
            self._map(event)
            self._outputs[processor] = event
            self._poll.register(event, select.POLLIN)
        self.ids.append(int.from_bytes(identifier, "little"))

    def _map(self, event: int) -> None:
        """The largest ring that the kernel allows (kernel.perf_event_mlock_kb, RLIMIT_MEMLOCK)."""
        size = wanted_ring_bytes() if not self._rings else self._rings[-1].size
        while True:
            try:
                mapping = mmap.mmap(event, mmap.PAGESIZE + size, mmap.MAP_SHARED)
                break
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOMEM) or size <= _SMALLEST_RING:
                    raise
                size //= 2
        self._mappings.append(mapping)
        self._rings.append(PerfRing(mapping))
        if size > len(self._buffer):
            self._buffer = np.empty(size, np.uint8)


def _online_processors() -> list[int]:
    """As /sys lists them: "0-3,8"."""
    try:
        ranges = Path("/sys/devices/system/cpu/online").read_text().strip().split(",")
        bounds = [part.partition("-") for part in ranges]
        return [n for low, _, high in bounds for n in range(int(low), int(high or low) + 1)]
    except (OSError, ValueError):
        return list(range(os.cpu_count() or 1))


def wanted_ring_bytes() -> int:
    """Of each ring, where nothing limits them."""
    each = _ALL_RINGS // len(_online_processors())
    return min(max(1 << each.bit_length() - 1, _SMALLEST_RING), _LARGEST_RING)


def use_all_descriptors() -> None:
    """There is an event for every thread and processor."""
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
