"""A process in a container: other pids, other files, another /tmp; unspool looks at it from the host."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.targets import build, next_line

# The program, in a file system that only the container has, with a /tmp of its own.
SCRIPT = """
mount -t tmpfs none /mnt
cp "$1" /mnt/program
mount -t tmpfs none /tmp
exec /mnt/program /tmp
"""


@contextmanager
def contained(program: Path) -> Iterator[int]:
    """The program in pid and mount namespaces of its own; yields its id as we see it."""
    command = [
        "unshare",
        "--pid",
        "--mount",
        "--fork",
        "--kill-child",
        "sh",
        "-e",
        "-c",
        SCRIPT,
        "sh",
        program,
    ]
    if os.geteuid() != 0:
        command[1:1] = ["--user", "--map-root-user"]
    container = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert next_line(container) == "ready\n"
        yield int(Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text())
    finally:
        container.kill()
        container.communicate()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the command prints of it, as text and as JSON."""
    with contained(build(tmp_path_factory.mktemp("programs"), "jit_page.c")) as pid:
        command = [sys.executable, "-m", "unspool", "stack", str(pid)]
        results = {
            name: subprocess.run([*command, *options], capture_output=True, text=True, check=True)
            for name, options in (("text", []), ("json", ["--json"]))
        }
        yield {"pid": str(pid)} | {name: result.stdout for name, result in results.items()}


def test_its_files_are_found(shown: dict[str, str]) -> None:
    """Names, lines and inlined calls need the program's file, which has no path here."""
    (thread,) = json.loads(shown["json"])["threads"]
    frames = {frame["function"]: frame for frame in thread["frames"]}
    assert frames["callback"]["file"].endswith("jit_page.c") and frames["callback"]["line"]
    assert frames["callback"]["binary"] == "/mnt/program"
    assert frames["main"] and frames["_start"] and frames["__libc_start_call_main"]["file"]


def test_its_perf_map_is_found(shown: dict[str, str]) -> None:
    """In the /tmp that it sees, under the number by which it knows itself."""
    (thread,) = json.loads(shown["json"])["threads"]
    names = [frame["function"] for frame in thread["frames"]]
    assert "with record" in names and "without record" in names


def test_its_own_number_is_told(shown: dict[str, str]) -> None:
    assert f"process {shown['pid']}  (1 in its container)  /mnt/program /tmp" in shown["text"]
    assert json.loads(shown["json"])["namespace_pid"] == 1
    assert json.loads(shown["json"])["pid"] == int(shown["pid"])
