"""Which mapping is a thread's own stack: agents read that directly, once they are told.

Only memory that the program can't unmap while the thread lives is told: a direct read must not fault.
"""

from __future__ import annotations

from collections.abc import Mapping

from unspool.capture.memory_map import MapEntry, MemoryMap
from unspool.capture.session_memory import Area
from unspool.capture.thread_triggers import ThreadTriggers

_MAIN = "[stack]"


class OwnStacks:
    """Of the threads of one process, by our ids."""

    def __init__(self, pid: int, area: Area, triggers: ThreadTriggers) -> None:
        self._pid = pid
        self._area = area
        self._triggers = triggers
        self._told: dict[int, tuple[int, int]] = {}

    def tell_main(self, memory_map: MemoryMap) -> None:
        """The main thread's, which has a name, before its first sample."""
        for entry in memory_map.entries:
            if entry.path == _MAIN and self._pid not in self._told:
                self._tell(self._pid, entry)

    def tell(self, sps: Mapping[int, int], memory_map: MemoryMap) -> bool:
        """Those of threads of which the last sp is known, by id. False: some are not in the map yet."""
        is_mapped = True
        for tid, sp in sps.items():
            start, end = self._told.get(tid, (0, 0))
            if start <= sp < end:
                continue
            entry = memory_map.find(sp)
            if entry is None:
                is_mapped = False
            elif self._is_own(tid, entry, memory_map):
                self._tell(tid, entry)
        return is_mapped

    def forget(self, tid: int) -> None:
        """The thread has ended."""
        self._told.pop(tid, None)

    def _tell(self, tid: int, entry: MapEntry) -> None:
        slot = self._triggers.slot_of(tid)
        if slot is not None:
            self._told[tid] = entry.start, entry.end
            self._area.core.set_stack(slot, entry.start, entry.end, is_main=entry.path == _MAIN)

    def _is_own(self, tid: int, entry: MapEntry, memory_map: MemoryMap) -> bool:
        """Memory of which a thread's own stack is made, and nothing that the program could unmap while the
        thread lives: libc's stacks lie right above a guard, the main thread's has a name. Memory without
        either may hold anything between a coroutine's stack and the thread's."""
        if entry.path == _MAIN:
            return True
        guard = memory_map.find(entry.start - 1)
        is_anonymous = entry.permissions == "rw-p" and entry.inode == 0 and not entry.path
        is_guarded = guard is not None and guard.permissions == "---p" and guard.inode == 0
        return tid != self._pid and is_anonymous and is_guarded
