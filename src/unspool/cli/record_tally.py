"""Counts what a recording holds while it goes by, for the lines that `unspool record` ends with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from unspool.capture.samples import (
    Happening,
    Lost,
    Problem,
    ProcessStarted,
    SampleBatch,
    ThreadEnded,
    ThreadTime,
)


@dataclass
class Tally:
    """Times in nanoseconds. cpu_time: the kernel's figure, of all threads; weight: of all samples. complete,
    guessed, cut: [samples, their weight]. processes, threads: as the recording counts them."""

    samples: int = 0
    complete: list[int] = field(default_factory=lambda: [0, 0])
    guessed: list[int] = field(default_factory=lambda: [0, 0])
    cut: list[int] = field(default_factory=lambda: [0, 0])
    weight: int = 0
    processes: int = 0
    threads: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    _of_thread: dict[tuple[int, int], int] = field(default_factory=dict)
    _of_ended: int = 0

    def add(self, happening: Happening) -> None:
        match happening:
            case SampleBatch():
                self.samples += len(happening)
                for verdict in ("complete", "guessed", "cut"):
                    chosen, sums = getattr(happening, verdict), getattr(self, verdict)
                    sums[0] += int(chosen.sum())
                    sums[1] += int(happening.weights[chosen].sum())
                self.weight += int(happening.weights.sum())
            case ProcessStarted():
                for key in [key for key in self._of_thread if key[0] == happening.pid]:
                    self._of_ended += self._of_thread.pop(key)
            case ThreadTime():
                self._of_thread[happening.pid, happening.tid] = happening.user + happening.system
            case ThreadEnded():
                self._of_ended += self._of_thread.pop((happening.pid, happening.tid), 0)
            case Lost():
                self.lost[happening.reason] += happening.count
            case Problem() if not happening.is_note:
                self.problems.append(happening.text)

    @property
    def cpu_time(self) -> int:
        return self._of_ended + sum(self._of_thread.values())

    def lines(self, rate: int, seconds: float) -> Iterator[str]:
        """What was recorded, without where. seconds: how long it took."""
        processes = f"{self.processes} process{'es' if self.processes != 1 else ''}"
        threads = f"{self.threads} thread{'s' if self.threads != 1 else ''}"
        what = f"{self.samples:,} sample{'s' if self.samples != 1 else ''} at {rate} Hz"
        yield f"{what} of {duration(self.cpu_time)} CPU time, {processes}, {threads}, {seconds:.1f} s"
        if self.samples:
            counts = (("complete", self.complete), ("guessed", self.guessed), ("cut", self.cut))
            parts = [f"{share(weight, self.weight)} {word} ({count:,})" for word, (count, weight) in counts]
            not_sampled = max(0, self.cpu_time - self.weight)
            rest = f"not sampled: {share(not_sampled, self.cpu_time)} of CPU time"
            yield f"stacks, by time: {', '.join(parts)}; {rest}"
        for reason, count in self.lost.most_common():
            yield f"lost: {count:,} sample{'s' if count != 1 else ''}: {reason}"


def share(part: int, whole: int) -> str:
    """In per cent; 100 % and 0 % only where it is exactly that."""
    if whole <= 0 or part in (0, whole):
        return "100 %" if whole > 0 and part == whole else "0 %"
    value = 100 * part / whole
    return "> 99.9 %" if value > 99.95 else "< 0.1 %" if value < 0.05 else f"{value:.1f} %"


def duration(nanoseconds: int) -> str:
    """For people."""
    return f"{nanoseconds / 1e6:.1f} ms" if nanoseconds < 1e9 else f"{nanoseconds / 1e9:.2f} s"
