"""Damaged ELF files raise BinaryError and nothing else; `python -m tests.fuzz.elf SECONDS` goes on longer."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fuzz.elf import exercise, mutated, seeds
from tests.fuzz.loop import Step

SEEDS = seeds()
NUMBERS = st.integers(0, (1 << 64) - 1) | st.integers(0, 1 << 12)
STEPS = st.lists(st.tuples(st.integers(0, 63), NUMBERS, NUMBERS), min_size=1, max_size=8)


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_undamaged_seeds_answer(seed: int) -> None:
    """Most questions have an answer, so that damage is met deep inside, not at the door."""
    assert exercise(SEEDS[seed]) >= 20


@settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, len(SEEDS) - 1), STEPS)
def test_damaged_files(seed: int, steps: list[Step]) -> None:
    exercise(mutated(SEEDS[seed], steps))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=300))
@example(b"")
@example(b"\x7fELF\2\1\1")
def test_any_bytes(data: bytes) -> None:
    exercise(data)
    exercise(b"\x7fELF\2\1\1" + bytes(9) + b"\3\0\x3e\0" + data)
