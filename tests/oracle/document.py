"""Writes docs/exactness.md from what a run found."""

import json
from collections import Counter
from pathlib import Path
from subprocess import run
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
RECORDINGS = Path(__file__).parent.parent.parent / "out" / "oracle" / "perf.json"
DECIDES = ["core/src", "core/include", "src/unspool/binaries", "tests/oracle/*.[ch]"]
READERS = {
    "process": "With all registers and the process's memory",
    "copy": "With all registers and a copy of the stack, as perf has it",
    "batch": "With pc, sp, fp and a copy of the stack",
}
PEERS_PART = "## Beside others"
LAST_PART = "# aarch64"  # tests.oracle.aarch64 writes it
# Where no walk can be right: by the start of the name of the function, or of its file.
IN_LIBC_OR_PROGRAM = ("libc.so.6 ", "(program) ")
UNWINDER = "libgcc_s.so.1 "
IMPOSSIBLE = {
    "exception": (f"{UNWINDER}_Unwind_", "(program) _Unwind_", "(program) uw_"),
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
it interrupted, and frames below the stack pointer are gone however it got there. A return address that its
own function pops and keeps elsewhere (vfork, musl's sigsetjmp) stays the true one. The same (instruction,
true callers, frame size) is checked once; every executed instruction is checked at least once.

| column | meaning |
|---|---|
| exact | every return address and the end are true, and no frame was a guess: the stack is called complete |
| guessed, right | true, but a frame had no proof, so the stack is called guessed |
| cut | a true beginning of the stack, and the reason why it ends there |
| guessed, wrong | not true, and the stack says that it holds a guess |
| wrong | not true, without a guess that led to the root |
| wrong and complete | of those the ones that are called complete: the column that must be 0 |

Each stack is walked three times: with all registers and the process's memory; with all registers and a copy
of the stack from sp to its end, which is what perf records; and with pc, sp, fp and that copy, which is what
`walk_many` takes. What a copy does not hold is the rest of memory: the slots that the linker fills, and a
stack that a signal handler left for one of its own.

{special}
"""
SPECIAL = """"Exact" holds {rewritten:,} stacks where the program itself had replaced a return address in its
slot, and {destination:,} where only later instructions showed where control goes, and the stack was that one.
"""
IMPOSSIBLE_TEXT = """
## Where no walk can be right

In three classes of instructions the registers of one context are being replaced by those of another. None of
their stacks is called complete.

* **An exception on its way** (`_Unwind_RaiseException`, `_Unwind_Resume`, `_Unwind_ForcedUnwind`, and what
  they call last). To enter a handler, these functions write the handler's registers over the slots of their
  own frame where they had saved their caller's: rbx, rbp and so on, the return address last. From the first
  such write on the caller's values exist nowhere, neither in a register nor in memory, while unwind
  information goes on to describe the slots as before; and no instruction tells how far the writing has come,
  since it goes through pointers. It is done in the last call but one before sp is set from a register. So
  unspool takes such a frame for as good as any while every way from its pc to there has two calls to come, or
  an ordinary return (which still needs the slots). From then on its saved registers count as unknown, a
  return address behind a call of this very function is a guess, and at any other the stack ends. {exception}
* **longjmp**. It loads the registers of another frame one by one; its unwind information then names the
  destination, since the caller's registers are being lost. The stack is that of where control goes, with a
  frame marked as a guess, or it ends. {longjmp}
* **swapcontext and setcontext**. Once the stack pointer is the other context's, what lies at [sp] is no
  return address, though swapcontext's unwind information says so; the address to go to is in the context's
  memory, to which only a register points that no unwind information names. Code analysis finds that the
  function has replaced sp, and the stack ends; setcontext's unwind information names the destination, a
  guess as with longjmp. {context}

Copies have two more, which are no fault of the walk: {copy} stacks (all registers) go on in memory that the
copy does not hold, nearly all below handlers with a stack of their own; and {batch} (pc, sp, fp only) end at
functions whose frame is found by another register, the loader's `_dl_runtime_resolve` above all.
"""
PEERS_TEXT = """Steps at random of {count} of the programs, with the core of commit {core}; at each,
every tool looked at the same stopped process. Complete: what the tool itself says of its stack (gdb: the last
frame is the outermost; libunwind: `unw_step` returned 0; libdwfl: no error; framehop: `next` returned
`Ok(None)`). framehop takes no registers but pc, sp and fp."""
LIMITS = """
## Limits

* x86_64 with glibc 2.36, gcc 12, clang 19, rustc, and musl: the versions of one system (Debian 12).
* Of Python programs one thread is stepped, which they start when everything is imported.
* The kernel is not stepped; a vforked or spawned child is not followed.
* Longer programs are left off at a limit of steps; what they would have done later was not seen.
* musl's C library has no unwind information at all: what its code and the calls before return addresses can't
  prove is guessed or cut, and listed above.
"""


def put_part(text: str) -> None:
    """Write the last part of the page, when text begins with its heading, or all that is before it."""
    page = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    before, mark, _ = page.partition(f"\n{LAST_PART}\n")
    is_last = text.startswith(f"{LAST_PART}\n")
    kept = page[len(before) :] if mark else ""
    DOCUMENT.write_text(f"{before.rstrip()}\n\n{text}" if is_last else text + kept)


def put_peers(file: Path) -> None:
    """Write the part about other unwinders alone, from what tests.oracle.peers found. Raises ValueError where
    the page has no such part."""
    page = DOCUMENT.read_text()
    start = page.index(f"\n{PEERS_PART}\n")
    after = page.index("\n## ", start + 1)
    DOCUMENT.write_text(page[:start] + "\n".join(peers(file)) + "\n" + page[after:])


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.4f} %" if whole else "-"


def sum_of(results: dict[str, Any], reader: str, verdicts: tuple[str, ...]) -> int:
    return sum(int(results[reader][verdict]) for verdict in verdicts)


def table(all_results: dict[str, dict[str, Any]], reader: str) -> list[str]:
    lines = ["", f"### {READERS[reader]}", ""]
    lines.append("| combination | steps | pcs | checks | " + " | ".join(COLUMNS) + " |")
    lines.append("|---|" + "--:|" * (3 + len(COLUMNS)))
    totals: Counter[str] = Counter()
    for name, results in all_results.items():
        row = {key: results[key] for key in ("steps", "distinct_pcs", "checks")}
        row |= {column: sum_of(results, reader, verdicts) for column, verdicts in COLUMNS.items()}
        totals.update(row)
        lines.append(f"| {name} | " + " | ".join(f"{value:,}" for value in row.values()) + " |")
    lines.append("| **all** | " + " | ".join(f"**{value:,}**" for value in totals.values()) + " |")
    return lines


def reasons(all_results: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["", "### Why stacks were cut", ""]
    lines += ["| reason | all registers | copy | pc, sp, fp |", "|---|--:|--:|--:|"]
    for end in range(1, 8):
        counts = [sum(r[reader]["cut_by_end"][end] for r in all_results.values()) for reader in READERS]
        if any(counts):
            lines.append(f"| {end_name(end)} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    return lines


def _class_of(kind: Kind) -> str | None:
    """The class of instructions that a kind belongs to. Nothing but a return address that may have been
    overwritten makes a stack end that way in what the unwinder calls."""
    if kind.function.startswith(UNWINDER) and kind.end == "bad_return_address":
        return "exception"
    return next((name for name, starts in IMPOSSIBLE.items() if kind.function.startswith(starts)), None)


def _is_cut_by_copy(kind: Kind) -> bool:
    """The stack goes on where the copy does not."""
    return kind.verdict == "cut" and kind.end in ("stack_bytes_ended", "unreadable_memory", "unmapped_pc")


def _impossible(kinds: list[Kind]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {name: Counter() for name in IMPOSSIBLE}
    for kind in kinds:
        name = _class_of(kind)
        if name:
            found[name].update(kind.counts)
    return found


def _beyond_copies(kinds: list[Kind]) -> Counter[str]:
    """Stacks outside the classes that their copy cut, by reader; in a batch also what a register cut."""
    found: Counter[str] = Counter()
    for kind in kinds:
        if _class_of(kind):
            continue
        only_batch = not kind.counts["copy"] and not kind.counts["process"]
        if _is_cut_by_copy(kind):
            found["copy"] += kind.counts["copy"]
        if _is_cut_by_copy(kind) or (only_batch and kind.end == "no_unwind_info"):
            found["batch"] += kind.counts["batch"]
    return found


def _outside(all_results: dict[str, dict[str, Any]], kinds: list[Kind]) -> list[str]:
    lines = ["", "## In all", "", "| | checks | exact | outside the classes below | right, proved or not |"]
    lines.append("|---|--:|--:|--:|--:|")
    impossible, beyond = _impossible(kinds), _beyond_copies(kinds)
    for reader, title in READERS.items():
        checks = sum(results["checks"] for results in all_results.values())
        exact = sum(sum_of(results, reader, COLUMNS["exact"]) for results in all_results.values())
        right = exact + sum(sum_of(results, reader, ("guessed_right",)) for results in all_results.values())
        left = checks - sum(counts[reader] for counts in impossible.values()) - beyond[reader]
        shares = (percent(part, whole) for part, whole in ((exact, checks), (exact, left), (right, checks)))
        lines.append(f"| {title} | {checks:,} | " + " | ".join(shares) + " |")
    return lines


def _kinds(kinds: list[Kind]) -> list[str]:
    lines = ["", "## What was not exact elsewhere", ""]
    lines.append("Where the walk failed or guessed, by function; the classes above are left out.")
    lines += [
        "",
        "| verdict | end | function | all registers | copy | pc, sp, fp | combinations |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    others = [kind for kind in kinds if not _class_of(kind)]
    others.sort(key=lambda kind: [-kind.counts[reader] for reader in READERS])
    for kind in others[:40]:
        counts = " | ".join(f"{kind.counts[reader]:,}" for reader in READERS)
        counts += f" | {len(kind.combinations):,}"
        lines.append(f"| {kind.verdict.replace('_', ' ')} | {kind.end} | `{kind.function}` | {counts} |")
    if len(others) > 40:
        rest = sum(kind.count for kind in others[40:])
        lines.append(f"\n{len(others) - 40} more kinds with {rest:,} stacks are in the run's JSON.")
    return lines


def peers(file: Path) -> list[str]:
    """The part about other unwinders, or nothing where tests.oracle.peers has not been run."""
    if not file.exists():
        return []
    run_of_peers: dict[str, Any] = json.loads(file.read_text())
    found: dict[str, dict[str, dict[str, int]]] = run_of_peers["programs"]
    verdicts = ["exact", "right_not_complete", "cut", "cut_and_complete", "wrong", "wrong_and_complete"]
    tools = list(next(iter(found.values())))
    totals = {tool: Counter[str]() for tool in tools}
    for tool in tools:
        for counts in found.values():
            totals[tool].update(counts[tool])
    lines = ["", PEERS_PART, ""]
    lines.append(PEERS_TEXT.format(count=len(found), core=run_of_peers["core"]))
    lines += [f"{tool} is not compared: {reason}." for tool, reason in run_of_peers["absent"].items()]
    lines += ["", "| tool | steps | " + " | ".join(v.replace("_", " ") for v in verdicts) + " |"]
    lines.append("|---|" + "--:|" * (1 + len(verdicts)))
    for tool, total in totals.items():
        numbers = " | ".join(f"{total[verdict]:,}" for verdict in verdicts)
        lines.append(f"| {tool} | {sum(total.values()):,} | {numbers} |")
    lines += ["", "| program | " + " | ".join(f"{tool}, exact" for tool in tools) + " |"]
    lines.append("|---|" + "--:|" * len(tools))
    for name, by_tool in found.items():
        shares = (f"{by_tool[t].get('exact', 0)} of {sum(by_tool[t].values())}" for t in tools)
        lines.append(f"| {name} | " + " | ".join(shares) + " |")
    return lines


def _recordings() -> list[str]:
    if not RECORDINGS.exists():
        return []
    found: dict[str, dict[str, Any]] = json.loads(RECORDINGS.read_text())
    lines = ["", "## Real recordings", ""]
    lines.append(
        "`perf record --call-graph dwarf,16384` of programs that run undisturbed: 16 KB of the stack"
    )
    lines.append("and all registers at each sample (`make perf-proof`).")
    lines += ["", "| program | stacks | cut by the copy | of the others at the root | complete | guessed |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for name, one in found.items():
        root, whole = one["ends"].get("root", 0), one["whole"]
        row = f"{one['stacks']:,} | {one['stacks'] - whole:,} | {root:,} of {whole:,}"
        lines.append(f"| {name} | {row} | {one['complete']:,} | {one['guessed']:,} |")
    calls, jumps = (sum(one[key] for one in found.values()) for key in ("calls", "tail_calls"))
    wrong = sum(sum(one["elsewhere"].values()) for one in found.values())
    lines += [
        "",
        f"In the complete stacks {calls:,} frames stand below a direct call of a function of their own",
    ]
    lines.append(f"file: {calls - jumps:,} are of that very function, {jumps - wrong:,} of one to which that")
    lines.append(f"function's jumps may lead, {wrong:,} of another, which would be a frame that never was.")
    lines += ["", "What did not reach the root was an exception on its way (above):", ""]
    for name, one in found.items():
        lines += [f"* {name}: {count:,} {what}" for what, count in one["not_at_root"].items()]
    return lines


def commit() -> str:
    """The last change of what decides the results, which the working tree must not go beyond."""
    root = DOCUMENT.parent.parent
    asked = ["git", "-C", str(root), "log", "-1", "--format=%h of %cs", "--", *DECIDES]
    changed = ["git", "-C", str(root), "status", "--porcelain", "--", *DECIDES]
    dirty = run(changed, capture_output=True, text=True, check=True).stdout
    return run(asked, capture_output=True, text=True, check=True).stdout.strip() + ", changed" * bool(dirty)


def write_document(all_results: dict[str, dict[str, Any]], kinds: list[Kind], combinations: int) -> None:
    """The table of every combination, the kinds of inexact stacks, the peers. combinations: how many there
    are to be stepped; the document says how many were."""
    steps = sum(results["steps"] for results in all_results.values())
    scope = f"This run: {len(all_results):,} of {combinations:,} combinations of a program and a build, "
    scope += f"{steps:,} instructions,\nwith the core of commit {commit()}."
    special = {
        verdict: sum(
            sum_of(results, reader, (verdict,)) for results in all_results.values() for reader in READERS
        )
        for verdict in ("rewritten", "destination")
    }
    said = {
        name: f"({counts['process']:,} stacks with all registers, {counts['copy']:,} in copies.)"
        for name, counts in _impossible(kinds).items()
    } | {reader: f"{count:,}" for reader, count in _beyond_copies(kinds).items()}
    text = TEXT.format(scope=scope, special=SPECIAL.format(**special) if any(special.values()) else "")
    parts = [text.rstrip() + "\n", *_outside(all_results, kinds)]
    parts += [*reasons(all_results), IMPOSSIBLE_TEXT.format(**said).rstrip(), *_kinds(kinds)]
    parts += [*_recordings(), *peers(PEERS), LIMITS, "## Every combination"]
    for reader in READERS:
        parts += table(all_results, reader)
    put_part("\n".join(parts) + "\n")
