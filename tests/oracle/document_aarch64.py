"""Writes the part of docs/exactness.md about aarch64 from what a run of tests.oracle.aarch64 found; the rest
of the page is tests.oracle's.
"""

import re
from collections import Counter
from typing import Any

from tests.oracle.document import (
    COLUMNS,
    LAST_PART,
    READERS,
    commit,
    percent,
    put_part,
    reasons,
    sum_of,
    table,
)
from tests.oracle.kinds import Kind

# Where no walk can be right, by the start of the name of the function that a walk failed in, or that the
# function there had called.
IMPOSSIBLE = {
    "exception": ("_Unwind_", "uw_", "unw_", "__libunwind_Registers_arm64_jumpto"),
    "longjmp": ("__longjmp", "longjmp", "siglongjmp"),
    "context": ("swapcontext", "setcontext"),
}
TEXT = """{title}

`make oracle-aarch64` runs the same kinds of programs, cross-compiled, in an emulated processor (unicorn):
gcc 12 and clang 19 with glibc 2.36, and zig's clang with musl. Return addresses are really signed in the
builds named `pac`. A signal whose handler does nothing interrupts each program about every {mean}
instructions. The columns are those above. A call changes no memory here: the true stack is kept by the
link register, and where registers are replaced it is the stack of where control goes.

This run: {count:,} combinations of a program and a build, {steps:,} instructions, with the core of commit
{commit}.
"""
IMPOSSIBLE_TEXT = """
## Where no walk on aarch64 can be right

Nothing of these three classes is called complete. Where sp and lr are the destination's already (the return
of longjmp, or of a function that passes exceptions on), the stack is that of where control goes: sp was
replaced before, and lr not loaded from the stack since, so that the frame is marked as a guess.

* **An exception on its way.** gcc's `_Unwind_RaiseException` and its like leave for the handler by an
  epilogue that adds x4 to sp. Before it come two calls: `uw_install_context_1` writes the handler's x19
  to x29 and then x30 over the slots where the function has saved its caller's, through pointers, so that
  no instruction tells how far it has come; `_Unwind_DebugHook` does nothing; behind it the handler's
  address is stored over the return address. The caller's values then exist nowhere, while unwind
  information describes the slots as before. So the frame is as good as any while every way from pc to
  that epilogue has two calls to come, or sets x4 to 0; while one is to come, its saved registers count as
  unknown, and its return address is a guess if it follows a call of this very function, else the stack
  ends; behind the last call the stack ends. LLVM's unwinder loads all registers from memory that x0
  points to, as longjmp does. {exception}
* **longjmp** loads the registers one by one from memory that no unwind information names: glibc's
  describes that memory itself (CFA = x0) instead of a frame. While lr is the function's own, a direct
  call before it proves the caller; from the load of lr on, the caller's is nowhere. {longjmp}
* **swapcontext and setcontext** likewise, once lr or sp has been loaded. Code analysis finds that, and
  the stack ends. {context}

Copies of the stack have two more: {memory:,} stacks go on in memory that the copy does not hold, nearly
all below handlers with a stack of their own; and {register:,} (pc, sp, fp and lr only) end where another
register decides: x0 between the system call that makes a thread and the branch that tells which of both
threads goes on, x15 in glibc's rawmemchr, which keeps its return address there."""
LIMITS = """
## Limits on aarch64

* The processor is emulated; the kernel's part (signals, system calls) is the emulator's own.
* Rust programs are not among them.
* clang's outliner, by which zig's musl is built with -Os, keeps return addresses in scratch registers
  (x2) over calls that leave them alone; unspool does not follow that, and such stacks end.
* musl's sigsetjmp is left out: its return address is in the buffer for a while, where the truth can't
  follow."""


def _class_of(kind: Kind) -> str | None:
    """The function that the walk failed in, or the one above it on the stack, replaces registers."""
    functions = [kind.function.split(" ", 1)[-1]]
    for line in kind.example["evidence"]:
        if line.startswith("truth"):
            names = [text.split("+", 1)[0].strip() for text in re.sub(r"^truth +#\d+ ", "", line).split("←")]
            functions += names[:2] if kind.example["failed"] <= 1 else names[:1]
    for name, starts in IMPOSSIBLE.items():
        if any(function.split(" ")[-1].startswith(starts) for function in functions):
            return name
    return None


def _is_cut_by_copy(kind: Kind) -> bool:
    """The stack goes on where the copy does not."""
    return (
        kind.verdict == "cut"
        and kind.end in ("stack_bytes_ended", "unreadable_memory")
        and not kind.counts["process"]
    )


def _sort(kinds: list[Kind]) -> tuple[dict[str, Counter[str]], Counter[str], Counter[str], list[Kind]]:
    """The impossible classes; what copies cut, for their memory and for their registers; the others."""
    classes: dict[str, Counter[str]] = {name: Counter() for name in IMPOSSIBLE}
    memory: Counter[str] = Counter()
    register: Counter[str] = Counter()
    others = []
    for kind in kinds:
        name = _class_of(kind)
        if name:
            classes[name].update(kind.counts)
        elif _is_cut_by_copy(kind):
            memory.update(kind.counts)
        elif kind.verdict in ("cut", "guessed_right") and not kind.counts["process"]:
            register.update(kind.counts)
        else:
            others.append(kind)
    return classes, memory, register, others


def _summary(all_results: dict[str, dict[str, Any]], beyond: Counter[str]) -> list[str]:
    lines = ["", "## In all on aarch64", ""]
    lines.append(
        "| | checks | exact | outside the classes below | right, proved or not | wrong and complete |"
    )
    lines.append("|---|--:|--:|--:|--:|--:|")
    checks = sum(results["checks"] for results in all_results.values())
    for reader, title in READERS.items():
        exact, guessed, wrong = (
            sum(sum_of(results, reader, COLUMNS[column]) for results in all_results.values())
            for column in ("exact", "guessed, right", "wrong and complete")
        )
        shares = (
            percent(part, whole)
            for part, whole in ((exact, checks), (exact, checks - beyond[reader]), (exact + guessed, checks))
        )
        lines.append(f"| {title} | {checks:,} | " + " | ".join(shares) + f" | {wrong:,} |")
    return lines


def _list(others: list[Kind]) -> list[str]:
    lines = ["", "## What was not exact elsewhere on aarch64", ""]
    lines += ["| verdict | end | function | all registers | copy | pc, sp, fp | combinations |"]
    lines += ["|---|---|---|--:|--:|--:|--:|"]
    for kind in sorted(others, key=lambda kind: -kind.count):
        counts = " | ".join(f"{kind.counts[reader]:,}" for reader in READERS)
        where = f"`{kind.function}` | {counts} | {len(kind.combinations):,}"
        lines.append(f"| {kind.verdict.replace('_', ' ')} | {kind.end} | {where} |")
    return lines


def write_aarch64(all_results: dict[str, dict[str, Any]], kinds: list[Kind], mean: int) -> None:
    """mean: instructions between two interruptions."""
    classes, memory, register, others = _sort(kinds)
    beyond: Counter[str] = memory + register
    for counts in classes.values():
        beyond.update(counts)
    text = TEXT.format(
        title=LAST_PART,
        mean=mean,
        count=len(all_results),
        steps=sum(results["steps"] for results in all_results.values()),
        commit=commit(),
    )
    said: dict[str, Any] = {
        name: f"({counts['process']:,} stacks with all registers, {counts['copy']:,} in copies.)"
        for name, counts in classes.items()
    }
    said |= {"memory": memory["copy"], "register": register["batch"]}
    parts = [text.rstrip(), *_summary(all_results, beyond), *reasons(all_results)]
    parts += [
        IMPOSSIBLE_TEXT.format(**said).rstrip(),
        *_list(others),
        LIMITS,
        "## Every combination on aarch64",
    ]
    for reader in READERS:
        parts += table(all_results, reader)
    put_part("\n".join(parts) + "\n")
