"""What being recorded costs a program: `make bench-overhead`.

Method. Rounds; in each round every program runs bare, bare again, and once under each profiler, in random
order. A pair is a profiler's run and the bare one of the same round; what is shown is the median of the
pairs' ratios, and the middle half of them. Programs say themselves what CPU time (user and system, all
threads) and what wall time they used, hence the profilers' own work counts only as far as it takes place in
the program or displaces it. Those with one thread keep to the first CPU, the profilers to none. "own" is
what the profiler's processes used of the CPU; "start" is how long after the command the program began; both
include that the profiler is loaded, names functions and writes its file. "bare again" shows what the machine
does by itself: below that nothing can be told.

perf is left out where it is not installed; py-spy is installed in an environment of its own in out/.

unspool by perf copies as much of the stack at a sample as perf with dwarf,16384: its aim is half of what that
costs the program, and 5 % of a CPU for itself.

    python -m bench.overhead [ROUNDS] [WORD]    only programs with this in their name
"""

from __future__ import annotations

import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

SOURCES = Path(__file__).parent / "programs"
BUILT = Path("out/bench")
UNSPOOL = (sys.executable, "-m", "unspool")
ROUNDS = 15
STARTS = 20
OWN_RUNS, LONGER = 3, 4
BARE, AGAIN = "bare", "bare again"
INSIDE, VIA_PERF = "unspool, 199 Hz", "unspool by perf, 999 Hz"
OPTIONS = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-D_GNU_SOURCE")


@dataclass(frozen=True)
class Program:
    """rounds: for one second or two."""

    name: str
    command: tuple[str, ...]
    rounds: int
    is_python: bool = False

    def words(self, factor: int = 1) -> list[str]:
        return [*self.command, str(self.rounds * factor)]


@dataclass(frozen=True)
class Run:
    """Seconds. cpu, wall: of the program. own: CPU time of the profiler. start: until the program began."""

    cpu: float
    wall: float
    own: float
    start: float


def build(source: str) -> str:
    """The path of a program of bench/programs."""
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / Path(source).stem
    compiler = "g++" if source.endswith(".cpp") else "gcc"
    subprocess.run([compiler, *OPTIONS, "-o", program, SOURCES / source], check=True)
    return str(program.resolve())


def programs() -> list[Program]:
    return [
        Program("Python", (sys.executable, str(SOURCES / "compute.py")), 5000, True),
        Program("C++, deep stacks", (build("deep.cpp"),), 60_000),
        Program("C, two threads", (build("threads.c"),), 8_000),
    ]


def py_spy() -> str | None:
    """Its path, or None: it can't be installed."""
    environment = BUILT / "py-spy"
    path = environment / "bin/py-spy"
    if not path.exists():
        install = [environment / "bin/pip", "install", "-q", "--disable-pip-version-check", "py-spy"]
        for command in ([sys.executable, "-m", "venv", environment], install):
            if subprocess.run(command, check=False).returncode:
                return None
    return str(path.resolve())


def perf_is_allowed() -> bool:
    command = [*UNSPOOL, "doctor", "perf"]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def profilers(program: Program, folder: str) -> dict[str, list[str]]:
    """Names, and what to put before the program's command."""
    record = [*UNSPOOL, "record", "-o", f"{folder}/recording.unspool"]
    found = {
        INSIDE: [*record, "-r", "199", "--"],
        "unspool, 1 kHz": [*record, "-r", "1000", "--"],
    }
    if perf_is_allowed():
        found[VIA_PERF] = [*record, "-r", "999", "--via", "perf", "--"]
    if shutil.which("perf"):
        for kind in ("dwarf", "dwarf,16384"):
            found[f"perf, {kind}, 999 Hz"] = [
                *("perf", "record", "-q", "--call-graph", kind, "-F", "999"),
                *("-o", f"{folder}/perf.data", "--"),
            ]
    spy = py_spy() if program.is_python else None
    if spy is not None:
        for rate in ("199", "999"):
            found[f"py-spy, {rate} Hz"] = [
                spy,
                "record",
                "-r",
                rate,
                "-f",
                "raw",
                "-o",
                f"{folder}/spy",
                "--",
            ]
    return found


def run(command: Sequence[str]) -> Run:
    """Of a command that ends with one of the programs."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    lines = [line for line in output.splitlines() if line.startswith("usage ")]
    if process.returncode or len(lines) != 1:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}")
    cpu, wall, at = (float(word) for word in lines[0].split()[1:])
    return Run(cpu, wall, usage.ru_utime + usage.ru_stime - cpu, at - began)


def run_once(prefix: Sequence[str], program: Program, folder: str, factor: int = 1) -> Run:
    """The files that it writes do not stay."""
    result = run([*prefix, *program.words(factor)])
    for path in Path(folder).iterdir():
        path.unlink()
    return result


def measure(program: Program, rounds: int, folder: str) -> dict[str, list[Run]]:
    """Runs of each profiler, one a round; a first one, which fills caches, does not count."""
    commands = {BARE: [], AGAIN: [], **profilers(program, folder)}
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        order = list(commands)
        random.Random(number).shuffle(order)
        for name in order:
            found = run_once(commands[name], program, folder)
            if number:
                runs[name].append(found)
    return runs


def percent(ratios: Sequence[float]) -> str:
    low, middle, high = (100 * (ratio - 1) for ratio in quantiles(ratios, n=4))
    return f"{middle:+6.2f} ({low:+.2f} to {high:+.2f})"


def show(program: Program, runs: dict[str, list[Run]]) -> None:
    bare = runs[BARE]
    cpu, wall = median(r.cpu for r in bare), median(r.wall for r in bare)
    print(f"{program.name}: {len(bare)} pairs, bare {cpu:.2f} s of the CPU in {wall:.2f} s")
    print(f"  {'':23} {'CPU time, %':24} {'wall time, %':24} {'own, s':>7} {'start, s':>9}")
    for name, found in runs.items():
        if name == BARE:
            continue
        cpu_ratios = [one.cpu / other.cpu for one, other in zip(found, bare, strict=True)]
        wall_ratios = [one.wall / other.wall for one, other in zip(found, bare, strict=True)]
        own, start = median(r.own for r in found), median(r.start for r in found)
        print(f"  {name:23} {percent(cpu_ratios):24} {percent(wall_ratios):24} {own:7.2f} {start:9.3f}")
    sys.stdout.flush()


def show_start(folder: str) -> None:
    """`unspool record -- true`, from beginning to end."""
    command = [*UNSPOOL, "record", "-o", f"{folder}/recording.unspool", "--", "true"]
    seconds, used = [], []
    for number in range(STARTS + 1):
        began = time.monotonic()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        if number:
            seconds.append(time.monotonic() - began)
            used.append(usage.ru_utime + usage.ru_stime)
    print(
        f"unspool record -- true: median of {STARTS} {median(seconds):.3f} s (quickest {min(seconds):.3f}), "
        f"of that {median(used):.3f} s of the CPU"
    )


def show_own(program: Program, folder: str) -> None:
    """unspool's own CPU time while the program runs: what a run takes more that is so much longer."""
    prefixes = profilers(program, folder)
    for name in (INSIDE, VIA_PERF):
        if name not in prefixes:
            continue
        short = [run_once(prefixes[name], program, folder) for _ in range(OWN_RUNS)]
        long = [run_once(prefixes[name], program, folder, LONGER) for _ in range(OWN_RUNS)]
        more = median(r.own for r in long) - median(r.own for r in short)
        wall = median(r.wall for r in long) - median(r.wall for r in short)
        print(f"{name}: itself, {program.name}: {more / wall:.2%} of a CPU")


def load() -> str:
    return f"load average {os.getloadavg()[0]:.1f}"


def main(rounds: int, word: str) -> None:
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, {load()}")
    with tempfile.TemporaryDirectory() as folder:
        show_start(folder)
        for program in (one for one in programs() if word in one.name):
            show(program, measure(program, rounds, folder))
            show_own(program, folder)
    print(load())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS, sys.argv[2] if len(sys.argv) > 2 else "")
