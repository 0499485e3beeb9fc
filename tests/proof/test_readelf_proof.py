"""A slice of the proof that is fast enough for every run; `make proof` runs all of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import elf_writer
from tests.dwarf_writer import X86_64_CIE, advance_loc, def_cfa_offset, eh_frame
from tests.proof import comparison, corpus
from tests.proof.comparison import compare
from tests.proof.readelf import ReadelfFde, parse, read_fdes
from tests.proof.readelf_proof import lines_of
from tests.proof.step_function import Claimant, Piece, pieces
from unspool import Binary, UnwindTable

SYSTEM = ("libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6")
BUILT = ("clang_lld", "debug_frame", "musl_static", "rust", "aarch64_pac", "aarch64_libc")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    files = {path.name: path for path in corpus.built_files(tmp_path_factory.mktemp("proof"))}
    return files | {"aarch64_libc": corpus.AARCH64_LIBRARIES / "libc.so.6"}


# On aarch64 functions that a PLT stub enters (ld.so's resolvers) have exact rows where a rule could hold: the
# evaluator adds what the stub has pushed, of which their CFI knows nothing.
RESOLVER_ROWS = 6


def check(path: Path) -> comparison.Comparison:
    result = compare(path)
    assert result.rows > 0
    assert result.needlessly_exact <= (RESOLVER_ROWS if result.arch == "aarch64" else 0)
    assert not result.problems and not result.slow_problems
    assert not result.differences, "\n".join(lines_of(result))
    return result


@pytest.mark.parametrize("name", SYSTEM)
def test_library_of_the_system(name: str) -> None:
    check(corpus.LIBRARIES / name)


@pytest.mark.parametrize("name", BUILT)
def test_program_that_is_built_here(name: str, built: dict[str, Path]) -> None:
    check(built[name])


def test_the_slice_has_all_kinds_of_rows(built: dict[str, Path]) -> None:
    libc = check(corpus.LIBRARIES / "libc.so.6")
    assert libc.exact > 0 and libc.root > 0
    with Binary.open(built["debug_frame"]) as binary:
        assert {section.kind for section in binary.unwind_sections()} == {"eh_frame", "debug_frame"}


def test_one_wrong_row_of_readelf_is_found(monkeypatch: pytest.MonkeyPatch, built: dict[str, Path]) -> None:
    def with_an_error(path: Path, frame_pointer: str) -> Iterator[ReadelfFde]:
        for number, fde in enumerate(read_fdes(path, frame_pointer)):
            if number == 20:
                address, claim = fde.rows[-1]
                fde.rows[-1] = (address, claim._replace(cfa="rsp+8888"))
            yield fde

    monkeypatch.setattr(comparison, "read_fdes", with_an_error)
    (found,) = compare(built["clang_lld"]).differences
    assert "rsp+8888" in str(found.readelf)
    assert found.llvm.startswith("CFA=")


def test_one_wrong_instruction_in_what_the_table_is_made_of_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The table is compiled from a file with one other offset than readelf and the slow evaluator read."""
    right, wrong = (elf_with_cfa_offset(tmp_path / name, offset) for name, offset in (("a", 32), ("b", 40)))
    compile_truly = UnwindTable.compile

    def compile_the_wrong_one(_: Binary) -> UnwindTable:
        with Binary.open(wrong) as binary:
            return compile_truly(binary)

    assert not compare(right).differences
    monkeypatch.setattr(UnwindTable, "compile", compile_the_wrong_one)
    (found,) = compare(right).differences
    assert found.address == 0x1004
    assert "rsp+40" in str(found.table) and "rsp+32" in str(found.readelf) and "rsp+32" in str(found.slow)
    assert found.llvm == "CFA=RSP+32: RIP=[CFA-8]"


def elf_with_cfa_offset(path: Path, cfa_offset: int) -> Path:
    section = eh_frame(0x2000)
    section.fde(section.cie(X86_64_CIE), 0x1000, 0x20, advance_loc(4), def_cfa_offset(cfa_offset))
    text = elf_writer.Section(".text", bytes(32), flags=elf_writer.ALLOC | elf_writer.EXEC, address=0x1000)
    frames = elf_writer.Section(".eh_frame", section.data, flags=elf_writer.ALLOC, address=0x2000)
    segments = [elf_writer.Segment(0x1000, ".text"), elf_writer.Segment(0x2000, ".eh_frame", flags=4)]
    path.write_bytes(elf_writer.elf_file([text, frames], segments))
    return path


# ---------------------------------------------------------------- the parts of the proof itself

READELF_TEXT = """Contents of the .eh_frame section:


00000000 0000000000000014 00000000 CIE "zR" cf=1 df=-8 ra=16
   LOC           CFA      ra
0000000000000000 rsp+8    c-8

00000018 0000000000000014 0000001c FDE cie=00000000 pc=0000000000001000..0000000000001010

00000030 000000000000002c 00000034 FDE cie=00000000 pc=0000000000002000..0000000000002040
   LOC           CFA      rbx   rbp   ra
0000000000002000 rdi+0    c+0   r9 (r9) r1 (rdx)
0000000000002008 exp      u     vexp  c-8

00000060 ZERO terminator


Contents of the .debug_frame section:


00000000 0000000000000014 ffffffff CIE "" cf=1 df=-8 ra=16

00000018 0000000000000014 00000000 FDE cie=00000000 pc=0000000000003000..0000000000003005
"""


def test_readelfs_text_is_read_row_by_row() -> None:
    found = [
        (fde.section, fde.offset, fde.start, fde.end, [(at, *claim) for at, claim in fde.rows])
        for fde in parse(READELF_TEXT.splitlines(keepends=True), "rbp")
    ]
    assert found == [
        (".eh_frame", 0x18, 0x1000, 0x1010, [(0x1000, "rsp+8", "c-8", "u")]),
        (
            ".eh_frame",
            0x30,
            0x2000,
            0x2040,
            [(0x2000, "rdi+0", "rdx", "r9"), (0x2008, "exp", "c-8", "vexp")],
        ),
        (".debug_frame", 0x18, 0x3000, 0x3005, [(0x3000, "", "u", "u")]),
    ]


def claimant(start: int, end: int, offset: int = 0, is_eh_frame: bool = True) -> Claimant:
    return Claimant(is_eh_frame, offset, start, end, ((start, "row"),))


def test_pieces_of_nested_claimants() -> None:
    outer, middle, inner = claimant(0, 100), claimant(10, 60), claimant(20, 30)
    debug = claimant(5, 120, is_eh_frame=False)
    assert pieces([inner, debug, middle, outer]) == [
        Piece(0, 5, outer),
        Piece(5, 10, outer),
        Piece(10, 20, middle),
        Piece(20, 30, inner),
        Piece(30, 60, middle),
        Piece(60, 100, outer),
        Piece(100, 120, debug),
    ]


def test_pieces_of_claimants_that_start_together() -> None:
    first, second = claimant(0, 40, 1), claimant(0, 20, 2)
    twice = [claimant(50, 60, 3), claimant(50, 60, 4)]
    assert pieces([first, second, *twice]) == [
        Piece(0, 20, second),
        Piece(20, 40, first),
        Piece(50, 60, twice[0]),
    ]
