"""Measures recordings: writing samples, their size, the writer's memory, opening and reporting them.

    python bench/recording.py [--samples 1000000] [--distinct 100000] [--depth 30] [--batch 2000]

Synthetic: `distinct` stacks that share callers as those of a real program do (every stack is another one's
with other innermost frames), 5,000 functions in ten libraries, 20 threads; samples choose among the stacks at
random, few stacks often and most of them rarely. Names are made up, so that no symbolizer is measured.
Each step runs in a process of its own; times are elapsed, peak_mb is the peak of the process, writer_mb what
writing added to the samples themselves.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.recordings import NO_BINARY, SyntheticNames
from unspool.capture.samples import (
    CodeEntry,
    CodeFile,
    CodeMap,
    Event,
    ProcessStarted,
    SampleBatch,
    ThreadTime,
)
from unspool.profile import Profile, RecordingWriter
from unspool.unwind import How

LIBRARIES, FUNCTIONS, THREADS, CALLS_A_FUNCTION = 10, 5000, 20, 4
FILES = [CodeFile(f"/synthetic/lib{i}.so", f"{i:040x}", "x86_64") for i in range(LIBRARIES)]
CODE_MAP = CodeMap(
    [
        CodeEntry(0x10_0000 * (i + 1), 0x10_0000 * (i + 2), 0x10_0000 * (i + 1), file)
        for i, file in enumerate(FILES)
    ],
    "x86_64",
)


def stacks(distinct: int, depth: int) -> np.ndarray:
    """uint64[distinct, depth]: addresses, innermost first."""
    rng = np.random.default_rng(1)
    function = rng.integers(0, FUNCTIONS, (distinct, depth))
    call = rng.integers(1, CALLS_A_FUNCTION + 1, (distinct, depth))
    per_library = FUNCTIONS // LIBRARIES
    addresses = 0x10_0000 * (function // per_library + 1) + function % per_library * 0x100 + call * 8
    for i in range(1, distinct):  # shares its outer frames with an earlier one
        own = int(rng.integers(1, depth))
        addresses[i, own:] = addresses[int(rng.integers(0, i)), own:]
    return addresses.astype(np.uint64)


def write(path: str, samples: int, distinct: int, depth: int, batch: int) -> dict[str, float]:
    all_stacks = stacks(distinct, depth)
    rng = np.random.default_rng(2)
    how = np.full((batch, depth), How.CFI, np.uint8)
    how[:, 0] = How.INTERRUPTED
    writer = RecordingWriter.create(
        path, {"command": "synthetic"}, [Event("cpu", "nanoseconds")], is_live=False
    )
    before_writing = reset_peak()
    started = time.monotonic()
    making = 0.0
    writer.add(ProcessStarted(1, None, "synthetic", 0))
    for first in range(0, samples, batch):
        before = time.monotonic()
        n = min(batch, samples - first)
        chosen = (distinct * rng.random(n) ** 3).astype(np.int64)
        made = SampleBatch(
            1,
            0,
            (np.arange(first, first + n) * 5_000_000 // THREADS).astype(np.uint64),
            np.arange(first, first + n) % THREADS + 1,
            np.full(n, 5_025_125, np.uint64),
            np.zeros(n, np.uint8),
            np.zeros(n, np.uint8),
            np.arange(n + 1, dtype=np.uint64) * np.uint64(depth),
            all_stacks[chosen].reshape(-1),
            how[:n].reshape(-1),
            CODE_MAP,
        )
        making += time.monotonic() - before
        writer.add(made)
    for tid in range(1, THREADS + 1):
        writer.add(ThreadTime(1, tid, samples // THREADS * 5_025_125, 0))
    seconds = time.monotonic() - started - making
    before = time.monotonic()
    names = SyntheticNames([f"function_{i}" for i in range(0x1000)])
    writer.finish(names, dict.fromkeys(FILES, NO_BINARY))
    return {
        "samples_a_second": samples / seconds,
        "finish_seconds": time.monotonic() - before,
        "writer_mb": peak_mb() - before_writing,
    }


def reset_peak() -> float:
    """Begins to measure the peak of memory anew; returns what it is now, MB (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def peak_mb() -> float:
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(line.split()[1]) * 1024 / 1e6


def read(path: str) -> dict[str, float]:
    before = time.monotonic()
    profile = Profile.open(path)
    opened = time.monotonic()
    profile.total_weights()
    return {"open_seconds": opened - before, "totals_seconds": time.monotonic() - opened}


def report(path: str) -> dict[str, float]:
    before = time.monotonic()
    subprocess.run([sys.executable, "-m", "unspool", "report", path], check=True, stdout=subprocess.DEVNULL)
    return {"report_seconds": time.monotonic() - before}


def step(name: str, *arguments: object) -> dict[str, float]:
    """Runs one step in a process of its own."""
    command = [sys.executable, __file__, "--step", name, *map(str, arguments)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def main() -> None:
    if sys.argv[1:2] == ["--step"]:
        name, path, *numbers = sys.argv[2:]
        result = {"write": write, "read": read, "report": report}[name](path, *map(int, numbers))  # type: ignore[operator]
        used = resource.getrusage(resource.RUSAGE_CHILDREN if name == "report" else resource.RUSAGE_SELF)
        result |= {"cpu_seconds": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1000}
        print(json.dumps(result))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, default in (("samples", 1_000_000), ("distinct", 100_000), ("depth", 30), ("batch", 2000)):
        parser.add_argument(f"--{option}", type=int, default=default)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/bench.unspool"
        steps = {"write": step("write", path, chosen.samples, chosen.distinct, chosen.depth, chosen.batch)}
        print(f"size: {Path(path).stat().st_size / 1e6:.1f} MB")
        steps |= {name: step(name, path) for name in ("read", "report")}
        for name, figures in steps.items():
            print(name + ": " + ", ".join(f"{key} {value:,.2f}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
