"""Writes docs/exactness.md from what a run found."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.oracle.kinds import Kind, end_name

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "exactness.md"
PEERS = Path(__file__).parent.parent.parent / "out" / "oracle" / "peers.json"
COLUMNS = {
    "exact": ("exact", "rewritten", "destination"),
    "guessed, right": ("guessed_right",),
    "cut": ("cut",),
    "guessed, wrong": ("guessed_wrong",),
    "wrong": ("wrong", "wrong_complete"),
    "wrong and complete": ("wrong_complete",),
}
READERS = {
    "process": "With all registers and the process's memory",
    "copy": "With pc, sp, fp and a copy of the stack, as a sampling profiler has it",
}
# Where no walk can be right: by the start of the name of the function, or of its file.
IN_LIBC_OR_PROGRAM = ("libc.so.6 ", "(program) ")
IMPOSSIBLE = {
    "exception": ("libgcc_s.so.1 ", "(program) _Unwind_", "(program) uw_"),
    "longjmp": tuple(f"{where}{name}" for where in IN_LIBC_OR_PROGRAM for name in ("__longjmp", "longjmp")),
    "context": tuple(
        f"{where}{name}" for where in IN_LIBC_OR_PROGRAM for name in ("swapcontext", "setcontext")
    ),
}
TEXT = """# Exactness

A profiler interrupts a program anywhere, so a walk must be right at every instruction. This page is written
by `make oracle`, which single-steps real programs, keeps the true stack of each thread beside them, and at
every instruction holds the stack that unspool walks against the true one.

{scope}

## What is counted

Programs are run on x86_64 under ptrace, one instruction at a time. The true stack is kept from what
instructions do, never from unwind information: a call pushes a frame, a return pops it, a signal pushes what
it interrupted, and frames below the stack pointer are gone however it got there. The same (instruction, true
callers, frame size) is checked once; every executed instruction is checked at least once.

| column | meaning |
|---|---|
| exact | every return address and the end are true, and no frame was a guess: the stack is called complete |
| guessed, right | true, but a frame had no proof, so the stack is called guessed |
| cut | a true beginning of the stack, and the reason why it ends there |
| guessed, wrong | not true, and the stack says that it holds a guess |
| wrong | not true, without a guess in it |
| wrong and complete | of those the ones that are called complete: the column that must be 0 |

"Exact" holds stacks from two kinds of moments besides ordinary ones: {rewritten:,} where the program itself
had replaced a return address in its slot, and {destination:,} where only the next instructions showed where
control goes, and the stack was that one: vfork, which keeps its return address in a register, and the last
instructions of an exception's way where its handler happens to follow a call of the same function.
"""
IMPOSSIBLE_TEXT = """
## Where no walk can be right

In three classes of instructions the registers of one context are being replaced by those of another. None of
their stacks was wrong and called complete.

* **An exception on its way** (`_Unwind_RaiseException`, `_Unwind_Resume`, `_Unwind_ForcedUnwind` and what
  they call). To enter a handler, these functions write the handler's registers, return address included,
  over the slots of their own frame where they had saved their caller's. From the first such write on the
  caller's values exist nowhere, neither in a register nor in memory, while unwind information goes on to
  describe the slots as before. unspool takes such a frame for proved only if a path leads from its pc to an
  ordinary return (which still needs the slots), or its return address follows a call of this very function;
  if it follows a call of another, the stack ends. {exception}
* **longjmp**. It loads the registers of another frame one by one; its unwind information then names the
  destination, since the caller's registers are being lost. The stack is that of where control goes, with a
  frame marked as a guess. {longjmp}
* **swapcontext and setcontext**. Once the stack pointer is the other context's, what lies at [sp] is no
  return address, though swapcontext's unwind information says so; the address to go to is in the context's
  memory, to which only a register points that no unwind information names. Code analysis finds that the
  function has replaced sp, and the stack ends; setcontext's unwind information names the destination, a
  guess as with longjmp. {context}

"""
LIMITS = """
## Limits

* x86_64 with glibc 2.36, gcc 12, clang 19, rustc, and musl: the versions of one system (Debian 12).
* Of Python programs one thread is stepped, which they start when everything is imported.
* The kernel is not stepped; a vforked or spawned child is not followed.
* Longer programs are left off at a limit of steps; what they would have done later was not seen.
* musl's C library has no unwind information at all: what code analysis can't prove there is cut.
* musl's sigsetjmp is left out: it takes its return address off the stack for a while, and the true stack as
  it is kept here loses the frame.
* framehop is not compared: Debian 12 does not have it (`librust-framehop-dev` is in Debian 13).
"""


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.4f} %" if whole else "-"


def _sum(results: dict[str, Any], reader: str, verdicts: tuple[str, ...]) -> int:
    return sum(int(results[reader][verdict]) for verdict in verdicts)


def _table(all_results: dict[str, dict[str, Any]], reader: str) -> list[str]:
    lines = ["", f"### {READERS[reader]}", ""]
    lines.append("| combination | steps | pcs | checks | " + " | ".join(COLUMNS) + " |")
    lines.append("|---|" + "--:|" * (3 + len(COLUMNS)))
    totals: Counter[str] = Counter()
    for name, results in all_results.items():
        row = {key: results[key] for key in ("steps", "distinct_pcs", "checks")}
        row |= {column: _sum(results, reader, verdicts) for column, verdicts in COLUMNS.items()}
        totals.update(row)
        lines.append(f"| {name} | " + " | ".join(f"{value:,}" for value in row.values()) + " |")
    lines.append("| **all** | " + " | ".join(f"**{value:,}**" for value in totals.values()) + " |")
    return lines


def _reasons(all_results: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["", "### Why stacks were cut", "", "| reason | all registers | copy |", "|---|--:|--:|"]
    for end in range(1, 8):
        counts = [sum(r[reader]["cut_by_end"][end] for r in all_results.values()) for reader in READERS]
        if any(counts):
            lines.append(f"| {end_name(end)} | {counts[0]:,} | {counts[1]:,} |")
    return lines


def _class_of(kind: Kind) -> str | None:
    """The class of instructions that a kind belongs to. What is right, though guessed, in the functions that
    pass exceptions on is not of that class: nothing had been overwritten yet."""
    name = next((name for name, starts in IMPOSSIBLE.items() if kind.function.startswith(starts)), None)
    return None if name == "exception" and kind.verdict == "guessed_right" else name


def _impossible(kinds: list[Kind]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {name: Counter() for name in IMPOSSIBLE}
    for kind in kinds:
        name = _class_of(kind)
        if name:
            found[name].update(kind.counts)
    return found


def _outside(all_results: dict[str, dict[str, Any]], kinds: list[Kind]) -> list[str]:
    lines = ["", "## In all", ""]
    impossible = _impossible(kinds)
    for reader, title in READERS.items():
        checks = sum(results["checks"] for results in all_results.values())
        exact = sum(_sum(results, reader, COLUMNS["exact"]) for results in all_results.values())
        right = exact + sum(_sum(results, reader, ("guessed_right",)) for results in all_results.values())
        left = checks - sum(counts[reader] for counts in impossible.values())
        lines.append(
            f"* {title}: {_percent(exact, checks)} of {checks:,} checks are exact; outside the classes"
        )
        lines.append(f"  below {_percent(exact, left)}. Right, proved or not: {_percent(right, checks)}.")
    return lines


def _kinds(kinds: list[Kind]) -> list[str]:
    lines = ["", "## What was not exact elsewhere", ""]
    lines.append("Where the walk failed or guessed, by function; the classes above are left out.")
    lines += [
        "",
        "| verdict | end | function | all registers | copy | combinations |",
        "|---|---|---|--:|--:|--:|",
    ]
    others = [kind for kind in kinds if not _class_of(kind)]
    for kind in others[:40]:
        counts = f"{kind.counts['process']:,} | {kind.counts['copy']:,} | {len(kind.combinations):,}"
        lines.append(f"| {kind.verdict.replace('_', ' ')} | {kind.end} | `{kind.function}` | {counts} |")
    if len(others) > 40:
        rest = sum(kind.count for kind in others[40:])
        lines.append(f"\n{len(others) - 40} more kinds with {rest:,} stacks are in the run's JSON.")
    return lines


def _peers() -> list[str]:
    if not PEERS.exists():
        return []
    found: dict[str, dict[str, Counter[str]]] = json.loads(PEERS.read_text())
    verdicts = ["exact", "right_not_complete", "cut", "cut_and_complete", "wrong", "wrong_and_complete"]
    tools = list(next(iter(found.values())))
    totals = {tool: Counter[str]() for tool in tools}
    for tool in tools:
        for counts in found.values():
            totals[tool].update(counts[tool])
    lines = ["", "## Beside others", ""]
    lines.append(
        f"Steps at random of {len(found)} of the programs; at each, every tool looked at the same stopped"
    )
    lines.append(
        "process. Complete: what the tool itself says of its stack (gdb: the last frame is the outermost;"
    )
    lines.append("libunwind: `unw_step` returned 0; libdwfl: no error).")
    lines += ["", "| tool | steps | " + " | ".join(v.replace("_", " ") for v in verdicts) + " |"]
    lines.append("|---|" + "--:|" * (1 + len(verdicts)))
    for tool, counts in totals.items():
        numbers = " | ".join(f"{counts[verdict]:,}" for verdict in verdicts)
        lines.append(f"| {tool} | {sum(counts.values()):,} | {numbers} |")
    lines += ["", "| program | " + " | ".join(f"{tool}, exact" for tool in tools) + " |"]
    lines.append("|---|" + "--:|" * len(tools))
    for name, by_tool in found.items():
        shares = (f"{by_tool[t].get('exact', 0)} of {sum(by_tool[t].values())}" for t in tools)
        lines.append(f"| {name} | " + " | ".join(shares) + " |")
    return lines


def write_document(all_results: dict[str, dict[str, Any]], kinds: list[Kind], combinations: int) -> None:
    """The table of every combination, the kinds of inexact stacks, the peers. combinations: how many there
    are to be stepped; the document says how many were."""
    steps = sum(results["steps"] for results in all_results.values())
    scope = f"This run: {len(all_results):,} of {combinations:,} combinations of a program and a build, "
    scope += f"{steps:,} instructions."
    special = {
        verdict: sum(_sum(results, "process", (verdict,)) for results in all_results.values())
        for verdict in ("rewritten", "destination")
    }
    said = {
        name: f"({counts['process']:,} stacks with all registers, {counts['copy']:,} in copies.)"
        for name, counts in _impossible(kinds).items()
    }
    parts = [TEXT.format(scope=scope, **special), *_outside(all_results, kinds)]
    parts += [*_reasons(all_results), IMPOSSIBLE_TEXT.format(**said), *_kinds(kinds), *_peers(), LIMITS]
    parts.append("## Every combination")
    for reader in READERS:
        parts += _table(all_results, reader)
    DOCUMENT.write_text("\n".join(parts) + "\n")
