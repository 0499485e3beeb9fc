"""Memory readers: what they refuse, and that walks read through each."""

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.small_library import IMAGE_BASE, Library
from unspool import OwnMemory, ProcessMemory, Registers, Snapshot, StackBytes, StackEnd, Unwinder

# A child that has three words in memory, prints where, and waits.
CHILD = """
import ctypes, sys
words = (ctypes.c_uint64 * 9)(*map(int, sys.argv[1:]))
print(ctypes.addressof(words), flush=True)
sys.stdin.read()
"""


def middle(library: Library) -> tuple[Unwinder, list[int]]:
    """An unwinder, and the stack from middle's sp up to the root's frame."""
    unwinder = Unwinder("x86_64")
    unwinder.add_module(library.binary, IMAGE_BASE)
    return unwinder, [0, 0, 0, library.at("outer_return"), 0xF0F0, library.at("root_return"), 0, 0, 0]


def registers_at(library: Library, sp: int) -> Registers:
    return Registers(pc=library.at("middle_return"), sp=sp, fp=sp + 0x20)


def test_a_snapshot_of_several_regions(library: Callable[[str], Library]) -> None:
    """Regions may be given in any order, as bytes, bytearray or memoryview, and may adjoin."""
    given = library("x86_64")
    unwinder, words = middle(given)
    data = struct.pack("<9Q", *words)
    regions = [(0x5018, bytearray(data[24:40])), (0x5028, memoryview(data)[40:]), (0x5000, data[:24])]
    stack = unwinder.walk(registers_at(given, 0x5000), Snapshot(regions))
    assert stack.complete
    assert len(stack) == 3


def test_a_hole_in_a_snapshot_cuts_the_stack(library: Callable[[str], Library]) -> None:
    """What no region holds can't be read."""
    given = library("x86_64")
    unwinder, words = middle(given)
    data = struct.pack("<9Q", *words)
    stack = unwinder.walk(
        registers_at(given, 0x5000), Snapshot([(0x5000, data[:0x20]), (0x5030, data[0x30:])])
    )
    assert (stack.cut, len(stack)) == (True, 2)


def test_overlapping_regions_are_refused() -> None:
    """Two regions that claim one byte are a mistake of the caller."""
    with pytest.raises(ValueError, match="overlap at 0x1007"):
        Snapshot([(0x1007, b"b"), (0x1000, b"12345678")])


@pytest.mark.parametrize("address", [-1, 2**64 - 3])
def test_bytes_outside_of_the_address_space_are_refused(address: int) -> None:
    """Four bytes end at 2**64 at the latest."""
    with pytest.raises(ValueError, match="64-bit address space"):
        StackBytes(address, b"1234")
    with pytest.raises(ValueError, match="64-bit address space"):
        Snapshot([(address, b"1234")])


def test_bytes_may_end_with_the_address_space() -> None:
    """The last byte of the address space is an address like any other."""
    assert StackBytes(2**64 - 4, b"1234").address == 2**64 - 4


def test_other_processes_are_read(library: Callable[[str], Library]) -> None:
    """A walk over another process reads its memory; when it has gone, the stack is cut."""
    given = library("x86_64")
    unwinder, words = middle(given)
    command = [sys.executable, "-c", CHILD, *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        registers = registers_at(given, int(child.stdout.readline()))
        memory = ProcessMemory(child.pid)
        assert unwinder.walk(registers, memory).complete
        child.communicate(b"")
    after = unwinder.walk(registers, memory)
    assert (after.end, len(after)) == (StackEnd.UNREADABLE_MEMORY, 1)


def test_this_process_is_read(library: Callable[[str], Library]) -> None:
    """A walk over this process reads its memory as it is now, not as it was at the last walk."""
    given = library("x86_64")
    unwinder, words = middle(given)
    data = bytearray(struct.pack("<9Q", *words))
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    memory = OwnMemory()
    assert unwinder.walk(registers_at(given, address), memory).complete
    data[0x18:0x20] = struct.pack("<Q", 0x4CD)
    assert unwinder.walk(registers_at(given, address), memory).cut


def test_own_memory_is_the_childs_after_a_fork() -> None:
    """A forked child reads its own memory, not its parent's."""
    memory = OwnMemory()
    assert memory.source().pid == os.getpid()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"own" if memory.source().pid == os.getpid() else b"parent's")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert os.read(read, 100) == b"own"
    os.close(read)


@pytest.mark.parametrize("pid", [0, -1])
def test_impossible_process_ids_are_refused(pid: int) -> None:
    """0 and negative numbers mean process groups elsewhere; no process has them."""
    with pytest.raises(ValueError, match="no process id"):
        ProcessMemory(pid)


def test_buffers_are_kept_alive(library: Callable[[str], Library]) -> None:
    """A memory reader holds the bytes that it reads."""
    given = library("x86_64")
    unwinder, words = middle(given)
    memories = [StackBytes(0x5000, bytearray(struct.pack("<9Q", *words))) for _ in range(50)]
    assert all(unwinder.walk(registers_at(given, 0x5000), memory).complete for memory in memories)
