"""The facts of `unspool report`: totals, what is hot, threads and processes, and how far all that is true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspool.capture.samples import Event
from unspool.profile.model import Profile
from unspool.profile.tree import Ints
from unspool.profile.truth import NamelessBinary, Truth, nameless_binaries, truth_of


@dataclass(frozen=True, slots=True)
class HotFunction:
    """Weights in the event's unit; total counts recursion once. binary: its path; None: code without a
    file."""

    function: str
    binary: str | None
    self_weight: int
    total_weight: int


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of a function; line: 0 = not known."""

    file: str
    line: int
    function: str
    self_weight: int


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """tid: below 1 it is no thread (docs/recording.md). weight: of its samples, in the event's unit.
    cpu_time: the kernel's figure, not_sampled: what of it no sample covers (nanoseconds; None: not known, or
    the event does not measure time)."""

    pid: int
    tid: int
    name: str
    weight: int
    samples: int
    cpu_time: int | None
    not_sampled: int | None


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """threads: how many it had. exit_status: as wait(2) gives it; None: not known, or it still ran."""

    pid: int
    command: str
    weight: int
    threads: int
    exit_status: int | None


@dataclass(frozen=True, slots=True)
class EventReport:
    """Of one event: everything is sorted, what is largest first, without threads and processes that have
    neither samples nor time. hidden: how many more there are, with these."""

    event: Event
    samples: int
    weight: int
    by_self: list[HotFunction]
    by_total: list[HotFunction]
    lines: list[HotLine]
    threads: list[ThreadUse]
    hidden_threads: int
    processes: list[ProcessUse]
    hidden_processes: int
    truth: Truth


@dataclass(frozen=True, slots=True)
class Report:
    """meta: what the source said. duration: as Profile.duration. lost: samples by reason. problems: as
    they were told."""

    path: str
    meta: dict[str, str | int]
    is_finished: bool
    duration: int | None
    events: list[EventReport]
    nameless: list[NamelessBinary]
    lost: dict[str, int]
    problems: list[str]


def report_of(profile: Profile, limit: int) -> Report:
    """At most `limit` functions, lines, threads and processes an event."""
    lost: dict[str, int] = {}
    for entry in profile.lost:
        lost[entry.reason] = lost.get(entry.reason, 0) + entry.count
    return Report(
        profile.path,
        profile.meta,
        profile.is_finished,
        profile.duration,
        [_event_report(profile, event, limit) for event in range(len(profile.events))],
        nameless_binaries(profile),
        lost,
        _problems(profile),
    )


def _problems(profile: Profile) -> list[str]:
    """Each text once, with whose it is."""
    pids: dict[str, set[int]] = {}
    for process, text in profile.problems:
        pids.setdefault(text, set()).update([] if process is None else [profile.processes[process].pid])
    return [
        text if not of else f"process {min(of)}: {text}" if len(of) == 1 else f"{len(of):,} processes: {text}"
        for text, of in pids.items()
    ]


def _event_report(profile: Profile, event: int, limit: int) -> EventReport:
    own, total = profile.self_weights(event), profile.total_weights(event)
    threads, processes = _threads(profile, event), _processes(profile, event)
    shown_threads, shown_processes = threads[:limit], processes[:limit]
    return EventReport(
        profile.events[event],
        int(np.count_nonzero(profile.sample_event == event)),
        profile.total_weight(event),
        [_function(profile, function, own, total) for function in _largest(own, limit)],
        [_function(profile, function, own, total) for function in _largest(total, limit)],
        _lines(profile, event, limit),
        shown_threads,
        sum(thread.tid > 0 for thread in profile.threads) - sum(use.tid > 0 for use in shown_threads),
        shown_processes,
        len(profile.processes) - len(shown_processes),
        truth_of(profile, event),
    )


def _largest(weights: Ints, limit: int) -> list[int]:
    """The indices of the largest weights that are not 0."""
    order = np.argsort(-weights, kind="stable")[:limit]
    found: list[int] = order[weights[order] > 0].tolist()
    return found


def _function(profile: Profile, function: int, own: Ints, total: Ints) -> HotFunction:
    binary = int(profile.function_binary[function])
    path = None if binary < 0 else profile.binaries[binary].path
    return HotFunction(profile.functions[function], path, int(own[function]), int(total[function]))


def _lines(profile: Profile, event: int, limit: int) -> list[HotLine]:
    own = profile.place_self_weights(event)
    own[profile.place_file < 0] = 0
    return [
        HotLine(
            profile.files[profile.place_file[place]],
            int(profile.place_number[place]),
            profile.functions[profile.place_function[place]],
            int(own[place]),
        )
        for place in _largest(own, limit)
    ]


def _threads(profile: Profile, event: int) -> list[ThreadUse]:
    weights = profile.thread_weights(event).tolist()
    chosen = profile.sample_thread[profile.sample_event == event]
    samples = np.bincount(chosen, minlength=len(profile.threads)).tolist()
    of_time = event == profile.time_event
    rests = profile.not_sampled() if of_time else [None] * len(weights)
    uses = [
        ThreadUse(
            profile.processes[thread.process].pid,
            thread.tid,
            thread.name,
            weight,
            count,
            thread.cpu_time if of_time else None,
            rest,
        )
        for thread, weight, count, rest in zip(profile.threads, weights, samples, rests, strict=True)
        if count or thread.cpu_time
    ]
    return sorted(uses, key=lambda use: (-max(use.weight, use.cpu_time or 0), use.pid, use.tid))


def _processes(profile: Profile, event: int) -> list[ProcessUse]:
    count = len(profile.processes)
    weights, times, threads = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)
    for thread, weight in zip(profile.threads, profile.thread_weights(event).tolist(), strict=True):
        weights[thread.process] += weight
        times[thread.process] += thread.cpu_time or 0
        threads[thread.process] += thread.tid > 0
    samples = np.bincount(profile.sample_process[profile.sample_event == event], minlength=count)
    uses = [
        ProcessUse(process.pid, process.command, int(weights[i]), int(threads[i]), process.exit_status)
        for i, process in enumerate(profile.processes)
        if samples[i] or times[i]
    ]
    return sorted(uses, key=lambda use: -use.weight)
