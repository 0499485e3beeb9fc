"""Writes docs/programs.md: what program_proof.py found. It may not judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.proof.program_proof import Figures

DOCUMENT = Path(__file__).parents[2] / "docs" / "programs.md"
HEAD = """# Stacks of real programs

`make program-proof` records real programs at 199 Hz, one after another, and wrote this page on {machine}.
Shares are of samples, outside JIT code; V8's built-in functions are JIT code that was made before node was
built. CPU time: what all samples stand for, beside what the kernel counted for the program and its children;
total: the same with what the recording tells as not sampled.
In complete stacks, each call whose target is known (direct, or through the linker's slots, as readelf shows
them) must lead to the function below, perhaps by tail jumps: {checked:,} different pairs of caller and callee
were put to that test, and {impossible} led elsewhere. The aims are 99.5 % complete and a CPU time within 2 %;
where a row misses them it says so by its figures, and the tables below say why stacks are not complete.

| program | samples | complete | guessed | cut | of the time complete | CPU time | not sampled | total |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
"""
WITH_JIT = """
With JIT code in their stacks, which no file describes, so that at best they are guessed:

| program | complete | guessed | cut |
|---|---:|---:|---:|
"""
KINDS = """
Stacks outside JIT code that are not complete:

| program | samples | why |
|---|---:|---|
"""
UNKNOWN = "not explained"


def write_docs(results: Sequence[Figures], machine: str) -> None:
    checked = sum(found.calls.checked for found in results)
    impossible = sum(sum(found.calls.elsewhere.values()) for found in results)
    text = HEAD.format(machine=machine, checked=checked, impossible=impossible or "none")
    for found in results:
        text += (
            f"| {found.name} | {found.samples:,} "
            f"| {found.share('complete'):.2%} | {found.share('guessed'):.2%} "
            f"| {found.share('cut'):.2%} | {found.share('complete', 'time'):.2%} "
            f"| {found.error_of_time:+.1%} | {found.not_sampled / max(1, found.kernel):.1%} "
            f"| {found.error_of_total:+.1%} |\n"
        )
    text += WITH_JIT
    for found in results:
        if any(group.samples for group in found.with_jit.values()):
            counts = " | ".join(f"{group.samples:,}" for group in found.with_jit.values())
            text += f"| {found.name} | {counts} |\n"
    text += KINDS
    for found in results:
        for why, count in found.by_reason.most_common():
            text += f"| {found.name} | {count:,} | {why or _unexplained(found)} |\n"
    losses = [
        f"{found.name}: {count:,}, {reason}" for found in results for reason, count in found.lost.items()
    ]
    text += f"\nLost samples: {'; '.join(losses) or 'none'}.\n"
    DOCUMENT.write_text(text)


def _unexplained(found: Figures) -> str:
    from tests.proof.program_proof import REASONS

    kinds = [
        f"{count} {kind}"
        for kind, count in found.kinds.most_common()
        if not any(form.search(kind) for form in REASONS.values())
    ]
    return f"{UNKNOWN}: {'; '.join(kinds)}"
