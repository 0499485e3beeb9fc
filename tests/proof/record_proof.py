"""`make record-proof`: shares of time that recordings give to functions, against what the functions measured.

    python -m tests.proof.record_proof [RUNS]

shares.c and shares.rs of tests/integration/recorded run again and again, at a rate of timers and at one of
perf events. Each share must be within three standard deviations of the truth in 95 % of the runs, total CPU
time within 2 % of the kernel's figure, and no function may have a caller that it can't have. After 20 runs or
more docs/shares.md is written.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.recording import PROGRAMS, Recorded, build, record

DOCUMENT = Path(__file__).parents[2] / "docs" / "shares.md"
RUNS = 20
RATES = (199, 2000)
MILLISECONDS = 2000
DEVIATIONS = 3.0
LEAST_SHARE_OF_RUNS = 0.95
LARGEST_ERROR_OF_TIME = 0.02

HEAD = """# Shares of time

`make record-proof` records two programs whose functions measure their own CPU time: one in C, one in Rust,
each with four functions of about 45, 25, 8 and 22 % of the time, the last of them in read(), that is in the
kernel. It compares what recordings say, and wrote this page.

*Near enough*: in so many runs a function's share was within three standard deviations of the truth, for as
many samples as there were; of the function for which that was rarest. *Largest deviation*: of all functions
and runs, in standard deviations. *CPU time*: of all samples, how far at most from the kernel's figure.

| program | rate | near enough | largest deviation | CPU time | impossible callers |
|---|---|---|---|---|---|
"""
_OF_FUNCTION = """
    SELECT sum(weight), sum(weight * weight / 1e9) FROM (
        WITH RECURSIVE path(sample, node) AS (
            SELECT rowid, stack FROM samples
            UNION ALL
            SELECT sample, parent FROM path JOIN stacks ON stacks.id = path.node WHERE parent IS NOT NULL)
        SELECT DISTINCT samples.rowid, samples.weight AS weight FROM path
            JOIN samples ON samples.rowid = path.sample
            JOIN stacks ON stacks.id = path.node
            JOIN frame_names ON frame_names.frame = stacks.frame
        WHERE function = '{}')"""
_CALLERS = """
    SELECT DISTINCT caller.function FROM stacks
        JOIN stacks AS below ON below.id = stacks.parent
        JOIN frame_names AS callee ON callee.frame = stacks.frame
        JOIN frame_names AS caller ON caller.frame = below.frame AND caller.depth = 0
    WHERE callee.function = '{}'
        AND callee.depth = (SELECT max(depth) FROM frame_names WHERE frame = stacks.frame)"""


def deviations(run: Recorded) -> dict[str, float]:
    """Of each function's share from what it measured, in standard deviations of so many samples as it has."""
    lines = (line.split() for line in run.output.splitlines())
    truth = {name: int(time) for name, time in lines}
    total = sum(truth.values())
    result = {}
    for name, time in truth.items():
        ((weight, squares),) = run.query(_OF_FUNCTION.format(name))
        share = time / total
        samples = weight * weight / 1e9 / squares  # that would vary as much, if all weighed the same
        deviation = share * ((1 - share) / samples) ** 0.5
        result[name] = (weight / total - share) / deviation
    return result


@dataclass(frozen=True)
class Program:
    """callers: of each function the only ones that it has."""

    name: str
    path: Path
    callers: dict[str, set[str]]


@dataclass
class Result:
    """Of all runs of a program at a rate. good: in how many each function's share was near enough. worst: the
    largest deviation. error: the largest of total CPU time."""

    program: str
    rate: int
    runs: int = 0
    good: Counter[str] = field(default_factory=Counter)
    worst: float = 0.0
    error: float = 0.0
    impossible: set[tuple[str, str]] = field(default_factory=set)

    @property
    def is_right(self) -> bool:
        return (
            min(self.good.values()) >= LEAST_SHARE_OF_RUNS * self.runs
            and not self.impossible
            and (self.rate != RATES[0] or self.error <= LARGEST_ERROR_OF_TIME)
        )


def programs(folder: Path) -> Iterator[Program]:
    burners = ("burn_a", "burn_b", "burn_c", "burn_in_read")
    main = {"main": {"__libc_start_call_main"}}
    yield Program("C", build(folder, "shares.c"), {name: {"main"} for name in burners} | main)
    path = folder / "shares_rs"
    source = PROGRAMS / "shares.rs"
    command = ["rustc", "--edition=2021", "-O", "-g", "--crate-name", "shares", "-o", path, source]
    subprocess.run(command, check=True)
    yield Program("Rust", path, {f"shares::{name}": {"shares::main"} for name in burners} | main)


def impossible(run: Recorded, callers: dict[str, set[str]]) -> set[tuple[str, str]]:
    """(caller, callee) that are not in the program."""
    pairs = set()
    for callee, allowed in callers.items():
        found = {caller for (caller,) in run.query(_CALLERS.format(callee))}
        pairs |= {(caller, callee) for caller in found - allowed}
    return pairs


def measure(program: Program, rate: int, runs: int, folder: Path) -> Result:
    result = Result(program.name, rate)
    for number in range(runs):
        name = f"{program.name}-{rate}-{number}.unspool"
        run = record(folder, [program.path, str(MILLISECONDS)], "-r", str(rate), name=name)
        if run.status:
            raise SystemExit(f"{name}: unspool record failed with status {run.status}: {run.errors}")
        found = deviations(run)
        result.runs += 1
        for function, value in found.items():
            result.good[function] += abs(value) <= DEVIATIONS
            result.worst = max(result.worst, abs(value))
        ((kernels, sampled),) = run.query("SELECT sum(cpu_time), sum(sampled) FROM thread_time")
        result.error = max(result.error, abs(sampled / kernels - 1))
        pairs = impossible(run, program.callers)
        result.impossible |= pairs
        words = ", ".join(f"{name} {value:+.2f}" for name, value in found.items())
        print(
            f"{program.name}, {rate} Hz, run {number + 1}: {words}; sampled {sampled / kernels:.1%}",
            flush=True,
        )
        if pairs:
            print(f"  impossible: {pairs}")
    return result


def show(result: Result) -> None:
    for function, count in result.good.items():
        print(f"{result.program}, {result.rate} Hz: {function}: near enough in {count} of {result.runs} runs")
    print(f"{result.program}, {result.rate} Hz: samples' CPU time is the kernel's within {result.error:.1%}")


def write_docs(results: list[Result]) -> None:
    rows = [
        f"| {r.program} | {r.rate} Hz | {min(r.good.values())} of {r.runs} | {r.worst:.2f} | {r.error:.1%} "
        f"| {len(r.impossible) or 'none'} |\n"
        for r in results
    ]
    others = DOCUMENT.read_text().partition("\n## ")  # what live_proof.py has written
    DOCUMENT.write_text(HEAD + "".join(rows) + "".join(others[1:]))


def main(runs: int) -> int:
    """Exit status."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = [measure(program, rate, runs, folder) for program in programs(folder) for rate in RATES]
    for result in results:
        show(result)
    if runs >= RUNS:
        write_docs(results)
    failed = not all(result.is_right for result in results)
    print("failed" if failed else "all is as it should be")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS))
