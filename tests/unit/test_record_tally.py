"""The lines that `unspool record` ends with."""

import numpy as np

from unspool.capture.samples import CodeMap, Flag, SampleBatch
from unspool.cli.record_tally import Tally
from unspool.unwind import How, StackEnd


def test_shares_are_of_time_as_in_the_report() -> None:
    """Three samples, of which the one that is cut has as much time as the two others."""
    ends = [StackEnd.ROOT, StackEnd.ROOT, StackEnd.NO_UNWIND_INFO]
    batch = SampleBatch(
        pid=1,
        event=0,
        times=np.arange(3, dtype=np.uint64),
        tids=np.ones(3, np.int64),
        weights=np.array([1_000_000, 1_000_000, 2_000_000], np.uint64),
        ends=np.array(ends, np.uint8),
        flags=np.array([0, Flag.STALE_MODULES, 0], np.uint8),
        offsets=np.arange(4, dtype=np.uint64),
        addresses=np.full(3, 4096, np.uint64),
        how=np.full(3, How.INTERRUPTED, np.uint8),
        code_map=CodeMap([], "x86_64"),
    )
    tally = Tally()
    tally.add(batch)
    _, stacks = tally.lines(199, 1.0)
    assert "25.0 % complete (1), 25.0 % guessed (1), 50.0 % cut (1); not sampled: 0 %" in stacks
