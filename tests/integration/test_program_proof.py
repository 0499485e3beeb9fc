"""A short slice of `make program-proof`: its checks pass, and fail where a caller is wrong."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.integration.recording import Recorded, build, record
from tests.proof.program_proof import Group, look_at

_CALLS = """
    SELECT DISTINCT callee.function, caller.frame FROM stacks
        JOIN stacks AS below ON below.id = stacks.parent
        JOIN frame_names AS caller ON caller.frame = below.frame AND caller.function = 'main'
        JOIN frame_names AS callee ON callee.frame = stacks.frame
    WHERE callee.function IN ('first', 'second')"""


@pytest.fixture
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Of a program whose main calls first, then second."""
    folder = tmp_path_factory.mktemp("recording")
    return record(folder, [build(folder, "two_calls.c")])


def test_stacks_and_callers_of_a_recording(recording: Recorded) -> None:
    """Every stack is complete, and calls lead to what stands below them."""
    ((samples, weight),) = recording.query("SELECT count(*), sum(weight) FROM samples")
    found = look_at("two calls", recording.path, kernel=weight)
    assert found.verdicts["complete"] == Group(samples, weight)
    assert (found.sampled, found.error_of_time, not found.kinds) == (weight, 0.0, True)
    assert found.calls.checked >= 2
    assert not found.calls.elsewhere and not found.failures


def test_a_wrong_caller_is_found(recording: Recorded) -> None:
    """What called first becomes what called second."""
    frames = recording.values(_CALLS)
    with closing(sqlite3.connect(recording.path)) as database, database:
        changed = (frames["second"], frames["first"])
        database.execute("UPDATE stacks SET frame = ? WHERE frame = ?", changed)
    found = look_at("two calls", recording.path, kernel=1)
    (what,) = found.calls.elsewhere
    assert "a call of second" in what and "stands above first of" in what
    assert "calls lead elsewhere" in found.failures
