"""What a walk reads: copies of a stack or of other memory, this process, another process.

Reading never faults: what a reader does not have ends the stack, with the reason.
"""

import os
from collections.abc import Iterable

from unspool.core import Buffer, MemoryInput, byte_count

_ADDRESS_LIMIT = 1 << 64


class Memory:
    """Any of the readers below. One reader may serve many walks, in many threads."""

    def __init__(self, source: MemoryInput) -> None:
        self._source = source

    def source(self) -> MemoryInput:
        """What C reads."""
        return self._source


class StackBytes(Memory):
    """A copy of a stack: data[0] was at address (usually sp). data is not copied again; it must stay
    as it is while a walk runs. code_pid: a process in which code without a file is read (0: none)."""

    def __init__(self, address: int, data: Buffer, code_pid: int = 0) -> None:
        super().__init__(MemoryInput(_checked(address, data), (), 0, code_pid))
        self.address = address
        self.data = data


class Snapshot(Memory):
    """Copies of several parts of memory, each an address and its bytes. code_pid: a process in which code is
    read that is in none of them (0: there is none); its data are not. ValueError: two overlap."""

    def __init__(self, regions: Iterable[tuple[int, Buffer]], code_pid: int = 0) -> None:
        self.regions = sorted((_checked(*region) for region in regions), key=lambda region: region[0])
        end = 0
        for address, data in self.regions:
            if address < end:
                raise ValueError(f"two regions overlap at {address:#x}")
            end = address + byte_count(data)
        super().__init__(MemoryInput(None, self.regions, 0, code_pid))


class ProcessMemory(Memory):
    """The memory of a process, as it is at the moment it is read (process_vm_readv, which needs the
    right to trace it). The stack is only what it was if the process does not run meanwhile."""

    def __init__(self, pid: int) -> None:
        if pid <= 0:
            raise ValueError(f"{pid} is no process id")
        super().__init__(MemoryInput(None, (), pid))
        self.pid = pid


class OwnMemory(Memory):
    """The memory of this process; after a fork, that of the process that walks."""

    def __init__(self) -> None:
        super().__init__(MemoryInput(None, (), os.getpid()))

    def source(self) -> MemoryInput:
        if self._source.pid != os.getpid():
            self._source = MemoryInput(None, (), os.getpid())
        return self._source


def _checked(address: int, data: Buffer) -> tuple[int, Buffer]:
    size = byte_count(data)
    if not 0 <= address <= _ADDRESS_LIMIT - size:
        raise ValueError(f"{size} bytes at {address:#x} do not lie in a 64-bit address space")
    return address, data
