"""`unspool record`: profile a command from its start to its end, or a process that runs.

What the program prints stays its own: all of ours goes to standard error. Its exit status is passed on, and
whatever happens to unspool, the program is neither stopped nor changed.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import closing
from pathlib import Path

import click

from unspool.capture import CaptureError
from unspool.capture.in_process import DEFAULT_RATE, HIGHEST_RATE, CaptureSettings, InProcessCapture
from unspool.capture.program import find_program
from unspool.cli.columns import printable
from unspool.cli.record_output import Output
from unspool.cli.record_run import Renaming, Run, Source
from unspool.export import FORMATS, ExportError


def _renamings(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[Renaming]:
    """REGEX=NAME: threads whose whole name it matches are shown under NAME, in which \\1 is a group."""
    result = []
    for value in values:
        pattern, equals, name = value.rpartition("=")
        if not equals or not pattern:
            raise click.BadParameter(f"{value!r} has no '='; write it so: 'worker-\\d+=worker'")
        compiled = _pattern(ctx, param, pattern)
        assert compiled is not None
        try:
            re.compile(f"{pattern}|").sub(name, "")
        except (re.error, IndexError) as error:
            raise click.BadParameter(f"{name!r}: {error}") from None
        result.append((compiled, name))
    return result


def _pattern(ctx: click.Context, param: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    try:
        return None if value is None else re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}") from None


@click.command(
    short_help="Profile a command.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-r",
    "--rate",
    type=click.IntRange(1, HIGHEST_RATE),
    default=DEFAULT_RATE,
    show_default=True,
    help="Samples a second of CPU time.",
)
@click.option(
    "-d",
    "--duration",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    help="Stop after so many seconds; COMMAND goes on.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="Where to write; its suffix chooses the format. A recording that is there already is kept.",
)
@click.option(
    "-f", "--format", "format_", type=click.Choice(list(FORMATS)), help="Else OUTPUT's suffix says it."
)
@click.option(
    "--via", type=click.Choice(["auto", "in-process", "perf"]), default="auto", help="How to take samples."
)
@click.option("-p", "--pid", type=int, help="A process that runs already, instead of a command.")
@click.option("--follow/--no-follow", default=True, help="Record the processes that the command starts, too.")
@click.option(
    "--block", metavar="REGEX", callback=_pattern, help="Drop samples that hit files whose path this finds."
)
@click.option(
    "--rename-threads",
    "renamings",
    metavar="REGEX=NAME",
    callback=_renamings,
    multiple=True,
    help="Show threads under other names.",
)
def record(
    command: tuple[str, ...],
    rate: int,
    seconds: float | None,
    output: str | None,
    format_: str | None,
    via: str,
    pid: int | None,
    follow: bool,
    block: re.Pattern[str] | None,
    renamings: list[Renaming],
) -> None:
    """Profile COMMAND, or with -p a process that runs: where it spends its CPU time, on every thread, in
    every process that it starts.

    From the first word that is no option on, all belongs to the command: unspool record -r 999 -- xz -9 file

    COMMAND is profiled from inside, by a library that is preloaded, where that is possible; else the kernel's
    perf events take the samples.
    """
    if (pid is None) == (not command):
        raise click.UsageError("give either a command or a process: unspool record -- COMMAND, or -p PID")
    if pid is not None and via == "in-process":
        raise click.UsageError("a process that runs can only be watched by perf events: leave out --via")
    settings = CaptureSettings(rate, follow)
    try:
        wanted = Output.of(output, format_)
        source, name, note = _source(settings, via, command, pid)
    except (CaptureError, ExportError) as error:
        click.echo(f"Error: {printable(str(error))}", err=True)
        sys.exit(getattr(error, "status", 1))
    with closing(source):
        target = _command_of(pid) if pid is not None else command
        run = Run(source, name, wanted, target, pid, note, block, renamings)
        sys.exit(run.run(seconds))


def _source(
    settings: CaptureSettings, via: str, command: tuple[str, ...], pid: int | None
) -> tuple[Source, str, str | None]:
    """The source, its name, and what to say of the choice. Raises CaptureError."""
    note = None
    if via != "perf" and pid is None:
        program = find_program(command[0])
        if via == "in-process" and program.obstacle is not None:
            raise CaptureError(program.obstacle, program.remedy)
        if program.needs_perf:
            note = f"{program.obstacle}: it is watched by perf events"
    if pid is None and via != "perf" and note is None:
        return InProcessCapture(settings), "in-process", None

    from unspool.capture.perf_event import PerfCapture

    try:
        capture = PerfCapture(settings)
    except CaptureError:
        if note is None:
            raise
        return InProcessCapture(settings), "in-process", None  # which says what would have to be changed
    if pid is not None:
        capture.attach(pid)
    return capture, "perf", note


def _command_of(pid: int) -> list[str]:
    """Of a process that runs, by the name of its program."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        words = [b""]
    return [os.fsdecode(word) for word in words] if words[0] else [f"process-{pid}"]
