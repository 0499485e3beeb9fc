"""The soak: a mixed C++ and Rust program with exceptions, panics, libraries and threads that come and go,
under `unspool record` at 1 kHz for a long time. `python -m tests.battery.soak SECONDS`.

No crash, no hang, no leak: the program ends with "ok" and in time; neither its memory nor unspool's grows
from the second quarter of the run to the last, nor does the number of their descriptors and mappings; nothing
is left behind.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.battery.harness import PROGRAMS, build, unspool_command

RATE = 1000
_GRACE = 120.0  # seconds that building, starting and naming frames may take
_BEAT = 1.0
_GROWTH = 1.15  # of the median, from the second quarter of the run to the last
_SLACK = {"memory": 6 << 20, "descriptors": 8, "mappings": 24}


@dataclass
class Watched:
    """What one process used at each look: bytes of memory, descriptors, mappings."""

    name: str
    pid: int
    uses: dict[str, list[int]] = field(
        default_factory=lambda: {"memory": [], "descriptors": [], "mappings": []}
    )

    def look(self) -> None:
        folder = Path(f"/proc/{self.pid}")
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            pages = int((folder / "statm").read_text().split()[1])
            descriptors = len(list((folder / "fd").iterdir()))
            mappings = len((folder / "maps").read_bytes().splitlines())
            for kind, value in zip(self.uses, (pages * 4096, descriptors, mappings), strict=True):
                self.uses[kind].append(value)

    def growth(self) -> list[str]:
        """What grew, in words, of the time between a warm start and the end."""
        found = []
        for kind, values in self.uses.items():
            quarter = len(values) // 4
            before = statistics.median(values[quarter : 2 * quarter] or [0])
            after = statistics.median(values[-quarter - 1 : -1] or [0])
            if after > before * _GROWTH + _SLACK[kind]:
                found.append(f"{self.name}: {kind} grew from {before:,.0f} to {after:,.0f}")
        return found


def build_all(folder: Path) -> tuple[Path, Path]:
    """The program, and a library that it loads and unloads."""
    rust = folder / "libsoak_rust.so"
    command = ["rustc", "-O", "-g", "--crate-type=cdylib", "-o", rust, PROGRAMS / "soak.rs"]
    subprocess.run(command, check=True)
    library = build(folder, "library.c", "-shared", "-fPIC", "-DNUMBER=1", "-DSIZE=4", name="libsoak_c.so")
    options = [f"-L{folder}", "-lsoak_rust", f"-Wl,-rpath,{folder}", "-ldl"]
    return build(folder, "soak.cpp", *options, name="soak"), library


def soak(seconds: float, folder: Path) -> list[str]:
    """What went wrong, in words; empty: nothing."""
    program, library = build_all(folder)
    output = folder / "soak.unspool"
    command = unspool_command(RATE, output, [program, str(seconds), library])
    unspool = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    watched = [Watched("unspool", unspool.pid)]
    end = time.monotonic() + seconds + _GRACE
    while unspool.poll() is None:
        if time.monotonic() > end:
            os.killpg(unspool.pid, signal.SIGKILL)
            return [f"hangs: {seconds + _GRACE:.0f} seconds were not enough"]
        if len(watched) == 1:
            with suppress(FileNotFoundError, IndexError, ProcessLookupError):
                children = Path(f"/proc/{unspool.pid}/task/{unspool.pid}/children").read_text().split()
                watched.append(Watched("the program", int(children[0])))
        for process in watched:
            process.look()
        time.sleep(min(_BEAT, seconds / 40))
    text, errors = unspool.communicate()
    print(errors, end="")
    problems = [problem for process in watched for problem in process.growth()]
    if (unspool.returncode, text) != (0, "ok\n"):
        problems.append(f"status {unspool.returncode}, output {text!r}")
    if "Traceback" in errors or not output.exists():
        problems.append("nothing was recorded")
    else:
        problems += _check_recording(output)
    return problems + _left_behind(unspool.pid)


def _check_recording(path: Path) -> list[str]:
    """It can be read, and it holds what ran."""
    with closing(sqlite3.connect(path)) as database:
        names = " ".join(row[0] for row in database.execute("select name from functions"))
    missing = [name for name in ("rust_work", "throwing", "churn", "fails") if name not in names]
    return [f"the recording lacks {missing}"] if missing else []


def _left_behind(group: int) -> list[str]:
    """Nothing of the process group lives on."""
    with suppress(ProcessLookupError):
        os.killpg(group, 0)
        return ["some process was left behind"]
    return []


def main() -> int:
    seconds = float(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="unspool-soak-") as folder:
        problems = soak(seconds, Path(folder))
    for problem in problems:
        print(f"soak: {problem}")
    print(
        f"soak: {seconds:.0f} seconds at {RATE} Hz: {'failed' if problems else 'no crash, no hang, no leak'}"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
