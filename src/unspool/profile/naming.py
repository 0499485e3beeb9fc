"""Names a recording's frames: functions, files, lines and inlined calls, each distinct frame once.

Addresses stay in the recording as they were captured: it can be named again when more is known.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unspool.binaries import Binary, BinaryError
from unspool.capture.samples import BinaryKind, CodeFile
from unspool.profile.binary_search import FoundBinary, find_binary
from unspool.profile.database import open_for_writing, translated
from unspool.profile.process_book import text
from unspool.symbols import Location, Symbolizer
from unspool.unwind.function_starts import function_starts
from unspool.unwind.table_cache import cached_table

_AT_ONCE = 20_000  # frames that are looked up together
_KERNEL_UNKNOWN = "[kernel, caller unknown]"


class NamingProgress(NamedTuple):
    """Of so many frames so many have been looked up; binary: whose frames are next, its path."""

    done: int
    total: int
    binary: str


class Names:
    """The rows of `functions` and `files`, each once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        rows = connection.execute("SELECT name, raw_name, binary, id FROM functions")
        self._functions: dict[tuple[str, str | None, int | None], int] = {
            tuple(row[:3]): row[3] for row in rows
        }
        self._files: dict[str, int] = dict(connection.execute("SELECT path, id FROM files"))

    def function(self, name: str, raw_name: str | None, binary: int | None) -> int:
        key = (text(name), None if raw_name is None else text(raw_name), binary)
        number = self._functions.get(key)
        if number is None:
            number = self._functions[key] = len(self._functions)
            self._connection.execute("INSERT INTO functions VALUES (?, ?, ?, ?)", (number, *key))
        return number

    def file(self, path: str | None) -> int | None:
        if path is None:
            return None
        path = text(path)
        number = self._files.get(path)
        if number is None:
            number = self._files[path] = len(self._files)
            self._connection.execute("INSERT INTO files VALUES (?, ?)", (number, path))
        return number


def name_code(
    connection: sqlite3.Connection, binary: int, lookup: Callable[[int], str | None] | None
) -> None:
    """Names the frames of code without a file. lookup: from lookup addresses; None: nobody knows."""
    names = Names(connection)
    sql = "SELECT kind FROM binaries WHERE id = ?"
    is_kernel = connection.execute(sql, (binary,)).fetchone()[0] == BinaryKind.KERNEL
    sql = "SELECT id, address, is_return_address FROM frames WHERE binary = ?"
    rows = []
    for frame, address, is_return in connection.execute(sql, (binary,)).fetchall():
        address &= (1 << 64) - 1
        name = _KERNEL_UNKNOWN if is_kernel and not address else None
        if lookup is not None and name is None:
            name = lookup(address - bool(is_return))
        if name:
            rows.append((frame, names.function(name, name, binary if is_kernel else None)))
    connection.executemany("INSERT OR REPLACE INTO lines VALUES (?, 0, ?, NULL, NULL)", rows)
    state = "none" if lookup is None else "functions"
    connection.execute("UPDATE binaries SET symbols = ? WHERE id = ?", (state, binary))


class Namer:
    """Names the frames of files, over a connection whose transactions are its owner's business."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        symbolizer: Symbolizer,
        *,
        opened: Mapping[CodeFile, Binary] | None = None,
        debug_dirs: Sequence[str] = (),
        progress: Callable[[NamingProgress], None] | None = None,
    ) -> None:
        """opened: binaries that are open already, others are searched. debug_dirs: where, beside their
        paths."""
        self._connection = connection
        self._symbolizer = symbolizer
        self._opened = opened or {}
        self._debug_dirs = debug_dirs
        self._progress = progress or (lambda progress: None)
        self._done = self._total = 0

    def name_files(self) -> list[tuple[CodeFile, str, str]]:
        """All binaries whose file is found; what is known of others stays. Returns what was found now of
        each: state and note, as in model.Symbols. Raises sqlite3.Error."""
        counts = dict(
            self._connection.execute("SELECT binary, count(*) FROM frames GROUP BY binary").fetchall()
        )
        binaries = [(number, file) for number, file in self._files() if number in counts]
        self._total = sum(counts[number] for number, _ in binaries)
        outermost = self._connection.execute("SELECT DISTINCT frame FROM stacks WHERE parent IS NULL")
        self._outermost = np.array(sorted(frame for (frame,) in outermost), np.int64)
        self._names = Names(self._connection)
        open_now = [self._opened[file] for _, file in binaries if file in self._opened]
        with self._symbolizer.loading(open_now):
            results = [self._name_file(number, file) for number, file in binaries]
        self._progress(NamingProgress(self._total, self._total, ""))
        self._remove_unused()
        return results

    def _name_file(self, number: int, file: CodeFile) -> tuple[CodeFile, str, str]:
        self._progress(NamingProgress(self._done, self._total, file.path))
        opened = self._opened.get(file)
        found = find_binary(file, self._debug_dirs) if opened is None else FoundBinary(opened)
        state, note = found.state, found.note
        if found.binary is None:
            self._set_state(number, state, None, note)
        else:
            state, note = self._name(number, file, found.binary, note)
            if opened is None:
                found.binary.close()
        return file, state, note

    def _files(self) -> list[tuple[int, CodeFile]]:
        sql = """SELECT id, path, build_id, arch, kind, image_address, size, mtime FROM binaries
            WHERE kind IN ('file', 'vdso') ORDER BY id"""
        return [
            (number, CodeFile(path, build_id, arch, BinaryKind(kind), *rest))
            for number, path, build_id, arch, kind, *rest in self._connection.execute(sql)
        ]

    def _name(self, number: int, file: CodeFile, binary: Binary, note: str) -> tuple[str, str]:
        sql = "SELECT id, address, is_return_address FROM frames WHERE binary = ? ORDER BY id"
        frames = np.array(self._connection.execute(sql, (number,)).fetchall(), np.int64).reshape(-1, 3)
        for start in range(0, len(frames), _AT_ONCE):
            part = frames[start : start + _AT_ONCE]
            self._write(number, part[:, 0], self._locations(binary, part, PurePosixPath(file.path).name))
            self._done += len(part)
            self._progress(NamingProgress(self._done, self._total, binary.path))
        findings = self._symbolizer.findings(binary, ask_packages=False)
        state = "lines" if findings.has_lines else "functions" if findings.symbol_count else "none"
        note = "; ".join(filter(None, [note, *(found.what for found in findings.notes)]))
        self._set_state(number, state, findings.debug_file, note)
        return state, note

    def _locations(self, binary: Binary, frames: NDArray[np.int64], name: str) -> list[tuple[Location, ...]]:
        """For frames (id, address, is_return_address). Nobody called what lies below some first functions of
        a stack: these begin at the return address itself. A function without a name is called by where it
        begins, in the file of that name."""
        ids, addresses, is_return = frames[:, 0], frames[:, 1].view(np.uint64), frames[:, 2].astype(np.uint64)
        found = self._symbolizer.lookup_many(binary, addresses - is_return)
        locations = [found.chains[which] for which in found.which.tolist()]
        is_empty = np.array([not chain for chain in locations], bool)
        again = np.flatnonzero(is_empty & (is_return == 1) & np.isin(ids, self._outermost))
        if len(again):
            found = self._symbolizer.lookup_many(binary, addresses[again])
            for index, which in zip(again.tolist(), found.which.tolist(), strict=True):
                locations[index] = found.chains[which]
        nameless = np.flatnonzero([not chain for chain in locations])
        if len(nameless):
            starts = _starts(binary, (addresses - is_return)[nameless]).tolist()
            for index, start in zip(nameless.tolist(), starts, strict=True):
                if start >= 0:
                    locations[index] = (Location(f"{name}+{start:#x}", None, None, None, False),)
        return locations

    def _write(self, binary: int, frames: NDArray[np.int64], locations: list[tuple[Location, ...]]) -> None:
        rows = []
        for frame, chain in zip(frames.tolist(), locations, strict=True):
            if any(location.function is None for location in chain):
                chain = tuple(location for location in chain if location.function is not None)
            for depth, location in enumerate(chain):
                function = self._names.function(location.function or "", location.raw_name, binary)
                rows.append((frame, depth, function, self._names.file(location.file), location.line))
        self._connection.executemany(
            "DELETE FROM lines WHERE frame = ?", [(frame,) for frame in frames.tolist()]
        )
        self._connection.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?)", rows)

    def _set_state(self, binary: int, state: str, debug_file: str | None, note: str) -> None:
        """A file that is missing now does not undo what was known."""
        self._connection.execute(
            """UPDATE binaries SET symbols = ?1, debug_file = ?2, note = ?3 WHERE id = ?4
            AND (?1 NOT IN ('missing', 'changed') OR symbols IS NULL OR symbols IN ('missing', 'changed'))""",
            (state, None if debug_file is None else text(debug_file), text(note), binary),
        )

    def _remove_unused(self) -> None:
        """Functions and files that nothing leads to any more; the numbers of the others close up."""
        for table, column in (("functions", "function"), ("files", "file")):
            for statement in (
                f"""CREATE TEMP TABLE used AS SELECT id, row_number() OVER (ORDER BY id) - 1 AS number
                FROM {table} WHERE id IN (SELECT {column} FROM lines)""",
                "CREATE UNIQUE INDEX temp.used_id ON used (id)",
                f"UPDATE lines SET {column} = (SELECT number FROM used WHERE id = {column})",
                f"DELETE FROM {table} WHERE id NOT IN (SELECT id FROM used)",
                f"UPDATE {table} SET id = (SELECT number FROM used WHERE used.id = {table}.id)",
                "DROP TABLE used",
            ):
                self._connection.execute(statement)


def _starts(binary: Binary, lookups: NDArray[np.uint64]) -> NDArray[np.int64]:
    try:
        return function_starts(binary, cached_table(binary), lookups)
    except BinaryError:
        return np.full(len(lookups), -1, np.int64)


def name_again(
    path: str,
    symbolizer: Symbolizer,
    debug_dirs: Sequence[str],
    progress: Callable[[NamingProgress], None],
) -> list[tuple[CodeFile, str, str]]:
    """Names the frames of a recording that is not being written any more. Returns what was found now of each
    binary: state and note, as in model.Symbols. Raises RecordingError."""
    with closing(open_for_writing(path)) as connection, translated(path):
        connection.execute("BEGIN IMMEDIATE")
        namer = Namer(connection, symbolizer, debug_dirs=debug_dirs, progress=progress)
        results = namer.name_files()
        connection.execute("COMMIT")
        return results
