"""The notes of a core file: what they say, and what becomes of damaged ones."""

import struct

import pytest

from tests.core_writer import (
    FileAt,
    auxiliary,
    core_note,
    mapped_files,
    process,
    signal_information,
    thread,
)
from unspool.capture import core_notes
from unspool.capture.core_notes import FileRange, Signal, parse_notes
from unspool.capture.ptrace import registers_from_words


def test_everything_that_a_kernel_writes() -> None:
    notes = parse_notes(
        thread(12, pc=0x1234, sp=0x7000, signal=11)
        + process(10, "worker", "/bin/worker --all ")
        + signal_information(11, 1, 0xDEAD)
        + auxiliary({3: 0x400040, 9: 0x401000})
        + mapped_files(FileAt(0x400000, 0x402000, 0, "/bin/worker"), FileAt(0x7000, 0x8000, 0x3000, "/lib/x"))
        + core_note(2, bytes(512))  # floating-point registers
        + thread(10, pc=0x5678, sp=0x9000, signal=11)
        + core_note(0x202, bytes(100), owner=b"LINUX")
    )
    assert [note.tid for note in notes.threads] == [12, 10]
    first = registers_from_words("x86_64", notes.threads[0].registers)
    assert (first.pc, first.sp) == (0x1234, 0x7000)
    assert (notes.pid, notes.name, notes.command) == (10, "worker", "/bin/worker --all")
    assert notes.signal == Signal(11, 12, 1, 0xDEAD)
    assert notes.auxiliary == {3: 0x400040, 9: 0x401000}
    assert notes.files == [
        FileRange(0x400000, 0x402000, 0, "/bin/worker"),
        FileRange(0x7000, 0x8000, 0x3000, "/lib/x"),
    ]
    assert notes.problems == []


def test_registers_of_aarch64_and_its_pac_mask() -> None:
    """The mask of a thread is in the note after its status: bits 47 to 54 are no address."""
    mask = struct.pack("<QQ", 0x7F_8000_0000_0000, 0x7F_8000_0000_0000)
    notes = parse_notes(
        thread(1, pc=0x1234, sp=0x7000, arch="aarch64", others={29: 0xF9, 30: 0x1E})
        + core_note(0x406, mask, owner=b"LINUX")
        + thread(2, arch="aarch64")
    )
    registers = registers_from_words("aarch64", notes.threads[0].registers)
    assert (registers.pc, registers.sp, registers.fp, registers.lr) == (0x1234, 0x7000, 0xF9, 0x1E)
    assert [note.address_bits for note in notes.threads] == [47, None]


@pytest.mark.parametrize(
    ("number", "information", "expected"),
    [
        (11, (11, 1, 0x10), (1, 0x10)),
        (11, (11, 0x80, 0), (0x80, None)),  # SI_KERNEL: a non-canonical address, which one is not known
        (11, (11, -6, 0xA0000000B), (-6, None)),  # sent by tgkill: pid and uid stand there
        (6, (6, -6, 0x10), (-6, None)),  # SIGABRT has no address
        (11, (5, 1, 0x10), (None, None)),  # of another signal
    ],
)
def test_the_address_that_could_not_be_used(
    number: int, information: tuple[int, int, int], expected: tuple[int | None, int | None]
) -> None:
    notes = parse_notes(thread(1, signal=number) + signal_information(*information))
    assert notes.signal is not None
    assert (notes.signal.code, notes.signal.address) == expected


def test_gdb_writes_information_about_every_thread() -> None:
    """The first is the one that counts, and its note comes after its thread's."""
    notes = parse_notes(
        thread(1, signal=11)
        + signal_information(11, 2, 0x77)
        + thread(2, signal=11)
        + signal_information(19, -6, 0)
    )
    assert notes.signal == Signal(11, 1, 2, 0x77)


def test_a_process_that_nothing_killed() -> None:
    assert parse_notes(thread(1) + signal_information(0, 0, 0)).signal is None


def test_notes_that_are_cut_off() -> None:
    """Every prefix: the notes that are whole count, and never is there an exception."""
    parts = [
        thread(1, pc=1, sp=2, signal=6),
        process(1, "p", "p"),
        mapped_files(FileAt(0, 4096, 0, "/p")),
    ]
    data = b"".join(parts)
    for size in range(len(data)):
        notes = parse_notes(data[:size])
        assert len(notes.threads) == (size >= len(parts[0]))
        assert (notes.pid is not None) == (size >= len(parts[0] + parts[1]))
    assert parse_notes(data[: len(parts[0]) + 40]).problems == ["a note of type 0x3 is cut off (136 bytes)"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (core_note(1, bytes(112)), "a thread's status has 112 bytes"),
        (core_note(3, bytes(100)), "the process's status has 100 bytes"),
        (core_note(0x46494C45, bytes(8)), "the list of mapped files has 8 bytes"),
        (core_note(0x46494C45, struct.pack("<QQ", 1 << 63, 4096)), f"of {1 << 63} mapped files only 0"),
        (
            core_note(0x46494C45, struct.pack("<QQQQQ", 1, 4096, 9, 5, 0) + b"/x\0"),
            "of 1 mapped files only 0",
        ),
        (
            core_note(0x46494C45, struct.pack("<QQQQQ", 1, 1 << 63, 5, 9, 4) + b"/x\0"),
            "of 1 mapped files only 0",
        ),
        (core_note(6, bytes(16))[:-8], "a note of type 0x6 is cut off (16 bytes)"),
    ],
)
def test_damaged_notes_are_told(content: bytes, told: str) -> None:
    notes = parse_notes(content)
    assert notes.threads == [] and notes.files == []
    assert len(notes.problems) == 1 and told in notes.problems[0]


def test_notes_of_other_owners_are_none_of_ours() -> None:
    """FreeBSD's cores have the same numbers with other layouts."""
    assert parse_notes(core_note(1, bytes(400), owner=b"FreeBSD")).threads == []


def test_the_number_of_threads_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_notes, "_MAX_THREADS", 2)
    notes = parse_notes(b"".join(thread(tid) for tid in range(1, 9)))
    assert [note.tid for note in notes.threads] == [1, 2]
    assert notes.problems == ["there are more than 2 threads; the others are left out"]


def test_the_number_of_problems_is_limited() -> None:
    """A damaged file of 64 MB may have a million of them."""
    data = b"".join(core_note(0x46494C45, struct.pack("<QQ", count, 4096)) for count in range(1, 999))
    assert len(parse_notes(data).problems) == 16


def test_names_that_are_no_text() -> None:
    """Bytes that are not UTF-8: files can still be opened by them, others are escaped."""
    data = process(1, "x", "x").replace(b"x\0", b"\xff\0") + mapped_files(FileAt(0, 4096, 0, "/x")).replace(
        b"/x", b"/\xff"
    )
    notes = parse_notes(data)
    assert (notes.name, notes.command) == ("\\xff", "\\xff")
    assert notes.files[0].path == "/\udcff"
