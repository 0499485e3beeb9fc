"""Collapsed stacks: one line a stack, as flamegraph.pl, inferno and speedscope read it.

    THREAD;OUTERMOST;...;INNERMOST WEIGHT

The first frame is the thread's name. The weight is in the event's unit, for CPU time nanoseconds: samples do
not weigh alike, so their number would say something else. Where a stack was cut, a frame in brackets says
why. As stackcollapse-perf.pl marks them: "_[i]" an inlined call, "_[k]" the kernel, "_[j]" JIT code. What
belongs to the format (";", line ends) is replaced in names.
"""

from __future__ import annotations

import io
from functools import cache
from operator import itemgetter

from unspool.capture.samples import BinaryKind
from unspool.export.leaves import Leaves, inlined_lines, printable
from unspool.profile import Profile

_MARKS = {BinaryKind.KERNEL: "_[k]", BinaryKind.JIT: "_[j]"}


def collapsed(profile: Profile, event: int = 0) -> bytes:
    """All samples of one event: UTF-8, the heaviest stack first."""
    leaves = Leaves.of(profile)
    frames = _frame_texts(profile)
    stack_frame, parent = profile.stack_frame.tolist(), profile.stack_parent.tolist()
    threads = [_safe(thread.name) or str(thread.tid) for thread in profile.threads]
    marks = [*(f"{_safe(mark)};" for mark in leaves.marks), ""]

    @cache  # threads have stacks in common
    def text(node: int) -> str:
        parts = []
        while node >= 0:
            parts.append(frames[stack_frame[node]])
            node = parent[node]
        return ";".join(reversed(parts))

    weights: dict[tuple[str, str, str], int] = {}
    columns = (leaves.thread, leaves.mark, leaves.stack, leaves.weight)
    chosen = leaves.event == event
    for thread, mark, node, weight in zip(*(column[chosen].tolist() for column in columns), strict=True):
        stack = (threads[thread], marks[mark], text(node))
        weights[stack] = weights.get(stack, 0) + weight
    lines = io.BytesIO()
    for (name, why, stack_text), weight in sorted(weights.items(), key=itemgetter(1), reverse=True):
        lines.write(f"{name};{why}{stack_text} {weight}\n".encode())
    return lines.getvalue()


def _frame_texts(profile: Profile) -> list[str]:
    """Each frame with its inlined calls."""
    names = [_safe(name) for name in profile.functions]
    kinds = [_MARKS.get(binary.kind, "") for binary in profile.binaries]
    inlined = inlined_lines(profile).tolist()
    functions, offsets = profile.line_function.tolist(), profile.line_offsets.tolist()
    texts = []
    for frame, binary in enumerate(profile.frame_binary.tolist()):
        entries = range(offsets[frame + 1] - 1, offsets[frame] - 1, -1)
        parts = [names[functions[i]] + ("_[i]" if inlined[i] else kinds[binary]) for i in entries]
        texts.append(";".join(parts))
    return texts


def _safe(name: str) -> str:
    return printable(name).replace(";", ":")
