"""How fast stacks are walked, beside every other unwinder that can be had: `make bench-walk`.

Method. Three programs (workloads/) are recorded once by perf with registers and stack copies of 16 KB, which
the parser of `unspool import` reads. Every walker is a program of its own (walkers/, framehop/) that loads
the same samples, stack copies and files, and is pinned to one CPU; they take turns, pass by pass of all
samples. Times are divided by the frames that the walker itself returns, so that none gains by stopping early;
how many those are is shown, too. perf script is no such program: what counts is how much longer it runs when
it prints call chains, its loading of files included. Tables are timed in this process, a walk of the own
stack in programs of its own, one a walker, since libunwind takes the place of libgcc where both are linked.

Prints one report; with --write-docs it takes the place of its section of bench/README.md.
"""

from __future__ import annotations

import argparse
import platform
import textwrap
from collections.abc import Iterable
from pathlib import Path

from bench.walk import own_process, tables
from bench.walk.replay import CPU, PASSES, REPETITIONS, Result, build_walkers, pin, replay, replay_perf
from bench.walk.samples import HERTZ, STACK, Workload, record_workloads

OUT = Path("out/bench/walk")
README = Path("bench/README.md")
HEADING = "## Walking stacks: `make bench-walk`"
NEXT = "\n**What made the difference.**"
PERF = "perf script, by difference"
MOST, MOST_SHARE, MOST_COLD = 20, 1 / 5, 30  # what is aimed at: ns a frame; part of framehop's; ns a frame


def cell(result: Result, times: list[float]) -> str:
    if not times:
        return ""
    least, middle = result.a_frame(times)
    return f"{least:,.1f} ({middle:,.1f})"


def workload_lines(workload: Workload, results: dict[str, Result]) -> list[str]:
    """Of one workload: a line a walker."""
    ours = min(results["unspool"].mean) / results["unspool"].frames
    found = []
    for name, result in results.items():
        theirs = min(result.mean or result.cold) / result.frames
        complete = f"{result.complete / workload.count:.1%}" if result.mean else ""
        memory = f"{result.kilobytes / 1024:.1f}" if result.mean else ""
        found.append(
            f"| {workload.name} | {name} | {cell(result, result.mean)} | {theirs / ours:.1f} "
            f"| {cell(result, result.cold)} | {cell(result, result.built)} | {cell(result, result.warm)} "
            f"| {result.frames:,} | {complete} | {memory} |"
        )
    return found


def verdict(workload: Workload, results: dict[str, Result]) -> str:
    ours = results["unspool"]
    mean, cold = min(ours.mean) / ours.frames, min(ours.built) / ours.frames
    met = [f"mean {mean:.1f} ns a frame ({'met' if mean <= MOST else 'missed'}: {MOST})"]
    met.append(
        f"cold, nothing compiled, {cold:.1f} ({'met' if cold <= MOST_COLD else 'missed'}: {MOST_COLD})"
    )
    if "framehop" in results:
        theirs = results["framehop"]
        share = mean / (min(theirs.mean) / theirs.frames)
        said = "met" if share <= MOST_SHARE else "missed"
        met.append(f"1/{1 / share:.1f} of framehop's ({said}: 1/{1 / MOST_SHARE:.0f})")
    return f"- {workload.name}: {'; '.join(met)}"


def measure_workloads() -> tuple[list[Workload], list[str], list[str], list[str]]:
    """The workloads, a line a walker and workload, what is met, and what is missing."""
    programs, missing = build_walkers(OUT)
    workloads = record_workloads(OUT)
    lines, verdicts = [], []
    for workload in workloads:
        results = replay(programs, workload)
        results[PERF] = replay_perf(workload)
        lines += workload_lines(workload, results)
        verdicts.append(verdict(workload, results))
    return workloads, lines, verdicts, missing


def paragraph(text: str) -> list[str]:
    return ["", *textwrap.wrap(" ".join(text.split()), 110), ""]


def table(columns: str, lines: Iterable[str]) -> list[str]:
    return [columns, "|---" * columns.count(" | ") + "|---|", *lines]


def report() -> list[str]:
    """All that is measured, as Markdown."""
    OUT.mkdir(parents=True, exist_ok=True)
    workloads, lines, verdicts, missing = measure_workloads()
    pin()
    measured = [tables.measure(path) for path in tables.files([OUT / "mixed_rs"], OUT)]
    counts = ", ".join(f"{one.count:,}" for one in workloads)
    return [
        *paragraph(
            f"Linux {platform.release()}, {platform.machine()}, CPU {CPU}; {REPETITIONS} repetitions of "
            f"{PASSES} passes over {counts} samples at {HERTZ} Hz with copies of {STACK >> 10} KB. Times are "
            f"the least of all repetitions and, in brackets, their median. {' '.join(missing)}"
        ),
        *paragraph(
            """**Stack copies**, ns a frame. *unspool* compiles functions when it comes to them, as `unspool
            import` does; *whole tables*: of all files, made before, as the agent has them. *Mean*: of five
            passes, the cache empty at first. *Times*: how many times ours that is. *Cold*: the first pass.
            *Nothing compiled*: the same, and what was made before it. *Fifth*: the last pass. *Complete*:
            stacks that the walker itself calls so (libdwfl and libunwind say it of stacks that end with the
            copy, too). *MB*: memory that it holds in the end, without samples and results."""
        ),
        *table(
            "| workload | walker | mean | times | cold | nothing compiled | fifth | frames | complete | MB |",
            lines,
        ),
        "",
        *verdicts,
        *paragraph("**Tables**, made by unspool"),
        *table(
            "| file | FDEs | rows | ms | ns an FDE | ns a row | bytes a row |",
            (one.line() for one in measured if one),
        ),
        *paragraph(
            """**A program's own stack**, ns a walk: called, and from a signal's handler, alone and after a
            millisecond of writing at random into so much memory (reading the clock included, 20 to 40 ns).
            unspool begins at what was interrupted; libunwind and libgcc begin in the handler."""
        ),
        *table(
            "| walker | frames | ns a frame | frames, handler | called | handler | 1 MB | 4 MB | 32 MB |",
            own_process.lines(own_process.measure(OUT)),
        ),
        *paragraph(
            """**One sample of the agent at 1 kHz**, depth 30, median, µs: the program writes at random for a
            millisecond, then the signal comes."""
        ),
        *table(
            "| the program writes into | signal alone | signal and sample | the agent |",
            own_process.sample_lines(),
        ),
    ]


def write(lines: list[str]) -> None:
    text = README.read_text()
    begin = text.index(HEADING) + len(HEADING)
    end = text.index(NEXT, begin)
    README.write_text(text[:begin] + "\n" + "\n".join(lines) + "\n" + text[end:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write-docs", action="store_true")
    arguments = parser.parse_args()
    lines = report()
    print("\n".join(lines))
    if arguments.write_docs:
        write(lines)


if __name__ == "__main__":
    main()
