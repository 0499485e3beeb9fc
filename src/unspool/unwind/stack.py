"""What a walk yields: a stack, its frames, how each was found and how the stack ended.

A stack stores addresses only; frames are made when they are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, overload

from unspool.core_interface import GUESS
from unspool.unwind.addresses import FrameAddress, LookupAddress, ReturnAddress, lookup_address

if TYPE_CHECKING:
    from unspool.unwind.modules import Module, ModuleMap


class How(IntEnum):
    """How a frame was found: by which step from the frame that it called."""

    INTERRUPTED = 0  # the registers themselves
    CFI = 1
    CFI_EXACT = 2  # by the exact evaluator
    SIGNAL_FRAME = 3  # restored from what the kernel saved: this frame was interrupted by a signal
    PLT = 4
    CODE_ANALYSIS = 5
    LEAF = 6
    FRAME_POINTER = 7
    KERNEL = 8  # the kernel's own frame, as it says; the core knows none


class StackEnd(IntEnum):
    """How a stack ended. Only ROOT is an end of the stack itself; all others cut it."""

    ROOT = 0
    STACK_BYTES_ENDED = 1  # the copy was too short
    NO_UNWIND_INFO = 2
    UNREADABLE_MEMORY = 3
    BAD_RETURN_ADDRESS = 4
    LOOP = 5
    DEPTH_LIMIT = 6
    UNMAPPED_PC = 7


# In words.
ENDS: dict[int, str] = {
    StackEnd.ROOT: "the root",
    StackEnd.STACK_BYTES_ENDED: "the copy of the stack is too short",
    StackEnd.NO_UNWIND_INFO: "nothing says how to go on",
    StackEnd.UNREADABLE_MEMORY: "memory that can't be read",
    StackEnd.BAD_RETURN_ADDRESS: "a return address that is no code",
    StackEnd.LOOP: "a loop",
    StackEnd.DEPTH_LIMIT: "the depth limit",
    StackEnd.UNMAPPED_PC: "a pc that is no code",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """One activation of one physical function.

    address: the interrupted frame's pc, or the return address in a caller. guessed: nothing proves this
    frame. module, relative_address (address - image base): None where no module lies.
    """

    address: FrameAddress
    how: How
    guessed: bool
    module: Module | None
    relative_address: FrameAddress | None
    is_return_address: bool

    @property
    def lookup_address(self) -> LookupAddress:
        """What to look up for this frame, as an address."""
        return lookup_address(self.address, is_return_address=self.is_return_address)

    @property
    def relative_lookup_address(self) -> LookupAddress | None:
        """What to look up in the module's file: symbols, lines, rows."""
        if self.relative_address is None:
            return None
        return lookup_address(self.relative_address, is_return_address=self.is_return_address)


class Stack(Sequence[Frame]):
    """The frames of one stack, innermost first, and how it ended. It never changes."""

    __slots__ = ("_addresses", "_how", "_modules", "_starts_at_return_address", "end")

    def __init__(
        self,
        addresses: bytes,
        how: bytes,
        end: int,
        modules: ModuleMap,
        starts_at_return_address: bool = False,
    ) -> None:
        """addresses: uint64 each; how: How | GUESS, uint8 each; modules: as they were at the walk."""
        self._addresses = memoryview(addresses).cast("Q")
        self._how = how
        self._modules = modules
        self._starts_at_return_address = starts_at_return_address
        self.end = StackEnd(end)

    @property
    def has_guess(self) -> bool:
        """True if any frame is a guess."""
        return any(how & GUESS for how in self._how)

    @property
    def complete(self) -> bool:
        """It ended at the root, and every frame is the file's own word or proved."""
        return self.end is StackEnd.ROOT and not self.has_guess

    @property
    def guessed(self) -> bool:
        """It ended at the root, but with a guess in it."""
        return self.end is StackEnd.ROOT and self.has_guess

    @property
    def cut(self) -> bool:
        """It ended before the root."""
        return self.end is not StackEnd.ROOT

    @property
    def addresses(self) -> tuple[int, ...]:
        """Each frame's address, innermost first."""
        return tuple(self._addresses)

    def __len__(self) -> int:
        return len(self._how)

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Frame, ...]: ...
    def __getitem__(self, index: int | slice) -> Frame | tuple[Frame, ...]:
        if isinstance(index, slice):
            return tuple(self._frame(i) for i in range(*index.indices(len(self))))
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"frame {index} of {len(self)}")
        return self._frame(position)

    def __iter__(self) -> Iterator[Frame]:
        return (self._frame(i) for i in range(len(self)))

    def _frame(self, index: int) -> Frame:
        how = How(self._how[index] & ~GUESS)
        called = self._starts_at_return_address if index == 0 else how is not How.SIGNAL_FRAME
        address = self._addresses[index]
        module = self._modules.find(lookup_address(address, is_return_address=called))
        as_type = ReturnAddress if called else LookupAddress
        return Frame(
            address=as_type(address),
            how=how,
            guessed=bool(self._how[index] & GUESS),
            module=module,
            relative_address=None if module is None else as_type(address - module.image_base),
            is_return_address=called,
        )

    def __repr__(self) -> str:
        state = "complete" if self.complete else "guessed" if self.guessed else "cut"
        return f"<Stack: {len(self)} frames, {state}, ended at {self.end.name.lower()}>"
