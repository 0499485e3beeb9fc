"""Batches of samples: which code an address belongs to, what is a return address, what a stack is worth."""

import numpy as np
import pytest

from unspool.capture.samples import BinaryKind, CodeEntry, CodeFile, CodeMap, Flag, SampleBatch
from unspool.core_interface import GUESS
from unspool.unwind import How, StackEnd

PROGRAM, LIBRARY = CodeFile("/bin/program", "aa", "x86_64"), CodeFile("/lib/library.so", "bb", "x86_64")
JIT = CodeFile.without_file(BinaryKind.JIT, "x86_64")
MAP = CodeMap(
    [
        CodeEntry(0x7000, 0x8000, 0x6000, LIBRARY),
        CodeEntry(0x2000, 0x3000, 0x1000, PROGRAM),
        CodeEntry(0x3000, 0x4000, 0, JIT),
        CodeEntry(0xFFFF_FFFF_FFFF_F000, 1 << 64, 0xFFFF_FFFF_FFFF_F000, PROGRAM),
    ],
    "x86_64",
)


def batch(*stacks: list[tuple[int, int]], ends: object = None, flags: object = None) -> SampleBatch:
    """One sample a stack of (address, how), innermost first."""
    n = len(stacks)
    frames = [frame for stack in stacks for frame in stack]
    return SampleBatch(
        1,
        0,
        np.zeros(n, np.uint64),
        np.ones(n, np.int64),
        np.ones(n, np.uint64),
        np.array([StackEnd.ROOT] * n if ends is None else ends, np.uint8),
        np.array([0] * n if flags is None else flags, np.uint8),
        np.cumsum([0, *map(len, stacks)]).astype(np.uint64),
        np.array([address for address, _ in frames], np.uint64),
        np.array([how for _, how in frames], np.uint8),
        MAP,
    )


@pytest.mark.parametrize(
    ("address", "is_return", "file", "relative"),
    [
        (0x2000, False, PROGRAM, 0x1000),
        (0x2FFF, False, PROGRAM, 0x1FFF),
        (0x3000, True, PROGRAM, 0x2000),  # the call was the last instruction there
        (0x3000, False, JIT, 0x3000),
        (0x3001, True, JIT, 0x3001),
        (0x7000, True, None, 0x7000),
        (0x8000, True, LIBRARY, 0x2000),
        (0x8000, False, None, 0x8000),
        (0, False, None, 0),
        (0, True, PROGRAM, 0x1000),  # one past the last address
        (0xFFFF_FFFF_FFFF_FFFF, False, PROGRAM, 0xFFF),
    ],
)
def test_an_address_belongs_to_the_code_of_its_lookup_address(
    address: int, is_return: bool, file: CodeFile | None, relative: int
) -> None:
    """What is kept is the address as it was, relative to the image base."""
    files, addresses = MAP.resolve(np.array([address], np.uint64), np.array([is_return]))
    assert MAP.files[files[0]] == (file or CodeFile.without_file(BinaryKind.UNKNOWN, "x86_64"))
    assert addresses.tolist() == [relative]


def test_each_file_has_one_number() -> None:
    """However many mappings it has; the first number is that of no code at all."""
    assert [file.kind for file in MAP.files] == ["unknown", "file", "jit", "file"]
    files, relative = CodeMap([], "aarch64").resolve(np.array([5], np.uint64), np.array([True]))
    assert (files.tolist(), relative.tolist()) == ([0], [5])


@pytest.mark.parametrize(("start", "end"), [(0x2FFF, 0x3001), (0x5000, 0x5000)])
def test_a_code_map_says_one_thing_of_an_address(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="a code map"):
        CodeMap([*MAP.entries, CodeEntry(start, end, 0, LIBRARY)], "x86_64")


def test_what_is_a_return_address() -> None:
    """What calls pushed: not what was interrupted, nor the code that returns from a signal handler."""
    given = batch(
        [(1, How.KERNEL), (2, How.KERNEL), (3, How.INTERRUPTED), (4, How.CFI)],
        [],
        [(1, How.INTERRUPTED), (2, How.CFI), (3, How.CFI), (4, How.SIGNAL_FRAME | GUESS), (5, How.CFI)],
        [(1, How.SIGNAL_FRAME), (2, How.LEAF | GUESS)],
        [],
    )
    expected = [False, True, False, True, False, True, False, False, True, False, True]
    assert given.is_return.tolist() == expected
    assert batch().is_return.tolist() == batch([], []).is_return.tolist() == []


PROVED, GUESSED = [(1, How.INTERRUPTED), (2, How.CFI)], [(1, How.INTERRUPTED), (2, How.LEAF | GUESS)]


@pytest.mark.parametrize(
    ("stack", "end", "flags", "verdict"),
    [
        (PROVED, StackEnd.ROOT, 0, "complete"),
        (GUESSED, StackEnd.ROOT, 0, "guessed"),
        (PROVED, StackEnd.NO_UNWIND_INFO, 0, "cut"),
        (GUESSED, StackEnd.LOOP, 0, "cut"),
        (PROVED, StackEnd.ROOT, Flag.STALE_MODULES, "guessed"),
        (PROVED, StackEnd.ROOT, Flag.NO_TABLE_YET, "guessed"),
        (PROVED, StackEnd.ROOT, Flag.JOINED, "guessed"),
        (PROVED, StackEnd.ROOT, Flag.KERNEL_CALLER_UNKNOWN, "cut"),
        (PROVED, StackEnd.STACK_BYTES_ENDED, Flag.STALE_MODULES, "cut"),
    ],
)
def test_each_sample_is_complete_or_guessed_or_cut(
    stack: list[tuple[int, int]], end: StackEnd, flags: int, verdict: str
) -> None:
    """Between others that are complete, so that no neighbour is meant."""
    given = batch(PROVED, stack, PROVED, ends=[0, end, 0], flags=[0, flags, 0])
    found = {"complete": given.complete, "guessed": given.guessed, "cut": given.cut}
    assert [name for name, holds in found.items() if holds[1]] == [verdict]
    assert given.complete[[0, 2]].all()


def test_arrays_that_do_not_fit_are_refused() -> None:
    """Rather than read as something else."""
    good = batch(PROVED)
    for name, value in [
        ("tids", np.zeros(2, np.int64)),
        ("how", np.zeros(1, np.uint8)),
        ("offsets", np.array([0, 3], np.uint64)),
        ("offsets", np.array([1, 2], np.uint64)),
        ("offsets", np.array([0], np.uint64)),
    ]:
        with pytest.raises(ValueError, match="sample batch"):
            SampleBatch(**{**good.__dict__, name: value})
