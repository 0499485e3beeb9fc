"""Threads as lines of text. Yields lines; whoever calls prints them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import click

from unspool.cli.columns import printable
from unspool.cli.short_names import short_name
from unspool.cli.stack_frames import STATES, Line, ThreadLines
from unspool.unwind import ENDS, Registers, Stack

_NAME_WIDTH, _FILE_WIDTH = 44, 26  # columns at most
_REGISTERS_A_LINE = 4
_STATE_COLOURS = {"R": "green", "D": "red", "T": "yellow", "t": "yellow"}


class Widths(NamedTuple):
    """Columns that functions and files take, the same in all threads. What is longer takes the place of what
    follows it, or pushes it to the right. full_names: names of functions are not shortened."""

    name: int
    file: int
    full_names: bool

    @classmethod
    def of(cls, threads: Iterable[ThreadLines], *, full_names: bool) -> "Widths":
        lines = [line for thread in threads for line in thread.lines]
        return cls(
            min(max((len(_name(line, full_names)) for line in lines), default=0), _NAME_WIDTH),
            min(max((len(_file(line)) for line in lines), default=0), _FILE_WIDTH),
            full_names,
        )


def thread_text(thread: ThreadLines, widths: Widths, *, registers: bool) -> Iterator[str]:
    """One thread: a heading, a line a function, and where the stack was cut, why."""
    captured, stack = thread.thread, thread.stack
    state = STATES.get(captured.state, captured.state)
    parts = [
        click.style(f"thread {captured.tid}", bold=True),
        click.style(printable(captured.name), bold=True),
        click.style(state, fg=_STATE_COLOURS.get(captured.state), dim=captured.state == "S"),
        _verdict(stack) if stack is not None else "",
    ]
    yield "  ".join(part for part in parts if click.unstyle(part))
    if captured.problem:
        yield "       " + click.style(captured.problem, fg="red")
    if registers and captured.registers:
        yield from _registers_text(captured.registers)
    if stack is not None:
        yield from _frames_text(thread, stack, widths)
        if stack.cut:
            yield click.style(f"       cut: {ENDS[stack.end]}", fg="red")


def _verdict(stack: Stack) -> str:
    if stack.complete:
        return click.style("complete", dim=True)
    return click.style("guessed", fg="yellow") if stack.guessed else click.style("cut", fg="red")


def _frames_text(thread: ThreadLines, stack: Stack, widths: Widths) -> Iterator[str]:
    number = -1
    shown_frame = None
    for line in thread.lines:
        number += line.frame is not shown_frame
        label = str(number) if line.frame is not shown_frame else ""
        shown_frame = line.frame
        yield _line_text(line, label, widths)
    hidden = len(stack) - (number + 1)
    if hidden:
        yield click.style(f"       … {hidden} more frame{'s' if hidden > 1 else ''}", dim=True)


def _line_text(line: Line, label: str, widths: Widths) -> str:
    name, file = _name(line, widths.full_names), _file(line)
    too_long = max(len(name) - widths.name, 0)
    parts = [
        click.style(f"{label:>5}  ", dim=True),
        click.style(name, fg="cyan" if line.location.inlined else None, dim=line.location.function is None),
        " " * (widths.name - len(name)) + "  ",
        click.style(file, fg="green"),
        " " * (widths.file - len(file) - too_long) + "  ",
        click.style(printable(line.binary), dim=True),
    ]
    if line.location.inlined:
        parts.append("  " + click.style("inlined", fg="cyan", dim=True))
    if line.how:
        parts.append("  " + click.style(line.how, fg="yellow" if line.frame.guessed else "magenta"))
    return "".join(parts).rstrip()


def _name(line: Line, full: bool) -> str:
    function = line.location.function
    if function:
        return printable(function if full else short_name(function))
    if line.frame.relative_address is None:
        return f"{line.frame.address:#x}"
    return f"+{line.frame.relative_address:#x}"  # in the file that the line names


def _file(line: Line) -> str:
    if line.location.file is None:
        return ""
    name = printable(PurePosixPath(line.location.file).name)
    return name + (f":{line.location.line}" if line.location.line else "")


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
    typical = f", {sorted(stops)[len(stops) // 2]:.2f} ms typically" if len(stops) > 1 else ""
    return click.style(f"; each stood still for {max(stops):.2f} ms or less{typical}", dim=True)
