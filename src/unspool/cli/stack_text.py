"""Threads as lines of text. Yields lines; whoever calls prints them."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import click

from unspool.cli.stack_frames import ENDS, STATES, Line, ThreadLines
from unspool.unwind import Registers

_NAME_WIDTH = 44  # columns; a longer name pushes its own line's columns to the right
_FILE_WIDTH = 28
_REGISTERS_A_LINE = 4


def thread_text(thread: ThreadLines, *, inlines: bool, registers: bool) -> Iterator[str]:
    """One thread: a heading, a line a function, and how the stack ended."""
    captured = thread.thread
    state = STATES.get(captured.state, captured.state)
    heading = f"thread {captured.tid}" + (f" {captured.name}" if captured.name else "")
    yield click.style(heading, bold=True) + (click.style(f"  {state}", dim=True) if state else "")
    if registers and captured.registers:
        yield from _registers_text(captured.registers)
    if thread.stack is None:
        yield "  " + click.style(f"no stack: {captured.problem}", fg="red")
        return
    lines = [line for line in thread.lines if inlines or not line.location.inlined]
    name_width = min(max((len(_name(line)) for line in lines), default=0), _NAME_WIDTH)
    file_width = min(max((len(_file(line)) for line in lines), default=0), _FILE_WIDTH)
    number = -1
    shown_frame = None
    for line in lines:
        number += line.frame is not shown_frame
        label = str(number) if line.frame is not shown_frame else ""
        shown_frame = line.frame
        yield _line_text(line, label, name_width, file_width)
    hidden = len(thread.stack) - (number + 1)
    if hidden:
        yield click.style(f"       … {hidden} more frames", dim=True)
    yield _end_text(thread)


def _line_text(line: Line, label: str, name_width: int, file_width: int) -> str:
    name, file = _name(line), _file(line)
    is_known = line.location.function is not None
    parts = [
        click.style(f"{label:>5}  ", dim=True),
        click.style(name, fg="cyan" if line.location.inlined else None, dim=not is_known),
        " " * max(name_width - len(name), 0) + "  ",
        click.style(file, fg="green") + " " * max(file_width - len(file), 0) + "  ",
        click.style(line.binary, dim=True),
    ]
    marks = [mark for mark in ("inlined" if line.location.inlined else "", line.how) if mark]
    if marks:
        colour = "yellow" if line.frame.guessed else "blue"
        parts.append("  " + click.style(f"[{', '.join(marks)}]", fg=colour))
    return "".join(parts).rstrip()


def _name(line: Line) -> str:
    return line.location.function or f"{line.frame.address:#x}"


def _file(line: Line) -> str:
    if line.location.file is None:
        return ""
    return PurePosixPath(line.location.file).name + (f":{line.location.line}" if line.location.line else "")


def _end_text(thread: ThreadLines) -> str:
    stack = thread.stack
    assert stack is not None
    if stack.complete:
        return click.style("       the root", dim=True)
    if stack.guessed:
        return click.style("       the root, by a guess", fg="yellow")
    return click.style(f"       cut: {ENDS[stack.end]}", fg="red")


def _registers_text(registers: Registers) -> Iterator[str]:
    values = {"pc": registers.pc, "sp": registers.sp, "fp": registers.fp, "lr": registers.lr}
    known = [(name, value) for name, value in {**values, **registers.others}.items() if value is not None]
    for start in range(0, len(known), _REGISTERS_A_LINE):
        row = known[start : start + _REGISTERS_A_LINE]
        yield click.style("    " + "  ".join(f"{name:>3} {value:016x}" for name, value in row), dim=True)


def summary_text(threads: Iterable[ThreadLines]) -> str:
    """The last line: how many stacks are complete, guessed, cut."""
    stacks = [thread.stack for thread in threads]
    walked = [stack for stack in stacks if stack is not None]
    counts = {
        "complete": sum(stack.complete for stack in walked),
        "guessed": sum(stack.guessed for stack in walked),
        "cut": sum(stack.cut for stack in walked),
        "without a stack": len(stacks) - len(walked),
    }
    words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{len(stacks)} thread{'s' if len(stacks) != 1 else ''}: {words}"
