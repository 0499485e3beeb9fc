"""`make record-proof`: shares of time that recordings give to functions, against what the functions measured.

    python -m tests.proof.record_proof [RUNS]

tests/integration/recorded/shares.c runs again and again, at a rate of timers and at one of perf events. Each
share must be within three standard deviations of the truth in 95 % of the runs, total CPU time within 2 %
of the kernel's figure, and no function may have a caller that it can't have.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.integration.recording import Recorded, build, record

RATES = (199, 2000)
MILLISECONDS = 2000
DEVIATIONS = 3.0
LEAST_SHARE_OF_RUNS = 0.95
LARGEST_ERROR_OF_TIME = 0.02

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


def impossible(run: Recorded) -> list[tuple[str, str]]:
    """(caller, callee) that are not in the program."""
    pairs = []
    for callee, allowed in {
        **{f"burn_{x}": {"main"} for x in ("a", "b", "c", "in_read")},
        "main": {"__libc_start_call_main"},
    }.items():
        callers = {caller for (caller,) in run.query(_CALLERS.format(callee))}
        pairs += [(caller, callee) for caller in callers - allowed]
    return pairs


def main(runs: int) -> int:
    """Exit status."""
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(folder, "shares.c")
        for rate in RATES:
            good: dict[str, int] = {}
            worst_time = 0.0
            for number in range(runs):
                run = record(
                    folder, [program, str(MILLISECONDS)], "-r", str(rate), name=f"{rate}-{number}.unspool"
                )
                found = deviations(run)
                for function, value in found.items():
                    good[function] = good.get(function, 0) + (abs(value) <= DEVIATIONS)
                ((kernels, sampled),) = run.query("SELECT sum(cpu_time), sum(sampled) FROM thread_time")
                worst_time = max(worst_time, abs(sampled / kernels - 1))
                pairs = impossible(run)
                words = ", ".join(f"{name} {value:+.2f}" for name, value in found.items())
                print(f"{rate} Hz, run {number + 1}: {words}; sampled {sampled / kernels:.1%}", flush=True)
                if pairs:
                    print(f"  impossible: {pairs}")
                    failed = True
            for function, count in good.items():
                verdict = count >= LEAST_SHARE_OF_RUNS * runs
                failed |= not verdict
                print(f"{rate} Hz: {function}: within 3 deviations in {count} of {runs} runs")
            print(f"{rate} Hz: samples' CPU time is the kernel's within {worst_time:.1%}")
            failed |= rate == RATES[0] and worst_time > LARGEST_ERROR_OF_TIME
    print("failed" if failed else "all is as it should be")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
