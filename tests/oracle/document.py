"""Writes docs/exactness.md from what a run found."""

from typing import Any

from tests.oracle.kinds import Kind


def write_document(all_results: dict[str, dict[str, Any]], kinds: list[Kind], combinations: int) -> None:
    """The table of every combination, the kinds of inexact stacks, the peers."""
    raise NotImplementedError
