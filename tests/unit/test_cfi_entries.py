"""CIEs and FDEs as the core reads them: each condition is built in front of the reader."""

from dataclasses import replace

import pytest

from tests.cfi_tables import Compiled
from tests.dwarf_writer import (
    ABSPTR,
    ALIGNED,
    DATAREL,
    FUNCREL,
    INDIRECT,
    OMIT,
    PCREL,
    RBP,
    RIP,
    SDATA2,
    SDATA4,
    SDATA8,
    SLEB128,
    TEXTREL,
    UDATA2,
    UDATA4,
    UDATA8,
    ULEB128,
    X86_64_CIE,
    X86_64_DEBUG_CIE,
    FrameSection,
    PlacedCie,
    advance_loc,
    debug_frame,
    def_cfa_offset,
    eh_frame,
    offset,
    u8,
    u32,
    u64,
    undefined,
)

PUSHED = (advance_loc(1), def_cfa_offset(16), offset(RBP, 2))
ENTRY, AFTER_PUSH = "rsp+8 ra=c-8 fp=s", "rsp+16 ra=c-8 fp=c-16"


def assert_pushed(compiled: Compiled, start: int = 0x1000, size: int = 0x20, flags: str = "") -> None:
    """The function that PUSHED describes is there, and nothing around it."""
    assert compiled.says(start) == ENTRY + flags
    assert compiled.says(start + 1) == AFTER_PUSH + flags
    assert compiled.says(start + size - 1) == AFTER_PUSH + flags
    assert compiled.says(start + size) == "nothing"
    assert compiled.says(start - 1) == "nothing"


# ---------------------------------------------------------------- CIEs


@pytest.mark.parametrize("version", [1, 3, 4])
@pytest.mark.parametrize("is_eh_frame", [True, False])
def test_cie_version(version: int, is_eh_frame: bool) -> None:
    section = eh_frame() if is_eh_frame else debug_frame()
    cie = section.cie(replace(X86_64_CIE if is_eh_frame else X86_64_DEBUG_CIE, version=version))
    section.fde(cie, 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.problem_count == 0


@pytest.mark.parametrize("version", [0, 2, 5])
def test_unknown_cie_version_leaves_its_fdes_out_and_keeps_the_rest(version: int) -> None:
    section = eh_frame()
    unknown = section.cie(replace(X86_64_CIE, version=version))
    fde = section.fde(unknown, 0x2000, 0x20, *PUSHED)
    section.fde(section.cie(X86_64_CIE), 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.says(0x2000) == "nothing"
    assert compiled.problems == [("CIE_UNSUPPORTED", fde)]


def test_return_address_register_is_a_byte_in_version_1_and_a_leb128_later() -> None:
    """0x90 is register 144 as a byte and, with the 0 that follows, 16 as a LEB128."""
    section = debug_frame()
    head = u32(0xFFFFFFFF) + b"\x03\0" + b"\x01" + b"\x78" + b"\x90\x00"
    at = section.entry(head + X86_64_CIE.instructions)
    section.fde(section.cie(X86_64_DEBUG_CIE), 0x1000, 0x20, *PUSHED, cie_offset=at)
    assert_pushed(Compiled(section))


@pytest.mark.parametrize(("address_size", "segment_selector_size"), [(4, 0), (8, 4), (0, 0)])
def test_version_4_with_other_addresses_is_left_out(address_size: int, segment_selector_size: int) -> None:
    section = debug_frame()
    spec = replace(
        X86_64_DEBUG_CIE,
        version=4,
        address_size=address_size,
        segment_selector_size=segment_selector_size,
    )
    fde = section.fde(section.cie(spec), 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert compiled.says(0x1000) == "nothing"
    assert compiled.problems == [("CIE_UNSUPPORTED", fde)]


@pytest.mark.parametrize("letters", ["zR", "zPLR", "zRS", "zRB", "zRG", "zPLRSBG", "zSR", "zLPR", "zBR"])
def test_augmentation_with_z(letters: str) -> None:
    section = eh_frame()
    cie = section.cie(replace(X86_64_CIE, augmentation=letters))
    section.fde(cie, 0x1000, 0x20, *PUSHED, augmentation_data=u32(0x1234) if "L" in letters else b"")
    assert_pushed(Compiled(section), flags=" signal" if "S" in letters else "")


@pytest.mark.parametrize(
    ("encoding", "pointer"),
    [
        (ABSPTR, u64(0x4000)),
        (UDATA2, b"\0\x40"),
        (ULEB128, b"\x80\x80\x01"),
        (SLEB128, b"\x80\x80\x7f"),
        (PCREL | SDATA4 | INDIRECT, u32(0x4000)),
        (DATAREL | SDATA8, u64(0x4000)),
        (OMIT, b""),
    ],
)
def test_personality_of_every_encoding_is_skipped(encoding: int, pointer: bytes) -> None:
    section = eh_frame()
    cie = section.cie(replace(X86_64_CIE, augmentation="zPR", personality=u8(encoding) + pointer))
    section.fde(cie, 0x1000, 0x20, *PUSHED)
    assert_pushed(Compiled(section))


@pytest.mark.parametrize("address", [0x10000, 0x10003])
def test_aligned_personality_is_filled_up_to_a_multiple_of_8(address: int) -> None:
    section = eh_frame(address)
    personality_at = address + 4 + 4 + 1 + len(b"zPR\0") + 3 + 1 + 1  # all that stands before it
    filler = bytes(-personality_at % 8)
    personality = u8(ALIGNED) + filler + u64(0x4000)
    section.fde(
        section.cie(replace(X86_64_CIE, augmentation="zPR", personality=personality)), 0x1000, 0x20, *PUSHED
    )
    assert_pushed(Compiled(section))


@pytest.mark.parametrize(("letters", "flags"), [("", ""), ("S", " signal"), ("B", ""), ("SG", " signal")])
def test_augmentation_without_z_in_debug_frame(letters: str, flags: str) -> None:
    section = debug_frame()
    section.fde(section.cie(replace(X86_64_DEBUG_CIE, augmentation=letters)), 0x1000, 0x20, *PUSHED)
    assert_pushed(Compiled(section), flags=flags)


def test_augmentation_eh_has_a_pointer_that_is_skipped() -> None:
    section = eh_frame()
    section.fde(
        section.cie(replace(X86_64_CIE, augmentation="eh", pointer_encoding=ABSPTR)), 0x1000, 0x20, *PUSHED
    )
    assert_pushed(Compiled(section))


def test_unknown_augmentation_without_z_leaves_the_fde_out() -> None:
    section = debug_frame()
    fde = section.fde(section.cie(replace(X86_64_DEBUG_CIE, augmentation="X")), 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert compiled.says(0x1000) == "nothing"
    assert compiled.problems == [("CIE_UNSUPPORTED", fde)]


def test_unknown_letter_before_r_leaves_the_fde_out() -> None:
    """How an unknown letter's data is to be skipped nobody knows, so the encoding is not known."""
    section = eh_frame()
    fde = section.fde(section.cie(replace(X86_64_CIE, augmentation="zXR")), 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert compiled.says(0x1000) == "nothing"
    assert compiled.problems == [("CIE_UNSUPPORTED", fde)]


def test_augmentation_data_longer_than_its_letters_is_skipped() -> None:
    section = eh_frame()
    data = u8(PCREL | SDATA4) + b"\x16\x16\x16"
    section.fde(section.cie(replace(X86_64_CIE, augmentation_data=data)), 0x1000, 0x20, *PUSHED)
    assert_pushed(Compiled(section))


def test_augmentation_data_shorter_than_its_letters_leaves_the_fde_out() -> None:
    section = eh_frame()
    cie = section.cie(replace(X86_64_CIE, augmentation="zPLR", augmentation_data=u8(UDATA8) + u32(0)))
    fde = section.fde(cie, 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert compiled.says(0x1000) == "nothing"
    assert compiled.problems == [("CIE_UNSUPPORTED", fde)]


def test_cie_that_no_fde_names_is_not_reported() -> None:
    section = eh_frame()
    section.cie(replace(X86_64_CIE, version=9))
    assert Compiled(section).problem_count == 0


# ---------------------------------------------------------------- pointers


@pytest.mark.parametrize("base", [0, PCREL, TEXTREL, DATAREL])
@pytest.mark.parametrize(
    "format_", [ABSPTR, ULEB128, UDATA2, UDATA4, UDATA8, SLEB128, SDATA2, SDATA4, SDATA8]
)
def test_pointer_encoding(base: int, format_: int) -> None:
    section = FrameSection(True, 0x900, text_address=0x800, data_address=0x400)
    section.fde(section.cie(replace(X86_64_CIE, pointer_encoding=base | format_)), 0x1000, 0x20, *PUSHED)
    assert_pushed(Compiled(section))


@pytest.mark.parametrize("format_", [SLEB128, SDATA2, SDATA4, SDATA8, ABSPTR])
def test_pc_relative_pointer_to_code_before_the_section(format_: int) -> None:
    section = eh_frame(0x3000)
    section.fde(section.cie(replace(X86_64_CIE, pointer_encoding=PCREL | format_)), 0x1000, 0x20, *PUSHED)
    assert_pushed(Compiled(section))


@pytest.mark.parametrize(
    "encoding", [PCREL | INDIRECT | SDATA4, OMIT, FUNCREL | SDATA4, ALIGNED, 0x05, 0x0F, 0x60 | UDATA4]
)
def test_pointer_encoding_without_meaning_leaves_the_fde_out(encoding: int) -> None:
    section = eh_frame()
    fde = section.fde(section.cie(replace(X86_64_CIE, pointer_encoding=encoding)), 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert compiled.says(0x1000) == "nothing"
    assert compiled.problems == [("POINTER_ENCODING", fde)]


@pytest.mark.parametrize("encoding", [TEXTREL | SDATA4, DATAREL | SDATA4])
def test_pointer_relative_to_an_unknown_base_leaves_the_fde_out(encoding: int) -> None:
    section = eh_frame()
    fde = section.fde(section.cie(replace(X86_64_CIE, pointer_encoding=encoding)), 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert compiled.says(0x1000) == "nothing"
    assert compiled.problems == [("POINTER_ENCODING", fde)]


# ---------------------------------------------------------------- lengths and order


@pytest.mark.parametrize("is_eh_frame", [True, False])
def test_64bit_lengths(is_eh_frame: bool) -> None:
    """Behind a 64-bit length, .debug_frame's CIE pointer has 8 bytes, .eh_frame's 4."""
    section = eh_frame(is_64bit=True) if is_eh_frame else debug_frame(is_64bit=True)
    section.fde(section.cie(X86_64_CIE if is_eh_frame else X86_64_DEBUG_CIE), 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.problem_count == 0


def test_32bit_and_64bit_entries_in_one_section() -> None:
    section = debug_frame()
    first = section.cie(X86_64_DEBUG_CIE)
    section.is_64bit = True
    section.fde(first, 0x1000, 0x20, *PUSHED)
    section.is_64bit = False
    section.fde(first, 0x2000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert_pushed(compiled, 0x2000)


def test_zero_terminator_in_the_middle_does_not_end_the_section() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    section.terminator()
    section.fde(cie, 0x1000, 0x20, *PUSHED)
    section.terminator()
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.problem_count == 0


def test_zero_terminator_ends_a_section_whose_size_is_not_known() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    section.fde(cie, 0x1000, 0x20, *PUSHED)
    section.terminator()
    section.fde(cie, 0x2000, 0x20, *PUSHED)
    table = Compiled(section, open_ended=True).table
    assert table.lookup(0x1000) and not table.lookup(0x2000)


def test_garbage_ends_a_section_whose_size_is_not_known_without_a_problem() -> None:
    section = eh_frame()
    section.fde(section.cie(X86_64_CIE), 0x1000, 0x20, *PUSHED)
    section.raw(u32(0x7FFFFFFF))
    compiled = Compiled(section, open_ended=True)
    assert_pushed(compiled)
    assert compiled.problem_count == 0


def test_64bit_length_of_zero_is_a_terminator() -> None:
    section = eh_frame()
    section.raw(u32(0xFFFFFFFF) + u64(0))
    section.fde(section.cie(X86_64_CIE), 0x1000, 0x20, *PUSHED)
    assert_pushed(Compiled(section))


def test_cie_behind_its_fde() -> None:
    """Only .debug_frame can say it: .eh_frame's CIE pointers lead back."""
    scratch = debug_frame()
    scratch.fde(PlacedCie(0, X86_64_DEBUG_CIE), 0x1000, 0x20, *PUSHED)
    cie_offset = len(scratch.data)
    section = debug_frame()
    section.fde(PlacedCie(cie_offset, X86_64_DEBUG_CIE), 0x1000, 0x20, *PUSHED)
    assert section.cie(X86_64_DEBUG_CIE).offset == cie_offset
    assert_pushed(Compiled(section))


@pytest.mark.parametrize("cie_offset", [-0x1000, -4, 0x7000])
def test_fde_without_cie_is_left_out_and_the_rest_kept(cie_offset: int) -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    fde = section.fde(cie, 0x2000, 0x20, *PUSHED, cie_offset=cie_offset)
    section.fde(cie, 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.says(0x2000) == "nothing"
    assert compiled.problems == [("CIE_MISSING", fde)]


def test_fde_that_names_an_fde_is_left_out() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    first = section.fde(cie, 0x1000, 0x20, *PUSHED)
    second = section.fde(cie, 0x2000, 0x20, *PUSHED, cie_offset=first)
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.says(0x2000) == "nothing"
    assert compiled.problems == [("CIE_MISSING", second)]


# ---------------------------------------------------------------- truncation


@pytest.mark.parametrize("kept", [1, 3, 4, 8, 20])
def test_last_entry_cut_off(kept: int) -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    section.fde(cie, 0x1000, 0x20, *PUSHED)
    cut = section.fde(cie, 0x2000, 0x20, *PUSHED)
    del section.parts[cut + kept :]
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.says(0x2000) == "nothing"
    assert compiled.problems == [("TRUNCATED", cut)]


def test_64bit_length_cut_off() -> None:
    section = eh_frame()
    section.fde(section.cie(X86_64_CIE), 0x1000, 0x20, *PUSHED)
    cut = section.raw(u32(0xFFFFFFFF) + u32(8))
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.problems == [("TRUNCATED", cut)]


@pytest.mark.parametrize("length", [0xFFFFFFF0, 0xFFFFFFFE, 0x7FFFFFFF])
def test_length_that_leads_outside_ends_the_section(length: int) -> None:
    section = eh_frame()
    section.fde(section.cie(X86_64_CIE), 0x1000, 0x20, *PUSHED)
    at = section.raw(u32(length))
    section.raw(bytes(64))
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.problems == [("TRUNCATED", at)]


def test_fde_too_short_for_its_fields_is_left_out_and_the_rest_kept() -> None:
    section = eh_frame()
    cie = section.cie(X86_64_CIE)
    at = len(section.data)
    short = section.raw(u32(8) + u32(at + 4 - cie.offset) + u32(0x1000))
    section.fde(cie, 0x1000, 0x20, *PUSHED)
    compiled = Compiled(section)
    assert_pushed(compiled)
    assert compiled.problems == [("TRUNCATED", short)]


def test_entry_too_short_for_its_identifier_is_left_out() -> None:
    section = eh_frame()
    section.raw(u32(2) + b"\0\0")
    section.raw(b"\0\0")  # a filler that is no entry: reading ends here
    compiled = Compiled(section)
    assert compiled.problem_count >= 1
    assert compiled.says(0x1000) == "nothing"


def test_empty_section() -> None:
    compiled = Compiled(eh_frame())
    assert compiled.table.row_count() == 0
    assert compiled.problem_count == 0


def test_every_prefix_of_a_section_is_read_without_harm() -> None:
    section = eh_frame()
    cie = section.cie(replace(X86_64_CIE, augmentation="zPLR"))
    section.fde(cie, 0x1000, 0x20, *PUSHED, augmentation_data=u32(0))
    whole = section.data
    for size in range(len(whole)):
        compiled = Compiled(FrameSection(True, section.address, parts=bytearray(whole[:size])))
        assert compiled.says(0x1000) == "nothing"
        assert bool(compiled.problem_count) == bool(compiled.slow_problems)


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
