"""`unspool query` as a user types it."""

from __future__ import annotations

import csv
import io
import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.recordings import Recording
from unspool.cli import query as query_module
from unspool.cli import unspool
from unspool.cli.columns import amount, cells, fitted, padded, percent

LONG = "a_function_whose_name_is_much_longer_than_a_column_of_a_terminal_can_be"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    recording = Recording(tmp_path / "r.unspool")
    recording.sample([f"{LONG}<b", "main"], weight=7)
    recording.sample(["b", "main"], weight=5)
    recording.finish()
    return recording.path


def query(*arguments: object) -> Result:
    return CliRunner().invoke(unspool, ["query", *map(str, arguments)])


def output(*arguments: object) -> str:
    result = query(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_table(path: Path) -> None:
    """Numbers to the right; this is no terminal, and nothing is cut."""
    lines = output(path, "SELECT weight, function, NULL AS empty FROM function_self").splitlines()
    assert lines == [
        f"weight  {'function':<{len(LONG)}}  empty",
        f"     7  {LONG}",
        "     5  b",
    ]


def test_names_are_short_unless_asked_for_in_full(path: Path) -> None:
    """Only what is a name of a function; CSV and JSON have names in full."""
    long = f"ns::map<{'int, ' * 20}int>::find(int)"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE functions SET name = ? WHERE name = 'b'", (long,))
    sql = f"SELECT DISTINCT name, 'not {long}' AS other FROM functions WHERE name LIKE 'ns%'"
    assert output(path, sql).splitlines()[1] == f"ns::map<…>::find  not {long}"
    assert output(path, sql, "--full-names").splitlines()[1] == f"{long}  not {long}"
    assert next(csv.DictReader(io.StringIO(output(path, sql, "--csv"))))["name"] == long
    assert json.loads(output(path, sql, "--json"))[0]["name"] == long


def test_on_a_terminal_lines_fit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The widest column gives; every line has the same columns."""
    monkeypatch.setattr(query_module, "width", lambda: 40)
    lines = output(path, "SELECT event, function, weight FROM function_self").splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert {line.index(word) for line, word in zip(lines, ("weight", "     7", "     5"), strict=True)} == {
        lines[0].index("weight")
    }
    assert "…" in lines[1]


def test_many_columns_on_a_narrow_terminal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More columns than fit: at least one character of each."""
    monkeypatch.setattr(query_module, "width", lambda: 20)
    for line in output(path, "SELECT * FROM binaries").splitlines():
        assert len(line) <= 13 + 2 * 12


def test_csv(path: Path) -> None:
    text = output(path, "SELECT function, weight, 'a \"b\", c' AS odd FROM function_self", "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["weight"] for row in rows] == ["7", "5"]
    assert rows[0]["odd"] == 'a "b", c'


def test_json(path: Path) -> None:
    """Numbers stay numbers; no row is an empty list."""
    rows = json.loads(
        output(path, "SELECT function, weight, NULL AS n, x'00ff' AS blob FROM function_self", "--json")
    )
    assert rows[1] == {"function": "b", "weight": 5, "n": None, "blob": "00ff"}
    assert json.loads(output(path, "SELECT 1 WHERE 0", "--json")) == []


def test_every_view_answers(path: Path) -> None:
    for view in ("function_self", "function_total", "line_self", "thread_time", "sample_ends", "frame_names"):
        assert len(output(path, f"SELECT * FROM {view}").splitlines()) > 1


def test_views_are_ours_whatever_the_file_has(path: Path) -> None:
    """It may be of an older unspool, whose views were slower, or of somebody who means no good."""
    before = output(path, "SELECT * FROM function_self")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP VIEW function_self")
        connection.execute("CREATE VIEW function_self AS SELECT 'something else' AS function")
    assert output(path, "SELECT * FROM function_self") == before


def test_percents_are_of_all_samples_of_an_event(path: Path) -> None:
    """Also where what a view shows is only a part of them (lines), or more than them (totals)."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO events VALUES (1, 'misses', 'count')")
        columns = "time, 1, thread, stack, 1000, stack_end, flags"
        connection.execute(f"INSERT INTO samples SELECT {columns} FROM samples WHERE weight = 5")
        connection.execute(
            "UPDATE lines SET file = NULL WHERE frame IN (SELECT frame FROM stacks WHERE id = 1)"
        )
        connection.commit()
        shares = {
            view: {
                (event, function): percent
                for event, function, percent in connection.execute(
                    f"SELECT event, function, percent FROM {view}"
                )
            }
            for view in ("function_self", "function_total", "line_self")
        }
    own = {("cpu", LONG): 58.33, ("cpu", "b"): 41.67, ("misses", "b"): 100.0}
    assert shares["function_self"] == own
    everywhere = {("cpu", LONG): 58.33, ("cpu", "b"): 100.0, ("cpu", "main"): 100.0}
    assert shares["function_total"] == everywhere | {("misses", "b"): 100.0, ("misses", "main"): 100.0}
    assert shares["line_self"] == {key: share for key, share in own.items() if key[1] != LONG}


@pytest.mark.parametrize(
    "sql",
    ["DELETE FROM samples", "DROP TABLE samples", "CREATE TABLE x (y)", "PRAGMA user_version = 7", "VACUUM"],
)
def test_nothing_is_changed(path: Path, sql: str) -> None:
    before = path.read_bytes()
    query(path, sql)
    assert path.read_bytes() == before
    assert output(path, "SELECT count(*) FROM samples", "--csv") == "count(*)\n2\n"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT absent FROM samples", "no such column: absent"),
        ("SELEC", "syntax error"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("", "no query"),
    ],
)
def test_a_wrong_query_is_told(path: Path, sql: str, message: str) -> None:
    result = query(path, sql)
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output


def test_two_formats_are_too_many(path: Path) -> None:
    assert "choose one of --csv and --json" in query(path, "SELECT 1", "--csv", "--json").output


def test_no_recording(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    result = query(tmp_path / "text", "SELECT 1")
    assert (result.exit_code, "this is no recording" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FROM nope", "no such table: nope"),
        ("DELETE FROM samples", "attempt to write a readonly database"),
        ("SELECT 1; SELECT 2", "You can only execute one statement at a time"),
    ],
)
def test_what_is_no_query_says_what_is_one(path: Path, sql: str, words: str) -> None:
    wanted = f"Error: {path}: {words}: give one SELECT; docs/recording.md describes the tables\n"
    assert (query(path, sql).exit_code, query(path, sql).output) == (1, wanted)


def test_names_do_not_command_the_terminal(path: Path) -> None:
    assert "\\x1b[31m" in output(path, "SELECT char(27) || '[31m' AS x")


def has_open(pid: int, path: Path) -> bool:
    with suppress(OSError):  # a descriptor may be closed meanwhile
        return any(link.readlink() == path for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_ctrl_c_ends_a_query(path: Path) -> None:
    """SQLite would compute on and on."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    command = [sys.executable, "-m", "unspool", "query", str(path), endless]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not has_open(process.pid, path):
                time.sleep(0.05)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, error) == (1, "Aborted!\n")


def test_rows_after_the_first_ones(path: Path) -> None:
    """Columns are as wide as the first rows need; wider ones later are not cut where nothing must fit."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
    lines = output(path, f"{numbers} SELECT i, i * i * 100000 AS x FROM n").splitlines()
    assert lines[-1].split() == ["1000", "100000000000"]
    assert len(lines) == 1001


def test_a_live_recording_is_queried(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.unspool")
    recording.sample(["work"])
    recording.writer._commit()
    assert output(recording.path, "SELECT count(*) FROM samples", "--csv") == "count(*)\n1\n"
    recording.finish()


@pytest.mark.parametrize(
    ("weight", "unit", "text"),
    [
        (0, "nanoseconds", "0 s"),
        (7, "nanoseconds", "7 ns"),
        (1_234, "nanoseconds", "1.23 us"),
        (12_345_678, "nanoseconds", "12.3 ms"),
        (9_996_000, "nanoseconds", "10.0 ms"),
        (99_960_000, "nanoseconds", "100 ms"),
        (999_499_999, "nanoseconds", "999 ms"),
        (999_500_000, "nanoseconds", "1.00 s"),
        (999, "nanoseconds", "999 ns"),
        (123_456_789, "nanoseconds", "123 ms"),
        (1_234_567_890, "nanoseconds", "1.23 s"),
        (12_345_678_901_234, "nanoseconds", "12,346 s"),
        (-5_000_000, "nanoseconds", "-5.00 ms"),
        (1_234_567, "count", "1,234,567"),
    ],
)
def test_amounts(weight: int, unit: str, text: str) -> None:
    assert amount(weight, unit) == text


def test_texts_in_columns() -> None:
    """Wide characters take two columns, combining ones none."""
    assert cells("日本") == 4 and cells("e\u0301") == 1
    assert fitted("abcdef", 4) == "abc…" and fitted("abcd", 4) == "abcd"
    assert fitted("日本語", 4) == "日…" and fitted("abc", 0) == ""
    assert fitted("a\nb", None) == "a\\nb"
    assert padded("日", 4) == "日  " and padded("7", 3, right=True) == "  7"
    assert percent(1, 3) == "33.3 %" and percent(1, 0) == "-"
