"""What is seen of a process whose threads come and go."""

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from unspool.capture.thread_watch import ThreadWatch


@pytest.fixture
def watch() -> Iterator[ThreadWatch]:
    with closing(ThreadWatch(os.getpid())) as watch:
        yield watch


def test_map_is_read_through_a_thread_that_has_just_begun(
    watch: ThreadWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main thread has ended, and each other one ends as soon as it has made the next."""
    lists = iter([{1, 2}, {1, 3}, {1, 4}])
    monkeypatch.setattr(watch, "_tids", lambda: next(lists))
    monkeypatch.setattr(watch, "_text", lambda path: b"map" if path == "task/4/maps" else b"")
    assert watch.memory_map() == b"map"


def test_process_that_nobody_has_collected_has_no_map(
    watch: ThreadWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_tids", lambda: {1})
    monkeypatch.setattr(watch, "_text", lambda path: b"")
    with pytest.raises(ProcessLookupError):
        watch.memory_map()
