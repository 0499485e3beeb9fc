"""Reads a recording's tables into a Profile, and checks them: a file may come from anybody."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.capture.samples import BinaryKind, CodeFile, Event
from unspool.core_interface import GUESS
from unspool.profile.database import DAMAGED, open_for_reading, translated
from unspool.profile.errors import RecordingError
from unspool.profile.model import LostSamples, Process, Profile, Symbols, Thread
from unspool.profile.tree import Ints, Tree, TreeError
from unspool.unwind import How, StackEnd

_LARGEST = (1 << 63) - 1
_ROWS_AT_ONCE = 1_000_000
_UNLIKE_OURS = (TypeError, ValueError, OverflowError)  # values of other types than ours


def load(path: str) -> Profile:
    """Profile.open."""
    with closing(open_for_reading(path)) as connection, translated(path):
        connection.execute("BEGIN")  # all tables as of one moment
        try:
            return _Loader(connection).profile(path)
        except (TreeError, _Wrong) as problem:
            raise RecordingError(path, str(problem), DAMAGED) from None
        except _UNLIKE_OURS as error:
            raise RecordingError(path, f"a value that can't be ({error})", DAMAGED) from None


def load_times(path: str, count: int) -> Ints:
    """The times of the first `count` samples: int64[count]. Raises RecordingError."""
    with closing(open_for_reading(path)) as connection, translated(path):
        try:
            return _Loader(connection).times(count)
        except (_Wrong, *_UNLIKE_OURS) as error:
            raise RecordingError(path, f"a value that can't be ({error})", DAMAGED) from None


class _Wrong(Exception):
    """What the file says can't be."""


def _columns(rows: sqlite3.Cursor, width: int, count: int) -> list[Ints]:
    """Rows of integers as columns: int64[count] each."""
    dtype = np.dtype([(f"c{i}", np.int64) for i in range(width)])
    table = np.fromiter(rows, dtype, count)
    return [np.ascontiguousarray(table[f"c{i}"]) for i in range(width)]


def _require(holds: bool | np.bool_, what: str) -> None:
    if not holds:
        raise _Wrong(what)


def _index(values: Ints, count: int, what: str, lowest: int = 0) -> NDArray[np.int32]:
    """Indices of things of which there are `count`. Raises _Wrong."""
    _require(((values >= lowest) & (values < count)).all(), f"{what} that does not exist")
    return values.astype(np.int32)


class _Loader:
    """Reads over one connection, within one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def profile(self, path: str) -> Profile:
        meta = {str(key): value for key, value in self._rows("SELECT key, value FROM meta")}
        _require(all(isinstance(value, str | int) for value in meta.values()), "a fact without a value")
        meta = self._times() | meta
        events = [Event(str(name), str(unit)) for name, unit in self._table("events", "name, unit")]
        processes = self._processes()
        threads = self._threads(len(processes))
        binaries = self._binaries(len(processes))
        frames = self._frames(len(binaries["binaries"]))
        tree, stack_frame, stack_how = self._stacks(len(frames["frame_binary"]))
        return Profile(
            path=path,
            is_finished=meta.pop("finished", 0) == 1,
            meta=meta,
            events=events,
            processes=processes,
            threads=threads,
            lost=self._lost(len(processes), len(threads)),
            problems=self._problems(len(processes)),
            tree=tree,
            stack_frame=stack_frame,
            stack_how=stack_how,
            **self._samples(len(events), len(threads), len(tree)),
            **self._names(frames, binaries["binaries"]),
            **frames,
            **binaries,
        )

    def _times(self) -> dict[str, str | int]:
        """Of the first and the last sample, if nobody said better."""
        first, last = self._rows("SELECT min(time), max(time) FROM samples").fetchone()
        _check_integers(first, last)
        return {} if first is None else {"start_time": first, "end_time": last}

    def times(self, count: int) -> Ints:
        """load_times."""
        (time,) = self._many("samples", ("time",), 1)
        _require(len(time) >= count, "samples are gone since it was opened")
        return time[:count]

    def _rows(self, sql: str) -> sqlite3.Cursor:
        return self._connection.execute(sql)

    def _count(self, table: str) -> int:
        (count,) = self._rows(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)

    def _numbers(self, table: str, columns: str, width: int, order: str = "rowid") -> list[Ints]:
        rows = self._rows(f"SELECT {columns} FROM {table} ORDER BY {order}")
        return _columns(rows, width, self._count(table))

    def _table(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        """All rows of a table whose numbers are indices."""
        rows = self._rows(f"SELECT id, {columns} FROM {table} ORDER BY id").fetchall()
        _require(all(row[0] == i for i, row in enumerate(rows)), f"a number is missing in {table}")
        return [row[1:] for row in rows]

    def _many(self, table: str, expressions: Sequence[str], first: int) -> list[Ints]:
        """Integers of every row of a large table, whose rows are numbered from `first`. As one text a
        thousand rows or a million, which takes a third of the time of one row after the other."""
        count = self._count(table)
        least, greatest = self._rows(f"SELECT min(rowid), max(rowid) FROM {table}").fetchone()
        _require(not count or (least, greatest) == (first, first + count - 1), f"a row of {table} is missing")
        lists = ", ".join(f"group_concat(CAST({expression} AS INTEGER))" for expression in expressions)
        columns = [np.empty(count, np.int64) for _ in expressions]
        for start in range(0, count, _ROWS_AT_ONCE):
            end = min(start + _ROWS_AT_ONCE, count)
            where = f"rowid BETWEEN {first + start} AND {first + end - 1}"
            texts = self._rows(f"SELECT {lists} FROM {table} NOT INDEXED WHERE {where}").fetchone()
            for column, text in zip(columns, texts, strict=True):
                values = np.fromstring(text or "", np.int64, sep=",")
                _require(len(values) == end - start, f"a value of {table} is missing")
                column[start:end] = values
        return columns

    def _processes(self) -> list[Process]:
        columns = "pid, parent, command, start_time, end_time, exit_status"
        rows = self._table("processes", columns)
        for pid, parent, _, *times in rows:
            _check_integers(pid, parent, *times)
            _check_optional(parent, len(rows), "a parent process")
        return [Process(pid, parent, str(command), *times) for pid, parent, command, *times in rows]

    def _threads(self, processes: int) -> list[Thread]:
        rows = self._table("threads", "process, tid, name, end_time, user_time, system_time")
        for process, tid, _, *times in rows:
            _require(process is not None, "a thread without a process")
            _check_integers(process, tid, *times)
            _check_optional(process, processes, "a process")
        return [Thread(process, tid, str(name), *times) for process, tid, name, *times in rows]

    def _binaries(self, processes: int) -> dict[str, Any]:
        columns = "path, build_id, arch, kind, image_address, size, mtime, process, symbols, debug_file, note"
        files, of_process, symbols = [], [], []
        for path, build_id, arch, kind, *numbers, process, state, debug_file, note in self._table(
            "binaries", columns
        ):
            _check_integers(*numbers, process)
            _check_optional(process, processes, "a process")
            identity = None if build_id is None else str(build_id)
            image_address, size, mtime = numbers
            image_address &= (1 << 64) - 1
            files.append(
                CodeFile(str(path), identity, str(arch), BinaryKind(kind), image_address, size, mtime)
            )
            of_process.append(-1 if process is None else process)
            symbols.append(
                Symbols(state or "", None if debug_file is None else str(debug_file), str(note or ""))
            )
        return {
            "binaries": files,
            "binary_process": np.array(of_process, np.int32),
            "binary_symbols": symbols,
        }

    def _frames(self, binaries: int) -> dict[str, Any]:
        number, binary, address, is_return = self._numbers(
            "frames", "id, binary, address, is_return_address", 4
        )
        _require((number == np.arange(len(number))).all(), "a number is missing in frames")
        return {
            "frame_binary": _index(binary, binaries, "a binary"),
            "frame_address": address.view(np.uint64),
            "frame_is_return": is_return != 0,
        }

    def _stacks(self, frames: int) -> tuple[Tree, NDArray[np.int32], NDArray[np.uint8]]:
        parent_frame, how = self._many("stacks", ("(ifnull(parent, -1) << 32) | frame", "how"), 0)
        kind = how & ~GUESS
        _require(((kind >= 0) & (kind <= max(How))).all(), "a frame that was found in an unknown way")
        tree = Tree(_index(parent_frame >> 32, len(how), "a caller", lowest=-1))
        return tree, _index(parent_frame & 0xFFFFFFFF, frames, "a frame"), how.astype(np.uint8)

    def _samples(self, events: int, threads: int, stacks: int) -> dict[str, Any]:
        columns = ("weight", "(thread << 32) | stack", "(event << 16) | (stack_end << 8) | flags")
        weight, thread_stack, rest = self._many("samples", columns, 1)
        _require((weight >= 0).all(), "a negative weight")
        _require((rest >> 8 & 0xFF <= max(StackEnd)).all(), "a stack that ended in an unknown way")
        _require(float(weight.sum(dtype=np.float64)) < _LARGEST, "weights that are impossibly large")
        return {
            "sample_event": _index(rest >> 16, events, "an event"),
            "sample_thread": _index(thread_stack >> 32, threads, "a thread"),
            "sample_stack": _index(thread_stack & 0xFFFFFFFF, stacks, "a stack"),
            "sample_weight": weight,
            "sample_end": (rest >> 8 & 0xFF).astype(np.uint8),
            "sample_flags": (rest & 0xFF).astype(np.uint8),
        }

    def _names(self, frames: dict[str, Any], binaries: list[CodeFile]) -> dict[str, Any]:
        functions, of_binary = [], []
        is_named = []
        for name, raw_name, binary in self._table("functions", "name, raw_name, binary"):
            _check_integers(binary)
            is_named.append(raw_name is not None)
            _check_optional(binary, len(binaries), "a binary")
            functions.append(str(name))
            of_binary.append(-1 if binary is None else binary)
        files = [str(path) for (path,) in self._table("files", "path")]
        columns = "frame, depth, function, ifnull(file, -1), ifnull(line, 0)"
        frame, depth, function, file, line = self._numbers("lines", columns, 5, "frame, depth")
        count = len(frames["frame_binary"])
        entries = np.bincount(_index(frame, count, "a frame"), minlength=count)
        first = np.cumsum(entries) - entries
        _require((depth == np.arange(len(frame)) - first[frame]).all(), "an inlined call without its caller")
        _index(function, len(functions), "a function")
        _index(file, len(files), "a file", lowest=-1)
        _require(((line >= 0) & (line < 1 << 31)).all(), "a line with an impossible number")

        # A frame without a name gets a function of its own: its binary and address.
        unnamed = np.flatnonzero(entries == 0)
        insert_at = first[unnamed]
        named = len(functions)
        made, number = _address_names(frames, binaries, unnamed)
        binary_of = [frames["frame_binary"][frame] for frame in made.values()]
        of_binary += [int(binary) for binary in binary_of]
        entries[unnamed] = 1
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(entries, out=offsets[1:])
        return {
            "line_offsets": offsets,
            "line_function": np.insert(function, insert_at, named + number).astype(np.int32),
            "line_file": np.insert(file, insert_at, -1).astype(np.int32),
            "line_number": np.insert(line, insert_at, 0).astype(np.int32),
            "functions": functions + [name for name, _ in made],
            "function_binary": np.array(of_binary, np.int32),
            "function_is_named": np.array(is_named + [False] * len(made), np.bool_),
            "files": files,
        }

    def _lost(self, processes: int, threads: int) -> list[LostSamples]:
        lost = []
        for time, process, thread, reason, count in self._rows(
            "SELECT time, process, thread, reason, count FROM lost ORDER BY rowid"
        ):
            _check_integers(time, process, thread, count)
            _check_optional(process, processes, "a process")
            _check_optional(thread, threads, "a thread")
            lost.append(LostSamples(time, process, thread, str(reason), count))
        return lost

    def _problems(self, processes: int) -> list[tuple[int | None, str]]:
        problems = []
        for process, text in self._rows("SELECT process, text FROM problems ORDER BY rowid"):
            _check_integers(process)
            _check_optional(process, processes, "a process")
            problems.append((process, str(text)))
        return problems


def _address_names(
    frames: dict[str, Any], binaries: list[CodeFile], unnamed: Ints
) -> tuple[dict[tuple[str, int], int], Ints]:
    """Names for frames without one, each once, with its first frame: (name, binary) -> frame; and the number
    of the name of each of `unnamed`."""
    made: dict[tuple[str, int], int] = {}
    number = np.empty(len(unnamed), np.int64)
    numbers: dict[tuple[str, int], int] = {}
    bases = [file.path.rsplit("/", 1)[-1] for file in binaries]
    addresses, of_binary = frames["frame_address"][unnamed].tolist(), frames["frame_binary"][unnamed].tolist()
    for i, (frame, binary, address) in enumerate(zip(unnamed.tolist(), of_binary, addresses, strict=True)):
        key = (f"{bases[binary]}+{address:#x}", binary)
        number[i] = numbers.setdefault(key, len(numbers))
        made.setdefault(key, frame)
    return made, number


def _check_integers(*values: object) -> None:
    _require(
        all(value is None or isinstance(value, int) for value in values), "a text that should be a number"
    )


def _check_optional(value: int | None, count: int, what: str) -> None:
    _require(value is None or 0 <= value < count, f"{what} that does not exist")
