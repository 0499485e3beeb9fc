"""The rest of unspool.core: the functions of libunspool.so for the memory that is shared with agents.

As there, nothing is decided here. What a program writes into its area is not trusted: the C side has checked
every sample that comes out of a ring.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unspool.core import ffi, library
from unspool.core_interface import OK

_FRAMES = 1 << 16  # room for frames in one call
_SAMPLES = 1 << 12
_COPIES = 1 << 20  # bytes of stack copies in one call
_COPIES_KEPT = 64 << 20  # bytes of them in all

SAMPLE = np.dtype(
    {
        "names": [
            *("time", "cpu_time", "due", "user_time", "system_time", "sp"),
            *("tid", "slot", "epoch", "frame_count", "end", "flags", "trigger"),
        ],
        "formats": [*["u8"] * 6, *["u4"] * 4, *["u1"] * 3],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 52, 56, 60, 64, 65, 66],
        "itemsize": ffi.sizeof("struct unspool_sample"),
    }
)


_REGISTERS = int(library.UNSPOOL_REGISTERS)
# struct unspool_copy; the bytes of the stack follow.
COPY = np.dtype(
    {
        "names": ["address", "size", "values", "known"],
        "formats": ["u8", "u8", f"({_REGISTERS},)u8", "u8"],
        "offsets": [0, 8, 16, 16 + 8 * _REGISTERS],
        "itemsize": ffi.sizeof("struct unspool_copy"),
    }
)


class RingSamples(NamedTuple):
    """samples: an array of SAMPLE. Frames of sample i are addresses/how[offsets[i] : offsets[i + 1]].
    copies: of each sample that has one, by its number: COPY and as many bytes as that says."""

    samples: NDArray[np.void]
    offsets: NDArray[np.uint64]
    addresses: NDArray[np.uint64]
    how: NDArray[np.uint8]
    copies: dict[int, bytes]


class CopyRoom:
    """How many bytes of stack copies may still be kept. Those that there is no room for are thrown away."""

    def __init__(self) -> None:
        self.left = _COPIES_KEPT

    def give_back(self, copies: Iterable[bytes]) -> None:
        """They are needed no more."""
        self.left += sum(map(len, copies))


class RingDamaged(Exception):
    """What a program wrote into its ring is no record."""


class RingReader:
    """Takes samples out of rings; one thread at a time. Its room for them is used again by every call.
    copy_room: whoever is done with copies gives them back to it."""

    def __init__(self, ring_size: int) -> None:
        self.copy_room = CopyRoom()
        self._ring_size = ring_size
        self._samples = np.zeros(_SAMPLES, SAMPLE)
        self._offsets = np.zeros(_SAMPLES + 1, np.uint64)
        self._addresses = np.zeros(_FRAMES, np.uint64)
        self._how = np.zeros(_FRAMES, np.uint8)
        self._copy_offsets = np.zeros(_SAMPLES + 1, np.uint64)
        self._copies = np.zeros(_COPIES, np.uint8)
        target = self._target = ffi.new("struct unspool_samples *")
        target.capacity, target.frame_capacity = _SAMPLES, _FRAMES
        arrays = (self._samples, self._offsets, self._addresses, self._how, self._copy_offsets, self._copies)
        self._kept = [ffi.from_buffer(array) for array in arrays]
        target.samples = ffi.cast("struct unspool_sample *", self._kept[0])
        target.offsets = ffi.cast("uint64_t *", self._kept[1])
        target.addresses = ffi.cast("uint64_t *", self._kept[2])
        target.how = ffi.cast("uint8_t *", self._kept[3])
        target.copy_offsets = ffi.cast("uint64_t *", self._kept[4])
        target.copies = ffi.cast("uint8_t *", self._kept[5])

    def read(self, area: AreaPointer) -> tuple[RingSamples, bool]:
        """Copies of what is there, and whether there may be more. Raises RingDamaged; what was taken before
        the damage is lost."""
        self._target.copy_capacity = _COPIES if self.copy_room.left >= _COPIES else 0
        result = library.unspool_ring_read(area.pointer, self._ring_size, self._target)
        if result < 0:
            raise RingDamaged
        count = int(self._target.count)
        frames = int(self._offsets[count])
        samples = RingSamples(
            self._samples[:count].copy(),
            self._offsets[: count + 1].copy(),
            self._addresses[:frames].copy(),
            self._how[:frames].copy(),
            self._take_copies(count),
        )
        return samples, result > 0

    def _take_copies(self, count: int) -> dict[int, bytes]:
        offsets = self._copy_offsets[: count + 1]
        if not offsets[count]:
            return {}
        self.copy_room.left -= int(offsets[count])
        numbers = np.flatnonzero(offsets[1:] != offsets[:-1]).tolist()
        return {n: self._copies[offsets[n] : offsets[n + 1]].tobytes() for n in numbers}


class AreaPointer:
    """One process' area in the mapped memory of a session, as C sees it."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory = ffi.from_buffer(memory)
        self.pointer: Any = ffi.cast("struct session_area *", self._memory + offset)

    def add_thread(self, tid: int, wish: int, perf_fd: int) -> int | None:
        """The slot that was requested for a thread; None: there is none now."""
        slot = int(library.unspool_area_add_thread(self.pointer, tid, wish, perf_fd))
        return None if slot < 0 else slot

    def change_thread(self, slot: int, wish: int) -> bool:
        """Whether the request was made: False: too many are open."""
        return bool(library.unspool_area_change_thread(self.pointer, slot, wish) == OK)

    def release_slot(self, slot: int) -> bool:
        """Whether the agent is done with an ended thread's slot."""
        return bool(library.unspool_area_release_slot(self.pointer, slot))

    def set_stack(self, slot: int, start: int, end: int, *, is_main: bool) -> None:
        """Where a thread's own stack is mapped."""
        library.unspool_area_set_stack(self.pointer, slot, start, end, is_main)

    def signal(self, pid: int, tid: int, number: int, cookie: int) -> bool:
        """Whether a thread was sent a signal, by which it makes its timer."""
        return bool(library.unspool_area_signal(self.pointer, pid, tid, number, cookie) == OK)

    def free_modules(self) -> int | None:
        """The number of a list of modules that no handler reads."""
        buffer = int(library.unspool_area_free_modules(self.pointer))
        return None if buffer < 0 else buffer

    def publish(self, buffer: int) -> int:
        """Make the list the current one; returns its epoch."""
        return int(library.unspool_area_publish(self.pointer, buffer))


class Doorbell:
    """The word that agents count up when something waits for unspool."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory = ffi.from_buffer(memory)
        self._word = ffi.cast("uint32_t *", self._memory + offset)
        self._seen = int(self._word[0])

    def wait(self, seconds: float) -> bool:
        """Until somebody rings, at most so long; whether somebody did since the last call."""
        value = int(library.unspool_session_wait(self._word, self._seen, max(0, int(seconds * 1e9))))
        rang, self._seen = value != self._seen, value
        return rang
