"""Small programs that are built, started, brought to a known place and looked at."""

from __future__ import annotations

import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from unspool.capture.live_process import LiveProcess
from unspool.capture.task_status import TaskStatus
from unspool.cli.stack_frames import ThreadLines, symbolize_threads
from unspool.symbols import PerfMap, Symbolizer

PROGRAMS = Path(__file__).parent / "programs"
SYMBOLIZER = Symbolizer()


def build(folder: Path, source: str, *options: str) -> Path:
    """programs/SOURCE, compiled with -O2 -g and these options."""
    path = PROGRAMS / source
    compiler = "g++" if path.suffix == ".cpp" else "gcc"
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    program = folder / "-".join((path.stem, *(option.strip("-") for option in options)))
    if not program.exists():
        command = [compiler, "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", *options]
        subprocess.run([*command, "-o", program, path], check=True)
    return program


@contextmanager
def started(
    program: Path, *arguments: str | Path, user: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The program, once it has said that it is ready. It is killed in the end."""
    process = subprocess.Popen(
        [program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
        user=user,
    )
    try:
        assert next_line(process) == "ready\n", f"{program.name} did not get where it should"
        _wait_until_idle(process.pid)
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[str], *, ask: bool = False) -> str:
    """What it prints next, within ten seconds. ask: send it an empty line first."""
    assert process.stdin is not None and process.stdout is not None
    if ask:
        process.stdin.write("\n")
        process.stdin.flush()
    assert select.select([process.stdout], [], [], 10)[0], "the program prints nothing"
    return process.stdout.readline()


def _wait_until_idle(pid: int) -> None:
    """From where threads say that they are ready to where they wait; not for ever: some never do."""
    for _ in range(50):
        with suppress(FileNotFoundError, ProcessLookupError):  # threads may end
            tasks = Path(f"/proc/{pid}/task").iterdir()
            if "R" not in {TaskStatus.of(pid, int(task.name)).state for task in tasks}:
                return
        time.sleep(0.01)


def threads_of(pid: int) -> list[ThreadLines]:
    """All threads of a process, symbolized as `unspool stack` does it."""
    process = LiveProcess(pid)
    return symbolize_threads(process.stacks(), SYMBOLIZER, PerfMap.of_process(pid), None)


def functions(thread: ThreadLines) -> list[str | None]:
    """Innermost first, inlined ones too."""
    return [line.location.function for line in thread.lines]
