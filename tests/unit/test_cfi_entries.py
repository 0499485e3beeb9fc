"""CIEs and FDEs as the core reads them: each condition is built in front of the reader."""

from dataclasses import replace

import pytest

from tests.cfi_tables import PUSHED, Compiled, assert_pushed
from tests.dwarf_writer import (
    ABSPTR,
    ALIGNED,
    DATAREL,
    FUNCREL,
    INDIRECT,
    OMIT,
    PCREL,
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
    debug_frame,
    eh_frame,
    u8,
    u32,
    u64,
)

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
