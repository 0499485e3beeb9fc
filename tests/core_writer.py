"""Writes small core files, so that a test builds its process in front of the reader.

    core_file([Memory(0x7000, stack)], [thread(1, pc=0x1000, sp=0x7000), mapped_files(FileAt(...))])

It writes what it is told, also what is invalid. Layouts: linux/elfcore.h and fs/binfmt_elf.c.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tests.elf_writer import AARCH64, CORE, NOTES, X86_64, Section, Segment, layout, note

READ, WRITE, EXECUTE = 4, 2, 1
MACHINES = {"x86_64": X86_64, "aarch64": AARCH64}
_PC_AND_SP = {"x86_64": (16, 19), "aarch64": (32, 31)}  # their places in the general register set
_REGISTER_COUNT = {"x86_64": 27, "aarch64": 34}


@dataclass
class Memory:
    """A segment: data at an address; size: of the mapping, if more than what was dumped."""

    start: int
    data: bytes = b""
    size: int | None = None
    flags: int = READ | WRITE


@dataclass
class FileAt:
    """A line of NT_FILE; the offset is in bytes."""

    start: int
    end: int
    offset: int
    path: str


def core_note(kind: int, content: bytes, owner: bytes = b"CORE") -> bytes:
    return note(owner + b"\0", kind, content)


def thread(
    tid: int,
    pc: int = 0,
    sp: int = 0,
    *,
    arch: str = "x86_64",
    signal: int = 0,
    others: dict[int, int] | None = None,
) -> bytes:
    """NT_PRSTATUS. others: registers by their place in the kernel's set."""
    registers = [0] * _REGISTER_COUNT[arch]
    registers[_PC_AND_SP[arch][0]], registers[_PC_AND_SP[arch][1]] = pc, sp
    for place, value in (others or {}).items():
        registers[place] = value
    status = struct.pack("<iiihhQQiiii64x", signal, 0, 0, signal, 0, 0, 0, tid, 1, 1, 1)
    return core_note(1, status + struct.pack(f"<{len(registers)}Q", *registers) + bytes(8))


def process(pid: int, name: str, command: str) -> bytes:
    """NT_PRPSINFO."""
    numbers = struct.pack("<bbbbxxxxQIIiiii", 0, ord("R"), 0, 0, 0, 0, 0, pid, 1, 1, 1)
    return core_note(3, numbers + name.encode().ljust(16, b"\0") + command.encode().ljust(80, b"\0"))


def signal_information(number: int, code: int, address: int) -> bytes:
    """NT_SIGINFO."""
    return core_note(0x53494749, struct.pack("<iiiiQ", number, 0, code, 0, address).ljust(128, b"\0"))


def auxiliary(values: dict[int, int]) -> bytes:
    """NT_AUXV."""
    pairs = [*values.items(), (0, 0)]
    return core_note(6, b"".join(struct.pack("<QQ", key, value) for key, value in pairs))


def mapped_files(*files: FileAt, page_size: int = 4096) -> bytes:
    """NT_FILE."""
    content = struct.pack("<QQ", len(files), page_size)
    for file in files:
        content += struct.pack("<QQQ", file.start, file.end, file.offset // page_size)
    return core_note(0x46494C45, content + b"".join(file.path.encode() + b"\0" for file in files))


def core_file(memory: Sequence[Memory], notes: Sequence[bytes], *, arch: str = "x86_64") -> bytes:
    sections = [Section("notes", b"".join(notes))]
    segments = [Segment(0, "notes", type=NOTES, flags=0, memory_size=0)]
    for index, piece in enumerate(memory):
        sections.append(Section(str(index), piece.data))
        segments.append(
            Segment(piece.start, str(index), flags=piece.flags, memory_size=piece.size or len(piece.data))
        )
    return layout(sections, segments, machine=MACHINES[arch], type=CORE, with_section_headers=False).data
