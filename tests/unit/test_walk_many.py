"""walk_many: the same stacks as walk, in arrays, in any number of threads."""

import mmap
import os
import struct
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.small_library import IMAGE_BASE, Library
from unspool import How, Registers, StackBatch, StackBytes, StackEnd, Unwinder

Samples = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]
STACK = 0x7FFE_0000_1000


@pytest.fixture
def given(library: Callable[[str], Library]) -> Library:
    return library("x86_64")


@pytest.fixture
def unwinder(given: Library) -> Unwinder:
    unwinder = Unwinder("x86_64")
    unwinder.add_module(given.binary, IMAGE_BASE)
    return unwinder


def samples(given: Library, sizes: list[int]) -> Samples:
    """One sample in inner for each size: its stack's copy is cut to so many bytes."""
    at = given.at
    words = (0xB, at("middle_return"), 0, 0, 0, at("outer_return"), 0xF0F0, at("root_return"), 0)
    data = struct.pack("<9Q", *words)
    registers = np.array([[at("inner_body"), STACK, STACK + 0x30, 0]] * len(sizes), np.uint64).reshape(-1, 4)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64)
    return registers, offsets, np.frombuffer(b"".join(data[:size] for size in sizes), np.uint8)


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_each_sample_is_what_walk_yields(given: Library, unwinder: Unwinder, threads: int) -> None:
    """Same addresses, how and end for every sample, whatever the number of threads."""
    sizes = [72, 0, 8, 40, 72, 16, 72]
    registers, offsets, data = samples(given, sizes)
    batch = unwinder.walk_many(registers, offsets, data, threads=threads)
    assert len(batch) == len(sizes)
    for index in range(len(sizes)):
        pc, sp, fp, _ = (int(value) for value in registers[index])
        copy = data[int(offsets[index]) : int(offsets[index + 1])]
        alone = unwinder.walk(Registers(pc=pc, sp=sp, fp=fp), StackBytes(sp, copy.tobytes()))
        stack = batch.stack(index)
        assert (stack.addresses, stack.end) == (alone.addresses, alone.end)
        assert [frame.how for frame in stack] == [frame.how for frame in alone]


def test_the_arrays(given: Library, unwinder: Unwinder) -> None:
    """Types and shapes are as documented; masks count each stack once."""
    batch = unwinder.walk_many(*samples(given, [72, 16]))
    frames = 4 + 2
    assert (batch.addresses.dtype, batch.addresses.shape) == (np.uint64, (frames,))
    assert (batch.how.dtype, batch.how.shape) == (np.uint8, (frames,))
    assert (batch.offsets.dtype, batch.offsets.tolist()) == (np.uint64, [0, 4, 6])
    assert batch.ends.tolist() == [StackEnd.ROOT, StackEnd.STACK_BYTES_ENDED]
    assert batch.how.tolist() == [How.INTERRUPTED, How.CFI, How.CFI, How.CFI, How.INTERRUPTED, How.CFI]
    assert batch.complete.tolist() == [True, False]
    assert batch.guessed.tolist() == [False, False]
    assert batch.cut.tolist() == [False, True]


def test_a_guess_counts_for_its_own_stack_only(unwinder: Unwinder) -> None:
    """Of three stacks to the root the one with a guess is guessed; so is no empty neighbour."""
    batch = StackBatch(
        addresses=np.zeros(5, np.uint64),
        how=np.array([0, 1, 0, 6 | 0x80, 0], np.uint8),
        offsets=np.array([0, 2, 4, 5], np.uint64),
        ends=np.array([0, 0, 0], np.uint8),
        modules=unwinder.modules,
    )
    assert batch.complete.tolist() == [True, False, True]
    assert batch.guessed.tolist() == [False, True, False]


@pytest.mark.parametrize("threads", [1, 4])
def test_no_samples(given: Library, unwinder: Unwinder, threads: int) -> None:
    """Nothing in, nothing out."""
    batch = unwinder.walk_many(*samples(given, []), threads=threads)
    assert (len(batch), batch.offsets.tolist(), len(batch.addresses)) == (0, [0], 0)


def test_more_frames_than_expected(given: Library) -> None:
    """Deep stacks: room grows, and no stack is lost, cut or repeated where it does."""
    unwinder = Unwinder("x86_64", depth_limit=300)
    unwinder.add_module(given.binary, IMAGE_BASE)
    at = given.at
    # middle calls itself, again and again.
    words = [0, 0, 0, at("middle_return")] * 250 + [0, 0, 0, at("root_return"), 0]
    count = 200
    registers = np.array([[at("middle_return"), STACK, 0, 0]] * count, np.uint64)
    data = np.frombuffer(struct.pack(f"<{len(words)}Q", *words) * count, np.uint8)
    offsets = np.arange(count + 1, dtype=np.uint64) * np.uint64(8 * len(words))
    batch = unwinder.walk_many(registers, offsets, data)
    assert batch.complete.all()
    assert np.diff(batch.offsets).tolist() == [252] * count


def test_the_depth_limit_cuts_each_stack(given: Library) -> None:
    """No stack has more frames than the limit, and it says so."""
    unwinder = Unwinder("x86_64", depth_limit=3)
    unwinder.add_module(given.binary, IMAGE_BASE)
    batch = unwinder.walk_many(*samples(given, [72, 72]))
    assert batch.offsets.tolist() == [0, 3, 6]
    assert batch.ends.tolist() == [StackEnd.DEPTH_LIMIT] * 2


def test_lr_counts_on_aarch64(library: Callable[[str], Library]) -> None:
    """A leaf's caller is in the fourth column."""
    given = library("aarch64")
    unwinder = Unwinder("aarch64")
    unwinder.add_module(given.binary, IMAGE_BASE)
    at = given.at
    data = struct.pack("<7Q", at("outer_return"), 0, 0, 0, 0xF0F0, at("root_return"), 0)
    registers = np.array([[at("inner_body"), STACK, STACK + 0x20, at("middle_return")]], np.uint64)
    batch = unwinder.walk_many(registers, np.array([0, 56], np.uint64), np.frombuffer(data, np.uint8))
    expected = ("inner_body", "middle_return", "outer_return", "root_return")
    assert batch.addresses.tolist() == [at(label) for label in expected]
    assert batch.complete.all()


def test_arrays_need_not_be_contiguous(given: Library, unwinder: Unwinder) -> None:
    """Strided views yield what their copies yield."""
    registers, offsets, data = samples(given, [72, 72])
    wide = np.zeros((2, 8), np.uint64)
    wide[:, ::2] = registers
    assert unwinder.walk_many(wide[:, ::2], offsets, data).complete.all()


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, np.zeros((2, 3), np.uint64), r"registers must be uint64\[n, 4\]"),
        (0, np.zeros((2, 4), np.int64), r"registers must be uint64\[n, 4\]"),
        (0, np.zeros((3, 4), np.uint64), "stack offsets and one more"),
        (1, np.zeros(3, np.uint32), "stack_offsets must be uint64"),
        (1, np.array([0, 73, 72], np.uint64), "must not decrease"),
        (1, np.array([0, 72, 145], np.uint64), "lead outside"),
        (1, np.zeros(0, np.uint64), "one more"),
        (2, np.zeros(144, np.int8), "stack_bytes must be uint8"),
        (2, np.zeros((144, 1), np.uint8), "stack_bytes must be uint8"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    given: Library, unwinder: Unwinder, position: int, value: NDArray[np.uint64], message: str
) -> None:
    """Wrong types, shapes and offsets are ValueErrors, never reads outside of an array."""
    arguments = list(samples(given, [72, 72]))
    arguments[position] = value
    with pytest.raises(ValueError, match=message):
        unwinder.walk_many(*arguments)


def test_no_threads_are_refused(given: Library, unwinder: Unwinder) -> None:
    """Zero threads would walk nothing."""
    with pytest.raises(ValueError, match="0 threads"):
        unwinder.walk_many(*samples(given, [72]), threads=0)


def test_code_without_a_file_is_read_in_its_process() -> None:
    """JIT code: the call before a return address is seen where it lies. Without the process that address is
    refused, by walk and by walk_many."""
    code = mmap.mmap(-1, mmap.PAGESIZE)
    code[:5] = b"\xe8\x00\x01\x00\x00"  # call
    start = np.frombuffer(code, np.uint8).ctypes.data
    unwinder = Unwinder("x86_64")
    unwinder.add_module(None, start=start, end=start + mmap.PAGESIZE)
    pc, fp = start + 0x200, STACK + 0x10
    data = np.frombuffer(struct.pack("<4Q", 0, 0, 0, start + 5), np.uint8)
    registers, offsets = np.array([[pc, STACK, fp, 0]], np.uint64), np.array([0, len(data)], np.uint64)
    for code_pid, addresses in ((0, [pc]), (os.getpid(), [pc, start + 5])):
        stack = unwinder.walk_many(registers, offsets, data, code_pid=code_pid).stack(0)
        alone = unwinder.walk(Registers(pc=pc, sp=STACK, fp=fp), StackBytes(STACK, data, code_pid))
        assert list(stack.addresses) == list(alone.addresses) == addresses
        assert stack.end == alone.end
        assert stack.guessed == alone.guessed
    assert [frame.how for frame in stack] == [How.INTERRUPTED, How.FRAME_POINTER]
