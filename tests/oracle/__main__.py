"""make oracle: steps every combination and reports. Exits with 1 when a stack was wrong and called complete,
a program failed, or a truth could not be kept.

    python -m tests.oracle [--quick] [--only TEXT] [--top N] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

from tests.oracle.combinations import Combination, combinations
from tests.oracle.kinds import VERDICTS, Kind, collect
from tests.oracle.tracing import Tables, Trace, build_tracer, trace

OUT = Path(__file__).parent.parent.parent / "out" / "oracle"
WRONG = {"guessed_wrong", "wrong", "wrong_complete"}
READERS = {"process": "the process's memory, all registers", "copy": "a copy of the stack; pc, sp, fp"}


def problems(name: str, results: dict[str, Any]) -> list[str]:
    """What makes the run fail."""
    found = []
    if results["exit_code"] != 0:
        found.append(f"{name}: ended with {results['exit_code']}, signal {results['killed_by']}")
    for reader in READERS:
        if results[reader]["wrong_complete"]:
            found.append(f"{name}: {results[reader]['wrong_complete']} wrong and complete ({reader})")
    truth = results["truth"]
    for doubt in ("returns_stray", "signal_returns_stray", "switches_abandoned"):
        if truth[doubt]:
            found.append(f"{name}: the truth is in doubt: {doubt} {truth[doubt]}")
    return found


def head() -> str:
    names = "".join(f"{name.replace('_', ' '):>15}" for name in VERDICTS)
    return f"{'':24}{'steps':>9}{'pcs':>7}{'checks':>8}{'':9}{names}"


def line(name: str, results: dict[str, Any], reader: str) -> str:
    numbers = "".join(f"{results[reader][verdict]:>15,}" for verdict in VERDICTS)
    steps, pcs, checks = results["steps"], results["distinct_pcs"], results["checks"]
    return f"{name:24}{steps:>9,}{pcs:>7,}{checks:>8,} {reader:8}{numbers}"


def total(all_results: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum over all combinations."""
    result: dict[str, Any] = {
        key: sum(results[key] for results in all_results) for key in ("steps", "distinct_pcs", "checks")
    }
    for reader in READERS:
        result[reader] = {v: sum(results[reader][v] for results in all_results) for v in VERDICTS}
    return result


def show_kinds(kinds: list[Kind], top: int) -> None:
    """The kinds that the first reader has too with their evidence, the others with a line each."""
    for kind in [kind for kind in kinds if kind.counts["process"] or kind.verdict in WRONG][:top]:
        readers = ", ".join(f"{reader} {count:,}" for reader, count in sorted(kind.counts.items()))
        print(f"\n{kind.verdict} ({kind.end}) in {kind.function}: {readers}")
        print(f"    {len(kind.places)} places in {len(kind.combinations)} combinations; first:")
        print(f"    {kind.example['combination']}")
        for text in kind.example["evidence"]:
            print(f"    {text}")
    print("\nonly where a copy of the stack is read:")
    for kind in [kind for kind in kinds if not kind.counts["process"] and kind.verdict not in WRONG][:top]:
        print(f"    {kind.verdict} ({kind.end}) in {kind.function}: {kind.counts['copy']:,}")
    print(f"\n{len(kinds)} kinds in all; --top shows more, --json writes all")


def run_all(chosen: list[Combination]) -> tuple[dict[str, dict[str, Any]], list[Kind]]:
    """Step them one after the other, printing a line for each reader as it ends."""
    OUT.mkdir(parents=True, exist_ok=True)
    tracer = build_tracer(OUT)
    all_results: dict[str, dict[str, Any]] = {}
    kinds: dict[tuple[str, str, str], Kind] = {}
    print(head())
    with tempfile.TemporaryDirectory() as folder:
        tables = Tables(Path(folder))
        for combination in chosen:
            traced = step(combination, tracer, tables, Path(folder))
            collect(kinds, combination.name, traced)
            results = all_results[combination.name] = traced.results
            for reader in READERS:
                print(line(combination.name, results, reader), flush=True)
    worst = {verdict: rank for rank, verdict in enumerate(VERDICTS)}
    return all_results, sorted(kinds.values(), key=lambda kind: (-worst[kind.verdict], -kind.count))


def step(combination: Combination, tracer: Path, tables: Tables, folder: Path) -> Trace:
    command = [str(combination.compile(OUT))]
    return trace(
        tracer,
        command,
        tables,
        folder,
        from_entry=combination.from_entry,
        threads=combination.threads,
    )


def write_json(path: Path, all_results: dict[str, dict[str, Any]], kinds: list[Kind]) -> None:
    combinations = {
        name: {key: value for key, value in results.items() if key != "kinds"}
        for name, results in all_results.items()
    }
    listed = [
        {
            **{key: getattr(kind, key) for key in ("verdict", "end", "function", "counts", "combinations")},
            "places": [{**asdict(where), "count": count} for where, count in kind.places.most_common()],
            "example": kind.example,
        }
        for kind in kinds
    ]
    path.write_text(json.dumps({"combinations": combinations, "kinds": listed}, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one build of each program")
    parser.add_argument("--only", default="", metavar="TEXT", help="combinations whose name holds TEXT")
    parser.add_argument("--top", type=int, default=30, metavar="N", help="kinds to show (30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    options = parser.parse_args()
    chosen = [c for c in combinations() if options.only in c.name and (c.quick or not options.quick)]
    if not chosen:
        parser.error("no such combination")
    started = monotonic()
    all_results, kinds = run_all(chosen)
    everything = total(list(all_results.values()))
    print()
    for reader in READERS:
        print(line(f"all {len(chosen)}", everything, reader))
    print("".join(f"\n{reader}: {what}" for reader, what in READERS.items()))
    show_kinds(kinds, options.top)
    if options.json:
        write_json(options.json, all_results, kinds)
    seconds = monotonic() - started
    rate = everything["steps"] / seconds
    print(f"\n{everything['steps']:,} steps in {seconds:.0f} s, {rate:,.0f} a second")
    failures = [text for name, results in all_results.items() for text in problems(name, results)]
    print("\n".join(failures) or "no stack was wrong and called complete")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
