"""Opening files: what is no ELF file, is damaged or goes away is one BinaryError that says where."""

from __future__ import annotations

import os
import pickle
import re
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from tests import elf_writer as elf
from tests.compilers import build, run
from unspool.binaries import Binary, BinaryError

SMALL = elf.layout(
    [elf.Section(".text", b"\xc3" * 16, flags=elf.ALLOC | elf.EXEC, address=0x1000)],
    [elf.Segment(0x1000, ".text")],
    entry=0x1004,
)


def error_of(data: bytes, tmp_path: Path) -> BinaryError:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(BinaryError) as caught:
        Binary.open(path)
    assert caught.value.path == str(path)
    assert str(caught.value).startswith(f"{path}: {caught.value.what}")
    assert str(caught.value).endswith(f": {caught.value.remedy}")
    return caught.value


@pytest.mark.parametrize(
    ("offset", "form", "value", "what", "where"),
    [
        (0, "I", 0x464C457E, "not an ELF file", 0),
        (4, "B", 1, "a 32-bit file", 4),
        (4, "B", 7, "ELF class 7", 4),
        (5, "B", 2, "a big-endian file", 5),
        (5, "B", 0, "byte order 0", 5),
        (6, "B", 2, "ELF version 2", 6),
        (16, "H", 0, "file type 0", 16),
        (18, "H", 3, "a file for machine 3", 18),
        (54, "H", 32, "program headers of 32 bytes instead of 56", 54),
        (58, "H", 40, "section headers of 40 bytes instead of 64", 58),
        (62, "H", 3, "the section names are in section 3 of 3", 62),
        (32, "Q", 1 << 63, "the program header table (56 bytes) reaches past the end of the file", 1 << 63),
        (40, "Q", 1 << 63, "the section header table (192 bytes) reaches past the end of the file", 1 << 63),
        (56, "H", 60000, "the program header table (3360000 bytes) reaches past the end of the file", 64),
        (60, "H", 60000, "the section header table (3840000 bytes) reaches", SMALL.section_headers),
    ],
)
def test_damaged_header(offset: int, form: str, value: int, what: str, where: int, tmp_path: Path) -> None:
    error = error_of(SMALL.patched(offset, form, value), tmp_path)
    assert what in error.what
    assert error.offset == where
    assert f"at offset {where:#x}" in str(error)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 16, 63, 64, 100, len(SMALL.data) - 1])
def test_file_cut_short(size: int, tmp_path: Path) -> None:
    error = error_of(SMALL.data[:size], tmp_path)
    assert error.offset is not None


def test_too_many_sections(tmp_path: Path) -> None:
    """No count of headers makes the reader allocate before it knows that they are there."""
    data = bytearray(SMALL.patched(60, "H", 0))
    struct.pack_into("<Q", data, SMALL.section_headers + 32, 1 << 62)
    assert "more than 1048576" in error_of(bytes(data), tmp_path).what


def test_small_file_is_read() -> None:
    binary = Binary.from_bytes(SMALL.data, "small")
    assert (binary.path, binary.arch, binary.type, binary.entry) == ("small", "x86_64", "dyn", 0x1004)
    assert binary.image_address == 0x1000
    assert binary.interpreter is None
    assert binary.unwind_sections() == []
    assert binary.text_address == 0x1000
    assert binary.data_address == 0


def test_image_from_memory_may_lack_its_section_headers() -> None:
    binary = Binary.from_bytes(SMALL.data[: SMALL.section_headers])
    assert len(binary.sections) == 0
    assert bytes(binary.code(0x1000, 4)) == b"\xc3" * 4


def test_code_is_what_executable_segments_hold() -> None:
    data = elf.elf_file(
        [elf.Section("code", bytes(range(16))), elf.Section("data", bytes(16))],
        [
            elf.Segment(0x2000, "data", flags=6),
            elf.Segment(0x1000, "code", flags=5, memory_size=0x100),
            elf.Segment(0x2008, "code", flags=5),
        ],
    )
    binary = Binary.from_bytes(data)
    assert bytes(binary.code(0x1004, 4)) == b"\4\5\6\7"
    assert bytes(binary.code(0x100C, 100)) == b"\x0c\x0d\x0e\x0f"
    assert bytes(binary.code(0x1010, 4)) == b""  # zeros in memory, not in the file
    assert bytes(binary.code(0x2000, 4)) == b""
    assert bytes(binary.code(0x2008, 2)) == b"\0\1"
    assert bytes(binary.code(0x1000, 0)) == b""
    assert bytes(binary.code(1 << 64, 4)) == b""


def test_too_many_segments_for_the_file_header() -> None:
    """PN_XNUM: section 0 has the number of program headers."""
    data = bytearray(SMALL.patched(56, "H", 0xFFFF))
    struct.pack_into("<I", data, SMALL.section_headers + 44, 1)
    assert len(Binary.from_bytes(data).segments) == 1


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, fifo, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(BinaryError, match="not a regular file"):
            Binary.open(path)


@pytest.mark.parametrize("path", ["/nonexistent/file", "", "nul\0byte", "x" * 5000, "/proc/self/maps"])
def test_path_that_can_not_be_read(path: str) -> None:
    with pytest.raises(BinaryError) as caught:
        Binary.open(path)
    assert caught.value.path == path


def test_file_that_shrinks_while_it_is_open(tmp_path: Path) -> None:
    """A mapped file would kill the process here (SIGBUS)."""
    path = tmp_path / "file"
    path.write_bytes(SMALL.data)
    with Binary.open(path) as binary:
        section = binary.section(".text")
        assert section is not None
        os.truncate(path, 100)
        with pytest.raises(BinaryError, match=r"no longer there at offset 0x"):
            section.data  # noqa: B018


def test_closed_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(SMALL.data)
    with Binary.open(path) as binary:
        pass
    binary.close()
    with pytest.raises(BinaryError, match="was closed"):
        binary.code(0x1000, 4)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(SMALL.data)
    before = open_descriptors()
    Binary.open(path)  # dropped at once
    with Binary.open(path):
        assert open_descriptors() == before + 1
    error_of(SMALL.data[:80], tmp_path)
    assert open_descriptors() == before


def test_threads_may_share_a_binary(tmp_path: Path) -> None:
    path = build(tmp_path, "program", "gcc", "-g")
    expected = bytes(Binary.open(path).unwind_sections()[0].data)
    wrong: list[int] = []
    with Binary.open(path) as binary:

        def read() -> None:
            for _ in range(100):
                if bytes(binary.unwind_sections()[0].data) != expected or not len(binary.symbols):
                    wrong.append(1)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(BinaryError("file", "is bad", 16, "fix it")))
    assert str(error) == "file: is bad at offset 0x10: fix it"
    assert str(BinaryError("file", "is bad", None, "fix it")) == "file: is bad: fix it"


def sparse_file(path: Path, size: int) -> Path:
    """A file with a section of zeros that takes no room on the disk."""
    made = elf.layout([elf.Section(".eh_frame", b"", size=size, flags=elf.ALLOC)])
    with path.open("wb") as file:
        file.write(made.patched(40, "Q", size + 4096)[: made.section_headers])
        file.seek(size + 4096)
        file.write(made.patched(made.header_of(".eh_frame") + 24, "Q", 4096)[made.section_headers :])
    return path


def test_holes_of_a_sparse_file_take_no_memory(tmp_path: Path) -> None:
    small = Binary.open(sparse_file(tmp_path / "small", 1 << 20))
    assert bytes(small.unwind_sections()[0].data) == bytes(1 << 20)
    large = Binary.open(sparse_file(tmp_path / "large", 3 << 30))
    with pytest.raises(BinaryError, match="mostly a hole"):
        large.unwind_sections()
    huge = Binary.open(sparse_file(tmp_path / "huge", 1 << 40))
    with pytest.raises(BinaryError, match="too large"):
        huge.unwind_sections()


def test_large_part_that_is_data_is_read(tmp_path: Path) -> None:
    size = 65 << 20
    path = sparse_file(tmp_path / "file", size)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"x" * (size // 2))
    assert len(Binary.open(path).unwind_sections()[0].data) == size


def test_reads_that_yield_little_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pread yields 2 GiB at most; here 7 bytes."""
    path = tmp_path / "file"
    path.write_bytes(SMALL.data)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 7), offset))
    assert bytes(Binary.open(path).code(0x1000, 16)) == b"\xc3" * 16


def test_of_a_large_file_only_what_is_asked_for_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """450 MB, most of it a hole: reading a few kilobytes is all that opening and looking takes."""
    path = tmp_path / "large"
    made = elf.layout(
        [elf.Section(".debug_info", b"", size=0), elf.Section(".text", b"\xc3", flags=elf.ALLOC | elf.EXEC)],
        [elf.Segment(0, ".text")],
    )
    headers = made.data[made.section_headers :]
    with path.open("wb") as file:
        file.write(made.patched(40, "Q", 450_000_000)[: made.section_headers])
        file.seek(450_000_000)
        file.write(headers)
    asked: list[int] = []
    pread = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        asked.append(size)
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    with Binary.open(path) as binary:
        assert [s.name for s in binary.sections][1:3] == [".debug_info", ".text"]
        assert len(binary.code(0, 1)) == 1
        assert binary.build_id is None
    assert 0 < sum(asked) < 100_000


@pytest.mark.parametrize(
    "command",
    [
        ("gcc",),
        ("gcc", "-no-pie"),
        ("gcc", "-Wl,-z,noseparate-code"),
        ("gcc", "-static"),
        ("clang-19", "-fuse-ld=lld-19"),
        ("clang-19", "-fuse-ld=lld-19", "-no-pie"),
        ("clang-19", "-fuse-ld=lld-19", "-Wl,-z,separate-code"),
    ],
    ids=" ".join,
)
def test_image_base_of_a_running_program(command: tuple[str, ...], tmp_path: Path) -> None:
    """The executable mapping leads to the base under which main is where the program says it is."""
    code = """#include <stdio.h>
    int main(void) { printf("%p\\n", (void *)main); fflush(stdout); return getchar(); }"""
    path = build(tmp_path, "program", *command, code=code)
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        main = int(process.stdout.readline(), 16)
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        process.kill()
    binary = Binary.open(path)
    bases = []
    for line in maps.splitlines():
        found = re.fullmatch(rf"(\w+)-(\w+) r-xp (\w+) .* {re.escape(str(path))}", line)
        if found:
            start, end, offset = (int(n, 16) for n in found.groups())
            bases.append(binary.image_base(start, offset, end))
    assert len(bases) == 1
    assert bases[0] is not None
    assert binary.symbols.lookup(main - bases[0] + binary.image_address) == ("main", 0)


def binary_with(*segments: elf.Segment) -> Binary:
    return Binary.from_bytes(elf.elf_file([], segments))


def lld_like() -> Binary:
    """One file page belongs to a read-only and to an executable segment, loaded 0x1000 apart."""
    return binary_with(
        elf.Segment(0x0, offset=0, file_size=0x1800, flags=4),
        elf.Segment(0x2800, offset=0x1800, file_size=0x2000, flags=5),
        elf.Segment(0x5800, offset=0x3800, file_size=0x100, flags=6),
    )


def test_image_base_where_segments_share_a_page() -> None:
    binary = lld_like()
    assert binary.image_base(0x7000_2000, 0x1000, 0x7000_5000) == 0x7000_0000
    assert binary.image_base(0x7000_3000, 0x2000, 0x7000_4000) == 0x7000_0000  # a part, after mprotect
    assert binary.image_base(0x7000_3000, 0x5000, 0x7000_4000) is None
    assert binary.image_base(0x7000_3000, 0x0, 0x7000_4000) is None


def test_image_base_of_executable_segments_that_share_a_page() -> None:
    """Both begin on file page 1; only its length tells whose mapping it is."""
    binary = binary_with(
        elf.Segment(0x1000, offset=0x1000, file_size=0x80, flags=5),
        elf.Segment(0x3080, offset=0x1080, file_size=0x1800, flags=5),
    )
    assert binary.image_base(0x7000_0000, 0x1000, 0x7000_1000) == 0x7000_0000
    assert binary.image_base(0x7000_2000, 0x1000, 0x7000_4000) == 0x7000_0000


def test_image_base_that_is_ambiguous_is_not_guessed() -> None:
    binary = binary_with(
        elf.Segment(0x1000, offset=0x1000, file_size=0x80, flags=5),
        elf.Segment(0x3080, offset=0x1080, file_size=0x80, flags=5),
    )
    assert binary.image_base(0x7000_0000, 0x1000, 0x7000_1000) is None


def test_image_base_with_pages_of_64_kib() -> None:
    binary = binary_with(
        elf.Segment(0x0, offset=0, file_size=0x9000, flags=4, alignment=0x10000),
        elf.Segment(0x19000, offset=0x9000, file_size=0x2000, flags=5, alignment=0x10000),
    )
    assert binary.image_base(0x7001_0000, 0, 0x7002_0000) == 0x7000_0000


def test_image_base_of_a_program_that_is_not_moved() -> None:
    binary = binary_with(
        elf.Segment(0x400000, offset=0, file_size=0x1000, flags=4),
        elf.Segment(0x401000, offset=0x1000, file_size=0x1000, flags=5),
    )
    assert binary.image_base(0x401000, 0x1000, 0x402000) == binary.image_address == 0x400000


def test_core_file(tmp_path: Path) -> None:
    """A core file's segments are the process's mappings; it has no build id of its own."""
    source = build(tmp_path, "program", "gcc", "-no-pie", code="int main(void) { return 0; }")
    core = tmp_path / "core"
    run("gdb", "-batch", "-ex", "break main", "-ex", "run", "-ex", f"generate-core-file {core}", source)
    program, binary = Binary.open(source), Binary.open(core)
    assert (binary.type, binary.arch, binary.build_id) == ("core", program.arch, None)
    (data,) = (segment for segment in program.segments if segment.writable)
    last = data.address + data.memory_size - 1  # the first page is read-only after relocation
    assert any(s.address <= last < s.address + s.file_size and s.writable for s in binary.segments)
    assert binary.unwind_sections() == []
