"""The notes of a core file: threads and their registers, the process, its mapped files, what killed it.

Formats: linux/elfcore.h (elf_prstatus, elf_prpsinfo), fs/binfmt_elf.c (NT_FILE), getauxval(3), and
sigaction(2) for siginfo_t, all for 64-bit little-endian machines. Notes are not trusted: one that is too
short or that a limit cuts off is told in `problems`, the rest counts.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum


class _Note(IntEnum):
    """linux/elf.h; of owner CORE, except where it says LINUX."""

    PRSTATUS = 1
    PRPSINFO = 3
    AUXV = 6
    ARM_PAC_MASK = 0x406  # LINUX
    FILE = 0x46494C45
    SIGINFO = 0x53494749


class Auxiliary(IntEnum):
    """Keys of the auxiliary vector (linux/auxvec.h)."""

    PHDR = 3
    PHNUM = 5
    BASE = 7
    ENTRY = 9
    RANDOM = 25
    EXECFN = 31
    SYSINFO_EHDR = 33


_MAX_THREADS = 1 << 16
_MAX_FILES = 1 << 16  # vm.max_map_count's default
_MAX_PROBLEMS = 16

# Offsets in elf_prstatus and elf_prpsinfo.
_SIGNAL, _TID, _REGISTERS = 12, 32, 112
_PID, _COMMAND, _ARGUMENTS, _PROCESS_SIZE = 24, 40, 56, 136

# Where siginfo_t has si_addr, and the signals that have one: SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV.
_FAULT_ADDRESS = 16
_FAULTS = (4, 5, 7, 8, 11)
_SI_KERNEL = 0x80  # the kernel sent it but knows no address; codes above and 0 or less are from elsewhere


@dataclass(frozen=True, slots=True)
class Signal:
    """What killed the process. code: si_code; address: of the access that failed; None = not known."""

    number: int
    tid: int
    code: int | None = None
    address: int | None = None


@dataclass(slots=True)
class ThreadNote:
    """registers: the general register set as the kernel lays it out. address_bits: how many bits of an
    address are no PAC, if the core says so."""

    tid: int
    signal: int
    registers: bytes
    address_bits: int | None = None


@dataclass(frozen=True, slots=True)
class FileRange:
    """Addresses start <= a < end hold a file's bytes from file_offset on."""

    start: int
    end: int
    file_offset: int
    path: str


@dataclass(slots=True)
class CoreNotes:
    """All that matters here, in the core's order: its first thread is the one that died."""

    threads: list[ThreadNote] = field(default_factory=list)
    pid: int | None = None
    name: str = ""  # comm: 15 bytes at most
    command: str = ""  # with arguments: 79 bytes at most
    files: list[FileRange] = field(default_factory=list)
    auxiliary: dict[int, int] = field(default_factory=dict)
    signal: Signal | None = None
    problems: list[str] = field(default_factory=list)  # the first _MAX_PROBLEMS, each once

    def tell(self, problem: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS and problem not in self.problems:
            self.problems.append(problem)


def parse_notes(data: bytes) -> CoreNotes:
    """Never raises; whatever can't be read is left out and named in `problems`."""
    notes = CoreNotes()
    information = b""
    for owner, kind, content in _notes(data, notes):
        if owner == b"LINUX" and kind == _Note.ARM_PAC_MASK:
            _add_pac_mask(notes, content)
        elif owner != b"CORE":
            continue
        elif kind == _Note.PRSTATUS:
            _add_thread(notes, content)
        elif kind == _Note.PRPSINFO:
            _add_process(notes, content)
        elif kind == _Note.AUXV:
            _add_auxiliary(notes, content)
        elif kind == _Note.FILE:
            _add_files(notes, content)
        elif kind == _Note.SIGINFO:
            information = information or content  # gdb writes one a thread; the first is the one that died
    notes.signal = _signal(notes, information)
    return notes


def _notes(data: bytes, notes: CoreNotes) -> Iterator[tuple[bytes, int, bytes]]:
    """(owner, type, content) of each note. They are aligned to 4 bytes, whatever the header claims."""
    position = 0
    while position + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, position)
        name_start = position + 12
        start = (name_start + name_size + 3) & ~3
        end = start + size
        if end > len(data):
            notes.tell(f"a note of type {kind:#x} is cut off ({size} bytes)")
            return
        yield data[name_start : name_start + name_size].rstrip(b"\0"), kind, data[start:end]
        position = (end + 3) & ~3


def _add_thread(notes: CoreNotes, content: bytes) -> None:
    if len(content) <= _REGISTERS:
        notes.tell(f"a thread's status has {len(content)} bytes")
    elif len(notes.threads) >= _MAX_THREADS:
        notes.tell(f"there are more than {_MAX_THREADS} threads; the others are left out")
    else:
        (signal,) = struct.unpack_from("<h", content, _SIGNAL)
        (tid,) = struct.unpack_from("<i", content, _TID)
        notes.threads.append(ThreadNote(tid, signal, content[_REGISTERS:]))


def _add_pac_mask(notes: CoreNotes, content: bytes) -> None:
    """struct user_pac_mask: which bits of data and of code addresses are PAC, for the thread before it."""
    if notes.threads and len(content) >= 8:
        (mask,) = struct.unpack_from("<Q", content)
        if mask:
            notes.threads[-1].address_bits = (mask & -mask).bit_length() - 1


def _add_process(notes: CoreNotes, content: bytes) -> None:
    if len(content) < _PROCESS_SIZE:
        notes.tell(f"the process's status has {len(content)} bytes")
        return
    (notes.pid,) = struct.unpack_from("<i", content, _PID)
    notes.name = _text(content[_COMMAND:_ARGUMENTS])
    notes.command = _text(content[_ARGUMENTS:_PROCESS_SIZE]).strip()


def _text(field_bytes: bytes) -> str:
    return field_bytes.partition(b"\0")[0].decode(errors="backslashreplace")


def _add_auxiliary(notes: CoreNotes, content: bytes) -> None:
    for key, value in struct.iter_unpack("<QQ", content[: len(content) & ~15]):
        if key == 0:
            break
        notes.auxiliary.setdefault(key, value)


def _add_files(notes: CoreNotes, content: bytes) -> None:
    """NT_FILE: count, page size, count times (start, end, offset in pages), then count names."""
    if len(content) < 16:
        notes.tell(f"the list of mapped files has {len(content)} bytes")
        return
    count, page_size = struct.unpack_from("<QQ", content)
    possible = min(count, (len(content) - 16) // 24, _MAX_FILES)
    names_start = 16 + 24 * min(count, (len(content) - 16) // 24)
    names = content[names_start:].split(b"\0", possible)[:possible]
    for index, name in enumerate(names):
        start, end, offset = struct.unpack_from("<QQQ", content, 16 + 24 * index)
        if start < end and offset * page_size < 1 << 64:
            notes.files.append(FileRange(start, end, offset * page_size, os.fsdecode(name)))
    if len(notes.files) < count:
        notes.tell(f"of {count} mapped files only {len(notes.files)} could be read")


def _signal(notes: CoreNotes, information: bytes) -> Signal | None:
    if not notes.threads or not notes.threads[0].signal:
        return None
    number, tid = notes.threads[0].signal, notes.threads[0].tid
    if len(information) < _FAULT_ADDRESS + 8:
        return Signal(number, tid)
    same_number, _, code = struct.unpack_from("<iii", information)
    if same_number != number:
        return Signal(number, tid)
    has_address = number in _FAULTS and 0 < code < _SI_KERNEL
    (address,) = struct.unpack_from("<Q", information, _FAULT_ADDRESS)
    return Signal(number, tid, code, address if has_address else None)
