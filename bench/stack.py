"""`unspool stack` beside gdb, eu-stack and pystack, on one process with 200 threads: `make bench-stack`.

Method. Each tool prints every thread's stack of the same running process (bench/threads.py, by the
system's python3 with its debug symbols), with inlined calls and lines. Total: wall time of the whole
command, the median of some runs; for unspool also the first run with an empty cache. Stop: how long one
thread stands still in one run. unspool says it of every thread (from when the thread was last seen to run
until it is let go); for the others the states of some threads are read about 3,000 times a second. A tool
that is not installed is left out. What it prints are figures of this run, on this machine, beside whatever
else runs there: `chrt -f 10 python bench/stack.py` keeps other work out of them.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PYTHON = "/usr/bin/python3"
RUNS = 5
WATCHED = 4  # threads whose states are read
TOOLS = {
    "gdb": [
        "gdb",
        "-nx",
        "-batch",
        "-iex",
        "set debuginfod enabled off",
        "-p",
        "PID",
        "-ex",
        "thread apply all bt",
    ],
    "eu-stack": ["eu-stack", "-i", "-s", "-n", "0", "-p", "PID"],
    "pystack": ["pystack", "remote", "--native-all", "PID"],
}


@dataclass
class Row:
    name: str
    first: float | None
    total: float
    median_stop: float
    longest_stop: float

    def __str__(self) -> str:
        first = f"{self.first:9.2f}" if self.first is not None else "        -"
        stops = f"{self.median_stop * 1000:11.2f} {self.longest_stop * 1000:11.2f}"
        return f"{self.name:10} {first} {self.total:9.2f} {stops}"


@contextmanager
def running() -> Iterator[int]:
    workload = str(Path(__file__).with_name("threads.py"))
    process = subprocess.Popen([PYTHON, workload], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def measure_unspool(pid: int) -> Row:
    command = [sys.executable, "-m", "unspool", "stack", "--json", str(pid)]
    totals, stops = [], []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(1 + RUNS):
            start = time.perf_counter()
            output = subprocess.run(
                command, env=os.environ | {"XDG_CACHE_HOME": cache}, check=True, capture_output=True
            ).stdout
            totals.append(time.perf_counter() - start)
            stops += [thread["stopped_seconds"] for thread in json.loads(output)["threads"]]
    return Row("unspool", totals[0], median(totals[1:]), median(stops), max(stops))


def measure_other(name: str, pid: int) -> Row:
    command = [word.replace("PID", str(pid)) for word in TOOLS[name]]
    tids = sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    watched = tids[:: max(len(tids) // WATCHED, 1)][:WATCHED]
    totals, stops = [], []
    for _ in range(RUNS):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stops += watch(process, pid, watched)
        totals.append(time.perf_counter() - start)
        assert process.returncode == 0, f"{name} failed"
    return Row(name, None, median(totals), median(stops), max(stops))


def watch(process: subprocess.Popen[bytes], pid: int, tids: list[int]) -> list[float]:
    """Seconds that each thread was stopped or traced while a tool ran."""
    files = [os.open(f"/proc/{pid}/task/{tid}/stat", os.O_RDONLY) for tid in tids]
    stopped = [0.0] * len(tids)
    before = time.perf_counter()
    while process.poll() is None:
        states = [os.pread(file, 64, 0).rpartition(b") ")[2][:1] for file in files]
        now = time.perf_counter()
        for index, state in enumerate(states):
            if state in b"tT":
                stopped[index] += now - before
        before = now
        time.sleep(0.0002)
    for file in files:
        os.close(file)
    return stopped


def main() -> None:
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}")
    with running() as pid:
        print("200 threads    first     later      stop, ms")
        print("               s         s         median     longest")
        print(measure_unspool(pid), flush=True)
        for name, command in TOOLS.items():
            if shutil.which(command[0]):
                print(measure_other(name, pid), flush=True)
            else:
                print(f"{name}: not installed")


if __name__ == "__main__":
    main()
