"""Seccomp filters and resource limits."""

from pathlib import Path

import pytest

from tests.battery.harness import build, compare


@pytest.mark.parametrize("which", ["whitelist", "whitelist-prctl", "kill", "fail", "ids", "allow", "strict"])
def test_seccomp(folder: Path, which: str) -> None:
    """No forbidden call is made for the program; until the filter was set it is in the recording."""
    compare([build(folder, "filters.c"), which], samples=5)


@pytest.mark.parametrize("which", ["nofile", "as", "memlock", "sigpending", "sigpending-threads"])
def test_limits(folder: Path, which: str) -> None:
    compare([build(folder, "limits.c"), which], samples=5)


def test_limit_of_address_space_from_the_start(folder: Path) -> None:
    """A finite limit of the address space is the program's alone: it runs, and is told of."""
    program = build(folder, "with_preload.c")
    limited = ["sh", "-c", 'ulimit -v 400000; exec "$0"', program]
    for outcome in compare(limited, samples=0):
        assert "address space" in outcome.errors, outcome.errors
