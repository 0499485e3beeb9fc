"""Programs that are built, run under `unspool record`, and what the recording says of them."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "recorded"
UNSPOOL = (sys.executable, "-m", "unspool")
TIMEOUT = 120  # seconds; on an idle machine nothing here takes three


def build(folder: Path, source: str, *options: str) -> Path:
    """recorded/SOURCE, compiled with -O2 -g and these options."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    program = folder / Path(source).stem
    command = ["gcc", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", *options]
    subprocess.run([*command, "-o", program, PROGRAMS / source], check=True)
    return program


@dataclass(frozen=True)
class Recorded:
    """status: of unspool. output: of the program. errors: standard error, the program's too."""

    status: int
    output: str
    errors: str
    path: Path

    def query(self, question: str) -> list[tuple[Any, ...]]:
        """Answers of the recording."""
        with closing(sqlite3.connect(self.path)) as database:
            return database.execute(question).fetchall()

    def values(self, question: str) -> dict[Any, Any]:
        """Answers with two columns."""
        return dict(self.query(question))


def record(
    folder: Path, command: Sequence[str | Path], *options: str, name: str = "recording.unspool"
) -> Recorded:
    """`unspool record OPTIONS -o folder/NAME -- COMMAND`"""
    path = folder / name
    result = subprocess.run(
        [*UNSPOOL, "record", *options, "-o", path, "--", *command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd=folder,
        check=False,
    )
    return Recorded(result.returncode, result.stdout, result.stderr, path)
