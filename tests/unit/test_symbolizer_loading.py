"""Symbolizer.loading: what lookups need is read ahead, and changes no answer."""

import threading
from collections.abc import Callable

import pytest

from tests.small_library import Library
from unspool import Binary, Symbolizer
from unspool.symbols import symbolizer as module


def test_the_answers_are_the_same(library: Callable[[str], Library], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is read once, before it is asked for; others are read when they are asked for."""
    first, second = library("x86_64"), library("aarch64")
    asked = [(first.binary, first.labels["inner_body"]), (second.binary, second.labels["outer"])]
    alone = [Symbolizer(cache=False).lookup(*one) for one in asked]
    loaded = []
    load = Symbolizer._load
    monkeypatch.setattr(Symbolizer, "_load", lambda self, binary: loaded.append(binary) or load(self, binary))
    symbolizer = Symbolizer(cache=False)
    with symbolizer.loading([first.binary]):
        assert [symbolizer.lookup(*one) for one in asked] == alone
        assert symbolizer.lookup(*asked[0]) == alone[0]
    assert sorted(binary.path for binary in loaded) == sorted(binary.path for binary, _ in asked)


def test_what_was_not_begun_is_not_read_after_a_failure(
    library: Callable[[str], Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the user interrupts it."""
    monkeypatch.setattr(module, "_LOADED_AT_ONCE", 1)
    binaries = [library("x86_64").binary, library("aarch64").binary]
    has_begun, may_end = threading.Event(), threading.Event()
    loaded = []

    def load(binary: Binary) -> None:
        loaded.append(binary)
        has_begun.set()
        threading.Timer(0.2, may_end.set).start()
        may_end.wait()

    symbolizer = Symbolizer(cache=False)
    monkeypatch.setattr(symbolizer, "_load", load)
    with pytest.raises(KeyboardInterrupt), symbolizer.loading(binaries):
        has_begun.wait()
        raise KeyboardInterrupt
    assert loaded == binaries[:1]
