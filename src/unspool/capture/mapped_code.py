"""The code that is mapped in the processes of a session: each file opened once, each table compiled once and
put where the agents see it.

Files are not trusted; what can't be read is code without a table. Tables from the user's cache are there at
once; the others are compiled in a thread of their own, meanwhile the rest is published without them.
"""

from __future__ import annotations

import resource
from bisect import bisect_right
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from unspool.binaries import Binary, BinaryError
from unspool.cache import Cache
from unspool.capture.mapped_file import open_mapped_file
from unspool.capture.memory_map import MapEntry
from unspool.capture.samples import BinaryKind, CodeEntry, CodeFile, CodeMap
from unspool.capture.system_calls import follows_system_call
from unspool.unwind import UnwindTable
from unspool.unwind.modules import Module, executable_mappings
from unspool.unwind.table_cache import cached_table, table_in_cache

_VDSO, _VSYSCALL = "[vdso]", "[vsyscall]"
_MAX_OPEN = 1000  # files that are kept open; more than any program maps


@dataclass(slots=True, eq=False)
class KnownFile:
    """A file with code. unwind: its table, table: where agents see it; None = there is none, or not yet."""

    binary: Binary
    code: CodeFile
    table: int | None = None
    unwind: UnwindTable | None = None
    pending: Future[UnwindTable] | None = None
    is_open: bool = True
    copies: list[Binary] = field(default_factory=list)  # the same file again, under another inode number


class CodeRange(NamedTuple):
    """Code lies at the addresses start <= a < end. known: its file, None = there is none that can be read."""

    start: int
    end: int
    image_base: int
    known: KnownFile | None
    file: CodeFile


@dataclass(slots=True)
class MappedCode:
    """All code of one process at one time, by address."""

    ranges: list[CodeRange]
    missing: dict[str, str] = field(default_factory=dict)  # files that can't be used: why

    def code_map(self, arch: str) -> CodeMap:
        """For samples; code without a file has no image base there."""
        return CodeMap([CodeEntry(r.start, r.end, r.image_base, r.file) for r in self.ranges], arch)

    def is_at_system_call(self, address: int) -> bool:
        """Whether the interrupted instruction is where a system call returns to."""
        index = bisect_right(self.ranges, address, key=lambda r: r.start) - 1
        if index < 0 or address >= self.ranges[index].end:
            return False
        found = self.ranges[index]
        return found.known is not None and follows_system_call(found.known.binary, address - found.image_base)

    @property
    def table_count(self) -> int:
        """How many tables are there, or will never be."""
        return sum(r.known is None or r.known.pending is None for r in self.ranges)

    @property
    def waits(self) -> bool:
        """Whether a table is still being compiled."""
        return any(r.known is not None and r.known.pending is not None for r in self.ranges)


class CodeFiles:
    """store: puts a table where agents see it and says where, or None where there is no room. Close it in the
    end."""

    def __init__(self, arch: str, store: Callable[[bytes], int | None], cache: Cache | None = None) -> None:
        self.arch = arch
        self.problems: list[str] = []
        self._store = store
        self._cache = Cache.of_user() if cache is None else cache
        self._known: dict[tuple[str, int, str], KnownFile | str] = {}
        self._of_code: dict[CodeFile, KnownFile] = {}
        self._worker = ThreadPoolExecutor(1, "unspool tables")
        self._jit = CodeFile.without_file(BinaryKind.JIT, arch)

    def close(self) -> None:
        """Files stay open as long as somebody has them."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def opened(self) -> dict[CodeFile, Binary]:
        """The files that were mapped, still open although their paths may be gone."""
        return {code: known.binary for code, known in self._of_code.items() if known.is_open}

    def mapped(self, pid: int, entries: Iterable[MapEntry]) -> MappedCode:
        """What of a process' memory map is code, and whose."""
        result = MappedCode([])
        for entry in entries:
            if not entry.executable or entry.path == _VSYSCALL:
                continue
            known = self._file(pid, entry) if entry.is_file or entry.path == _VDSO else None
            if isinstance(known, str):
                result.missing[entry.name] = known
            ranges = _ranges(entry, known) if isinstance(known, KnownFile) else []
            if not ranges:
                file = CodeFile(entry.name, None, self.arch) if entry.is_file else self._jit
                image_base = max(entry.start - entry.file_offset, 0) if entry.is_file else 0
                ranges = [CodeRange(entry.start, entry.end, image_base, None, file)]
            result.ranges += ranges
        result.ranges.sort(key=lambda r: r.start)
        return result

    def take_finished(self) -> bool:
        """Whether tables have become ready since the last call."""
        finished = [k for k in self._of_code.values() if k.pending is not None and k.pending.done()]
        for known in finished:
            assert known.pending is not None
            error = known.pending.exception()
            if error is None:
                self._keep(known, known.pending.result())
            else:
                self.problems.append(f"{known.code.path}: its unwind information can't be read: {error}")
            known.pending = None
        return bool(finished)

    def wait(self, seconds: float) -> None:
        """Until a table has become ready, at most so long."""
        pending = [known.pending for known in self._of_code.values() if known.pending is not None]
        wait(pending, seconds, FIRST_COMPLETED)

    def _file(self, pid: int, entry: MapEntry) -> KnownFile | str:
        """The mapped file, or why it can't be read. While it is open no other file has its inode number."""
        key = (entry.device, entry.inode, _VDSO if entry.path == _VDSO else "")
        found = self._known.get(key)
        if found is None or isinstance(found, str):
            found = self._open(pid, entry)
            self._known[key] = found
        return found

    def _open(self, pid: int, entry: MapEntry) -> KnownFile | str:
        self._make_room()
        try:
            binary = open_mapped_file(pid, entry)
            if binary.arch != self.arch:
                return f"it is for {binary.arch}"
            code = _identity(binary, entry)
            known = self._of_code.get(code)
            if known is None:
                known = self._of_code[code] = KnownFile(binary, code)
                self._find_table(known)
            else:
                if known.is_open:
                    known.copies.append(known.binary)
                known.binary, known.is_open = binary, True
        except BinaryError as error:
            return str(error)
        return known

    def _make_room(self) -> None:
        """Close the files that were opened first, when file descriptors become few; their tables stay."""
        limit = min(_MAX_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        closable = [
            key for key, known in self._known.items() if isinstance(known, str) or known.pending is None
        ]
        for key in closable[: max(0, len(self._known) - limit)]:
            known = self._known.pop(key, None)
            if isinstance(known, KnownFile):
                # Under none of its inode numbers is it known any more: another file may get them.
                self._known = {key: other for key, other in self._known.items() if other is not known}
                known.is_open = False
                for binary in (known.binary, *known.copies):
                    binary.close()
                known.copies.clear()

    def _find_table(self, known: KnownFile) -> None:
        table = table_in_cache(known.binary, self._cache)
        if table is None and known.code.kind is BinaryKind.VDSO:
            table = UnwindTable.compile(known.binary)
        if table is None:
            known.pending = self._worker.submit(cached_table, known.binary, self._cache)
        else:
            self._keep(known, table)

    def _keep(self, known: KnownFile, table: UnwindTable) -> None:
        known.unwind = table
        known.table = self._store(table.to_bytes())
        if known.table is None:
            self.problems.append(
                f"{known.code.path}: there is no room for its unwind table; its stacks are cut or guessed"
            )


def _identity(binary: Binary, entry: MapEntry) -> CodeFile:
    is_vdso = entry.path == _VDSO
    build_id = binary.build_id.hex() if binary.build_id else None
    size = mtime = 0
    if build_id is None and not is_vdso:
        with suppress(OSError):
            status = Path(binary.path).stat()
            if status.st_ino == entry.inode:
                size, mtime = status.st_size, status.st_mtime_ns
    kind = BinaryKind.VDSO if is_vdso else BinaryKind.FILE
    return CodeFile(binary.path, build_id, binary.arch, kind, binary.image_address, size, mtime)


def _ranges(entry: MapEntry, known: KnownFile) -> list[CodeRange]:
    """Where the entry holds code of the file; none if no segment explains the entry."""
    image_base = known.binary.image_base(entry.start, entry.file_offset, entry.end)
    if image_base is None:
        return []
    module = Module(known.binary, None, image_base)
    pieces = executable_mappings(module, known.binary, entry.start, entry.end)
    return [CodeRange(piece.start, piece.end, image_base, known, known.code) for piece in pieces]
