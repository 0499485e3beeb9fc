"""docs/recording.md says what the schema is."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.recordings import Recording
from unspool.profile.schema import APPLICATION_ID, TABLES, VERSION, VIEWS

DOCUMENT = (Path(__file__).parent.parent.parent / "docs" / "recording.md").read_text()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    recording = Recording(tmp_path / "r.unspool")
    recording.sample(["malloc", "work", "main"], weight=3)
    recording.sample(["malloc", "main"], weight=2)
    recording.finish()
    return recording.path


def documented_columns(table: str) -> list[str]:
    heading = next(part for part in DOCUMENT.split("\n### ")[1:] if table in part.split("\n")[0].split(", "))
    rows = [
        line.split("|")[1].strip() for line in heading.split("\n## ")[0].splitlines() if line.startswith("|")
    ]
    return rows[2:]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_of_every_table_is_there(path: Path, table: str) -> None:
    """In the schema's order."""
    with closing(sqlite3.connect(path)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    assert documented_columns(table) == columns


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_there_with_its_columns(path: Path, view: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        columns = [name for name, *_ in connection.execute(f"SELECT * FROM {view}").description]
    (row,) = re.findall(rf"^\| {view} \| (.*) \|$", DOCUMENT, re.MULTILINE)
    if "the same columns" not in row:
        assert f"`{', '.join(columns)}`" in row


def test_the_version_is_there() -> None:
    assert f"`PRAGMA application_id` is 0x{APPLICATION_ID:X}" in DOCUMENT
    assert f"`PRAGMA user_version` is {VERSION}:" in DOCUMENT


def test_the_example_works(path: Path) -> None:
    """Who calls malloc."""
    sql = "WITH RECURSIVE" + DOCUMENT.split("    WITH RECURSIVE")[1]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(sql).fetchall() == [("work", 3), ("main", 2)]
