"""Which part of memory to copy so that a thread's stack can be walked: from sp up, with the red zone below
it; and where a signal handler runs on a stack of its own, the interrupted one too.

Only copies: nothing here decides what a frame is. Whatever registers and memory hold, the copies are bounded.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from unspool.capture.memory_map import MemoryMap
from unspool.unwind import Registers

STACK_LIMIT = 64 << 20  # bytes copied of a stack; more than any stack in use
_FIRST_LIMIT = 1 << 20  # the same where nothing says where the stack ends (coroutines)
_SCAN_LIMIT = 256 << 10  # bytes of a stack that are searched for the place of a signal frame
_STACKS = 4  # handlers that interrupt handlers, each on a stack of its own

_RED_ZONE = {"x86_64": 128, "aarch64": 0}  # bytes below sp that belong to the function that runs

# Where struct ucontext has the interrupted sp, in words from its start (signal_frame.c has the layout).
_SP_IN_UCONTEXT = {"x86_64": 20, "aarch64": 54}

# (address, size): the bytes from there on, as many of them as can be read. It raises nothing.
ReadMemory: TypeAlias = Callable[[int, int], bytes]


def copy_stacks(
    read: ReadMemory,
    memory_map: MemoryMap,
    registers: Registers,
    arch: str,
    thread_pointer: int | None = None,
    *,
    whole_mappings: bool = False,
) -> list[tuple[int, bytes]]:
    """(address, bytes) of each stack, not overlapping. whole_mappings: up to STACK_LIMIT bytes, whatever they
    are."""
    regions: list[tuple[int, bytes]] = []
    pending = [registers.sp]
    while pending and len(regions) < _STACKS:
        sp = pending.pop()
        if any(address <= sp < address + len(data) for address, data in regions):
            continue
        size = STACK_LIMIT if whole_mappings else _stack_size(memory_map, sp, thread_pointer)
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


def _stack_size(memory_map: MemoryMap, sp: int, thread_pointer: int | None) -> int:
    """The stack of the main thread has a mapping of its own. Those of other threads may be one mapping with
    what lies above, but the C library keeps its data of a thread on top of the thread's stack."""
    entry = memory_map.find(sp)
    if entry is None:  # mapped since
        return _FIRST_LIMIT
    if entry.path == "[stack]":
        return min(entry.end - sp, STACK_LIMIT)
    if thread_pointer is not None and sp < thread_pointer <= entry.end:
        return min(thread_pointer - sp, STACK_LIMIT)
    return min(entry.end - sp, _FIRST_LIMIT)


def _interrupted_sps(stack: bytes, sp: int, arch: str) -> list[int]:
    """Where signal frames on this copy may say that the interrupted stack is. Only to know what to copy:
    the walk relies on none of it."""
    words = np.frombuffer(stack[: min(len(stack), _SCAN_LIMIT) & ~7], dtype=np.uint64)
    sp_word = _SP_IN_UCONTEXT[arch]
    count = len(words) - sp_word
    if count <= 0:
        return []
    # struct ucontext: uc_flags, uc_link (0), then the alternate stack: its start, flags, size.
    starts, sizes = words[2 : 2 + count], words[4 : 4 + count]
    here = np.uint64(sp)
    candidates = (
        (words[:count] < 16) & (words[1 : 1 + count] == 0) & (starts <= here) & (here - starts < sizes)
    )
    return [int(words[index + sp_word]) for index in np.flatnonzero(candidates)]
