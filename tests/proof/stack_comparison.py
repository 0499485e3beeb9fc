"""One thread's stack as unspool and as gdb have it: where they differ, and who is right as far as anybody can
tell.

A line is one function of a frame, inlined ones too, as `bt` prints it. Frames are aligned by their pc from
the innermost on; from the first pc on that differs, all lines differ. "Tail calls", which gdb infers from
debug information, are no frames: nothing of them is on the stack. They are counted, not compared.

In code that was made at run time gdb knows no way and takes what it finds. Where its next frame is at an
address that is no code at all, or it does not reach the thread's root, it is no reference: what follows is
counted apart, and listed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.proof.symbol_proof import aliases_of
from tests.proof.symbol_reference import llvm
from unspool import Binary
from unspool.cli.stack_frames import Line, ThreadLines
from unspool.symbols.debug_files import find_debug_file
from unspool.symbols.demangle import demangle
from unspool.unwind import How

ROOTS = ("_start", "clone3", "__clone3", "clone", "__clone")


@dataclass(frozen=True)
class PhysicalFrame:
    """names: innermost first, as the file has them; the last one is the function, the others are inlined."""

    pc: int
    names: tuple[str | None, ...]
    is_signal_return: bool
    lines: tuple[Line, ...] = ()  # ours only


@dataclass(frozen=True)
class Difference:
    kind: str  # "name", "inlined calls", "stack"
    lines: int
    where: str
    ours: str
    gdb: str
    verdict: str


@dataclass
class Comparison:
    """Lines of stacks that were compared, and what became of them."""

    threads: int = 0
    lines: int = 0
    equal: int = 0
    lost: int = 0  # lines of ours behind the point where gdb has lost its way: not in `lines`
    aliases: int = 0  # of the equal ones: two names of the same bytes
    tail_calls: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.equal / self.lines if self.lines else 0.0

    def add(self, other: Comparison) -> None:
        self.threads += other.threads
        self.lines += other.lines
        self.equal += other.equal
        self.lost += other.lost
        self.aliases += other.aliases
        self.tail_calls += other.tail_calls
        self.differences += other.differences


def compare_thread(ours: ThreadLines, theirs: dict[str, Any], is_code: Callable[[int], bool]) -> Comparison:
    """theirs: a line of gdb_stacks.py. is_code: whether an address can be executed."""
    result = Comparison(threads=1)
    result.tail_calls = sum(frame["kind"] == "tail call" for frame in theirs["frames"])
    our_frames, gdb_frames = list(_our_frames(ours)), list(_gdb_frames(theirs["frames"]))
    same = 0
    for mine, other in zip(our_frames, gdb_frames, strict=False):
        if mine.pc != other.pc:
            break
        same += 1
        _compare_frame(result, mine, other)
    our_rest, gdb_rest = our_frames[same:], gdb_frames[same:]
    if our_rest or gdb_rest:
        ours_left, gdb_left = (sum(len(frame.names) for frame in rest) for rest in (our_rest, gdb_rest))
        is_lost = bool(gdb_rest) and not (is_code(gdb_rest[0].pc) and _reaches_root(gdb_rest))
        if is_lost:
            result.lost += ours_left
        else:
            result.lines += max(ours_left, gdb_left)
        lines = ours_left if is_lost else max(ours_left, gdb_left)
        result.differences.append(_stack_difference(ours, theirs, our_frames, gdb_rest, same, lines, is_lost))
    return result


def _reaches_root(frames: Sequence[PhysicalFrame]) -> bool:
    return bool(frames) and frames[-1].names[-1] in ROOTS


def _our_frames(thread: ThreadLines) -> Iterable[PhysicalFrame]:
    groups: list[list[Line]] = []
    for line in thread.lines:
        if not groups or groups[-1][0].frame is not line.frame:
            groups.append([])
        groups[-1].append(line)
    for index, lines in enumerate(groups):
        caller = groups[index + 1][0].frame if index + 1 < len(groups) else None
        returns = caller is not None and caller.how is How.SIGNAL_FRAME
        names = tuple(line.location.raw_name for line in lines)
        yield PhysicalFrame(lines[0].frame.address, names, returns, tuple(lines))


def _gdb_frames(frames: Sequence[dict[str, Any]]) -> Iterable[PhysicalFrame]:
    names: list[str | None] = []
    for frame in frames:
        if frame["kind"] == "tail call":
            continue
        names.append(frame["linkage_name"])
        if frame["kind"] != "inlined":
            yield PhysicalFrame(frame["pc"], tuple(names), frame["kind"] == "signal")
            names = []


def _compare_frame(result: Comparison, mine: PhysicalFrame, other: PhysicalFrame) -> None:
    lines = max(len(mine.names), len(other.names))
    result.lines += lines
    if mine.is_signal_return and other.is_signal_return:
        result.equal += lines
        return
    if len(mine.names) != len(other.names):
        result.equal += sum(_same(a, b) for a, b in zip(mine.names[::-1], other.names[::-1], strict=False))
        result.differences.append(_difference("inlined calls", mine, other))
        return
    for a, b in zip(mine.names, other.names, strict=True):
        is_alias = not _same(a, b) and _are_aliases(mine, a, b)
        result.aliases += is_alias
        result.equal += _same(a, b) or is_alias
        if not (_same(a, b) or is_alias):
            result.differences.append(_difference("name", mine, other, a, b))


def _same(ours: str | None, theirs: str | None) -> bool:
    """gdb knows functions of C++ by the name that it prints where DWARF has no mangled one."""
    if ours == theirs:
        return True
    if ours is None or theirs is None:
        return False
    return _bare(demangle(ours)) == _bare(demangle(theirs))


def _bare(name: str) -> str:
    """Without parameters and spaces."""
    depth, kept = 0, []
    for character in name.replace("(anonymous namespace)", "{anonymous}"):
        depth += character == "("
        if depth == 0 and character != " ":
            kept.append(character)
        depth -= character == ")"
    return "".join(kept).removesuffix("const")


def _are_aliases(frame: PhysicalFrame, ours: str | None, theirs: str | None) -> bool:
    """Whether the symbol table gives both names to the same bytes."""
    module = frame.lines[0].frame.module
    if module is None or module.binary is None or ours is None or theirs is None:
        return False
    return frozenset((ours, theirs)) in _aliases(module.binary)


@cache
def _aliases(binary: Binary) -> set[frozenset[str]]:
    debug_file = find_debug_file(binary, ()).found
    found = aliases_of(binary)
    return found | aliases_of(debug_file) if debug_file is not None else found


def _difference(
    kind: str,
    mine: PhysicalFrame,
    other: PhysicalFrame,
    ours: str | None = None,
    theirs: str | None = None,
) -> Difference:
    frame = mine.lines[0].frame
    where = f"{frame.module.name if frame.module else '?'}+{frame.relative_address or frame.address:#x}"
    chain = _third_opinion(mine)
    third = " < ".join(map(str, chain or [None]))
    if kind == "name":
        right = [
            who
            for who, name in (("ours", ours), ("gdb", theirs))
            if chain and any(_same(name, c) for c in chain)
        ]
        lines, words = 1, (str(ours), str(theirs))
    else:
        right = [
            who for who, each in (("ours", mine), ("gdb", other)) if chain and len(each.names) == len(chain)
        ]
        lines = abs(len(mine.names) - len(other.names))
        words = (" < ".join(map(str, mine.names)), " < ".join(map(str, other.names)))
    verdict = f"{' and '.join(right) or 'open'}: llvm-symbolizer says {third}"
    return Difference(kind, lines, where, *words, verdict)


def _third_opinion(frame: PhysicalFrame) -> list[str | None] | None:
    """The names that llvm-symbolizer has for a frame, innermost first; None: it can't be asked."""
    physical = frame.lines[0].frame
    if physical.module is None or physical.module.binary is None or physical.relative_lookup_address is None:
        return None
    binary = physical.module.binary
    found = find_debug_file(binary, ()).found
    path = found.path if found is not None else binary.path
    try:
        chain = llvm(Path(path), [physical.relative_lookup_address + binary.image_address])[0]
    except (OSError, subprocess.CalledProcessError):
        return None
    return [claim.name or None for claim in chain] or [None]


def _stack_difference(
    ours: ThreadLines,
    theirs: dict[str, Any],
    our_frames: Sequence[PhysicalFrame],
    gdb_rest: Sequence[PhysicalFrame],
    same: int,
    lines: int,
    is_lost: bool,
) -> Difference:
    stack = ours.stack
    end = stack.end.name.lower() if stack is not None else ours.thread.problem
    where = f"thread {ours.thread.tid} {ours.thread.name}, after frame {same - 1}"
    if same:
        last = our_frames[same - 1]
        where += f" ({last.names[-1] or hex(last.pc)} in {last.lines[0].binary})"
    ours_at_root = _reaches_root(our_frames) and stack is not None and not stack.cut
    state = "without a stack" if stack is None else "cut"
    if stack is not None and not stack.cut:
        state = "complete" if stack.complete else "guessed"
    if is_lost:
        verdict = f"ours, {state}" if ours_at_root else f"neither: gdb has lost its way, ours is {state}"
    else:
        verdict = "gdb" if _reaches_root(gdb_rest) and not ours_at_root else "open"
    our_text = f"[{state}, {end}] {_brief(our_frames[same:])}"
    return Difference("stack", lines, where, our_text, f"[{theirs['end']}] {_brief(gdb_rest)}", verdict)


def _brief(frames: Sequence[PhysicalFrame]) -> str:
    words = []
    for frame in frames[:6]:
        how = frame.lines[0].how if frame.lines else ""
        words.append((frame.names[-1] or hex(frame.pc)) + (f" ({how})" if how else ""))
    more = len(frames) - len(words)
    return " <- ".join(words) + (f" <- {more} more" if more > 0 else "")
