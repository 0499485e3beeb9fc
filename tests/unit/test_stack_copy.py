"""Which memory is copied for a walk: the stack from sp up, and the one that a signal interrupted."""

import struct

import pytest

from unspool.capture.memory_map import MapEntry, MemoryMap
from unspool.capture.stack_copy import STACK_LIMIT, copy_stacks
from unspool.unwind import Registers

MIB = 1 << 20


def mapping(start: int, size: int, path: str = "") -> MapEntry:
    return MapEntry(start, start + size, "rw-p", 0, "", 0, path)


class Reads:
    """A reader over a few pieces of memory, which remembers what was asked of it."""

    def __init__(self, *pieces: tuple[int, bytes]) -> None:
        self.pieces = pieces
        self.asked: list[tuple[int, int]] = []

    def __call__(self, address: int, size: int) -> bytes:
        self.asked.append((address, size))
        for start, data in self.pieces:
            if start <= address < start + len(data):
                return data[address - start :][:size]
        return b""


def signal_context(interrupted_sp: int, stack_start: int, stack_size: int, sp_word: int) -> bytes:
    """struct ucontext of a handler on an alternate stack, as far as it is looked at."""
    words = [0] * (sp_word + 4)
    words[0], words[2], words[4], words[sp_word] = 7, stack_start, stack_size, interrupted_sp
    words[3] = 0xABCD << 32  # what was there before
    if sp_word == 20:
        words[23] = 0x2B << 48 | 0x33  # ss, cs
    else:
        words[56] = 0x60000000  # pstate
    return struct.pack(f"<{len(words)}Q", *words)


@pytest.mark.parametrize(
    ("arch", "sp", "start"),
    [
        ("aarch64", 0x10800, 0x10800),
        ("x86_64", 0x10800, 0x10780),  # with the red zone
        ("x86_64", 0x10010, 0x10000),  # below which nothing is mapped
        ("x86_64", 0x10000, 0x10000),
    ],
)
def test_the_stack_is_copied_from_sp_to_the_end_of_its_mapping(arch: str, sp: int, start: int) -> None:
    """OpenSSL's SHA-512 for AVX2 keeps in its red zone where its caller is."""
    reads = Reads((0x10000, b"s" * 0x2000))
    regions = copy_stacks(reads, MemoryMap([mapping(0x10000, 0x2000)]), Registers(pc=1, sp=sp), arch)
    assert regions == [(start, b"s" * (0x12000 - start))]


def test_an_unreadable_red_zone_is_left_out() -> None:
    """The map says that it is there, but it can't be read."""
    reads = Reads((0x10800, b"s" * 0x1800))
    regions = copy_stacks(reads, MemoryMap([mapping(0x10000, 0x2000)]), Registers(pc=1, sp=0x10800), "x86_64")
    assert regions == [(0x10800, b"s" * 0x1800)]


@pytest.mark.parametrize(
    ("size", "path", "thread_pointer", "asked"),
    [
        (16 * MIB, "", None, MIB),
        (16 * MIB, "", 0x10000 + 9 * MIB, 9 * MIB),  # the top of this thread's stack
        (16 * MIB, "", 0x10000 + 16 * MIB, 16 * MIB),
        (16 * MIB, "", 0x10000 + 17 * MIB, MIB),  # of another mapping
        (16 * MIB, "", 0x10000, MIB),  # of a stack below
        (1 << 40, "", 1 << 39, STACK_LIMIT),
        (17 * MIB, "[stack]", 0x8000, 17 * MIB),
        (1 << 40, "[stack]", None, STACK_LIMIT),
    ],
)
def test_a_mapping_is_copied_as_far_as_it_is_a_stack(
    size: int, path: str, thread_pointer: int | None, asked: int
) -> None:
    """What is known of where it ends: the main thread's mapping, or the C library's data on top."""
    reads = Reads()
    memory_map = MemoryMap([mapping(0x10000, size, path)])
    assert copy_stacks(reads, memory_map, Registers(pc=1, sp=0x10000), "x86_64", thread_pointer) == []
    assert reads.asked == [(0x10000, asked)]


def test_a_whole_mapping_is_copied_where_that_is_wanted() -> None:
    reads = Reads()
    memory_map = MemoryMap([mapping(0x10000, 1 << 40)])
    copy_stacks(reads, memory_map, Registers(pc=1, sp=0x10000), "x86_64", limit=STACK_LIMIT)
    assert reads.asked == [(0x10000, STACK_LIMIT)]
    reads = Reads()
    memory_map = MemoryMap([mapping(0x10000, 17 * MIB)])
    copy_stacks(reads, memory_map, Registers(pc=1, sp=0x10000), "x86_64", limit=STACK_LIMIT)
    assert reads.asked == [(0x10000, 17 * MIB)]


@pytest.mark.parametrize(("arch", "sp_word"), [("x86_64", 20), ("aarch64", 54)])
def test_the_stack_that_a_signal_interrupted_is_copied_too(arch: str, sp_word: int) -> None:
    context = signal_context(0x80100, 0x10000, 0x1000, sp_word)
    handler_stack = bytes(0x100) + context + bytes(0x1000 - 0x100 - len(context))
    reads = Reads((0x10000, handler_stack), (0x80000, b"m" * 0x1000))
    memory_map = MemoryMap([mapping(0x10000, 0x1000), mapping(0x80000, 0x1000)])
    regions = copy_stacks(reads, memory_map, Registers(pc=1, sp=0x10000), arch)
    start = 0x80100 - (128 if arch == "x86_64" else 0)
    assert regions == [(0x10000, handler_stack), (start, b"m" * (0x81000 - start))]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (0, 16),  # no such flags
        (1, 0x5000),  # the kernel links none
        (2, 0x10800),  # a stack on which the handler is not
        (3, 4),
        (4, 1 << 31),
        (23, 0x10),  # kernel code
    ],
)
def test_what_only_looks_like_a_signal_frame_is_not_followed(word: int, value: int) -> None:
    context = bytearray(signal_context(0x80100, 0x10000, 0x1000, 20))
    struct.pack_into("<Q", context, 8 * word, value)
    handler_stack = bytes(context) + bytes(0x1000 - len(context))
    reads = Reads((0x10000, handler_stack), (0x80000, b"m" * 0x1000))
    memory_map = MemoryMap([mapping(0x10000, 0x1000), mapping(0x80000, 0x1000)])
    regions = copy_stacks(reads, memory_map, Registers(pc=1, sp=0x10000), "x86_64")
    assert regions == [(0x10000, handler_stack)]


def test_copies_do_not_overlap_when_the_interrupted_stack_is_below() -> None:
    """The stack below reaches into the one that is copied already."""
    context = signal_context(0x10800, 0x11000, 0x1000, 20)
    stacks = b"m" * 0x1000 + context + bytes(0x1000 - len(context))
    memory_map = MemoryMap([mapping(0x10000, 0x2000)])
    regions = copy_stacks(Reads((0x10000, stacks)), memory_map, Registers(pc=1, sp=0x11000), "x86_64")
    assert regions == [(0x10F80, stacks[0xF80:]), (0x10780, b"m" * 0x800)]


def test_copies_do_not_overlap_when_the_interrupted_stack_begins_where_the_other_one_ends() -> None:
    context = signal_context(0x11010, 0x10000, 0x1000, 20)
    stacks = context + bytes(0x1000 - len(context)) + b"m" * 0x1000
    memory_map = MemoryMap([mapping(0x10000, 0x1000), mapping(0x11000, 0x1000)])
    regions = copy_stacks(Reads((0x10000, stacks)), memory_map, Registers(pc=1, sp=0x10000), "x86_64")
    assert regions == [(0x10000, stacks[:0x1000]), (0x11000, b"m" * 0x1000)]


def test_a_chain_of_signal_frames_ends() -> None:
    """Each stack claims to have interrupted the next: four are copied."""
    pieces = []
    for number in range(20):
        start = 0x10000 * (number + 1)
        context = signal_context(start + 0x10000, start, 0x1000, 20)
        pieces.append((start, context + bytes(0x1000 - len(context))))
    memory_map = MemoryMap([mapping(start, 0x1000) for start, _ in pieces])
    assert len(copy_stacks(Reads(*pieces), memory_map, Registers(pc=1, sp=0x10000), "x86_64")) == 4


def test_an_sp_beyond_every_mapping_yields_nothing() -> None:
    assert copy_stacks(Reads(), MemoryMap([]), Registers(pc=1, sp=(1 << 64) - 8), "x86_64") == []
