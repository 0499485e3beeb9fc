"""What the fuzzers of readers in Python share: damaged inputs one after another, each within limits of time
and memory. A failing input is kept in out/fuzz/NAME-FAILURE.bin, and its steps are told."""

from __future__ import annotations

import random
import resource
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

Step = tuple[int, int, int]  # kind of damage, place, value; any integers

TIME_LIMIT = 5  # seconds of CPU time for one input; a hundredth is usual
MEMORY_LIMIT = 256 << 20  # bytes above what the process had at the start; inputs have a few KB


def random_steps(generator: random.Random) -> list[Step]:
    return [
        (generator.randrange(64), generator.randrange(1 << 16), generator.randrange(1 << 20))
        for _ in range(generator.choice((1, 1, 2, 3, 5, 8)))
    ]


def timed_out(*_: object) -> None:
    """A signal handler."""
    raise TimeoutError(f"one input took more than {TIME_LIMIT} s of CPU time")


def fuzz(
    name: str,
    seeds: Sequence[bytes],
    mutated: Callable[[bytes, Sequence[Step]], bytes],
    exercise: Callable[[bytes], int],
    seconds: float,
    seed: int,
) -> int | None:
    """How much all inputs yielded, or None: one of them failed."""
    signal.signal(signal.SIGPROF, timed_out)
    generator = random.Random(seed)
    began, inputs, yielded = time.monotonic(), 0, 0
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while time.monotonic() - began < seconds:
        steps = random_steps(generator)
        data = mutated(generator.choice(seeds), steps)
        signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT)
        try:
            yielded += exercise(data)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) << 10
            if grown > MEMORY_LIMIT:
                raise MemoryError(f"{grown >> 20} MiB for {len(data)} bytes of input")
        except BaseException:  # also what is no Exception: whatever it is, it is a finding
            signal.setitimer(signal.ITIMER_PROF, 0)
            failed = Path("out/fuzz") / f"{name}-{zlib.crc32(data):08x}.bin"
            failed.parent.mkdir(parents=True, exist_ok=True)
            failed.write_bytes(data)
            traceback.print_exc()
            print(f"failed: {failed}, seed {seed}, input {inputs}, steps {steps}", file=sys.stderr)
            return None
        inputs += 1
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(f"{name}: {inputs} damaged inputs in {seconds:.0f} s, {yielded} answers, seed {seed}")
    return yielded
