"""Walking by a file's own information: Unwinder.walk, .step and its modules."""

import struct
import threading
from collections.abc import Callable

import pytest

from tests.small_library import IMAGE_BASE, Library
from unspool import Binary, How, Registers, Snapshot, StackBytes, StackEnd, Unwinder

LibraryOf = Callable[[str], Library]
STACK = 0x7FFE_0000_1000
ARCHES = ("x86_64", "aarch64")


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def interrupted_in_inner(library: Library) -> tuple[Registers, StackBytes]:
    """inner, called by middle, outer and root, stopped at inner_body: registers and the stack from sp."""
    at = library.at
    if library.binary.arch == "x86_64":
        stack = words(
            0xB, at("middle_return"), 0, 0, 0, at("outer_return"), 0xF0F0, at("root_return"), 0xDEAD
        )  # fmt: skip
        registers = Registers(pc=at("inner_body"), sp=STACK, fp=STACK + 0x30, others={"rbx": 0xBAD})
    else:
        stack = words(at("outer_return"), 0, 0, 0, 0xF0F0, at("root_return"), 0xDEAD)
        registers = Registers(pc=at("inner_body"), sp=STACK, fp=STACK + 0x20, lr=at("middle_return"))
    return registers, StackBytes(STACK, stack)


def unwinder_with(library: Library) -> Unwinder:
    unwinder = Unwinder(library.binary.arch)
    unwinder.add_module(library.binary, IMAGE_BASE)
    return unwinder


@pytest.mark.parametrize("arch", ARCHES)
def test_a_whole_stack(library: LibraryOf, arch: str) -> None:
    """Every caller up to the root, each by CFI; the stack is complete."""
    given = library(arch)
    stack = unwinder_with(given).walk(*interrupted_in_inner(given))
    expected = ("inner_body", "middle_return", "outer_return", "root_return")
    assert stack.addresses == tuple(given.at(label) for label in expected)
    assert [frame.how for frame in stack] == [How.INTERRUPTED, How.CFI, How.CFI, How.CFI]
    assert stack.end is StackEnd.ROOT
    assert (stack.complete, stack.guessed, stack.cut) == (True, False, False)


@pytest.mark.parametrize("arch", ARCHES)
def test_frames_know_their_module_and_relative_address(library: LibraryOf, arch: str) -> None:
    """A frame's address is where it is in the process, its relative address where it is in the file."""
    given = library(arch)
    unwinder = Unwinder(arch)
    module = unwinder.add_module(given.binary, IMAGE_BASE)
    frame = unwinder.walk(*interrupted_in_inner(given))[1]
    assert (frame.module, frame.relative_address) == (module, given.labels["middle_return"])
    assert frame.relative_lookup_address == given.labels["middle_return"] - 1


@pytest.mark.parametrize("arch", ARCHES)
def test_steps_find_the_same_callers(library: LibraryOf, arch: str) -> None:
    """step yields the caller's registers one by one, then the end."""
    given = library(arch)
    unwinder = unwinder_with(given)
    registers, memory = interrupted_in_inner(given)
    found = [registers.pc]
    result: Registers | StackEnd = registers
    while isinstance(result, Registers):
        result = unwinder.step(result, memory)
        if isinstance(result, Registers):
            assert result.pc_is_return_address
            found.append(result.pc)
    assert result is StackEnd.ROOT
    assert tuple(found) == unwinder.walk(registers, memory).addresses


def test_a_step_restores_saved_registers(library: LibraryOf) -> None:
    """The caller's rbx is what inner saved, and its sp the CFA."""
    given = library("x86_64")
    registers, memory = interrupted_in_inner(given)
    caller = unwinder_with(given).step(registers, memory)
    assert isinstance(caller, Registers)
    assert (caller.pc, caller.sp, caller.fp) == (given.at("middle_return"), STACK + 16, STACK + 0x30)
    assert caller.others["rbx"] == 0xB
    assert "rax" not in caller.others
    assert (caller.how, caller.guessed) == (How.CFI, False)


def test_a_walk_may_start_at_a_caller(library: LibraryOf) -> None:
    """Registers that say that their pc is a return address are looked up one byte before it."""
    given = library("x86_64")
    unwinder = unwinder_with(given)
    registers, memory = interrupted_in_inner(given)
    caller = unwinder.step(registers, memory)
    assert isinstance(caller, Registers)
    rest = unwinder.walk(caller, memory)
    assert rest.addresses == unwinder.walk(registers, memory).addresses[1:]
    assert rest[0].is_return_address
    assert rest[0].lookup_address == given.at("middle_return") - 1


def test_a_short_copy_cuts_the_stack(library: LibraryOf) -> None:
    """Where the stack's copy ends, the stack ends with that reason, and is not complete."""
    given = library("x86_64")
    registers, memory = interrupted_in_inner(given)
    stack = unwinder_with(given).walk(registers, StackBytes(STACK, memory.data[:40]))
    assert (stack.end, stack.cut, len(stack)) == (StackEnd.STACK_BYTES_ENDED, True, 2)


def test_an_unknown_frame_pointer_is_not_zero(library: LibraryOf) -> None:
    """A CFA that counts from an unknown fp ends the stack; nothing is read at fp+16 = 16."""
    given = library("x86_64")
    registers, memory = interrupted_in_inner(given)
    registers.fp = None
    stack = unwinder_with(given).walk(registers, memory)
    assert stack.addresses == tuple(given.at(x) for x in ("inner_body", "middle_return", "outer_return"))
    assert stack.cut


def test_a_pc_outside_of_all_modules_ends_the_stack() -> None:
    """With no module and nothing to read, one frame is left, and the reason."""
    stack = Unwinder("aarch64").walk(Registers(pc=0x4CD, sp=STACK), Snapshot([]))
    assert (stack.addresses, stack.cut) == ((0x4CD,), True)
    assert stack[0].module is None
    assert stack[0].relative_address is None


def test_the_depth_limit_cuts(library: LibraryOf) -> None:
    """At most depth_limit frames, with that reason."""
    given = library("x86_64")
    unwinder = Unwinder("x86_64", depth_limit=2)
    unwinder.add_module(given.binary, IMAGE_BASE)
    stack = unwinder.walk(*interrupted_in_inner(given))
    assert (len(stack), stack.end) == (2, StackEnd.DEPTH_LIMIT)


def test_a_removed_module_is_forgotten(library: LibraryOf) -> None:
    """After remove_module its code is unmapped, also for rules that were cached; handles work once."""
    given = library("x86_64")
    unwinder = Unwinder("x86_64")
    module = unwinder.add_module(given.binary, IMAGE_BASE)
    before = unwinder.walk(*interrupted_in_inner(given))
    unwinder.remove_module(module)
    after = unwinder.walk(*interrupted_in_inner(given))
    assert before.complete
    assert after.cut
    assert before[0].module is module, "a stack keeps the modules it was walked with"
    with pytest.raises(KeyError, match=r"lib\.so"):
        unwinder.remove_module(module)


def test_overlapping_modules_are_refused(library: LibraryOf) -> None:
    """Two files can't be mapped at one address, unless the new one replaces the old."""
    given = library("x86_64")
    unwinder = Unwinder("x86_64")
    first = unwinder.add_module(given.binary, IMAGE_BASE)
    with pytest.raises(ValueError, match="overlaps"):
        unwinder.add_module(given.binary, IMAGE_BASE)
    assert [mapping.module for mapping in unwinder.modules.mappings] == [first]


def test_replacing_takes_only_what_is_covered(library: LibraryOf) -> None:
    """A mapping over the middle of another leaves its two ends, as mmap does."""
    unwinder = Unwinder("x86_64")
    old = unwinder.add_module(None, start=0x1000, end=0x9000, name="old")
    new = unwinder.add_module(None, start=0x3000, end=0x4000, name="new", replacing=True)
    assert [tuple(mapping) for mapping in unwinder.modules.mappings] == [
        (0x1000, 0x3000, old),
        (0x3000, 0x4000, new),
        (0x4000, 0x9000, old),
    ]


def test_a_replaced_file_unwinds_at_its_new_place(library: LibraryOf) -> None:
    """The same file at another image base: the old addresses are gone, the new ones unwind."""
    given = library("x86_64")
    unwinder = Unwinder("x86_64")
    unwinder.remove_module(unwinder.add_module(given.binary, IMAGE_BASE - 0x100000))
    unwinder.add_module(given.binary, IMAGE_BASE)
    assert unwinder.walk(*interrupted_in_inner(given)).complete


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_base": None}, "image base"),
        ({"image_base": -1}, "image base"),
        ({"start": 0x1000}, "start and end"),
        ({"start": 0x2000, "end": 0x1000}, "no addresses"),
    ],
)
def test_impossible_modules_are_refused(library: LibraryOf, change: dict[str, int], message: str) -> None:
    """A module that can't exist is a ValueError that says why."""
    arguments: dict[str, int | None] = {"image_base": IMAGE_BASE} | change
    with pytest.raises(ValueError, match=message):
        Unwinder("x86_64").add_module(library("x86_64").binary, **arguments)  # type: ignore[arg-type]


def test_a_file_of_another_architecture_is_refused(library: LibraryOf) -> None:
    """A file for aarch64 can't be a module of an x86_64 process."""
    with pytest.raises(ValueError, match="is for aarch64, not for x86_64"):
        Unwinder("x86_64").add_module(library("aarch64").binary, IMAGE_BASE)


@pytest.mark.parametrize(
    "arguments",
    [{"arch": "mips"}, {"arch": "x86_64", "depth_limit": 0}, {"arch": "aarch64", "address_bits": 20}],
)
def test_impossible_unwinders_are_refused(arguments: dict[str, object]) -> None:
    """Unknown architectures and limits that allow nothing are ValueErrors."""
    with pytest.raises(ValueError, match=r"."):
        Unwinder(**arguments)  # type: ignore[arg-type]


def test_threads_share_an_unwinder(library: LibraryOf) -> None:
    """Walks in several threads, while modules come and go elsewhere, yield the same stack."""
    given = library("x86_64")
    unwinder = unwinder_with(given)
    registers, memory = interrupted_in_inner(given)
    expected = unwinder.walk(registers, memory).addresses
    wrong: list[object] = []

    def work() -> None:
        for _ in range(300):
            stack = unwinder.walk(registers, memory)
            if stack.addresses != expected or not stack.complete:
                wrong.append(stack)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        unwinder.remove_module(unwinder.add_module(None, start=0x1000, end=0x2000))
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_binary_may_be_dropped_after_it_was_added(library: LibraryOf) -> None:
    """The unwinder keeps what C points to."""
    given = library("x86_64")
    unwinder = Unwinder("x86_64")
    unwinder.add_module(Binary.open(given.binary.path), IMAGE_BASE)
    assert unwinder.walk(*interrupted_in_inner(given)).complete
