"""Sums over a recording, and the same by SQL: two ways to the same figures."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.profile_maker import ProfileMaker
from tests.recordings import CPU, Recording, named, stack_names
from unspool.capture.samples import Event, Flag, ThreadTime
from unspool.core_interface import GUESS
from unspool.profile import Profile
from unspool.unwind import How, StackEnd


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "made.unspool")


def test_self_and_total(recording: Recording) -> None:
    """Self time belongs to the innermost inlined function; recursion counts once in a total."""
    recording.sample(["leaf<work", "main"], weight=5)
    recording.sample(["work", "main"], weight=3)
    recording.sample(["fib", "fib", "work", "fib", "main"], weight=7)
    recording.sample(["echo<echo<echo", "main"], weight=11)  # inlined into itself
    profile = recording.finish()
    assert named(profile, profile.self_weights()) == {"leaf": 5, "work": 3, "fib": 7, "echo": 11}
    assert named(profile, profile.total_weights()) == {
        "leaf": 5,
        "work": 15,
        "main": 26,
        "fib": 7,
        "echo": 11,
    }
    chosen = profile.sample_weight > 5
    assert named(profile, profile.total_weights(selected=chosen)) == {
        "work": 7,
        "main": 18,
        "fib": 7,
        "echo": 11,
    }
    assert profile.total_weight() == 26


@pytest.mark.parametrize(
    ("seconds", "duration"), [("1.5", 1_500_000_000), ("x", 40), ("nan", 40), ("-1", 40), ("1e300", 40)]
)
def test_the_duration_is_what_the_source_says(recording: Recording, seconds: str, duration: int) -> None:
    """Else from the first to the last sample."""
    recording.sample(["work"], time=1_000)
    recording.sample(["work"], time=1_040)
    recording.writer.set_meta({"seconds": seconds})
    assert recording.finish().duration == duration


def test_verdicts(recording: Recording) -> None:
    """A guess anywhere on the way makes a stack guessed."""
    recording.sample(["work", "main"])
    recording.sample(["work", ("help", How.LEAF | GUESS), "main"])
    recording.sample(["work", "work", ("help", How.FRAME_POINTER | GUESS), "main"])
    recording.sample(["work", "main"], end=StackEnd.NO_UNWIND_INFO)
    recording.sample(["work", "main"], flags=Flag.NO_TABLE_YET)
    complete, guessed, cut = recording.finish().sample_verdicts
    assert complete.tolist() == [True, False, False, False, False]
    assert guessed.tolist() == [False, True, True, False, True]
    assert cut.tolist() == [False, False, False, True, False]


def test_several_events(recording: Recording, tmp_path: Path) -> None:
    """Each counts for itself; time is compared with the one that measures it."""
    several = Recording(tmp_path / "several", events=[Event("faults", "count"), CPU])
    several.sample(["work", "main"], event=0, weight=3)
    several.sample(["work", "main"], event=1, weight=50)
    several.add(ThreadTime(100, 100, 60, 0))
    profile = several.finish()
    assert [named(profile, profile.self_weights(event)) for event in (0, 1)] == [{"work": 3}, {"work": 50}]
    assert [profile.total_weight(event) for event in (0, 1)] == [3, 50]
    assert profile.time_event == 1
    assert profile.not_sampled() == [10]


def test_no_samples(recording: Recording) -> None:
    """Not an error here: whoever records says what that means."""
    profile = recording.finish()
    assert len(profile.sample_stack) == len(profile.tree) == 0
    assert profile.total_weights().tolist() == []
    assert profile.not_sampled() == []


def random_recording(recording: Recording, seed: int) -> Profile:
    """A few hundred samples of twenty functions, some inlined, some without a name."""
    rng = np.random.default_rng(seed)
    names = [*(f"f{i}" for i in range(6)), "f1<f7", "f8<f1<f8", "f9<f2", "", "?", "jit"]
    for number in range(300):
        stack = [names[int(i)] for i in rng.integers(0, len(names), int(rng.integers(1, 9)))]
        recording.sample(stack, weight=int(rng.integers(1, 100)), pid=1 + number % 2, tid=1 + number % 5)
    recording.add(ThreadTime(1, 1, 100_000, 5))
    return recording.finish()


@pytest.mark.parametrize("seed", range(3))
def test_views_say_what_the_arrays_say(recording: Recording, seed: int) -> None:
    """Two ways to the same figures: SQL over the tables, sums over the tree."""
    profile = random_recording(recording, seed)
    with closing(sqlite3.connect(recording.path)) as connection:
        for view, weights in (
            ("function_self", profile.self_weights()),
            ("function_total", profile.total_weights()),
        ):
            rows = connection.execute(f"SELECT function, sum(weight) FROM {view} GROUP BY function")
            assert dict(rows.fetchall()) == named(profile, weights)
        places = zip(profile.place_file, profile.place_number, profile.place_self_weights(), strict=True)
        lines: dict[tuple[str, int], int] = {}
        for file, line, weight in places:
            if file >= 0 and weight:
                key = (profile.files[file], int(line))
                lines[key] = lines.get(key, 0) + int(weight)
        rows = connection.execute("SELECT file, line, sum(weight) FROM line_self GROUP BY file, line")
        assert {(file, line): weight for file, line, weight in rows} == lines
        rows = connection.execute("SELECT pid, tid, sampled, cpu_time, not_sampled FROM thread_time")
        expected = {
            (profile.processes[t.process].pid, t.tid, weight, t.cpu_time, rest)
            for t, weight, rest in zip(
                profile.threads, profile.thread_weights().tolist(), profile.not_sampled(), strict=True
            )
        }
        assert set(rows) == expected


@pytest.mark.parametrize("seed", range(3))
def test_totals_are_those_of_every_single_stack(recording: Recording, seed: int) -> None:
    """Sample by sample, the slow way."""
    profile = random_recording(recording, seed)
    own: dict[str, int] = {}
    total: dict[str, int] = {}
    for sample, weight in enumerate(profile.sample_weight.tolist()):
        names = [name for frame in stack_names(profile, sample) for name in frame]
        own[names[0]] = own.get(names[0], 0) + weight
        for name in set(names):
            total[name] = total.get(name, 0) + weight
    assert named(profile, profile.self_weights()) == own
    assert named(profile, profile.total_weights()) == total
    assert profile.place_self_weights().sum() == profile.total_weight()


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([], "0 samples, 0.00 s of CPU time"),
        ([1_230_000_000], "1 sample, 1.23 s of CPU time, 100.0 % complete"),
        ([3_000_000_000, 1_000_000_000], "2 samples, 4.00 s of CPU time, 75.0 % complete"),
        ([10**12, 1], "2 samples, 1000.00 s of CPU time, 99.9 % complete"),
    ],
)
def test_a_profile_says_what_it_holds(weights: list[int], words: str) -> None:
    """All but the first sample are cut; the share is of the time."""
    maker = ProfileMaker()
    thread = maker.thread("main")
    for number, weight in enumerate(weights):
        end = StackEnd.LOOP if number else StackEnd.ROOT
        maker.sample(thread, "main@app", weight=weight, end=end)
    assert repr(maker.profile()) == f"<Profile : {words}>"


def test_a_profile_of_counts_says_what_it_holds() -> None:
    maker = ProfileMaker(events=[Event("faults", "count")])
    maker.sample(maker.thread("main"), "main@app", weight=1234)
    assert repr(maker.profile()) == "<Profile : 1 sample, 1,234 faults, 100.0 % complete>"
    assert repr(ProfileMaker(events=[]).profile()) == "<Profile : no events>"
