"""Which part of memory to copy so that a thread's stack can be walked: from sp up, with the red zone below
it; and where a signal handler runs on a stack of its own, the interrupted one too.

Only copies: nothing here decides what a frame is. Whatever registers and memory hold, the copies are bounded.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from unspool.capture.memory_map import MemoryMap
from unspool.unwind import Registers

STACK_LIMIT = 64 << 20  # bytes copied of a stack; more than any stack in use
FIRST_LIMIT = 1 << 20  # where nothing says where the stack ends (coroutines); more is rarely needed
_SCAN_LIMIT = 256 << 10  # bytes of a stack that are searched for the place of a signal frame
_STACKS = 4  # handlers that interrupt handlers, each on a stack of its own

_RED_ZONE = {"x86_64": 128, "aarch64": 0}  # bytes below sp that belong to the function that runs

_STACK_FLAGS = np.uint64(
    0x80000003
)  # SS_ONSTACK, SS_DISABLE, SS_AUTODISARM: an int, beside 4 bytes of nothing
_LOW_32 = np.uint64(0xFFFFFFFF)
_LARGEST_ALTERNATE_STACK = np.uint64(1 << 30)


class _Ucontext(NamedTuple):
    """Where struct ucontext has the interrupted sp, and what says that it was user code, in words."""

    sp_word: int
    mode_word: int
    mode_mask: np.uint64
    user_mode: np.uint64

    @property
    def last_word(self) -> int:
        return max(self.sp_word, self.mode_word)


_UCONTEXT = {  # signal_frame.c has the layout
    "x86_64": _Ucontext(20, 23, np.uint64(0xFFFF), np.uint64(0x33)),  # cs
    "aarch64": _Ucontext(54, 56, np.uint64(0xFFFFFFFF0000001F), np.uint64(0)),  # pstate: EL0
}

# (address, size): the bytes from there on, as many of them as can be read. It raises nothing.
ReadMemory: TypeAlias = Callable[[int, int], bytes]


def copy_stacks(
    read: ReadMemory,
    memory_map: MemoryMap,
    registers: Registers,
    arch: str,
    thread_pointer: int | None = None,
    *,
    limit: int = FIRST_LIMIT,
) -> list[tuple[int, bytes]]:
    """(address, bytes) of each stack, not overlapping. thread_pointer: None = not known. limit: of bytes,
    where nothing says where a stack ends."""
    regions: list[tuple[int, bytes]] = []
    pending = [registers.sp]
    while pending and len(regions) < _STACKS:
        sp = pending.pop()
        if any(address <= sp < address + len(data) for address, data in regions):
            continue
        size = _stack_size(memory_map, sp, thread_pointer, limit)
        following = min((address for address, _ in regions if address >= sp), default=1 << 64)
        for start in dict.fromkeys((_with_red_zone(sp, arch, memory_map, regions), sp)):
            data = read(start, sp - start + size)[: following - start]
            if len(data) > sp - start:
                regions.append((start, data))
                pending += _interrupted_sps(data[sp - start :], sp, arch)
                break
    return regions


def _with_red_zone(sp: int, arch: str, memory_map: MemoryMap, regions: list[tuple[int, bytes]]) -> int:
    """Where to begin: what a function keeps below sp may be what its caller is found by."""
    entry = memory_map.find(sp)
    lowest = [entry.start if entry is not None else sp]
    lowest += [address + len(data) for address, data in regions if address < sp]
    return max(sp - _RED_ZONE[arch], *lowest)


def _stack_size(memory_map: MemoryMap, sp: int, thread_pointer: int | None, limit: int) -> int:
    """The stack of the main thread has a mapping of its own. Those of other threads may be one mapping with
    what lies above, but the C library keeps its data of a thread on top of the thread's stack."""
    entry = memory_map.find(sp)
    if entry is None:  # mapped since
        return FIRST_LIMIT
    if entry.path == "[stack]":
        return min(entry.end - sp, STACK_LIMIT)
    if thread_pointer is not None and sp < thread_pointer <= entry.end:
        return min(thread_pointer - sp, STACK_LIMIT)
    return min(entry.end - sp, limit)


def _interrupted_sps(stack: bytes, sp: int, arch: str) -> list[int]:
    """Where signal frames on this copy may say that the interrupted stack is. Only to know what to copy:
    the walk relies on none of it."""
    words = np.frombuffer(stack[: min(len(stack), _SCAN_LIMIT) & ~7], dtype=np.uint64)
    layout = _UCONTEXT[arch]
    count = len(words) - layout.last_word
    if count <= 0:
        return []
    # struct ucontext: uc_flags, uc_link (0), then the alternate stack: its start, flags, size.
    flags, link, starts, stack_flags, sizes = (words[n : n + count] for n in range(5))
    here = np.uint64(sp)
    candidates = np.flatnonzero(
        (flags < 16)
        & (link == 0)
        & (stack_flags & _STACK_FLAGS == stack_flags & _LOW_32)
        & (sizes < _LARGEST_ALTERNATE_STACK)
        & (starts <= here)
        & (here - starts < sizes)
        & (words[layout.mode_word : layout.mode_word + count] & layout.mode_mask == layout.user_mode)
    )
    return [int(words[index + layout.sp_word]) for index in candidates]
