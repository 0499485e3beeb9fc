"""The proof of `unspool stack`: `make stack-proof`, or `python -m tests.proof.stack_proof [NAME...]`.

Each of stack_targets.py's programs is stopped (SIGSTOP) a few times in the middle of its work; unspool and
gdb print the stacks of all its threads in that same state. At least 99 % of all lines, inlined functions
too, must be equal; every difference is printed, with who is right. A program that is not installed is named
and fails.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.proof.stack_comparison import Comparison, Difference, compare_thread
from tests.proof.stack_targets import Target, all_targets
from unspool.capture.live_process import LiveProcess
from unspool.capture.memory_map import MemoryMap
from unspool.capture.task_status import TaskStatus
from unspool.cli.stack_frames import ThreadLines, symbolize_threads
from unspool.symbols import PerfMap, Symbolizer

ROUNDS = 4
PAUSE = 0.35  # seconds between them
NEEDED = 0.99
GDB = ("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off")
SCRIPT = Path(__file__).with_name("gdb_stacks.py")


def compare_target(target: Target, folder: Path, rounds: int = ROUNDS) -> Comparison:
    """Raises AssertionError where the program does not start or does not hold still."""
    result = Comparison()
    symbolizer = Symbolizer()
    with target.start(folder) as pids:
        for _ in range(rounds):
            for pid in pids:
                result.add(compare_process(pid, symbolizer))
            time.sleep(PAUSE)
    return result


def compare_process(pid: int, symbolizer: Symbolizer) -> Comparison:
    """All threads of a process, which is stopped meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        _wait_until_stopped(pid)
        theirs = gdb_threads(pid)
        os.kill(pid, signal.SIGSTOP)  # gdb has let it go
        _wait_until_stopped(pid)
        process = LiveProcess(pid)
        ours = our_threads(process, symbolizer)
    finally:
        os.kill(pid, signal.SIGCONT)
    tids = {thread.thread.tid for thread in ours}
    assert tids == set(theirs), f"other threads: {sorted(tids ^ set(theirs))}"
    result = Comparison()
    for thread in ours:
        gdb = theirs[thread.thread.tid]
        moved = thread.lines and thread.lines[0].frame.address != gdb["frames"][0]["pc"]
        assert not moved, f"thread {thread.thread.tid} has moved between the two"
        result.add(compare_thread(thread, gdb, partial(_is_code, process.memory_map)))
    return result


def our_threads(process: LiveProcess, symbolizer: Symbolizer) -> list[ThreadLines]:
    return symbolize_threads(process.stacks(), symbolizer, PerfMap.of_process(process.pid), None)


def gdb_threads(pid: int) -> dict[int, dict[str, Any]]:
    command = [*GDB, "-p", str(pid), "-x", str(SCRIPT)]
    output = subprocess.run(
        command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL
    )
    lines = [line for line in output.stdout.splitlines() if line.startswith("thread {")]
    threads = [json.loads(line.removeprefix("thread ")) for line in lines]
    assert threads, f"gdb prints no thread of process {pid}: {output.stderr}"
    return {thread["tid"]: thread for thread in threads}


def _is_code(memory_map: MemoryMap, address: int) -> bool:
    entry = memory_map.find(address)
    return entry is not None and entry.executable


def _wait_until_stopped(pid: int) -> None:
    states: list[str] = []
    for _ in range(500):
        states = [TaskStatus.of(pid, int(task.name)).state for task in Path(f"/proc/{pid}/task").iterdir()]
        if all(state in "TZ" for state in states):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} does not stop: {states}")


def summary(name: str, result: Comparison) -> str:
    return (
        f"{name}: {result.equal:,} of {result.lines:,} lines equal ({result.share:.2%}) in {result.threads} "
        f"stacks, {result.aliases} by another name of the same bytes; {result.lost:,} lines where gdb has "
        f"lost its way; {result.tail_calls} tail calls that gdb infers"
    )


def differences(result: Comparison) -> Iterator[str]:
    """Those that are alike once."""
    groups: dict[tuple[str, ...], list[Difference]] = {}
    for difference in result.differences:
        if difference.kind == "stack":
            key = ("stack", difference.where.split(", ")[-1], difference.verdict)
        else:
            key = (difference.kind, difference.where, difference.ours, difference.gdb)
        groups.setdefault(key, []).append(difference)
    for alike in groups.values():
        first = alike[0]
        times = f"{len(alike)} times, " if len(alike) > 1 else ""
        yield f"  {first.kind}: {times}{sum(each.lines for each in alike)} lines, {first.where}"
        yield f"    ours   {first.ours}"
        yield f"    gdb    {first.gdb}"
        yield f"    right  {first.verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="targets whose name begins so (default: all)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    total, missing, verdicts = Comparison(), [], Counter[str]()
    for target in all_targets():
        if arguments.names and not any(target.name.startswith(name) for name in arguments.names):
            continue
        if target.missing:
            needs = ", ".join(target.missing)
            missing.append(f"{target.name}: {needs} missing: apt-get install {target.package}")
            continue
        with tempfile.TemporaryDirectory(prefix="unspool-proof-", ignore_cleanup_errors=True) as folder:
            result = compare_target(target, Path(folder), arguments.rounds)
        print(summary(target.name, result), *differences(result), sep="\n", flush=True)
        total.add(result)
        for difference in result.differences:
            verdicts[difference.verdict.split(":")[0]] += difference.lines
    print(summary("all", total))
    print("who is right, by lines: " + ", ".join(f"{who} {lines}" for who, lines in verdicts.most_common()))
    print(*missing, sep="\n", file=sys.stderr)
    return 0 if total.share >= NEEDED and not missing else 1


if __name__ == "__main__":
    sys.exit(main())
