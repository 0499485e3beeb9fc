"""Samples that are alike, added up: what every exporter starts from.

Alike are samples of one event and thread with the same stack that ended in the same way. It computes nothing
about names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from unspool.capture.samples import FLAGS, Flag, causes_of_cuts
from unspool.profile import Profile
from unspool.unwind import ENDS

VERDICTS = ("complete", "guessed", "cut")
COMPRESSION = 6  # zlib's level: 9 takes three times as long and saves 2 %


@dataclass(frozen=True)
class Leaves:
    """n kinds of samples, in order of event, thread and stack.

    event, thread, stack: int32[n], indices in the profile. weight: int64[n], in the event's unit. samples:
    int64[n], how many. flags: uint8[n], Flag. verdict: uint8[n], index in VERDICTS. mark: int32[n], index in
    `marks`, -1: the stack was not cut. marks: why and where stacks were cut, in words.
    """

    event: NDArray[np.int32]
    thread: NDArray[np.int32]
    stack: NDArray[np.int32]
    weight: NDArray[np.int64]
    samples: NDArray[np.int64]
    flags: NDArray[np.uint8]
    verdict: NDArray[np.uint8]
    mark: NDArray[np.int32]
    marks: list[str]

    def __len__(self) -> int:
        return len(self.event)

    @classmethod
    def of(cls, profile: Profile) -> Leaves:
        """All samples of a profile."""
        columns = (
            profile.sample_event,
            profile.sample_thread,
            profile.sample_stack,
            profile.sample_end,
            profile.sample_flags,
        )
        order = np.lexsort(columns[::-1])
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = False
        for column in columns:
            ordered = column[order]
            is_first[1:] |= ordered[1:] != ordered[:-1]
        starts = np.flatnonzero(is_first)
        first = order[starts]
        stack, ends, flags = (
            profile.sample_stack[first],
            profile.sample_end[first],
            profile.sample_flags[first],
        )
        verdict = np.select(profile.sample_verdicts, [np.uint8(0), np.uint8(1), np.uint8(2)])[first]
        cut = verdict == VERDICTS.index("cut")
        mark = np.full(len(first), -1, np.int32)
        marks: dict[str, int] = {}
        mark[cut] = [
            marks.setdefault(words, len(marks))
            for words in _marks(profile, first[cut], ends[cut], flags[cut])
        ]
        return cls(
            event=profile.sample_event[first],
            thread=profile.sample_thread[first],
            stack=stack,
            weight=np.add.reduceat(profile.sample_weight[order], starts)
            if len(starts)
            else np.zeros(0, np.int64),
            samples=np.diff(np.append(starts, len(order))),
            flags=flags,
            verdict=verdict,
            mark=mark,
            marks=list(marks),
        )


def inlined_lines(profile: Profile) -> NDArray[np.bool_]:
    """bool[k]: the function of the line entry was inlined into the next entry's."""
    inlined = np.ones(len(profile.line_function), np.bool_)
    inlined[profile.line_offsets[1:] - 1] = False
    return inlined


def binary_name(profile: Profile, binary: int) -> str:
    """Without its directory."""
    path = profile.binaries[binary].path
    return PurePosixPath(path).name or path


def printable(text: str) -> str:
    """On one line, with escapes for what can't be seen; lone surrogates too."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _marks(
    profile: Profile, cut: NDArray[np.int64], ends: NDArray[np.uint8], flags: NDArray[np.uint8]
) -> list[str]:
    """For each cut sample (an index) in words where it was cut, and why; or why alone, where a flag says
    that."""
    outermost = profile.tree.outermost[profile.sample_stack[cut]]
    binaries = profile.frame_binary[profile.stack_frame[outermost]]
    words = []
    causes = causes_of_cuts(flags).tolist()
    for binary, end, cause in zip(binaries.tolist(), ends.tolist(), causes, strict=True):
        if cause == Flag.KERNEL_CALLER_UNKNOWN:
            words.append("[kernel, caller unknown]")
        elif cause:
            words.append(f"[cut: {FLAGS[Flag(cause)]}]")
        else:
            why = ENDS.get(end, "not known why")
            words.append(f"[cut: {why}, in {printable(binary_name(profile, binary))}]")
    return words
