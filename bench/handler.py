"""What one sample costs the program, at depth 30: `make bench-overhead`.

Method. bench/programs/handler.c, with the agent in it, raises the agent's signal as its timer would, and in
turn with it a signal with an empty handler; the difference of the medians is what the agent takes. Before
each signal the program writes a block of memory of its own: none (everything is in the caches), 4 MB
(nothing is left in L1 and L2), 64 MB (nor in L3). Each sample is checked: 30 frames, complete, none lost.

    python -m bench.handler
"""

from __future__ import annotations

from statistics import median, quantiles

from bench.overhead import build
from tests.agent_session import AgentSession, Watched
from unspool.capture.session_layout import LostReason, SessionFlag, SlotState

SAMPLES = 2000
KILOBYTES = (0, 4096, 65536)
DEPTH = 30
SECONDS = 600


def is_ready(watched: Watched) -> bool:
    """The agent has modules, and a timer for the only thread, whose stack it knows."""
    slot = watched.slots.get(watched.pid)
    return slot is not None and watched.area.slots["state"][slot] == SlotState.TIMER


def measure(program: str, kilobytes: int, *more: str) -> tuple[list[int], list[int]]:
    """Nanoseconds of empty handlers, and of samples. more: further arguments of the program."""
    with AgentSession(rate=1, flags=SessionFlag.TIMES) as session:
        process = session.start(program, str(session.memory.cookie), str(kilobytes), str(SAMPLES), *more)
        assert process.stdout is not None
        session.serve(lambda: bool(session.processes) and is_ready(session.processes[0]))
        output, errors = session.finish(process, SECONDS)
        assert process.returncode == 0, errors
        (watched,) = session.processes
        lost = {reason.name: watched.lost(reason) for reason in LostReason if watched.lost(reason)}
        deep = [sample for sample in watched.samples if len(sample.addresses) == DEPTH and sample.complete]
        assert not lost, lost
        assert len(deep) >= SAMPLES, [len(sample.addresses) for sample in watched.samples[:5]]
    pairs = [[int(word) for word in line.split()] for line in output.splitlines() if line != "ready"]
    assert len(pairs) == SAMPLES
    return [empty for empty, _ in pairs], [sample for _, sample in pairs]


def main() -> None:
    program = build("handler.c")
    print(f"one sample at depth {DEPTH}, median of {SAMPLES}, microseconds:")
    print("  written before   empty handler   with a sample (middle half)   the agent")
    for kilobytes in KILOBYTES:
        empty, samples = measure(program, kilobytes)
        low, middle, high = (value / 1000 for value in quantiles(samples, n=4))
        nothing = median(empty) / 1000
        spread = f"({low:.2f} to {high:.2f})"
        print(f"  {kilobytes:9} KB {nothing:15.2f} {middle:10.2f} {spread:18} {middle - nothing:11.2f}")


if __name__ == "__main__":
    main()
