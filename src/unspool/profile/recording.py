"""Writes a recording: what a source yields goes into one SQLite file (schema.py), committed every second.

While it is written, the file can be read (SQLite's write-ahead log). If the writer dies, what was committed
is there, and the next command that opens the file recovers it. Memory is bounded: see stack_writer.py."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import numpy as np

from unspool.binaries import Binary
from unspool.capture.samples import (
    BinaryKind,
    CodeFile,
    CodeNames,
    Event,
    Flag,
    Happening,
    Lost,
    Problem,
    ProcessEnded,
    ProcessStarted,
    SampleBatch,
    ThreadEnded,
    ThreadNamed,
    ThreadTime,
)
from unspool.profile.database import translated
from unspool.profile.errors import RecordingError
from unspool.profile.naming import Namer, NamingProgress, name_code
from unspool.profile.process_book import ProcessBook, ProcessRow, text
from unspool.profile.schema import statements
from unspool.profile.stack_writer import StackWriter
from unspool.profile.tree import MAX_DEPTH
from unspool.symbols import KernelSymbols, PerfMap, Symbolizer

COMMIT_SECONDS = 0.5  # at most a second is lost, also when the machine is busy
_FRAMES_AT_ONCE = 1 << 20
_LARGEST = (1 << 62) - 1  # of a weight or a time: SQLite and NumPy add them in 63 bits
_CHECKPOINT_PAGES = 4096  # 16 MB in FILE-wal, then they go into the file


class RecordingWriter:
    """Use it as a context manager; without `finish` the recording stays unfinished, but can be read."""

    def __init__(self, path: str, connection: sqlite3.Connection, *, is_live: bool) -> None:
        """See `create`."""
        self.path = path
        self._is_live = is_live
        self._connection = connection
        self._lock = threading.RLock()  # the connection is used by the committing thread, too
        self._book = ProcessBook(connection)
        self._stacks = StackWriter(connection)
        self._names: dict[int | None, Callable[[int], str | None]] = {}
        self._failure: RecordingError | None = None
        self._committed_at = time.monotonic()
        self._closed = threading.Event()
        self._committer = threading.Thread(target=self._commit_often, name="commits", daemon=True)
        self._committer.start()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        meta: Mapping[str, str | int],
        events: Sequence[Event],
        *,
        is_live: bool = True,
    ) -> RecordingWriter:
        """A new file, never an existing one. meta: what is known of the recording: command, rate, via, ...
        events: what SampleBatch.event counts through. is_live: the processes run here and now, so that their
        perf maps and this kernel's symbols name their code; False for what comes from files. Raises
        RecordingError."""
        path = os.fspath(path)
        _claim(path)
        with translated(path):
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                # Nobody waits for the disk: neither samples, nor the programs that share it with us. The
                # second one writes already.
                for pragma in ("synchronous = OFF", "journal_mode = WAL"):
                    connection.execute(f"PRAGMA {pragma}")
                connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
                connection.execute("BEGIN")
                for statement in statements():
                    connection.execute(statement)
                rows = [(number, text(event.name), text(event.unit)) for number, event in enumerate(events)]
                connection.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
                connection.execute("COMMIT")
                writer = cls(path, connection, is_live=is_live)
            except BaseException:
                connection.close()
                raise
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        writer.set_meta({"finished": 0, "started": started, **meta})
        return writer

    def set_meta(self, facts: Mapping[str, str | int]) -> None:
        """Add facts, or replace them. Raises RecordingError."""
        with self._writing():
            rows = [(key, text(value) if isinstance(value, str) else value) for key, value in facts.items()]
            self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def add(self, happening: Happening) -> None:
        """Write it; it is in the file within a second. Raises RecordingError: it could not be written, now or
        when the last ones were to be committed."""
        with self._writing():
            match happening:
                case SampleBatch():
                    self._add_samples(happening)
                case ProcessStarted():
                    self._name_code_of(self._book.current(happening.pid))
                    self._names.pop(happening.pid, None)
                    self._book.start(happening)
                case ProcessEnded():
                    self._name_code_of(self._book.current(happening.pid))
                    self._names.pop(happening.pid, None)
                    self._book.end(happening)
                case ThreadNamed():
                    self._book.name_thread(happening)
                case ThreadEnded():
                    self._book.end_thread(happening)
                case ThreadTime():
                    self._book.set_time(happening)
                case Lost():
                    self._add_lost(happening)
                case Problem():
                    process = None if happening.pid is None else self._book.current(happening.pid)
                    row = (None if process is None else process.id, text(happening.text))
                    self._connection.execute("INSERT INTO problems VALUES (?, ?)", row)
                case CodeNames():
                    self._names[happening.pid] = happening.lookup
            if time.monotonic() - self._committed_at >= COMMIT_SECONDS:
                self._commit()

    @property
    def processes(self) -> int:
        """How many there are by now; exec makes a new one."""
        return self._book.processes

    @property
    def threads(self) -> int:
        """How many there are by now, without what stands for none (tid 0 and less)."""
        return self._book.threads

    def commit(self) -> None:
        """What was added is in the file now, not only within a second. Raises RecordingError."""
        self._commit()

    def finish(
        self,
        symbolizer: Symbolizer | None = None,
        opened: Mapping[CodeFile, Binary] | None = None,
        progress: Callable[[NamingProgress], None] | None = None,
    ) -> None:
        """Name the frames and leave one file. symbolizer: None: no names but those of JIT code and the
        kernel. opened: binaries that the source has open, for they may not be found by their paths any more;
        others are opened by path and used if they are still the same. Raises RecordingError; what was written
        before can be read then."""
        with self._writing():
            for process in self._book.living():
                self._name_code_of(process)
            self._name_kernel()
            self._stacks.drop_index()
        self._commit()
        if symbolizer is not None:
            namer = Namer(self._connection, symbolizer, opened=opened or {}, progress=progress)
            with self._writing():
                try:
                    namer.name_files()
                except BaseException:  # Ctrl-C: no names rather than half of them
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
        self.set_meta({"finished": 1})
        self._commit()
        with self._lock, suppress(sqlite3.OperationalError):
            # Refused while somebody reads: then the next command leaves one file.
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._close()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commits what is there, unless that is what failed. Raises nothing."""
        with suppress(RecordingError):
            self._commit()
        with suppress(sqlite3.Error):
            self._close()

    # -------------------------------------------------------------- transactions

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Within a transaction, which `_commit` ends. After a failure nothing is written any more."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            try:
                with translated(self.path):
                    if not self._connection.in_transaction:
                        self._connection.execute("BEGIN")
                    yield
            except RecordingError as failure:
                self._failure = failure
                raise

    def _commit(self) -> None:
        with self._writing():
            self._connection.execute("COMMIT")
            self._committed_at = time.monotonic()

    def _commit_often(self) -> None:
        """Commits what `add` did not, in a thread of its own: a source may have nothing to say for long."""
        while not self._closed.wait(COMMIT_SECONDS):
            with suppress(RecordingError), self._lock:  # `add` raises it
                if not self._closed.is_set() and self._connection.in_transaction:
                    self._commit()

    def _close(self) -> None:
        self._closed.set()
        self._committer.join()
        with self._lock:
            self._connection.close()

    # -------------------------------------------------------------- what is written

    def _add_samples(self, batch: SampleBatch) -> None:
        batch = self._without_impossible(batch)
        first = 0
        while first < len(batch):
            limit = int(batch.offsets[first]) + _FRAMES_AT_ONCE
            last = max(int(np.searchsorted(batch.offsets, limit, "right")) - 1, first + 1)
            self._add_part(batch, first, last)
            first = last

    def _add_part(self, batch: SampleBatch, first: int, last: int) -> None:
        part = slice(first, last)
        times = batch.times[part].astype(np.int64)
        process = self._book.process_at(batch.pid, int(times.max()))
        nodes = self._stacks.add(process, batch, first, last)
        flags = batch.flags[part]
        for is_kernel in (False, True):
            empty = (nodes < 0) & (((flags & Flag.KERNEL_CALLER_UNKNOWN) != 0) == is_kernel)
            if empty.any():
                arch = batch.code_map.files[0].arch
                nodes[empty] = self._stacks.add_empty(process, arch, kernel=is_kernel)
        threads = np.empty(last - first, np.int64)
        for tid in np.unique(batch.tids[part]).tolist():
            own = batch.tids[part] == tid
            threads[own] = self._book.thread_at(process, tid, int(times[own].max())).id
        columns = (
            *(times, np.full(len(times), batch.event, np.int64), threads, nodes),
            *(
                batch.weights[part].astype(np.int64),
                batch.ends[part].astype(np.int64),
                flags.astype(np.int64),
            ),
        )
        rows = np.stack(columns, axis=1).tolist()
        self._connection.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def _without_impossible(self, batch: SampleBatch) -> SampleBatch:
        """Records from a file may say anything: what can't be is counted as lost."""
        lengths = np.diff(batch.offsets)
        possible = (batch.times <= _LARGEST) & (batch.weights <= _LARGEST) & (lengths < MAX_DEPTH)
        if possible.all():
            return batch
        time = int(min(batch.times.min(), _LARGEST))
        count = int(len(batch) - np.count_nonzero(possible))
        self._add_lost(Lost(batch.pid, None, "impossible time, weight or depth", count, time))
        of_frame = np.repeat(possible, lengths.astype(np.int64))
        return replace(
            batch,
            **{
                name: getattr(batch, name)[possible] for name in ("times", "tids", "weights", "ends", "flags")
            },
            offsets=np.concatenate([[0], np.cumsum(lengths[possible])]).astype(np.uint64),
            addresses=batch.addresses[of_frame],
            how=batch.how[of_frame],
        )

    def _add_lost(self, lost: Lost) -> None:
        process = None if lost.pid is None else self._book.process_at(lost.pid, lost.time)
        thread = None
        if process is not None and lost.tid is not None:
            thread = self._book.thread_at(process, lost.tid, lost.time).id
        row = (lost.time, None if process is None else process.id, thread, text(lost.reason), lost.count)
        self._connection.execute("INSERT INTO lost VALUES (?, ?, ?, ?, ?)", row)

    def _name_code_of(self, process: ProcessRow | None) -> None:
        """The JIT code of a process that ends: who knew its names may go with it."""
        if process is None or process.end_time is not None or BinaryKind.JIT not in process.private:
            return
        lookup = self._names.get(process.pid)
        if lookup is None and self._is_live:
            perf_map = PerfMap.of_process(process.pid)
            lookup = None if perf_map is None else perf_map.lookup
        name_code(self._connection, process.private[BinaryKind.JIT], lookup)

    def _name_kernel(self) -> None:
        kernel = self._stacks.kernel
        if kernel is None:
            return
        lookup = self._names.get(None)
        if lookup is None and self._is_live:
            symbols = KernelSymbols.of_running_kernel()
            lookup = None if symbols is None else symbols.lookup
        name_code(self._connection, kernel, lookup)


def _claim(path: str) -> None:
    """Makes the file, so that no other writer takes the name. Raises RecordingError."""
    remedy = "choose another name with -o, or move it away"
    for left in (f"{path}-wal", f"{path}-journal"):
        if Path(left).exists():
            raise RecordingError(left, "it is there already, of another recording", remedy)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        raise RecordingError(path, "it is there already", remedy) from None
    except OSError as error:
        what = f"it can't be made ({error.strerror})"
        raise RecordingError(path, what, "choose a directory where you may write") from None
