"""make oracle: steps every combination and reports. Exits with 1 when a stack was wrong and called complete,
a program failed, or a truth could not be kept.

    python -m tests.oracle [--quick] [--only TEXT] [--jobs N] [--top N] [--json FILE] [--write-docs]

What a combination showed is kept in out/oracle/results; it is stepped again only when its program, the core,
the product's reading of files or the oracle itself has changed, so that a run that was stopped goes on.
"""

import argparse
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any

from tests.oracle.combinations import Combination, combinations
from tests.oracle.document import write_document
from tests.oracle.kinds import VERDICTS, Kind, collect
from tests.oracle.tracing import CORE, HERE, Tables, build_tracer, trace
from unspool.core import library_path

OUT = HERE.parent.parent / "out" / "oracle"
KEPT = OUT / "results"
WRONG = {"guessed_wrong", "wrong", "wrong_complete"}
READERS = {
    "process": "the process's memory, all registers",
    "copy": "a copy of the stack, all registers",
    "batch": "a copy of the stack; pc, sp, fp (aarch64: lr, too)",
}


def check_library() -> None:
    """Tables are made by the installed library: exits when the core has changed since it was built."""
    newest = max(path.stat().st_mtime for path in CORE.glob("*/*.[ch]") if path.parent.name != "tests")
    if library_path().stat().st_mtime < newest:
        sys.exit("the core has changed since libunspool.so was built: make setup")


@cache
def state() -> str:
    """What decides every result: the core but for what is only aarch64's, the package's reading of files, the
    oracle."""
    binaries = HERE.parent.parent / "src" / "unspool" / "binaries"
    sources = [
        *(path for path in CORE.glob("src/*.[ch]") if not path.name.startswith("aarch64")),
        *CORE.glob("include/*.h"),
        *binaries.glob("*.py"),
        *HERE.glob("*.[ch]"),
    ]
    digest = sha256()
    for path in sorted(sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def problems(name: str, results: dict[str, Any]) -> list[str]:
    """What makes the run fail."""
    found = []
    if results["exit_code"] != 0 and not results.get("stopped"):
        found.append(f"{name}: ended with {results['exit_code']}, signal {results['killed_by']}")
    for reader in READERS:
        if results[reader]["wrong_complete"]:
            found.append(f"{name}: {results[reader]['wrong_complete']} wrong and complete ({reader})")
        if results[reader]["destination"]:
            number = results[reader]["destination"]
            found.append(f"{name}: {number} complete while registers are replaced ({reader})")
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
        copied, batched = kind.counts["copy"], kind.counts["batch"]
        print(f"    {kind.verdict} ({kind.end}) in {kind.function}: {copied:,}; in a batch {batched:,}")
    print(f"\n{len(kinds)} kinds in all; --top shows more, --json writes all")


def result_file(combination: Combination) -> Path:
    return KEPT / f"{combination.name}.json"


def kept(combination: Combination) -> dict[str, Any] | None:
    """What an earlier run found, if nothing has changed since."""
    file = result_file(combination)
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    return found if found["state"] == state() and found["key"] == combination.key else None


def step(combination: Combination, tracer: Path, cpu: int) -> dict[str, Any]:
    """Step one combination and keep what it showed."""
    with tempfile.TemporaryDirectory() as folder:
        traced = trace(
            tracer,
            combination.command(OUT),
            Tables(Path(folder)),
            Path(folder),
            from_entry=combination.from_entry,
            threads=combination.threads,
            born=combination.born,
            steps=combination.steps,
            cpu=cpu,
        )
        kinds: dict[tuple[str, str, str], Kind] = {}
        collect(kinds, combination.name, traced)
    results = {key: value for key, value in traced.results.items() if key != "kinds"}
    results["stopped"] = combination.steps is not None and results["steps"] >= combination.steps
    found = {"state": state(), "key": combination.key, "results": results}
    found["kinds"] = [kind.as_json() for kind in kinds.values()]
    partial = result_file(combination).with_suffix(".partial")
    partial.write_text(json.dumps(found))
    partial.replace(result_file(combination))
    return found


def run_all(chosen: list[Combination], jobs: int) -> tuple[dict[str, dict[str, Any]], list[Kind]]:
    """Step what is not known yet, so many at a time, printing a line for each reader as it ends."""
    KEPT.mkdir(parents=True, exist_ok=True)
    tracer = build_tracer(OUT)
    processors: SimpleQueue[int] = SimpleQueue()
    for cpu in sorted(os.sched_getaffinity(0))[:jobs]:
        processors.put(cpu)

    def one(combination: Combination) -> dict[str, Any]:
        cpu = processors.get()
        try:
            return kept(combination) or step(combination, tracer, cpu)
        finally:
            processors.put(cpu)

    all_results: dict[str, dict[str, Any]] = {}
    kinds: dict[tuple[str, str, str], Kind] = {}
    print(head())
    with ThreadPoolExecutor(processors.qsize()) as pool:
        for combination, found in zip(chosen, pool.map(one, chosen), strict=True):
            all_results[combination.name] = found["results"]
            for described in found["kinds"]:
                Kind.from_json(described).add_to(kinds)
            for reader in READERS:
                print(line(combination.name, found["results"], reader), flush=True)
    return all_results, by_rank(kinds)


def known(chosen: list[Combination]) -> tuple[dict[str, dict[str, Any]], list[Kind]]:
    """What earlier runs found of these combinations, without stepping any."""
    kinds: dict[tuple[str, str, str], Kind] = {}
    found = {combination.name: kept(combination) for combination in chosen}
    for one in found.values():
        for described in one["kinds"] if one else ():
            Kind.from_json(described).add_to(kinds)
    return {name: one["results"] for name, one in found.items() if one}, by_rank(kinds)


def by_rank(kinds: dict[tuple[str, str, str], Kind]) -> list[Kind]:
    """The worst first."""
    worst = {verdict: rank for rank, verdict in enumerate(VERDICTS)}
    return sorted(kinds.values(), key=lambda kind: (-worst[kind.verdict], -kind.count))


def write_json(path: Path, all_results: dict[str, dict[str, Any]], kinds: list[Kind]) -> None:
    listed = [kind.as_json() for kind in kinds]
    path.write_text(json.dumps({"combinations": all_results, "kinds": listed}, indent=1))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one build of each small program")
    parser.add_argument("--only", default="", metavar="TEXT", help="combinations whose name holds TEXT")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="so many at a time, a processor each"
    )
    parser.add_argument("--top", type=int, default=30, metavar="N", help="kinds to show (30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--known", action="store_true", help="only what earlier runs have found")
    parser.add_argument("--write-docs", action="store_true", help="write docs/exactness.md")
    return parser.parse_args()


def main() -> int:
    given = options()
    chosen = [c for c in combinations() if given.only in c.name and (c.quick or not given.quick)]
    if not chosen:
        sys.exit("no such combination")
    check_library()
    started = monotonic()
    all_results, kinds = known(chosen) if given.known else run_all(chosen, max(given.jobs, 1))
    everything = total(list(all_results.values()))
    print()
    for reader in READERS:
        print(line(f"all {len(all_results)}", everything, reader))
    print("".join(f"\n{reader}: {what}" for reader, what in READERS.items()))
    show_kinds(kinds, given.top)
    if given.json:
        write_json(given.json, all_results, kinds)
    if given.write_docs:
        write_document(all_results, kinds, len(chosen))
    print(f"\n{everything['steps']:,} steps; {monotonic() - started:.0f} s")
    failures = [text for name, results in all_results.items() for text in problems(name, results)]
    print("\n".join(failures) or "no stack was wrong and called complete")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
