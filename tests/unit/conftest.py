"""Fixtures of the unit tests."""

from collections.abc import Callable

import pytest

from tests.small_library import Library, build_library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Library]:
    """Builds the library of an architecture, once."""
    built: dict[str, Library] = {}

    def build(arch: str) -> Library:
        if arch not in built:
            built[arch] = build_library(arch, tmp_path_factory.mktemp(arch))
        return built[arch]

    return build
