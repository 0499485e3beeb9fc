"""Measures `unspool import` beside `perf script -F ip,sym`, which names the same frames, inlined ones too.

    python bench/import.py [PERF.DATA...]        without: records four programs, about 50 MB each

Method. Rounds; in each: perf script (to /dev/null), unspool with an empty cache, unspool again with the cache
that this left. What is shown is the quickest of all rounds, seconds from start to end, and the peak of
unspool's memory. unspool's runs of a round before that do not count: the file is in the page cache, Python's
byte code beside its sources, as after an installation. perf keeps nothing between two runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.proof.import_proof import cpp_program, java_program, numpy_program, rust_program

ROUNDS = 3
RECORD = ("perf", "record", "-q", "-e", "cpu-clock", "-F", "1500", "--call-graph", "dwarf,16384")
PROGRAMS: dict[str, Callable[[Path], list[str]]] = {
    "python3 and numpy": numpy_program,
    "Rust": rust_program,
    "C++ (g++ at work)": cpp_program,
    "JVM": java_program,
}


def recordings(folder: Path) -> dict[str, Path]:
    """By name. Programs that are not installed are left out."""
    found = {}
    for name, program in PROGRAMS.items():
        place = folder / name.split()[0]
        place.mkdir()
        try:
            command = program(place)
        except OSError as error:
            print(f"{name} is left out: {error}")
            continue
        found[name] = place / "perf.data"
        subprocess.run(
            [*RECORD, "-o", found[name], *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,  # what `timeout` ends
        )
    return found


def run(command: Sequence[str | Path], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds, and the peak of memory in MB."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"{command} failed with status {process.returncode}: {errors.read()}")
    return time.monotonic() - began, usage.ru_maxrss / 1000


def measure(data: Path, folder: Path) -> str:
    """A row: perf's seconds, unspool's cold and warm ones with their ratios, memory."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    output = folder / "imported.unspool"
    ours = (sys.executable, "-m", "unspool", "import", data, "-o", output)
    seconds: dict[str, list[float]] = {"perf": [], "cold": [], "warm": []}
    memory = 0.0
    for number in range(ROUNDS + 1):
        shutil.rmtree(folder / "cache", ignore_errors=True)
        for name, times in seconds.items():
            if name == "perf" and not number:
                continue
            command = ("perf", "script", "-F", "ip,sym", "-i", data) if name == "perf" else ours
            output.unlink(missing_ok=True)
            spent, peak = run(command, environment)
            if number:
                times.append(spent)
                memory = max(memory, 0.0 if name == "perf" else peak)
    perf, cold, warm = (min(times) for times in seconds.values())
    return (
        f"{data.stat().st_size / 1e6:6.0f} {perf:7.2f} {cold:7.2f} ({perf / cold:5.1f} x) "
        f"{warm:7.2f} ({perf / warm:5.1f} x) {memory:6.0f}"
    )


def main(paths: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {Path(path).name: Path(path) for path in paths} or recordings(folder)
        print(f"{'':20} {'MB':>6} {'perf, s':>7} {'cold, s':>17} {'warm, s':>17} {'MB':>6}")
        for title, data in files.items():
            print(f"{title:20} {measure(data, folder)}", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
