"""Runs walkers that stand ready with all samples loaded: pinned to one CPU, one pass of one walker at a time.

A repetition is a cold pass, which knows nothing of earlier ones, and four more.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.walk.samples import Workload
from tests.oracle.peers.framehop import Unavailable, build_framehop
from unspool.core import library_path

WALKERS = Path(__file__).parent / "walkers"
OPTIONS = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", f"-I{WALKERS}")
REPETITIONS, BEGINNINGS, PASSES = 25, 5, 5
CPU = max(os.sched_getaffinity(0))
KERNEL_FRAME = re.compile(r"\s+ffff[0-9a-f]{12}\s*$")


class Pipe:
    """A program that answers each line with a line of numbers."""

    def __init__(self, *command: str | Path) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=pin
        )

    def ask(self, line: str) -> list[int]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return [int(word) for word in self._process.stdout.readline().split()]

    def close(self) -> None:
        self._process.communicate()


def pin() -> None:
    os.sched_setaffinity(0, {CPU})


@dataclass
class Result:
    """Nanoseconds, one number a repetition. cold: the first pass; mean: of all passes; build: of tables."""

    cold: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    build: list[float] = field(default_factory=list)
    frames: int = 0
    complete: int = 0
    kilobytes: int = 0

    @property
    def built(self) -> list[float]:
        """The first pass, and what was made before it."""
        return [cold + build for cold, build in zip(self.cold, self.build, strict=False)]

    def a_frame(self, times: Sequence[float]) -> tuple[float, float]:
        """The least and the median, nanoseconds a frame."""
        return min(times) / self.frames, median(times) / self.frames


def compile_walker(out: Path, name: str, *arguments: str | Path, kind: str = "") -> Path:
    """A program of walkers/, from its own file and others; kind: one of several from the same."""
    program = out / (name + kind)
    subprocess.run(["gcc", *OPTIONS, "-o", program, WALKERS / f"{name}.c", *arguments], check=True)
    return program


def unspool_library() -> list[str | Path]:
    """The arguments of gcc."""
    library = library_path().resolve()
    return ["-Icore/include", library, f"-Wl,-rpath,{library.parent}"]


def build_walkers(out: Path) -> tuple[dict[str, Path], list[str]]:
    """Programs by the walker's name, and what can't be had, with the reason."""
    samples = WALKERS / "samples.c"
    ours = [samples, *unspool_library()]
    programs = {
        "unspool": compile_walker(out, "walk_unspool", *ours),
        "unspool, whole tables": compile_walker(out, "walk_unspool", "-DWHOLE_TABLES", *ours, kind="_whole"),
    }
    missing = []
    try:
        crate = Path(__file__).parent / "framehop"
        programs["framehop"] = build_framehop(Path("out/oracle").resolve(), crate)
    except Unavailable as reason:
        missing.append(f"framehop: {reason}")
    peers = (
        ("libunwind, remote, cached", "walk_libunwind", "-lunwind-x86_64"),
        ("libdwfl", "walk_libdwfl", "-ldw"),
    )
    for name, source, library in peers:
        try:
            programs[name] = compile_walker(out, source, samples, library)
        except subprocess.CalledProcessError:
            missing.append(f"{name}: it can't be built")
    return programs, missing


def replay(programs: dict[str, Path], workload: Workload) -> dict[str, Result]:
    """All walkers in turn, repetition by repetition; begun anew at times, since where memory happens to lie
    makes up to a quarter of a walker's time."""
    results = {name: Result() for name in programs}
    for _ in range(BEGINNINGS):
        pipes = {name: Pipe(program, workload.samples) for name, program in programs.items()}
        for _ in range(REPETITIONS // BEGINNINGS):
            for name, pipe in pipes.items():
                repeat(pipe, results[name])
        for pipe in pipes.values():
            pipe.close()
    return results


def repeat(pipe: Pipe, result: Result) -> None:
    """One repetition: a cold pass and others."""
    times = []
    for number in range(PASSES):
        spent, frames, complete, built, kilobytes = pipe.ask("warm" if number else "cold")
        times.append(spent)
        if not number:
            result.build.append(built)
    result.cold.append(times[0])
    result.warm.append(times[-1])
    result.mean.append(sum(times) / PASSES)
    result.frames, result.complete, result.kilobytes = frames, complete, kilobytes


# ---------------------------------------------------------------- perf script


def perf_script(workload: Workload, fields: str) -> tuple[float, str]:
    command = ["perf", "script", "--no-inline", "-i", str(workload.perf_data), "-F", fields]
    start = time.perf_counter_ns()
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=pin)
    return time.perf_counter_ns() - start, ended.stdout


def replay_perf(workload: Workload) -> Result:
    """What perf script takes more when it prints call chains than it takes at least without; every run is
    cold."""
    result = Result()
    without = [perf_script(workload, "comm,tid,time")[0] for _ in range(REPETITIONS)]
    for _ in range(REPETITIONS):
        spent, text = perf_script(workload, "comm,tid,time,ip")
        result.cold.append(spent - min(without))
    lines = text.splitlines()
    result.frames = sum(line.startswith((" ", "\t")) and not KERNEL_FRAME.match(line) for line in lines)
    return result
