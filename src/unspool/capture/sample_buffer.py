"""Samples of one process on their way from its ring: weighed as they come, given out when it is known which
code was where, and those that lacked a table or a module when it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unspool.capture.blocklist import selected
from unspool.capture.code_history import CodeHistory
from unspool.capture.late_walk import LateWalk
from unspool.capture.mapped_code import MappedCode
from unspool.capture.sample_weights import ThreadClocks
from unspool.capture.samples import CodeMap, Flag, SampleBatch
from unspool.core_session import CopyRoom, RingSamples
from unspool.unwind import StackEnd

_TIMER, _OUTSIDE = 1, 2  # enum unspool_trigger
_LARGEST_TIME = np.uint64(1 << 60)  # ns; what a program writes into its ring is not trusted


class _Pending(NamedTuple):
    ring: RingSamples
    tids: NDArray[np.int64]
    weights: NDArray[np.uint64]


class SampleBuffer:
    """period: ns of CPU time between two samples. room: what copies of stacks are given back to."""

    def __init__(self, pid: int, period: int, arch: str, room: CopyRoom) -> None:
        self.clocks = ThreadClocks(period)
        self.late = LateWalk(arch, room)
        self._pid = pid
        self._room = room
        self._pending: list[_Pending] = []

    def take(
        self, ring: RingSamples, tids: NDArray[np.int64], code: MappedCode, *, with_events: bool
    ) -> None:
        """tids: of the samples, as we see them. code: as last known. with_events: threads have perf events,
        so that what is not by a timer is by them."""

        def is_at_call(sample: int) -> bool:
            frame = int(ring.offsets[sample])
            return frame < int(ring.offsets[sample + 1]) and code.is_at_system_call(
                int(ring.addresses[frame])
            )

        cpu = np.minimum(ring.samples["cpu_time"], _LARGEST_TIME)
        trigger = ring.samples["trigger"]
        by_event: NDArray[np.bool_] = trigger != _TIMER if with_events else trigger == _OUTSIDE
        system = np.minimum(ring.samples["system_time"], _LARGEST_TIME)
        self._pending.append(
            _Pending(ring, tids, self.clocks.weights(tids, cpu, system, by_event, is_at_call))
        )

    def give_out(
        self, code_map: CodeMap, history: CodeHistory, unloads: int, *, is_read: bool = True
    ) -> Iterator[SampleBatch]:
        """All of them under this map, but for those that go to `late`. unloads: as for CodeHistory.kept_all.
        is_read: the map was read after they were taken. An agent only knows that something may have changed;
        history knows what."""
        pending, self._pending = self._pending, []
        for ring, tids, weights in pending:
            samples = ring.samples
            flags: NDArray[np.uint8] = samples["flags"].copy()
            kept = history.kept_all(samples["epoch"], unloads)
            flags[kept & is_read] &= np.uint8(0xFF & ~Flag.STALE_MODULES)
            flags[history.stale(samples["epoch"], ring.offsets, ring.addresses)] |= np.uint8(
                Flag.STALE_MODULES
            )
            # Where no code was known there may be some that is new.
            at_unknown = np.isin(samples["end"], (StackEnd.BAD_RETURN_ADDRESS, StackEnd.UNMAPPED_PC))
            flags[at_unknown & history.outdated(samples["epoch"])] |= np.uint8(Flag.STALE_MODULES)
            times: NDArray[np.uint64] = np.minimum(samples["time"], _LARGEST_TIME)
            batch = SampleBatch(
                pid=self._pid,
                event=0,
                times=times,
                tids=tids,
                weights=weights,
                ends=samples["end"].copy(),
                flags=flags,
                offsets=ring.offsets,
                addresses=ring.addresses,
                how=ring.how,
                code_map=code_map,
            )
            counts = weights > 0
            if ring.copies:
                counts &= ~self._keep_late(batch, ring, counts & kept & (flags != 0), history, is_read)
            if counts.any():
                yield selected(batch, counts)

    def _keep_late(
        self,
        batch: SampleBatch,
        ring: RingSamples,
        doubtful: NDArray[np.bool_],
        history: CodeHistory,
        is_read: bool,
    ) -> NDArray[np.bool_]:
        """Which samples (bool[n]) are walked once more: those of the doubtful ones that have a copy."""
        late = np.zeros(len(batch), np.bool_)
        late[list(ring.copies)] = True
        late &= doubtful
        if late.any():
            copies = [ring.copies[number] for number in np.flatnonzero(late).tolist()]
            self.late.add(selected(batch, late), copies, history, knows_all=is_read)
        self._room.give_back(copy for number, copy in ring.copies.items() if not late[number])
        return late
