"""Asks other unwinders, and unspool, at a sample of steps, and holds what they say against the true stacks.

    python -m tests.oracle.peers OUT.json [--points N] [--write-docs]

A program is stepped to each point anew and left there, stopped, its true stack kept; then each tool looks
at the process in turn. Steps where registers are being replaced have no stack yet and are left out. A tool
that can't be had is named with the reason, and the others are compared.
"""

import argparse
import json
import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

from tests.oracle.combinations import Combination, combinations
from tests.oracle.document import commit, put_peers
from tests.oracle.peers.framehop import Unavailable, build_framehop
from tests.oracle.tracing import HERE, Tables, build_tracer, trace
from unspool.capture.live_process import LiveProcess

OUT = HERE.parent.parent / "out" / "oracle"
PEERS = Path(__file__).parent
MOST_STEPS = 60_000  # a point costs as many steps as lie before it
LIBRARIES = {"libunwind": ["-lunwind-ptrace", "-lunwind-x86_64", "-lunwind"], "libdwfl": ["-ldw", "-lelf"]}
PROGRAMS = [
    "calls-O3",
    "coroutines-O2-fp",
    "exceptions-O2",
    "jumps-O0-omit",
    "mathematics-O2",
    "print-O2-cet",
    "print-clang-O3-lld",
    "signals-O2",
    "sort-O0-omit",
    "stack_shapes-O2-static",
    "strings-O2",
    "trampoline-O2",
]

Said = tuple[list[int], bool]  # the frames, and whether the stack is said to be complete


def build(name: str) -> Path:
    program = OUT / f"{name}_frames"
    source = PEERS / f"{name}_frames.c"
    subprocess.run(["gcc", "-O2", str(source), "-o", str(program), *LIBRARIES[name]], check=True)
    return program


def parse(text: str) -> Said:
    lines = [line.split() for line in text.splitlines()]
    frames = [int(words[1], 16) for words in lines if words[:1] == ["frame"]]
    return frames, ["end", "complete"] in lines


def asking(*command: str) -> Callable[[int], Said]:
    def ask(pid: int) -> Said:
        given = [word.replace("PID", str(pid)) for word in command]
        return parse(subprocess.run(given, capture_output=True, text=True, timeout=120).stdout)

    return ask


def ask_unspool(pid: int) -> Said:
    with closing(LiveProcess(pid)) as process:
        stack = process.stacks([pid])[0][1]
    assert stack is not None
    return [frame.address for frame in stack], stack.complete


def verdict(said: Said, truth: list[int]) -> str:
    frames, complete = said
    if frames == truth:
        return "exact" if complete else "right_not_complete"
    right_so_far = frames == truth[: len(frames)]
    if complete:
        return "cut_and_complete" if right_so_far else "wrong_and_complete"
    return "cut" if right_so_far else "wrong"


def others() -> tuple[dict[str, Callable[[int], Said]], dict[str, str]]:
    """The tools beside unspool, and why the others are missing."""
    gdb = ["gdb", "-nx", "-batch", "-p", "PID", "-x", str(PEERS / "gdb_stack.py")]
    tools = {
        "gdb": asking(*gdb),
        "libunwind": asking(str(build("libunwind")), "PID"),
        "libdwfl": asking(str(build("libdwfl")), "PID"),
    }
    absent = {}
    try:
        tools["framehop"] = asking(str(build_framehop(OUT)), "PID")
    except Unavailable as error:
        absent["framehop"] = str(error)
        print(f"framehop is not compared: {error}")
    return tools, absent


def points(combination: Combination, count: int, tracer: Path, folder: Path) -> list[int]:
    """Steps of a program, at random but always the same."""
    command = combination.command(OUT)
    ended = trace(
        tracer, command, Tables(folder), folder, from_entry=combination.from_entry, steps=MOST_STEPS
    )
    steps = min(ended.results["steps"], MOST_STEPS)
    return sorted(Random(combination.name).sample(range(1, steps - 1), count))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.peers", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--points", type=int, default=12, help="steps of each program (12)")
    parser.add_argument("--write-docs", action="store_true", help="write this part of docs/exactness.md")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    tracer = build_tracer(OUT)
    beside, absent = others()
    tools = {"unspool": ask_unspool} | beside
    found: dict[str, dict[str, Counter[str]]] = {}
    whole = {"core": commit(), "absent": absent, "programs": found}
    chosen = {combination.name: combination for combination in combinations()}
    for name in PROGRAMS:
        combination = chosen[name]
        found[name] = {tool: Counter() for tool in tools}
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            for step in points(combination, given.points, tracer, folder):
                left = trace(
                    tracer,
                    combination.command(OUT),
                    Tables(folder),
                    folder,
                    from_entry=combination.from_entry,
                    leave=step,
                ).results["left"]
                try:
                    if left["pid"] and 0 not in left["truth"]:
                        for tool, ask in tools.items():
                            found[name][tool][verdict(ask(left["pid"]), left["truth"])] += 1
                finally:
                    if left["pid"]:
                        os.kill(left["pid"], signal.SIGKILL)
        print(name, {tool: dict(counts) for tool, counts in found[name].items()}, flush=True)
        given.out.write_text(json.dumps(whole, indent=1))
    if given.write_docs:
        put_peers(given.out)


if __name__ == "__main__":
    main()
