"""Threads as lines of text. Yields lines; whoever calls prints them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from statistics import median

import click

from unspool.cli.stack_frames import ENDS, STATES, Line, ThreadLines
from unspool.unwind import Registers

_NAME_WIDTH = 44  # columns; a longer name pushes its own line's columns to the right
_FILE_WIDTH = 28
_REGISTERS_A_LINE = 4


def thread_text(thread: ThreadLines, *, registers: bool) -> Iterator[str]:
    """One thread: a heading, a line a function, and how the stack ended."""
    captured = thread.thread
    state = STATES.get(captured.state, captured.state)
    heading = click.style(f"thread {captured.tid}", bold=True)
    if captured.name:
        heading += "  " + click.style(printable(captured.name), bold=True)
    yield heading + (click.style(f"  {state}", dim=True) if state else "")
    if captured.problem:
        yield "  " + click.style(captured.problem, fg="red")
    if registers and captured.registers:
        yield from _registers_text(captured.registers)
    if thread.stack is not None:
        yield from _frames_text(thread)
        yield _end_text(thread)


def _frames_text(thread: ThreadLines) -> Iterator[str]:
    assert thread.stack is not None
    name_width = min(max((len(_name(line)) for line in thread.lines), default=0), _NAME_WIDTH)
    file_width = min(max((len(_file(line)) for line in thread.lines), default=0), _FILE_WIDTH)
    number = -1
    shown_frame = None
    for line in thread.lines:
        number += line.frame is not shown_frame
        label = str(number) if line.frame is not shown_frame else ""
        shown_frame = line.frame
        yield _line_text(line, label, name_width, file_width)
    hidden = len(thread.stack) - (number + 1)
    if hidden:
        yield click.style(f"       … {hidden} more frames", dim=True)


def _line_text(line: Line, label: str, name_width: int, file_width: int) -> str:
    name, file = _name(line), _file(line)
    is_known = line.location.function is not None
    parts = [
        click.style(f"{label:>5}  ", dim=True),
        click.style(name, fg="cyan" if line.location.inlined else None, dim=not is_known),
        " " * max(name_width - len(name), 0) + "  ",
        click.style(file, fg="green") + " " * max(file_width - len(file), 0) + "  ",
        click.style(printable(line.binary), dim=True),
    ]
    marks = [mark for mark in ("inlined" if line.location.inlined else "", line.how) if mark]
    if marks:
        colour = "yellow" if line.frame.guessed else "blue"
        parts.append("  " + click.style(f"[{', '.join(marks)}]", fg=colour))
    return "".join(parts).rstrip()


def _name(line: Line) -> str:
    if line.location.function or line.frame.relative_address is None:
        return printable(line.location.function or f"{line.frame.address:#x}")
    return f"+{line.frame.relative_address:#x}"  # in the file that the line names


def _file(line: Line) -> str:
    if line.location.file is None:
        return ""
    name = printable(PurePosixPath(line.location.file).name)
    return name + (f":{line.location.line}" if line.location.line else "")


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


def summary_text(threads: Sequence[ThreadLines]) -> str:
    """The last line: how many stacks are complete, guessed, cut, and how long threads stood still."""
    walked = [thread.stack for thread in threads if thread.stack is not None]
    counts = {
        "complete": sum(stack.complete for stack in walked),
        "guessed": sum(stack.guessed for stack in walked),
        "cut": sum(stack.cut for stack in walked),
        "without a stack": len(threads) - len(walked),
    }
    words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{len(threads)} thread{'s' if len(threads) != 1 else ''}: {words}" + _stop_text(threads)


def _stop_text(threads: Iterable[ThreadLines]) -> str:
    stops = [thread.thread.stopped_seconds * 1000 for thread in threads if thread.thread.stopped_seconds]
    if not stops:
        return ""
    typical = f", {median(stops):.2f} ms typically" if len(stops) > 1 else ""
    return click.style(f"; each stood still for {max(stops):.2f} ms or less{typical}", dim=True)


def printable(text: str) -> str:
    """What a process or a file calls itself must not command the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
