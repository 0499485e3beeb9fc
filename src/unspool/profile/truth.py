"""How far a recording can be trusted: the facts of the truth report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unspool.capture.samples import BinaryKind, Flag, causes_of_cuts
from unspool.core_interface import GUESS
from unspool.profile.model import Profile
from unspool.unwind import How, StackEnd


@dataclass(frozen=True, slots=True)
class Share:
    """Some of an event's samples: how many, and their weight in the event's unit."""

    samples: int
    weight: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Stacks that ended before their root for one reason in one binary. end: how, or the Flag that says why.
    binary: of the outermost frame that was found; None: it has nothing to do with it, a flag says why."""

    end: StackEnd | Flag
    binary: str | None
    share: Share


@dataclass(frozen=True, slots=True)
class FramesFound:
    """How many frames, of all samples together, were found in one way."""

    how: How
    guessed: bool
    frames: int


@dataclass(frozen=True, slots=True)
class Truth:
    """Of one event. marked: samples with each Flag. not_sampled, cpu_time: nanoseconds, of the threads of
    which the kernel's figure is known; None: of none, or the event does not measure time."""

    complete: Share
    guessed: Share
    cut: Share
    cuts: list[Cut]
    marked: dict[Flag, Share]
    frames: list[FramesFound]
    cpu_time: int | None
    not_sampled: int | None


@dataclass(frozen=True, slots=True)
class NamelessBinary:
    """A binary whose functions or lines are not known. state, note: as in model.Symbols. self_share: of the
    time event's (or the first event's) weight, 0 to 1, with its code innermost. path: where it was."""

    path: str
    kind: BinaryKind
    state: str
    note: str
    self_share: float


def truth_of(profile: Profile, event: int) -> Truth:
    """The facts of one event's samples."""
    chosen = profile.sample_event == event
    complete, guessed, cut = (chosen & verdict for verdict in profile.sample_verdicts)
    marked = {flag: _share(profile, chosen & ((profile.sample_flags & flag) != 0)) for flag in Flag}
    cpu_time, not_sampled = _not_sampled(profile) if event == profile.time_event else (None, None)
    return Truth(
        _share(profile, complete),
        _share(profile, guessed),
        _share(profile, cut),
        sorted(_cuts(profile, cut), key=lambda found: -found.share.samples),
        {flag: share for flag, share in marked.items() if share.samples},
        sorted(_frames_found(profile, chosen), key=lambda found: -found.frames),
        cpu_time,
        not_sampled,
    )


def nameless_binaries(profile: Profile) -> list[NamelessBinary]:
    """Those with frames that have no lines, the ones with most time first."""
    event = profile.time_event or 0
    own = np.zeros(len(profile.binaries), np.int64)
    np.add.at(own, profile.frame_binary[profile.stack_frame], profile.node_weights(event))
    total = max(profile.total_weight(event), 1)
    found = [
        NamelessBinary(file.path, file.kind, symbols.state, symbols.note, int(weight) / total)
        for file, symbols, weight in zip(profile.binaries, profile.binary_symbols, own, strict=True)
        if _lacks_names(file.kind, symbols.state)
    ]
    return sorted(found, key=lambda binary: -binary.self_share)


def _lacks_names(kind: BinaryKind, state: str) -> bool:
    if kind is BinaryKind.FILE:
        return state != "lines"
    return kind is not BinaryKind.UNKNOWN and state not in ("lines", "functions")


def _share(profile: Profile, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Share:
    return Share(int(np.count_nonzero(chosen)), int(profile.sample_weight[chosen].sum()))


def _cuts(profile: Profile, cut: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[Cut]:
    samples = np.flatnonzero(cut)
    outermost = profile.tree.outermost[profile.sample_stack[samples]]
    causes = causes_of_cuts(profile.sample_flags[samples])
    binary = np.where(causes, -1, profile.frame_binary[profile.stack_frame[outermost]].astype(np.int64))
    end = np.where(causes, causes, profile.sample_end[samples])
    kinds, which = np.unique(np.stack([end, binary]), axis=1, return_inverse=True)
    which = which.reshape(-1)
    weights = np.zeros(kinds.shape[1], np.int64)
    np.add.at(weights, which, profile.sample_weight[samples])
    counts = np.bincount(which, minlength=kinds.shape[1])
    for (number, file), count, weight in zip(kinds.T.tolist(), counts, weights, strict=True):
        share = Share(int(count), int(weight))
        if file < 0:
            yield Cut(Flag(number), None, share)
        else:
            yield Cut(StackEnd(number), profile.binaries[file].path, share)


def _frames_found(
    profile: Profile, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Iterator[FramesFound]:
    of_node = np.bincount(profile.sample_stack[chosen], minlength=len(profile.tree)).astype(np.int64)
    counts = np.zeros(256, np.int64)
    np.add.at(counts, profile.stack_how, profile.tree.sums_below(of_node))
    for how in np.flatnonzero(counts).tolist():
        yield FramesFound(How(how & ~GUESS), bool(how & GUESS), int(counts[how]))


def _not_sampled(profile: Profile) -> tuple[int | None, int | None]:
    rests = [rest for rest in profile.not_sampled() if rest is not None]
    times = [thread.cpu_time for thread in profile.threads if thread.cpu_time is not None]
    return (sum(times), sum(rests)) if times else (None, None)
