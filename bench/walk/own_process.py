"""Walks of a program's own stack: called, and from a signal's handler."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import handler
from bench.overhead import build
from bench.walk.replay import REPETITIONS, WALKERS, Pipe, compile_walker, unspool_library

KILOBYTES = (0, 1024, 4096, 32768)
COMMANDS = ("direct", *(f"handler {number}" for number in KILOBYTES))
WALKED = {
    "unspool": ("in_process_unspool", unspool_library()),
    "libunwind, unw_backtrace": ("in_process_libunwind", ["-lunwind"]),
    "libgcc, _Unwind_Backtrace": ("in_process_libgcc", []),
    "frame pointers": ("in_process_frame_pointer", []),
}


@dataclass
class OwnWalk:
    """Nanoseconds of a walk, one number a repetition, by command; and frames."""

    times: dict[str, list[int]] = field(default_factory=lambda: {command: [] for command in COMMANDS})
    frames: dict[str, int] = field(default_factory=dict)


def measure(out: Path) -> dict[str, OwnWalk]:
    common = ("-fno-omit-frame-pointer", "-Ibench/programs", WALKERS / "in_process.c")
    pipes = {
        name: Pipe(compile_walker(out, source, *common, *others)) for name, (source, others) in WALKED.items()
    }
    results = {name: OwnWalk() for name in pipes}
    for _ in range(REPETITIONS):
        for command in COMMANDS:
            for name, pipe in pipes.items():
                nanoseconds, results[name].frames[command] = pipe.ask(command)
                results[name].times[command].append(nanoseconds)
    for pipe in pipes.values():
        pipe.close()
    return results


def lines(results: dict[str, OwnWalk]) -> list[str]:
    return [
        f"| {name} | {walk.frames['direct']} | {min(walk.times['direct']) / walk.frames['direct']:.1f} "
        f"| {walk.frames['handler 0']} | "
        + " | ".join(f"{min(walk.times[c]):,} ({median(walk.times[c]):,.0f})" for c in COMMANDS)
        + " |"
        for name, walk in results.items()
    ]


def sample_lines() -> list[str]:
    """The whole of a sample that the agent takes, by what the program writes for a millisecond before."""
    program = build("handler.c")
    found = []
    for kilobytes in KILOBYTES[1:]:
        empty, samples = handler.measure(program, kilobytes, "random")
        signal, whole = median(empty) / 1000, median(samples) / 1000
        found.append(f"| {kilobytes >> 10} MB | {signal:.2f} | {whole:.2f} | {whole - signal:.2f} |")
    return found
