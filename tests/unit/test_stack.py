"""Stacks as sequences of frames, and what complete, guessed and cut mean."""

import struct

import pytest

from unspool import How, Stack, StackEnd
from unspool.core_interface import GUESS
from unspool.unwind.modules import Mapping, Module, ModuleMap


def stack_of(
    *frames: tuple[int, int], end: StackEnd = StackEnd.ROOT, modules: ModuleMap | None = None
) -> Stack:
    """A stack of (address, how) pairs."""
    addresses = struct.pack(f"<{len(frames)}Q", *(address for address, _ in frames))
    return Stack(addresses, bytes(how for _, how in frames), end, modules or ModuleMap(()))


PROVED = ((0x10, How.INTERRUPTED), (0x20, How.CFI), (0x30, How.CODE_ANALYSIS))
GUESSED = (*PROVED, (0x40, How.LEAF | GUESS), (0x50, How.CFI))


@pytest.mark.parametrize(
    ("frames", "end", "state"),
    [
        (PROVED, StackEnd.ROOT, "complete"),
        (GUESSED, StackEnd.ROOT, "guessed"),
        *((PROVED, end, "cut") for end in StackEnd if end is not StackEnd.ROOT),
        *((GUESSED, end, "cut") for end in StackEnd if end is not StackEnd.ROOT),
    ],
)
def test_each_stack_is_complete_or_guessed_or_cut(
    frames: tuple[tuple[int, int], ...], end: StackEnd, state: str
) -> None:
    """Complete: to the root without a guess. Guessed: to the root with one. Cut: not to the root."""
    stack = stack_of(*frames, end=end)
    states = {"complete": stack.complete, "guessed": stack.guessed, "cut": stack.cut}
    assert [name for name, holds in states.items() if holds] == [state]
    assert state in repr(stack)


def test_frames_say_how_and_whether_guessed() -> None:
    """The guess is told apart from how the frame was found."""
    frame = stack_of(*GUESSED)[3]
    assert (frame.address, frame.how, frame.guessed) == (0x40, How.LEAF, True)
    assert not stack_of(*GUESSED)[4].guessed


def test_a_stack_is_a_sequence() -> None:
    """Length, negative indices, slices, iteration and IndexError as in a tuple."""
    stack = stack_of(*PROVED)
    assert len(stack) == 3
    assert stack[-1] == stack[2]
    assert stack[1:] == (stack[1], stack[2])
    assert [frame.address for frame in stack] == [0x10, 0x20, 0x30] == list(stack.addresses)
    for index in (3, -4):
        with pytest.raises(IndexError):
            stack[index]


def test_callers_are_looked_up_one_byte_earlier() -> None:
    """The interrupted frame and the one below a signal frame are looked up as they are, all others not."""
    stack = stack_of((0x10, How.INTERRUPTED), (0x20, How.CFI), (0x30, How.SIGNAL_FRAME), (0x40, How.CFI))
    assert [frame.lookup_address for frame in stack] == [0x10, 0x1F, 0x30, 0x3F]


def test_a_call_at_the_very_end_belongs_to_its_module() -> None:
    """A return address at a module's end is that of its last instruction, not of the next module."""
    first, second = Module(None, None, 0x1000, "first"), Module(None, None, 0x2000, "second")
    modules = ModuleMap([Mapping(0x2000, 0x3000, second), Mapping(0x1000, 0x2000, first)])
    stack = stack_of((0x2000, How.INTERRUPTED), (0x2000, How.CFI), (0x3001, How.CFI), modules=modules)
    assert [frame.module for frame in stack] == [second, first, None]
    assert [frame.relative_address for frame in stack] == [0, 0x1000, None]
    assert [frame.relative_lookup_address for frame in stack] == [0, 0xFFF, None]
