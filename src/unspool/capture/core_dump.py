"""Stacks from a core file: its threads, each with registers and a copy of its stack, then the walk.

The twin of live_process.py. Nothing of the core is trusted, and of a core that was cut short, what is there
is used.
"""

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unspool.binaries import Binary, BinaryError
from unspool.capture import ptrace
from unspool.capture.core_file import CoreFile
from unspool.capture.core_files import CoreFiles
from unspool.capture.core_map import UNKNOWN_PERMISSIONS, core_memory_map
from unspool.capture.core_modules import CoreModules, PlacedFile
from unspool.capture.core_notes import ThreadNote, parse_notes
from unspool.capture.errors import CaptureError
from unspool.capture.process import CapturedProcess, CapturedThread
from unspool.capture.stack_copy import STACK_LIMIT, copy_stacks
from unspool.core import CompileInput, Table, TablePool, byte_count
from unspool.unwind import Snapshot, Stack, Unwinder, UnwindTable
from unspool.unwind.table import WalkTable
from unspool.unwind.table_cache import walk_table

_CODE_LIMIT = 64 << 20  # bytes of code that no file has (JIT)
# Of all threads together; more than there is in any core that is not made to be too much.
_COPY_LIMIT = 4 << 30
_FRAME_LIMIT = 1 << 24


class CoreDump(CapturedProcess):
    """A process as a core file has it.

    command: with arguments, 79 bytes at most. signal: what killed it, None if nothing did (gcore). problems:
    what of the core could not be read. unchecked: files that are used although nothing in the core says
    whether they are the right ones. Close it, or use it as a context: files are read from the core later too.
    """

    def __init__(self, core: CoreFile, executable: str | None, sysroots: Sequence[str]) -> None:
        notes = parse_notes(core.notes)
        if not notes.threads:
            raise CaptureError(
                f"{core.path} has no threads",
                "it is cut short or damaged" if core.lost_ranges or core.problems else "it is of no process",
            )
        self.path = core.path
        self.arch = core.arch
        self.pid = notes.pid if notes.pid is not None else notes.threads[0].tid
        self.command = notes.command or notes.name
        self.signal = notes.signal
        self.memory_map = core_memory_map(core.segments, notes)
        bits = notes.threads[0].address_bits
        self.unwinder = Unwinder(self.arch, address_bits=bits, depth_limit=1 << 16)
        self.problems = core.problems + notes.problems
        if core.lost_ranges:
            lost = sum(end - start for start, end in core.lost_ranges)
            first = f"from {core.lost_ranges[0][0]:#x} on"
            self.problems.append(f"{core.path} is cut short: {lost} bytes of memory are missing, {first}")
        self._core = core
        self._name = notes.name
        self._threads = {thread.tid: thread for thread in notes.threads}
        self._files = CoreFiles(self.arch, executable, sysroots)
        self._modules = CoreModules(core, self.memory_map, notes.auxiliary, self._files)
        self._pool = TablePool()
        self._tables: dict[Binary, WalkTable] = {}
        self._code: list[tuple[int, bytes]] = []
        self.missing = self._files.missing
        self.unchecked = self._files.unchecked

    @classmethod
    def open(
        cls,
        core_path: str | os.PathLike[str],
        executable: str | os.PathLike[str] | None = None,
        sysroots: Sequence[str | os.PathLike[str]] = (),
    ) -> "CoreDump":
        """executable: the program, where it is not at its path. sysroots: folders to look for files in, by
        path or by name, before their own paths. Raises CaptureError, BinaryError."""
        core = CoreFile(core_path)
        try:
            program = None if executable is None else os.fspath(executable)
            return cls(core, program, [os.fspath(folder) for folder in sysroots])
        except BaseException:
            core.close()
            raise

    def close(self) -> None:
        """Release the core; walks and files that were read before stay."""
        self._core.close()

    def __enter__(self) -> "CoreDump":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def lost_ranges(self) -> list[tuple[int, int]]:
        """Addresses [start, end) that the core should have but has not, since it was cut short."""
        return self._core.lost_ranges

    def load_modules(self) -> None:
        """As for a live process. Where a file is missing, what the core itself has of it serves."""
        for placed in self._modules.placed():
            self._add(placed)
        for path in self.unchecked:
            self.problems.append(f"{path}: used unchecked, since the core holds no build id of it")
        files = self.unwinder.modules.mappings
        starts = [mapping.start for mapping in files]
        left = _CODE_LIMIT
        for entry in self.memory_map.entries:
            unknown = entry.permissions == UNKNOWN_PERMISSIONS and entry.name in self.missing
            if not (entry.executable or unknown) or entry.path == "[vsyscall]":
                continue
            index = bisect_left(starts, entry.end) - 1
            of_file = index >= 0 and files[index].end > entry.start
            if not of_file:
                self.unwinder.add_module(
                    None, start=entry.start, end=entry.end, name=entry.name, replacing=True
                )
            if not of_file or entry.name in self.missing:
                code = self._core.read(entry.start, min(entry.end - entry.start, left))
                left -= len(code)
                if code:
                    self._code.append((entry.start, code))

    def _add(self, placed: PlacedFile) -> None:
        """A file whose unwind information can't be read (the core does not have those pages) still says
        what is code. What is only in the core goes into no cache: it need not be what the file says."""
        table = self._tables.get(placed.binary)
        if table is None:
            try:
                table = (
                    UnwindTable.compile(placed.binary)
                    if placed.in_core
                    else walk_table(placed.binary, self._pool)
                )
            except BinaryError as error:
                table = _empty_table(self.arch)
                if not placed.in_core:
                    self.missing[placed.name] = f"its unwind information can't be read: {error.what}"
            self._tables[placed.binary] = table
        try:
            self.unwinder.add_module(
                placed.binary,
                placed.image_base,
                start=placed.start,
                end=placed.end,
                table=table,
                name=placed.name,
                replacing=True,
            )
        except ValueError:  # a damaged core: its addresses lead out of the address space
            self.missing.setdefault(placed.name, "it is mapped where no file can be; the core is damaged")

    def thread_ids(self) -> list[int]:
        return sorted(self._threads)

    def capture(self, tids: list[int] | None = None) -> Iterator[CapturedThread]:
        """Each thread, or those of tids, in the core's order: the one that died first. The core knows no
        thread's state, and no name but the process's. Call load_modules before: it finds code to copy too."""
        for note in self._chosen(tids):
            yield self._capture_thread(note)

    def _chosen(self, tids: list[int] | None) -> list[ThreadNote]:
        return [note for note in self._threads.values() if tids is None or note.tid in tids]

    def stacks(self, tids: list[int] | None = None) -> list[tuple[CapturedThread, Stack | None]]:
        """Threads are returned without their memory."""
        self.load_modules()
        result: list[tuple[CapturedThread, Stack | None]] = []
        copied = frames = 0
        code_size = sum(len(data) for _, data in self._code)
        for note in self._chosen(tids):
            if copied > _COPY_LIMIT or frames > _FRAME_LIMIT:
                problem = "the stacks before it are too large; name it with --thread"
                result.append((CapturedThread(note.tid, "", "", problem=problem), None))
                continue
            thread = self._capture_thread(note)
            stack = self.walk(thread)
            if thread.memory is not None and stack is not None:
                copied += sum(byte_count(data) for _, data in thread.memory.regions) - code_size
                frames += len(stack)
            result.append((replace(thread, memory=None), stack))
        return result

    def _capture_thread(self, thread: ThreadNote) -> CapturedThread:
        name = self._name if thread.tid == self.pid else ""
        try:
            registers = ptrace.registers_from_words(self.arch, thread.registers)
        except ptrace.Foreign32Bit:
            return CapturedThread(thread.tid, name, "", problem="its registers are not a 64-bit thread's")
        thread_pointer = ptrace.thread_pointer_from_words(self.arch, thread.registers)
        stacks = copy_stacks(
            self._core.read, self.memory_map, registers, self.arch, thread_pointer, limit=STACK_LIMIT
        )
        code = [piece for region in self._code for piece in _outside(region, stacks)]
        return CapturedThread(thread.tid, name, "", registers, Snapshot(stacks + code))


def _empty_table(arch: str) -> UnwindTable:
    table, _, _ = Table.compile(CompileInput(arch, (), 0, 0, 0, 0))
    return UnwindTable(table)


def _outside(region: tuple[int, bytes], others: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """What of a region no other one holds."""
    start, data = region
    pieces = []
    for other, content in sorted(others):
        end = other + len(content)
        if end > start and other < start + len(data):
            if other > start:
                pieces.append((start, data[: other - start]))
            data = data[max(end - start, 0) :]
            start = max(end, start)
    return [*pieces, (start, data)] if data else pieces
