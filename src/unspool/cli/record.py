"""`unspool record`: profile a command from its start to its end.

What the program prints stays its own: all of ours goes to standard error. Its exit status is passed on, and
whatever happens to unspool, the program is neither stopped nor changed.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import click

from unspool.capture import CaptureError
from unspool.capture.in_process import DEFAULT_RATE, EVENTS, CaptureSettings, InProcessCapture
from unspool.capture.program import CommandError
from unspool.capture.samples import Happening, Problem, ThreadNamed
from unspool.cli.downloads import Downloads
from unspool.cli.record_output import Output
from unspool.cli.record_tally import Tally, duration
from unspool.cli.stack_text import printable
from unspool.export import FORMATS, ExportError
from unspool.profile import RecordingError, RecordingWriter
from unspool.profile.naming import NamingProgress
from unspool.symbols import Symbolizer

_GRACE_SECONDS = 2.0  # that a program has to end after a signal before the recording does


_Renaming: TypeAlias = tuple[re.Pattern[str], str]


def _renamings(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[_Renaming]:
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
@click.option("-r", "--rate", type=click.IntRange(1), default=DEFAULT_RATE, show_default=True, help="In Hz.")
@click.option(
    "-d", "--duration", "seconds", type=click.FloatRange(0, min_open=True), help="Stop after so many seconds."
)
@click.option("-o", "--output", type=click.Path(), help="Where to write; its suffix chooses the format.")
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
    renamings: list[_Renaming],
) -> None:
    """Profile COMMAND: where it spends its CPU time, on every thread, in every process that it starts.

    From the first word that is no option on, all belongs to the command: unspool record -r 999 -- xz -9 file
    """
    if pid is not None or via == "perf":
        raise click.UsageError(
            "only commands can be recorded so far, and from inside: unspool record -- COMMAND"
        )
    if not command:
        raise click.UsageError("give a command: unspool record -- COMMAND")
    try:
        wanted = Output.of(output, format_)
        capture = InProcessCapture(CaptureSettings(rate, follow, block))
    except (CaptureError, ExportError) as error:
        raise click.ClickException(printable(str(error))) from None
    with closing(capture):
        sys.exit(_Recording(capture, command, wanted, renamings).run(seconds))


class _Recording:
    """One run of `unspool record`."""

    def __init__(
        self,
        capture: InProcessCapture,
        command: tuple[str, ...],
        output: Output,
        renamings: list[_Renaming],
    ) -> None:
        self.capture = capture
        self.command = command
        self.output = output
        self.renamings = renamings
        self.tally = Tally()
        self.failed = False
        self._interrupts = 0
        self._is_recording = True

    def run(self, seconds: float | None) -> int:
        """The exit status."""
        started = time.monotonic()
        self._handle_signals()
        try:
            pid = self.capture.launch(self.command)
        except CaptureError as error:
            click.echo(f"Error: {printable(str(error))}", err=True)
            return error.status if isinstance(error, CommandError) else 1
        if seconds is not None:
            self.capture.stop(seconds)
        try:
            self._record(pid, started)
        finally:
            self.capture.close()  # agents stop
            status = self._wait()
        return status or int(self.failed)

    def _record(self, pid: int, started: float) -> None:
        path = Path()
        try:
            path = self.output.recording_path(self.command[0], pid)
            meta: dict[str, str | int] = {
                "command": " ".join(self.command),
                "rate": self.capture.settings.rate,
                "via": "in-process",
            }
            with RecordingWriter.create(path, meta, EVENTS) as writer:
                for happening in self._named():
                    writer.add(happening)
                    self.tally.add(happening)
                    if isinstance(happening, Problem):
                        _say(happening.text)
                self._is_recording = False
                length = time.monotonic() - started
                writer.set_meta({"seconds": str(round(length, 3))})
                if self.tally.samples:
                    self._name(writer)
                else:
                    writer.finish()
            self._report(path, length)
        except (RecordingError, ExportError) as error:
            self.failed = True
            _say(f"{error}; what was written until then is in {path}")
        except OSError as error:
            self.failed = True
            _say(f"nothing was recorded: {error.strerror}; choose another folder with -o")
        finally:
            self._is_recording, self._interrupts = False, 0

    def _named(self) -> Iterator[Happening]:
        """What happens, threads renamed."""
        for happening in self.capture.happenings():
            if isinstance(happening, ThreadNamed):
                for pattern, name in self.renamings:
                    match = pattern.fullmatch(happening.name)
                    if match:
                        happening = replace(happening, name=match.expand(name))
                        break
            yield happening

    def _name(self, writer: RecordingWriter) -> None:
        symbolizer = Symbolizer(progress=Downloads())
        try:
            writer.finish(symbolizer, self.capture.files.opened(), _Progress())
        except KeyboardInterrupt:
            _say(f"interrupted: names are missing; get them with: unspool symbolize {writer.path}")

    def _report(self, path: Path, seconds: float) -> None:
        if not self.tally.samples:
            self.failed = True
            self.output.discard(path)
            _say(f"nothing was recorded: {self._why_nothing()}")
            return
        for line in self.tally.lines(self.capture.settings.rate, seconds):
            _say(line)
        for line in self.output.finish(path):
            _say(line)
        if self.capture.goes_on:
            _say("the program goes on, and unspool waits for its end (Ctrl-C twice: no longer)")

    def _why_nothing(self) -> str:
        program, rate = self.capture.program, self.capture.settings.rate
        if program is not None and program.obstacle is not None:
            return "see above"
        if not self.capture.recorded_processes:
            return (
                "the agent was not loaded into the program, or that ended at once; if it uses the CPU, --via "
                "perf can watch it"
            )
        if self.tally.cpu_time < 2 * 1_000_000_000 // rate:
            return (
                f"the program used {duration(self.tally.cpu_time)} of the CPU, and at {rate} Hz a sample is "
                f"taken every {duration(1_000_000_000 // rate)}; give a higher rate with -r"
            )
        return "no signal has reached the program; try --via perf"

    # ------------------------------------------------------------ signals

    def _handle_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C and a hang-up reach the program as they reach us; what is sent to us alone is passed on."""
        if number == signal.SIGTERM:
            self.capture.signal_program(number)
        elif number == signal.SIGINT:
            self._interrupts += 1
        if self._is_recording:
            self.capture.stop(_GRACE_SECONDS if self._interrupts < 2 else 0)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    def _wait(self) -> int:
        """For the program's end; a second Ctrl-C leaves it alone."""
        while True:
            try:
                return self.capture.wait()
            except KeyboardInterrupt:
                if self._interrupts > 1:
                    return 128 + signal.SIGINT


class _Progress:
    """On a terminal only."""

    def __init__(self) -> None:
        self._last = 0.0
        self._is_shown = sys.stderr.isatty()

    def __call__(self, progress: NamingProgress) -> None:
        now = time.monotonic()
        is_done = progress.done >= progress.total
        if self._is_shown and (is_done or now - self._last > 0.1):
            self._last = now
            words = f"naming frames: {progress.done:,} of {progress.total:,}  {progress.binary}"
            click.echo(f"\r\x1b[K{'' if is_done else printable(words)[:110]}", err=True, nl=False)


def _say(text: str) -> None:
    with suppress(OSError):  # whoever reads it may be gone
        click.echo(f"unspool: {printable(text)}", err=True)
