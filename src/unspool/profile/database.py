"""Opens a recording's file: for reading, also while it is written or after its writer died.

A file may come from anybody: before anything else is asked, it is checked to be a recording with exactly our
tables. Whatever its views are (an older unspool's may be slower), ours are asked in their place. What its
rows say is checked by those who read them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.parse import quote

from unspool.profile.errors import RecordingError
from unspool.profile.schema import APPLICATION_ID, VERSION, VIEWS, statements

_MAGIC = b"SQLite format 3\0"
_PERF_DATA = b"PERFILE2"
_WAL_VERSION = 2  # file format, https://www.sqlite.org/fileformat2.html: bytes 18 and 19
DAMAGED = "the file is damaged; get a fresh copy of it"
_SECONDS = 5.0  # how long to wait for another connection's lock


def open_for_reading(path: str) -> sqlite3.Connection:
    """A connection that can't write. Raises RecordingError."""
    recover(path)
    with translated(path):
        connection = _connect(path, "mode=ro")
        try:
            try:
                connection.execute("SELECT count(*) FROM sqlite_schema")
            except sqlite3.OperationalError as error:
                connection.close()
                connection = _without_shared_memory(path, error)
            _check(connection, path)
            for name, query in VIEWS.items():  # found before those of the file
                connection.execute(f"CREATE TEMP VIEW {name} AS {query}")
            connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
    return connection


def open_for_writing(path: str) -> sqlite3.Connection:
    """A connection for those who change a finished recording. Raises RecordingError, also while it is still
    written."""
    if is_being_written(path):
        raise RecordingError(path, "it is still being written", "wait until its recording has ended")
    with translated(path):
        connection = _connect(path, "mode=rw")
        try:
            _check(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def recover(path: str) -> None:
    """Puts what a dead writer left in FILE-wal into the file. Does nothing where that is not needed or not
    possible, such as while the writer lives. Raises RecordingError: there is no such file, or it is none."""
    if _needs_recovery(path):
        with suppress(sqlite3.Error), closing(_connect(path, "mode=rw", seconds=0)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")  # refused while anybody else has the file open


def is_being_written(path: str) -> bool:
    """Whether a writer (or a reader) keeps the file in the state that only recordings in progress have.
    Raises RecordingError."""
    recover(path)
    return _needs_recovery(path)


def _needs_recovery(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            header = file.read(20)
    except OSError as error:
        raise RecordingError(path, error.strerror or str(error), "give a file made by unspool") from None
    if not header:
        raise RecordingError(path, "the file is empty", "its recording ended before anything was written")
    if header.startswith(_PERF_DATA):
        raise RecordingError(path, "this is a perf.data file, no recording", "make one: unspool import")
    if not header.startswith(_MAGIC):
        raise RecordingError(path, "this is no recording", "give a file made by unspool record or import")
    return _WAL_VERSION in header[18:20] or Path(path + "-journal").exists()


def _connect(path: str, parameters: str, seconds: float = _SECONDS) -> sqlite3.Connection:
    uri = f"file:{quote(str(Path(path).absolute()))}?{parameters}"
    connection = sqlite3.connect(uri, timeout=seconds, isolation_level=None, uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _without_shared_memory(path: str, error: sqlite3.OperationalError) -> sqlite3.Connection:
    """Where FILE-shm can't be made (a directory that is read-only, a full disk). Without FILE-wal the file is
    all there is."""
    wal = Path(path + "-wal")
    if wal.exists() and wal.stat().st_size:
        what = f"it was not finished, and {wal.name} can't be read here ({error})"
        raise RecordingError(path, what, "copy both files to where you may write") from None
    return _connect(path, "mode=ro&immutable=1")


def _check(connection: sqlite3.Connection, path: str) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        what = "this is a SQLite file, but no recording"
        raise RecordingError(path, what, "give a file made by unspool record or import")
    if version != VERSION:
        newer = "use a newer unspool" if version > VERSION else "record again, or use an older unspool"
        raise RecordingError(path, f"its format has version {version}, this unspool reads {VERSION}", newer)
    found = _schema(connection)
    if _expected() - found or any(kind == "trigger" for kind, _, _ in found):
        raise RecordingError(path, "its tables are not those of a recording", DAMAGED)


def _schema(connection: sqlite3.Connection) -> set[tuple[str, str, str | None]]:
    """Type, name, and but for views the SQL of all that there is."""
    sql = "SELECT type, name, CASE type WHEN 'view' THEN NULL ELSE sql END FROM sqlite_schema"
    return set(connection.execute(sql))


@cache
def _expected() -> set[tuple[str, str, str | None]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in statements():
            connection.execute(statement)
        return _schema(connection)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Makes SQLite's errors RecordingErrors."""
    try:
        yield
    except sqlite3.Error as error:
        raise RecordingError(path, str(error), _remedy(error)) from None
    except UnicodeDecodeError:  # in the message: SQLite quotes what it can't understand
        raise RecordingError(path, "the database can't be understood", DAMAGED) from None


def _remedy(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return "free some disk space; what was written before can be read"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another program uses the file; try again when it has ended"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DAMAGED
    return "check that the file and its directory may be read and written"
