"""The modules of an Unwinder: many of them, at any address, of files that claim anything."""

import random

from tests.elf_writer import ALLOC, EXEC, Section, Segment, elf_file
from unspool import Binary, Registers, Snapshot, StackEnd, Unwinder


def ranges(unwinder: Unwinder) -> list[tuple[int, int, str]]:
    return [(mapping.start, mapping.end, mapping.module.name) for mapping in unwinder.modules.mappings]


def test_replacing_in_any_order_leaves_what_came_last() -> None:
    """Against a model with an owner for every page."""
    numbers = random.Random(5)
    unwinder = Unwinder("x86_64")
    owners: dict[int, str] = {}
    for number in range(200):
        start = numbers.randrange(60)
        end = start + numbers.randrange(1, 12)
        unwinder.add_module(None, start=start << 12, end=end << 12, name=str(number), replacing=True)
        owners |= dict.fromkeys(range(start, end), str(number))
        pages = {
            page: name for first, last, name in ranges(unwinder) for page in range(first >> 12, last >> 12)
        }
        assert pages == owners
        assert all(one[1] <= two[0] for one, two in zip(ranges(unwinder), ranges(unwinder)[1:], strict=False))


def test_thousands_of_modules() -> None:
    """As a process with much JIT code has them."""
    unwinder = Unwinder("x86_64")
    for number in range(10_000):
        unwinder.add_module(None, start=number << 13, end=(number << 13) + 0x1000, replacing=True)
    assert len(unwinder.modules.mappings) == 10_000


def test_code_up_to_the_last_address() -> None:
    """C holds the end of a module in 64 bits: the very last byte is left out."""
    unwinder = Unwinder("x86_64")
    unwinder.add_module(None, start=(1 << 64) - 0x1000, end=1 << 64)
    assert ranges(unwinder)[0][:2] == ((1 << 64) - 0x1000, (1 << 64) - 1)
    stack = unwinder.walk(Registers(pc=(1 << 64) - 0x800, sp=0x1000), Snapshot([]))
    assert stack.end is StackEnd.NO_UNWIND_INFO


def test_a_file_whose_segment_goes_on_for_ever() -> None:
    """memory_size is the file's claim."""
    data = elf_file(
        [Section(".text", b"\xc3" * 16, flags=ALLOC | EXEC, address=0x1000)],
        [Segment(0x1000, ".text", memory_size=(1 << 64) - 1)],
    )
    unwinder = Unwinder("x86_64")
    unwinder.add_module(Binary.from_bytes(data, "endless"), 0x1000)
    assert unwinder.walk(Registers(pc=0x1000, sp=0x1000), Snapshot([])).addresses == (0x1000,)


def test_segments_of_one_file_that_overlap() -> None:
    """The walk looks modules up by bisection: no two may hold one address."""
    data = elf_file(
        [Section(".text", b"\xc3" * 16, flags=ALLOC | EXEC, address=0x1000)],
        [Segment(0x1000, ".text", memory_size=0x3000), Segment(0x2000, ".text", memory_size=0x3000)],
    )
    unwinder = Unwinder("x86_64")
    unwinder.add_module(Binary.from_bytes(data, "double"), 0x1000)
    assert [tuple(mapping)[:2] for mapping in unwinder.modules.mappings] == [
        (0x1000, 0x2000),
        (0x2000, 0x5000),
    ]
