"""Runs a program bare and under `unspool record` at two rates, and compares what the program did.

The program tells by its exit status and its output; unspool's own lines go to standard error, on which these
programs write nothing unless they fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
RATES = (199, 2000)
_TIMEOUT = 300  # seconds: whatever takes that long hangs
_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_recordings = tempfile.TemporaryDirectory(prefix="unspool-battery-")  # until this process ends
_COMPILERS = {".c": "gcc", ".cpp": "g++"}


def build(folder: Path, source: str, *options: str, name: str = "", compiler: str = "") -> Path:
    """programs/SOURCE, compiled with -O2 -g and these options, as folder/NAME."""
    path = PROGRAMS / source
    compiler = compiler or _COMPILERS[path.suffix]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    program = folder / (name or path.stem)
    if not program.exists():
        command = [compiler, "-O2", "-g", *_WARNINGS, "-pthread", "-o", program, path, *options]
        subprocess.run(command, check=True)
    return program


@dataclass(frozen=True)
class Outcome:
    """What a run of the program came to. errors: standard error, unspool's lines among it. recording: None =
    it ran bare."""

    status: int
    output: bytes
    errors: str
    recording: Path | None = None

    def query(self, question: str) -> list[tuple[object, ...]]:
        """Of the recording."""
        assert self.recording is not None
        with closing(sqlite3.connect(self.recording)) as database:
            return database.execute(question).fetchall()

    @property
    def samples(self) -> int:
        count = self.query("select count(*) from samples")[0][0]
        assert isinstance(count, int)
        return count

    @property
    def processes(self) -> int:
        """How many there are samples of."""
        question = (
            "select count(distinct threads.process) from samples join threads on threads.id = samples.thread"
        )
        count = self.query(question)[0][0]
        assert isinstance(count, int)
        return count


def unspool_command(rate: int, output: Path, command: Sequence[str | Path], *options: str) -> list[str]:
    record = [sys.executable, "-m", "unspool", "record", "-r", str(rate), "-o", str(output), *options]
    return [*record, "--", *map(str, command)]


def run(
    command: Sequence[str | Path],
    rate: int | None,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    prefix: Sequence[str] = (),
) -> Outcome:
    """rate: None = bare. prefix: a command that runs the rest, unspool included."""
    folder = Path(tempfile.mkdtemp(dir=_recordings.name))
    recording = None if rate is None else folder / "recording.unspool"
    if rate is not None and recording is not None:
        command = unspool_command(rate, recording, command, *options)
    process = subprocess.Popen(
        [*prefix, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        process_group=0,
    )
    try:
        output, errors = process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        raise AssertionError(f"hangs: {command}: {output!r} {errors!r}") from None
    return Outcome(process.returncode, output, errors.decode(errors="replace"), recording)


def compare(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    status: int = 0,
    samples: int = 1,
    prefix: Sequence[str] = (),
) -> list[Outcome]:
    """The runs under unspool, once they were found to be what the bare run was. status: that the program must
    end with. samples: how many there must be at least at 199 Hz."""
    with ThreadPoolExecutor(max_workers=3) as pool:
        futures = [pool.submit(run, command, rate, environment, (), prefix) for rate in (None, *RATES)]
        bare, *recorded = [future.result() for future in futures]
    assert bare.status == status, f"bare: {bare}"
    for rate, outcome in zip(RATES, recorded, strict=True):
        expected = (shell_status(bare.status), bare.output)
        assert (outcome.status, outcome.output) == expected, f"{rate} Hz: {outcome}"
        assert "Traceback" not in outcome.errors and "ERROR: ld.so" not in outcome.errors, outcome.errors
        if samples:
            assert outcome.samples >= samples, f"{rate} Hz: {outcome}"
    return recorded


def shell_status(status: int) -> int:
    """As a shell, and unspool, say it of a process that a signal ended (Popen: a negative number)."""
    return 128 - status if status < 0 else status
