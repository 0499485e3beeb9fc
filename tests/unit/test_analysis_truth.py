"""Code analysis against the unwind tables of real files: what it claims must be what the file says.

At every instruction that has an ordinary row the table is hidden and the code analysed
(analysis_truth.c). Whole files are compared with

    python -m tests.unit.test_analysis_truth FILE...
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system_files import system_file
from unspool import Binary

CORE = Path(__file__).resolve().parents[2] / "core"
ARCH = {"x86_64": 1, "aarch64": 2}
INTERRUPTED, AFTER_CALLS, FROM_ENTRIES = range(3)
DIFFERENCES_KEPT = 20


class Counts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("places", "claims", "equal", "incomparable", "fp_lost", "wrong", "stale"),
            *("unproved", "unproved_wrong"),
        )
    )

    def __str__(self) -> str:
        return ", ".join(f"{name} {getattr(self, name)}" for name, _ in self._fields_)


class Difference(ctypes.Structure):
    _fields_ = (
        ("relative_address", ctypes.c_uint64),
        ("claimed", ctypes.c_int64 * 6),
        ("expected", ctypes.c_int64 * 6),
    )

    def __str__(self) -> str:
        return f"{self.relative_address:#x}: {spell(self.claimed)}, by the row {spell(self.expected)}"


class Input(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_char_p),
        ("code_size", ctypes.c_uint64),
        ("code_address", ctypes.c_uint64),
        ("eh_frame", ctypes.c_char_p),
        ("eh_frame_size", ctypes.c_uint64),
        ("eh_frame_address", ctypes.c_uint64),
        ("image_address", ctypes.c_uint64),
        ("arch", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("stride", ctypes.c_uint64),
    )


def spell(values: ctypes.Array[ctypes.c_int64]) -> str:
    """Three pairs of enum frame_value_kind and offset."""
    kinds = ("?{}", "sp{:+d}", "fp{:+d}", "lr{:+d}", "[sp{:+d}]", "[fp{:+d}]")
    pairs = zip(("ra", "sp", "fp"), values[::2], values[1::2], strict=True)
    return " ".join(f"{name}={kinds[kind].format(offset)}" for name, kind, offset in pairs)


def build(folder: Path) -> ctypes.CDLL:
    library = folder / "libanalysis_truth.so"
    command = [os.environ.get("CC", "cc"), "-std=c17", "-O2", "-fPIC", "-shared"]
    sources = [Path(__file__).with_name("analysis_truth.c"), *sorted((CORE / "src").glob("*.c"))]
    includes = [f"-I{CORE / 'include'}", f"-I{CORE / 'src'}"]
    subprocess.run([*command, *includes, *sources, "-o", library], check=True)
    return ctypes.CDLL(str(library))


def read_input(path: Path, stride: int) -> Input:
    with Binary.open(path) as binary:
        text = max((s for s in binary.segments if s.executable), key=lambda s: s.file_size)
        frames = next(s for s in binary.unwind_sections() if s.kind == "eh_frame")
        code = bytes(binary.code(text.address, text.file_size))
        return Input(
            code=code,
            code_size=len(code),
            code_address=text.address,
            eh_frame=bytes(frames.data),
            eh_frame_size=len(frames.data),
            eh_frame_address=frames.address,
            image_address=binary.image_address,
            arch=ARCH[binary.arch],
            stride=stride,
        )


def compare(library: ctypes.CDLL, source: Input, mode: int) -> tuple[Counts, list[str]]:
    counts, kept = Counts(), (Difference * DIFFERENCES_KEPT)()
    source.mode = mode
    status = library.truth_compare(
        ctypes.byref(source), ctypes.byref(counts), kept, ctypes.c_uint64(DIFFERENCES_KEPT)
    )
    assert status == 0
    return counts, [str(difference) for difference in kept[: min(counts.wrong, DIFFERENCES_KEPT)]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    yield build(tmp_path_factory.mktemp("analysis_truth"))


@pytest.mark.parametrize(
    ("arch", "name"),
    [
        *(("x86_64", "libc.so.6"), ("x86_64", "libm.so.6"), ("x86_64", "libstdc++.so.6")),
        *(("aarch64", "libc.so.6"), ("aarch64", "libm.so.6")),
    ],
)
def test_every_claim_for_an_interrupted_frame_is_what_the_table_says(
    library: ctypes.CDLL, arch: str, name: str
) -> None:
    """In libstdc++ some claims that rest on calls which never return are wrong: they are no proofs."""
    counts, differences = compare(library, read_input(system_file(arch, name), 4), INTERRUPTED)
    assert counts.wrong == counts.unproved_wrong, differences
    assert counts.claims - counts.unproved > counts.places // 4  # it does find callers
    if name != "libstdc++.so.6":
        assert counts.wrong == 0, differences


@pytest.mark.parametrize(("arch", "name"), [("x86_64", "libc.so.6"), ("aarch64", "libc.so.6")])
def test_what_is_proved_from_a_return_address_is_right(library: ctypes.CDLL, arch: str, name: str) -> None:
    """The call before it may be one that never returns: a proof takes a callee that is seen to return."""
    counts, differences = compare(library, read_input(system_file(arch, name), 4), AFTER_CALLS)
    assert 0 < counts.unproved < counts.claims
    assert counts.claims > counts.places // 4
    assert counts.wrong == 0, differences


@pytest.mark.parametrize(("arch", "name"), [("x86_64", "libm.so.6"), ("aarch64", "libc.so.6")])
def test_what_holds_on_the_way_from_an_entry_is_what_the_table_says(
    library: ctypes.CDLL, arch: str, name: str
) -> None:
    counts, differences = compare(library, read_input(system_file(arch, name), 4), FROM_ENTRIES)
    assert counts.wrong == 0, differences
    assert counts.claims > counts.places // 2


def main(paths: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        for path in paths:
            source = read_input(Path(path), 1)
            for mode, where in enumerate(("interrupted", "at return addresses", "from entries")):
                counts, differences = compare(library, source, mode)
                print(f"{path}, {where}: {counts}", *differences, sep="\n    ", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
