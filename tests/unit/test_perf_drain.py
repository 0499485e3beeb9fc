"""The thread that empties the kernel's rings, and who takes what it has read."""

from collections.abc import Callable
from typing import cast

import pytest

from unspool.capture import perf_event
from unspool.capture.perf_event import _Drain
from unspool.capture.perf_rings import PerfRings


class Rings:
    """In place of the kernel's: what is read from them, round by round; then nothing."""

    def __init__(self, *rounds: list[bytes]) -> None:
        self._rounds = list(rounds)

    def wait(self, milliseconds: int) -> None: ...

    def read(self) -> list[bytes]:
        return self._rounds.pop(0) if self._rounds else []


class Part(bytes):
    """During its length something else happens, as when threads take turns."""

    meanwhile: Callable[[], object]

    def __len__(self) -> int:
        self.meanwhile()
        return super().__len__()


def run_once(drain: _Drain, rings: Rings) -> None:
    """The last round, after which it is to stop."""
    drain._is_stopping.set()
    drain._run(cast(PerfRings, rings))


def test_what_is_taken_while_more_is_read_is_known_to_be_taken() -> None:
    drain = _Drain()
    part = Part(b"second")
    part.meanwhile = drain.take
    run_once(drain, Rings([b"first", part]))
    assert drain.take() == b"second"
    assert drain.waiting == 0


def test_the_last_samples_are_read_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_event, "_WAITING_AT_MOST", 4)
    drain = _Drain()
    run_once(drain, Rings([b"before"]))
    run_once(drain, Rings([b"last"]))
    assert drain.take() == b"beforelast"
