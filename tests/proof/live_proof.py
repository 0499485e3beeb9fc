"""`make live-proof`: shares of time by perf events against those from inside, of the same real programs.

    python -m tests.proof.live_proof [--seconds N] [--only WORD] [--write-docs]

Each program is recorded three times in either way at 199 Hz: by the agent in it and by perf events, in turns.
Of every function with at least 2 % of the CPU time in one of them, called from wherever (frames of files
only, since the kernel's are not seen from inside), the two shares may differ by three standard deviations; of
100 functions one may by chance. The deviation is that of so many samples, or what the runs of one way differ
among themselves if that is more: servers do not do the same twice. What a recording says that it has not
sampled (from inside: what comes before the agent, and processes that live for a moment) may be of any
function.

Stacks that were cut lack their callers, who may be any function, too; where more than 2 % are, functions are
compared by the time in which they were innermost.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, variance

from tests.proof.program_proof import record
from tests.proof.recorded_programs import RealProgram, all_programs

DOCUMENT = Path(__file__).parents[2] / "docs" / "shares.md"
TITLE = "## By perf events, beside the same from inside\n"
HEAD = f"""{TITLE}
`make live-proof` records real programs three times by the agent inside and three times by perf events, both
at 199 Hz, and wrote this. *Near enough*: of the functions with at least 2 % of the time, those whose two
shares differ by at most three standard deviations: of so many samples, or of what runs of one way differ
among themselves if that is more. What is told as not sampled, and callers of stacks that were cut, may be any
function. *Total*: of a function and all that it called; *self*: of it alone, for programs of whose stacks
more than 2 % were cut by one of the two.

| program | samples | shares | near enough | largest deviation |
|---|---:|---|---:|---|
"""
RUNS = 3
LEAST_SHARE = 0.02
DEVIATIONS = 3.0
LARGEST_PART_BEYOND = 0.01
LARGEST_CUT = 0.02
# Of all samples, and of those that were cut: their number, their weight, and the sum of its squares.
_ALL = "SELECT count(*), sum(weight), sum(weight * 1.0 * weight) FROM samples"
_CUT = "SELECT count(*) FROM samples JOIN stack_ends ON id = stack_end WHERE name != 'root'"
_UNSEEN = "SELECT sum(not_sampled) FROM thread_time"
_TOTAL = """SELECT function || ' of ' || binary, sum(weight) FROM function_total
    WHERE binary IN (SELECT name FROM binaries WHERE kind = 'file') GROUP BY 1"""
# Below frames of the kernel lies what called it.
_SELF = """
    WITH RECURSIVE user(sample, node, kind) AS (
        SELECT samples.rowid, stacks.id, kind FROM samples JOIN stacks ON stacks.id = stack
            JOIN frames ON frames.id = frame JOIN binaries ON binaries.id = binary
        UNION ALL
        SELECT sample, caller.id, binaries.kind FROM user JOIN stacks ON stacks.id = node
            JOIN stacks AS caller ON caller.id = stacks.parent
            JOIN frames ON frames.id = caller.frame JOIN binaries ON binaries.id = binary
        WHERE user.kind = 'kernel')
    SELECT function || ' of ' || frame_names.binary, sum(weight) FROM user
        JOIN samples ON samples.rowid = sample JOIN stacks ON stacks.id = node
        JOIN frame_names ON frame_names.frame = stacks.frame
    WHERE user.kind = 'file'
        AND depth = (SELECT max(depth) FROM frame_names AS each WHERE each.frame = stacks.frame)
    GROUP BY 1"""


@dataclass(frozen=True)
class Shares:
    """Of one recording's CPU time. samples: as many of one weight would vary as much. unseen: the share that
    was not sampled."""

    total: dict[str, float]
    self: dict[str, float]
    samples: float
    cut: float
    unseen: float

    @classmethod
    def read(cls, path: Path) -> Shares:
        with closing(sqlite3.connect(path)) as database:
            count, weight, squares = database.execute(_ALL).fetchone()
            (cut,) = database.execute(_CUT).fetchone()
            (unseen,) = database.execute(_UNSEEN).fetchone()
            total, alone = (
                {name: value / (weight + unseen) for name, value in database.execute(question)}
                for question in (_TOTAL, _SELF)
            )
        return cls(total, alone, weight * weight / squares, cut / count, unseen / (weight + unseen))

    def unknown(self, kind: str) -> float:
        """The share of the time that may be of any function."""
        return max(self.unseen, 0.0) + (self.cut if kind == "total" else 0.0)


@dataclass(frozen=True)
class Comparison:
    """deviations: by function, in standard deviations."""

    program: str
    samples: tuple[int, int]
    kind: str
    deviations: dict[str, float]

    @property
    def beyond(self) -> dict[str, float]:
        return {name: value for name, value in self.deviations.items() if abs(value) > DEVIATIONS}

    @property
    def row(self) -> str:
        good = len(self.deviations) - len(self.beyond)
        name, worst = max(self.deviations.items(), key=lambda item: abs(item[1]))
        samples = f"{self.samples[0]:,} and {self.samples[1]:,}"
        words = f"{abs(worst):.2f} ({name[:60]})"
        return f"| {self.program} | {samples} | {self.kind} | {good} of {len(self.deviations)} | {words} |\n"


def compare(program: str, inside: Sequence[Shares], by_perf: Sequence[Shares]) -> Comparison:
    runs = (*inside, *by_perf)
    kind = "self" if max(run.cut for run in runs) > LARGEST_CUT else "total"
    samples = [sum(run.samples for run in way) for way in (inside, by_perf)]
    unseen = [mean(run.unknown(kind) for run in way) for way in (inside, by_perf)]
    deviations = {}
    for name in sorted({name for run in runs for name in getattr(run, kind)}):
        shares = [[getattr(run, kind).get(name, 0.0) for run in way] for way in (inside, by_perf)]
        if max(map(mean, shares)) < LEAST_SHARE:
            continue
        share = mean(map(mean, shares))
        of_samples = share * (1 - share) * sum(1 / count for count in samples)
        of_runs = sum(variance(way) / len(way) for way in shares)
        # What is on the stack nearly always differs by what begins or ends beside it: a sample at least may.
        least = 1 / min(samples)
        gap = mean(shares[1]) - mean(shares[0])
        gap = max(gap - unseen[0], 0.0) if gap > 0 else min(gap + unseen[1], 0.0)
        deviations[name] = gap / max(max(of_samples, of_runs) ** 0.5, least)
    return Comparison(program, (round(samples[0]), round(samples[1])), kind, deviations)


def measure(program: RealProgram, seconds: int, folder: Path) -> Comparison:
    found: dict[str, list[Shares]] = {"in-process": [], "perf": []}
    for number in range(RUNS):
        for via, runs in found.items():
            place = folder / f"{program.name.replace(' ', '-')}-{via}-{number}"
            work = place / "work"
            work.mkdir(parents=True)
            place.chmod(0o755)
            path = place / "recording.unspool"
            record(replace(program, via=via), program.prepare(work, seconds), path)
            runs.append(Shares.read(path))
    return compare(program.name, found["in-process"], found["perf"])


def write_docs(comparisons: list[Comparison]) -> None:
    """Behind what record_proof.py has written."""
    before = DOCUMENT.read_text().split(TITLE)[0].rstrip("\n")
    DOCUMENT.write_text(f"{before}\n\n{HEAD}{''.join(one.row for one in comparisons)}")


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description="Compare shares of time.")
    parser.add_argument("--seconds", type=int, default=3, help="that each program runs, about")
    parser.add_argument("--only", default="", help="programs with this in their name")
    parser.add_argument("--write-docs", action="store_true", help="write docs/shares.md")
    arguments = parser.parse_args()
    comparisons = []
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        for program in all_programs():
            if program.via == "in-process" and arguments.only in program.name:
                comparisons.append(measure(program, arguments.seconds, Path(name)))
                print(comparisons[-1].row, end="", flush=True)
                for function, value in comparisons[-1].beyond.items():
                    print(f"    {value:+.2f}  {function}")
    beyond = sum(len(one.beyond) for one in comparisons)
    functions = sum(len(one.deviations) for one in comparisons)
    print(f"{functions - beyond} of {functions} functions are near enough")
    if arguments.write_docs:
        write_docs(comparisons)
    return int(beyond > LARGEST_PART_BEYOND * functions)


if __name__ == "__main__":
    sys.exit(main())
