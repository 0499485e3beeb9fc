"""Ends at random moments: of the program, of unspool, of the disk."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.battery.harness import RATES, build, run, unspool_command

SECONDS = 300  # that anything may take


@contextmanager
def recording(folder: Path, rate: int, *command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """unspool and its program in a process group of their own, once the program has said something."""
    process = subprocess.Popen(
        unspool_command(rate, folder / "out.unspool", command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def repeatedly(trial: Callable[[Path], None], folder: Path) -> None:
    """Ten times, two at a time, each with a folder of its own."""
    folders = [folder / str(number) for number in range(10)]
    for each in folders:
        each.mkdir()
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(trial, folders))


@pytest.mark.parametrize("rate", RATES)
def test_program_is_killed(folder: Path, tmp_path: Path, rate: int) -> None:
    """At any moment: unspool says what a shell would say, and ends as it should."""
    program = build(folder, "restless.c")

    def trial(own_folder: Path) -> None:
        with recording(own_folder, rate, program, "60") as unspool:
            time.sleep(random.uniform(0, 0.4))
            os.kill(child_of(unspool.pid), signal.SIGKILL)
            _, errors = unspool.communicate(timeout=SECONDS)
            assert unspool.returncode == 128 + signal.SIGKILL, errors
            assert b"Traceback" not in errors, errors

    repeatedly(trial, tmp_path)


@pytest.mark.parametrize("rate", RATES)
def test_unspool_is_killed(folder: Path, tmp_path: Path, rate: int) -> None:
    """At any moment: the program goes on to its end, its threads and its children are right."""
    program = build(folder, "restless.c")

    def trial(own_folder: Path) -> None:
        with recording(own_folder, rate, program, "0.6") as unspool:
            time.sleep(random.uniform(0, 0.4))
            os.kill(unspool.pid, signal.SIGKILL)
            assert unspool.stdout is not None
            assert unspool.stdout.read() == b"ok\n"

    repeatedly(trial, tmp_path)


@pytest.mark.parametrize("rate", RATES)
def test_stopped_and_continued(folder: Path, tmp_path: Path, rate: int) -> None:
    program = build(folder, "restless.c")
    with recording(tmp_path, rate, program, "1") as unspool:
        child = child_of(unspool.pid)
        for _ in range(5):
            time.sleep(0.05)
            os.kill(child, signal.SIGSTOP)
            time.sleep(0.05)
            os.kill(child, signal.SIGCONT)
        output, errors = unspool.communicate(timeout=SECONDS)
        assert (output, unspool.returncode) == (b"ok\n", 0), errors


@pytest.mark.parametrize("rate", RATES)
def test_ctrl_c(folder: Path, tmp_path: Path, rate: int) -> None:
    """Of the terminal, to both: the program ends by it as it would, and the recording is written."""
    program = build(folder, "restless.c")
    with recording(tmp_path, rate, program, "60") as unspool:
        time.sleep(0.5)
        os.killpg(unspool.pid, signal.SIGINT)
        _, errors = unspool.communicate(timeout=SECONDS)
        assert unspool.returncode == 128 + signal.SIGINT, errors
        assert b"written to" in errors and (tmp_path / "out.unspool").exists(), errors


@pytest.mark.parametrize("rate", RATES)
def test_program_handles_ctrl_c(folder: Path, tmp_path: Path, rate: int) -> None:
    """It ends when it wants to, with its own status."""
    program = build(folder, "restless.c")
    with recording(tmp_path, rate, program, "60", "handler") as unspool:
        time.sleep(0.5)
        os.killpg(unspool.pid, signal.SIGINT)
        output, errors = unspool.communicate(timeout=SECONDS)
        assert set(output.split()) == {b"interrupted"}  # by it and by whatever child it had
        assert unspool.returncode == 5, errors


def test_disk_is_full(folder: Path, tmp_path: Path) -> None:
    """The program does not notice; unspool says it and fails."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a small file system")
    program = build(folder, "restless.c")
    mount = ["unshare", "--mount", "sh", "-c"]
    script = 'mount -t tmpfs -o size=40k none "$1" && shift && exec "$@"'
    for rate in RATES:
        record = unspool_command(rate, tmp_path / "out.unspool", [program, "1"])
        outcome = run([*mount, script, "sh", tmp_path, *record], None)
        assert outcome.output == b"ready\nok\n", outcome
        assert outcome.status == 1, outcome
        assert "Traceback" not in outcome.errors and "full" in outcome.errors, outcome
