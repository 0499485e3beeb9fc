"""Files that are no recordings, or damaged, or made to mislead: each is told, none is believed."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.recordings import Recording
from unspool.capture.samples import Lost, Problem, ProcessStarted, ThreadNamed
from unspool.profile import Profile, RecordingError
from unspool.profile.report import report_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A recording with something in every table."""
    recording = Recording(tmp_path_factory.mktemp("whole") / "r.unspool", meta={"command": "prog"})
    recording.add(ProcessStarted(1, None, "prog", 1), ThreadNamed(1, 1, "main", 1))
    recording.add(Lost(1, 1, "ring full", 2, 3), Problem(1, "a problem"))
    for number in range(40):
        recording.sample([f"leaf<f{number % 5}", f"g{number % 3}", "main"], pid=1)
    recording.finish()
    return recording.path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, whole: bytes) -> Path:
    path = tmp_path / "r.unspool"
    path.write_bytes(whole)
    return path


def changed(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"perf", "this is no recording"),
        (b"PERFILE2" + bytes(100), "this is a perf.data file, no recording: make one: unspool import"),
        (b"\x7fELF" + bytes(100), "this is no recording"),
        (b"SQLite format 3\0", "not a database|malformed|no recording"),
        (b"SQLite format 3\0" + bytes(4096), "not a database|malformed|no recording"),
    ],
)
def test_what_is_no_recording(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(RecordingError, match=message):
        Profile.open(str(tmp_path / "file"))


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        Profile.open(str(tmp_path / "file"))
    with pytest.raises(RecordingError, match="Is a directory"):
        Profile.open(str(tmp_path))


def test_a_foreign_database(tmp_path: Path) -> None:
    """Also one whose tables have our names."""
    path = tmp_path / "foreign"
    changed(path, "CREATE TABLE samples (time)")
    with pytest.raises(RecordingError, match="SQLite file, but no recording"):
        Profile.open(str(path))


@pytest.mark.parametrize(("version", "remedy"), [(99, "use a newer unspool"), (0, "use an older unspool")])
def test_another_version(path: Path, version: int, remedy: str) -> None:
    changed(path, f"PRAGMA user_version = {version}")
    with pytest.raises(RecordingError, match=f"version {version}, this unspool reads 1: .*{remedy}"):
        Profile.open(str(path))


@pytest.mark.parametrize(
    "statement",
    [
        "DROP VIEW function_self",
        "DROP TABLE lost",
        "ALTER TABLE samples ADD COLUMN x",
        "CREATE TRIGGER t AFTER DELETE ON lines BEGIN DELETE FROM samples; END",
    ],
)
def test_other_tables(path: Path, statement: str) -> None:
    """What a view with our name says must be what we say."""
    changed(path, statement)
    with pytest.raises(RecordingError, match="not those of a recording"):
        Profile.open(str(path))


def test_a_view_that_never_ends(path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n"
    changed(path, "DROP TABLE samples", f"CREATE VIEW samples AS {endless}")
    with pytest.raises(RecordingError, match="not those of a recording"):
        Profile.open(str(path))


def test_tables_and_views_of_the_user_do_not_matter(path: Path) -> None:
    changed(
        path,
        "CREATE TABLE mine (x)",
        "CREATE VIEW more AS SELECT * FROM samples",
        "CREATE INDEX i ON lines (file)",
    )
    assert Profile.open(str(path)).total_weight() == 40


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE stacks SET parent = id WHERE id = 5", "does not come after its caller"),
        ("UPDATE stacks SET parent = id + 1 WHERE id = 2", "does not come after its caller"),
        ("UPDATE stacks SET parent = 1000000 WHERE id = 5", "a caller that does not exist"),
        ("UPDATE stacks SET parent = -2 WHERE id = 5", "a caller that does not exist"),
        ("UPDATE stacks SET frame = 1000000 WHERE id = 5", "a frame that does not exist"),
        ("UPDATE stacks SET frame = -1 WHERE id = 5", "does not exist"),
        ("UPDATE stacks SET how = 100 WHERE id = 5", "found in an unknown way"),
        ("DELETE FROM stacks WHERE id = 3", "a row of stacks is missing"),
        ("UPDATE stacks SET id = 100000 WHERE id = 0", "a row of stacks is missing"),
        ("UPDATE frames SET binary = 77 WHERE id = 1", "a binary that does not exist"),
        ("UPDATE frames SET binary = 'x' WHERE id = 1", "a value that can't be"),
        ("DELETE FROM frames WHERE id = 1", "a number is missing in frames"),
        ("UPDATE samples SET stack = 1000000 WHERE rowid = 9", "a stack that does not exist"),
        ("UPDATE samples SET stack = -1 WHERE rowid = 9", "does not exist"),
        ("UPDATE samples SET thread = 5 WHERE rowid = 9", "a thread that does not exist"),
        ("UPDATE samples SET event = 1 WHERE rowid = 9", "an event that does not exist"),
        ("UPDATE samples SET event = -1 WHERE rowid = 9", "does not exist"),
        ("UPDATE samples SET weight = -1 WHERE rowid = 9", "a negative weight"),
        (f"UPDATE samples SET weight = {1 << 62}", "impossibly large"),
        ("UPDATE samples SET stack_end = 99 WHERE rowid = 9", "ended in an unknown way"),
        ("DELETE FROM samples WHERE rowid = 9", "a row of samples is missing"),
        ("UPDATE threads SET process = 3", "a process that does not exist"),
        ("UPDATE threads SET tid = 'x'", "a text that should be a number"),
        ("UPDATE processes SET parent = 9", "a parent process that does not exist"),
        ("UPDATE processes SET start_time = 1.5", "a text that should be a number"),
        ("UPDATE binaries SET kind = 'odd'", "'odd' is not a valid BinaryKind"),
        ("UPDATE binaries SET process = 9", "a process that does not exist"),
        ("UPDATE lines SET function = 1000 WHERE frame = 1", "a function that does not exist"),
        ("UPDATE lines SET file = 1000 WHERE frame = 1", "a file that does not exist"),
        ("UPDATE lines SET line = -5 WHERE frame = 1", "impossible number"),
        ("UPDATE lines SET frame = 1000 WHERE frame = 1", "a frame that does not exist"),
        ("UPDATE lines SET depth = depth + 1 WHERE frame = 1", "an inlined call without its caller"),
        ("UPDATE functions SET binary = 9 WHERE id = 1", "a binary that does not exist"),
        ("DELETE FROM functions WHERE id = 0", "a number is missing in functions"),
        ("UPDATE lost SET process = 9", "a process that does not exist"),
        ("UPDATE lost SET count = 'many'", "a text that should be a number"),
        ("UPDATE problems SET process = 9", "a process that does not exist"),
        ("INSERT INTO meta VALUES ('x', x'00')", "a fact without a value"),
        ("UPDATE events SET id = 5", "a number is missing in events"),
    ],
)
def test_rows_that_can_not_be(path: Path, statement: str, message: str) -> None:
    """Each is found when the file is opened, not when something reads where nothing is."""
    changed(path, statement)
    with pytest.raises(RecordingError, match=message):
        Profile.open(str(path))


def test_a_stack_that_is_too_deep(path: Path) -> None:
    """What climbs along callers has an end."""
    deep = "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 12000) "
    changed(
        path,
        "DELETE FROM samples",
        "DELETE FROM stacks",
        "INSERT INTO stacks VALUES (0, NULL, 0, 0)",
        deep + "INSERT INTO stacks SELECT i - 999, i - 1000, 0, 1 FROM n",
    )
    with pytest.raises(RecordingError, match="more than 10000 frames"):
        Profile.open(str(path))


def test_views_end_whatever_the_rows_say(path: Path) -> None:
    """Callers that lead in a circle."""
    changed(path, "UPDATE stacks SET parent = id", "UPDATE stacks SET parent = id + 1 WHERE id % 2 = 0")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM function_total").fetchone()[0] > 0


def test_a_truncated_file(tmp_path: Path, whole: bytes) -> None:
    """At any length."""
    path = tmp_path / "cut"
    for length in range(0, len(whole) - 1, 1499):
        path.write_bytes(whole[:length])
        with pytest.raises(RecordingError):
            Profile.open(str(path))


@pytest.mark.parametrize("seed", range(60))
def test_damaged_bytes(tmp_path: Path, whole: bytes, seed: int) -> None:
    """It is refused, or what it says is within bounds; nothing else may come of it."""
    rng = random.Random(seed)
    data = bytearray(whole)
    for _ in range(rng.choice([1, 10, 300])):
        data[rng.randrange(100, len(data))] = rng.randrange(256)
    path = tmp_path / "damaged"
    path.write_bytes(data)
    try:
        profile = Profile.open(str(path))
    except RecordingError as error:
        assert str(path) in str(error)
        return
    report = report_of(profile, 10)
    assert sum(event.samples for event in report.events) == len(profile.sample_stack)


def test_names_that_are_no_text(path: Path) -> None:
    """Bytes that are no UTF-8 are shown, not refused."""
    changed(path, "UPDATE functions SET name = CAST(x'6d61ff' AS TEXT) WHERE name = 'main'")
    assert "ma\\xff" in Profile.open(str(path)).functions
