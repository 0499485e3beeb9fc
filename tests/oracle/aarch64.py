"""The aarch64 half of the oracle: the same programs, cross-compiled, in an emulated processor (emulator/).
Reports and exits as tests.oracle does, and writes the same JSON, with the architecture in each combination.

    python -m tests.oracle.aarch64 [--quick] [--only TEXT] [--top N] [--json FILE] [--write-docs]

Needs the cross compilers. Programs with musl are built where zig can be had (the package ziglang).
"""

import argparse
import importlib.util
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from time import monotonic
from typing import Any

from tests.oracle.__main__ import READERS, head, line, problems, show_kinds, total, write_json
from tests.oracle.document_aarch64 import write_aarch64
from tests.oracle.emulating import SIGNAL_MEAN, Images, build_emulator, emulate
from tests.oracle.kinds import VERDICTS, Kind, collect

OUT = Path(__file__).parent.parent.parent / "out" / "oracle-aarch64"
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.c*"))
PAC = "-mbranch-protection=standard"
LLD = "-fuse-ld=lld-19"
LTO = "-flto"

# The first word of a build names its compiler.
BUILDS: dict[str, list[str]] = {
    "gcc-O0": ["-O0", "-static"],
    "gcc-O2": ["-O2", "-static"],
    "gcc-O3-pac": ["-O3", "-static", PAC],
    "gcc-Os-omit": ["-Os", "-static", "-fomit-frame-pointer"],
    "gcc-O2-lto": ["-O2", "-static", LTO],
    "gcc-O2-pie-pac": ["-O2", "-static-pie", "-fPIE", PAC],
    "gcc-O2-dynamic": ["-O2"],
    "gcc-O1-dynamic-pac": ["-O1", PAC],
    "clang-O0": ["-O0", "-static"],
    "clang-O2": ["-O2", "-static", LLD],
    "clang-O2-omit-pac": ["-O2", "-static", "-fomit-frame-pointer", PAC],
    "clang-O3-lto": ["-O3", "-static", LTO, LLD],
    "clang-Oz-pie-pac": ["-Oz", "-static-pie", "-fPIE", PAC, LLD],
    "clang-O2-dynamic-lld": ["-O2", LLD],
    "musl-O0-pac": ["-O0", PAC],
    "musl-O2": ["-O2"],
    "musl-Os-omit": ["-Os", "-fomit-frame-pointer", "-g1"],  # else zig strips it
}
QUICK = {  # what CI runs
    "calls": "clang-O2-dynamic-lld",
    "coroutines": "gcc-O3-pac",
    "jumps": "clang-O2-omit-pac",
    "lifetime": "gcc-O2-dynamic",
    "print": "gcc-Os-omit",
    "signals": "gcc-O2-pie-pac",
    "sort": "clang-O0",
    "stack_shapes": "gcc-O2-lto",
    "strings": "gcc-O1-dynamic-pac",
    "trampoline": "gcc-O2",
}
# What musl does not have: swapcontext, on_exit, mallinfo, rawmemchr; nested functions. Its sigsetjmp
# keeps the return address in its buffer for a while, where the truth can't follow (signals).
MUSL_LACKS = {"coroutines", "lifetime", "memory", "strings", "trampoline", "signals"}
NOT_STATIC = {"lifetime"}  # it opens a library at run time
GCC_ONLY = {"trampoline"}  # nested functions

COMPILERS = {
    ("gcc", ".c"): ["aarch64-linux-gnu-gcc", "-std=gnu17"],
    ("gcc", ".cpp"): ["aarch64-linux-gnu-g++", "-std=c++17"],
    ("clang", ".c"): ["clang-19", "--target=aarch64-linux-gnu", "-std=gnu17"],
    ("clang", ".cpp"): ["clang++-19", "--target=aarch64-linux-gnu", "-std=c++17"],
    ("musl", ".c"): [sys.executable, "-m", "ziglang", "cc", "--target=aarch64-linux-musl", "-std=gnu17"],
    ("musl", ".cpp"): [sys.executable, "-m", "ziglang", "c++", "--target=aarch64-linux-musl", "-std=c++17"],
}


@dataclass(frozen=True)
class Combination:
    """One program in one build."""

    source: Path
    build: str

    @property
    def name(self) -> str:
        return f"{self.source.stem}-aarch64-{self.build}"

    @property
    def quick(self) -> bool:
        return self.build == QUICK.get(self.source.stem)

    @property
    def sign(self) -> bool:
        """The processor has keys, and the program signs its return addresses."""
        return PAC in BUILDS[self.build]

    @property
    def exists(self) -> bool:
        """The program can be built so."""
        name, compiler = self.source.stem, self.build.split("-")[0]
        if compiler == "musl":
            return name not in MUSL_LACKS and importlib.util.find_spec("ziglang") is not None
        static = any(flag.startswith("-static") for flag in BUILDS[self.build])
        return not (name in GCC_ONLY and compiler != "gcc") and not (name in NOT_STATIC and static)

    def compile(self, folder: Path) -> Path:
        """The program, built in folder unless a newer one is there. Raises CalledProcessError."""
        program = folder / self.name
        if program.exists() and program.stat().st_mtime > self.source.stat().st_mtime:
            return program
        compiler = COMPILERS[self.build.split("-")[0], self.source.suffix]
        command = [*compiler, "-g0", "-w", *BUILDS[self.build], str(self.source), "-o", str(program), "-lm"]
        run(command, check=True)
        return program


def combinations() -> list[Combination]:
    """All that can be built here."""
    return [c for source in PROGRAMS for build in BUILDS if (c := Combination(source, build)).exists]


def doubts(name: str, results: dict[str, Any], sign: bool) -> list[str]:
    """What makes the run fail."""
    found = problems(name, results)
    if sign and not results["signed_addresses"]:
        found.append(f"{name}: no return address was signed")
    return found


def run_all(chosen: list[Combination]) -> tuple[dict[str, dict[str, Any]], list[Kind], list[str]]:
    """Run them one after the other, printing a line for each reader as it ends."""
    OUT.mkdir(parents=True, exist_ok=True)
    emulator = build_emulator(OUT)
    all_results: dict[str, dict[str, Any]] = {}
    kinds: dict[tuple[str, str, str], Kind] = {}
    failures: list[str] = []
    print(head())
    with tempfile.TemporaryDirectory() as folder:
        images = Images(Path(folder))
        for combination in chosen:
            program = combination.compile(OUT)
            traced = emulate(emulator, [str(program)], images, Path(folder), sign=combination.sign)
            collect(kinds, combination.name, traced)
            results = all_results[combination.name] = traced.results
            failures += doubts(combination.name, results, combination.sign)
            for reader in READERS:
                print(line(combination.name, results, reader), flush=True)
    worst = {verdict: rank for rank, verdict in enumerate(VERDICTS)}
    return all_results, sorted(kinds.values(), key=lambda kind: (-worst[kind.verdict], -kind.count)), failures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.aarch64", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="what CI runs")
    parser.add_argument("--only", default="", metavar="TEXT", help="combinations whose name holds TEXT")
    parser.add_argument("--top", type=int, default=30, metavar="N", help="kinds to show (30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--write-docs", action="store_true", help="write its part of docs/exactness.md")
    options = parser.parse_args()
    chosen = [c for c in combinations() if options.only in c.name and (c.quick or not options.quick)]
    if not chosen:
        parser.error("no such combination")
    started = monotonic()
    all_results, kinds, failures = run_all(chosen)
    everything = total(list(all_results.values()))
    print()
    for reader in READERS:
        print(line(f"all {len(chosen)}", everything, reader))
    print("".join(f"\n{reader}: {what}" for reader, what in READERS.items()))
    show_kinds(kinds, options.top)
    if options.json:
        write_json(options.json, all_results, kinds)
    if options.write_docs:
        write_aarch64(all_results, kinds, SIGNAL_MEAN)
    seconds = monotonic() - started
    rate = everything["steps"] / seconds
    print(f"\n{everything['steps']:,} steps in {seconds:.0f} s, {rate:,.0f} a second")
    print("\n".join(failures) or "no stack was wrong and called complete")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
