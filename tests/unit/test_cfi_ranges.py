"""Which FDE holds where: each condition is built in front of the reader."""

from dataclasses import replace

import pytest

from tests.cfi_tables import AFTER_PUSH, ENTRY, PUSHED, Compiled, assert_pushed
from tests.dwarf_writer import (
    RIP,
    UDATA8,
    X86_64_CIE,
    X86_64_DEBUG_CIE,
    debug_frame,
    def_cfa_offset,
    eh_frame,
    undefined,
)

# ---------------------------------------------------------------- ranges


def test_unsorted_fdes() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    starts = [0x5000, 0x1000, 0x9000, 0x3000, 0x1_0000, 0x300]
    for start in starts:
        section.fde(cie, start, 0x20, *PUSHED)
    compiled = Compiled(section)
    for start in starts:
        assert_pushed(compiled, start)


def test_adjacent_fdes() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    section.fde(cie, 0x1000, 0x20, *PUSHED)
    section.fde(cie, 0x1020, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert compiled.says(0x101F) == AFTER_PUSH
    assert compiled.says(0x1020) == ENTRY


def test_zero_length_fde_says_nothing() -> None:
    section = eh_frame()
    section.fde(section.cie(X86_64_CIE), 0x1000, 0, *PUSHED)
    compiled = Compiled(section)
    assert compiled.says(0x1000) == "nothing"
    assert compiled.problem_count == 0


@pytest.mark.parametrize("zero_length_first", [True, False])
def test_zero_length_fde_does_not_hide_the_real_one(zero_length_first: bool) -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    for is_zero in (zero_length_first, not zero_length_first):
        section.fde(cie, 0x1000, 0 if is_zero else 0x20, *(() if is_zero else PUSHED))
    section.fde(cie, 0x1008, 0)
    assert_pushed(Compiled(section))


def test_duplicate_fdes_are_no_problem() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    for _ in range(3):
        section.fde(cie, 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.problem_count == 0


def test_image_address_is_subtracted() -> None:
    section = eh_frame(0x405000)
    section.fde(section.cie(X86_64_CIE), 0x401000, 0x20, *PUSHED)
    compiled = Compiled(section, image_address=0x400000)
    assert_pushed(compiled, 0x401000)
    row = compiled.table.lookup(0x1000)
    assert row and row.start == 0x1000


def test_fde_below_the_image_is_left_out() -> None:
    section = eh_frame(0x405000)
    cie = section.cie(X86_64_CIE)
    fde = section.fde(cie, 0x3FF000, 0x20, *PUSHED)
    section.fde(cie, 0x401000, 0x20, *PUSHED)
    compiled = Compiled(section, image_address=0x400000)
    assert_pushed(compiled, 0x401000)
    assert compiled.problems == [("RANGE", fde)]


@pytest.mark.parametrize(
    ("start", "size"),
    [(1 << 32, 0x20), ((1 << 32) - 0x10, 0x20), ((1 << 64) - 0x10, 0x20), (0x1000, 1 << 33)],
)
def test_fde_4_gib_away_or_around_the_end_of_addresses_is_left_out(start: int, size: int) -> None:
    section = eh_frame()
    absolute = section.cie(replace(X86_64_CIE, pointer_encoding=UDATA8))
    fde = section.fde(absolute, start, size, *PUSHED)
    section.fde(absolute, 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.problems == [("RANGE", fde)]


def test_negative_size_is_left_out() -> None:
    section = eh_frame()
    fde = section.fde(section.cie(X86_64_CIE), 0x1000, -0x10, *PUSHED)
    compiled = Compiled(section)
    assert compiled.says(0x1000) == "nothing"
    assert compiled.says(0xFFF) == "nothing"
    assert compiled.problems == [("RANGE", fde)]


def test_last_addresses_that_fit() -> None:
    section = eh_frame()
    absolute = section.cie(replace(X86_64_CIE, pointer_encoding=UDATA8))
    section.fde(absolute, (1 << 32) - 0x41, 0x40, *PUSHED)
    section.fde(absolute, 0, 0x40, *PUSHED)
    compiled = Compiled(section)
    assert compiled.says((1 << 32) - 2) == AFTER_PUSH
    assert compiled.says((1 << 32) - 0x41) == ENTRY
    assert compiled.says(0) == ENTRY
    assert compiled.problem_count == 0


# ---------------------------------------------------------------- several claims

OTHER = (undefined(RIP),)
OTHER_SAYS = "rsp+8 ra=u fp=s end"


def test_eh_frame_goes_before_debug_frame_which_fills_the_gaps() -> None:
    eh, debug = eh_frame(), debug_frame()
    cie = debug.cie(X86_64_DEBUG_CIE)
    eh.fde(eh.cie(X86_64_CIE), 0x1010, 0x10, *OTHER)
    debug.fde(cie, 0x1000, 0x20, *PUSHED)
    debug.fde(cie, 0x1030, 0x10, *PUSHED)
    for sections in ((eh, debug), (debug, eh)):
        compiled = Compiled(*sections)
        assert compiled.says(0x1000) == ENTRY and compiled.is_from_debug_frame(0x1000)
        assert compiled.says(0x100F) == AFTER_PUSH and compiled.is_from_debug_frame(0x100F)
        assert compiled.says(0x1010) == OTHER_SAYS and not compiled.is_from_debug_frame(0x1010)
        assert compiled.says(0x101F) == OTHER_SAYS and not compiled.is_from_debug_frame(0x101F)
        assert compiled.says(0x1020) == "nothing"
        assert compiled.says(0x1030) == ENTRY and compiled.is_from_debug_frame(0x1030)


def test_same_function_in_both_sections_is_from_eh_frame() -> None:
    eh, debug = eh_frame(), debug_frame()
    eh.fde(eh.cie(X86_64_CIE), 0x1000, 0x20, *PUSHED)
    debug.fde(debug.cie(X86_64_DEBUG_CIE), 0x1000, 0x20, *OTHER)
    compiled = Compiled(eh, debug)
    assert_pushed(compiled)
    assert not compiled.is_from_debug_frame(0x1000)
    assert compiled.problem_count == 0


def test_inner_fde_holds_and_the_outer_one_goes_on_behind_it() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    section.fde(cie, 0x1000, 0x40, *PUSHED)
    inner = section.fde(cie, 0x1010, 0x10, *OTHER)
    compiled = Compiled(section)
    assert compiled.says(0x100F) == AFTER_PUSH
    assert compiled.says(0x1010) == OTHER_SAYS
    assert compiled.says(0x101F) == OTHER_SAYS
    assert compiled.says(0x1020) == AFTER_PUSH
    assert compiled.says(0x103F) == AFTER_PUSH
    assert compiled.says(0x1040) == "nothing"
    assert compiled.problems == [("OVERLAP", inner)]


def test_nested_three_times_the_one_that_starts_last_holds_everywhere() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    section.fde(cie, 0x1000, 0x80, *PUSHED)
    section.fde(cie, 0x1010, 0x40, *OTHER)
    section.fde(cie, 0x1020, 0x10, def_cfa_offset(64))
    compiled = Compiled(section)
    assert compiled.says(0x101F) == OTHER_SAYS
    assert compiled.says(0x1020) == "rsp+64 ra=c-8 fp=s"
    assert compiled.says(0x1030) == OTHER_SAYS
    assert compiled.says(0x104F) == OTHER_SAYS
    assert compiled.says(0x1050) == AFTER_PUSH


def test_what_an_eh_frame_fde_gets_back_goes_before_debug_frame() -> None:
    eh, debug = eh_frame(), debug_frame()
    cie = eh.cie(X86_64_CIE)
    eh.fde(cie, 0x1010, 0x40, *OTHER)
    eh.fde(cie, 0x1020, 0x10, def_cfa_offset(64))
    debug.fde(debug.cie(X86_64_DEBUG_CIE), 0x1000, 0x80, *PUSHED)
    compiled = Compiled(eh, debug)
    assert compiled.says(0x100F) == AFTER_PUSH
    assert compiled.says(0x1030) == OTHER_SAYS
    assert compiled.says(0x1050) == AFTER_PUSH


def test_of_two_fdes_that_start_together_the_last_holds_and_the_longer_goes_on() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    section.fde(cie, 0x1000, 0x40, *PUSHED)
    section.fde(cie, 0x1000, 0x20, *OTHER)
    compiled = Compiled(section)
    assert compiled.says(0x1000) == OTHER_SAYS
    assert compiled.says(0x1020) == AFTER_PUSH
