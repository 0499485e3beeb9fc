"""One run of `unspool record`: from a source of samples to a file, whatever happens in between.

The program is waited for, its exit status passed on; a failure of ours ends the recording, not the program.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Protocol, TypeAlias

import click

from unspool.binaries import Binary
from unspool.capture import CaptureError
from unspool.capture.blocklist import without_blocked
from unspool.capture.in_process import EVENTS, CaptureSettings
from unspool.capture.launch import exit_status
from unspool.capture.program import CommandError, Program
from unspool.capture.samples import CodeFile, Happening, Problem, ThreadNamed
from unspool.capture.thread_triggers import TIMER_LIMIT
from unspool.cli.columns import printable, signal_name
from unspool.cli.downloads import Downloads
from unspool.cli.naming_progress import NamingLine
from unspool.cli.record_output import Output
from unspool.cli.record_tally import Tally, duration
from unspool.export import ExportError
from unspool.profile import RecordingError, RecordingWriter
from unspool.symbols import Symbolizer

_MOST_SAMPLED = 0.95  # of the CPU time: less of it needs an explanation
_GRACE_SECONDS = 2.0  # that a program has to end after a signal before the recording does

Renaming: TypeAlias = tuple[re.Pattern[str], str]


class Files(Protocol):
    """The files that a source has found mapped."""

    def opened(self) -> Mapping[CodeFile, Binary]: ...


class Source(Protocol):
    """Where samples come from: capture.in_process or capture.perf_event."""

    settings: CaptureSettings
    program: Program | None
    goes_on: bool

    @property
    def files(self) -> Files: ...
    def launch(self, command: Sequence[str]) -> int: ...
    def happenings(self) -> Iterator[Happening]: ...
    def stop(self, seconds: float = 0.0) -> None: ...
    def signal_program(self, number: int) -> None: ...
    def wait(self) -> int: ...
    def close(self) -> None: ...


@dataclass
class Run:
    """via: how samples are taken. target: what is recorded, for people. note: what to say of it at once."""

    source: Source
    via: str
    output: Output
    target: Sequence[str]
    pid: int | None = None  # a process that is watched already
    note: str | None = None
    block: re.Pattern[str] | None = None
    renamings: Sequence[Renaming] = ()
    tally: Tally = field(default_factory=Tally)
    _told: set[str] = field(default_factory=set)
    _failed: bool = False
    _interrupts: int = 0
    _is_recording: bool = True

    def run(self, seconds: float | None) -> int:
        """The exit status. seconds: how long to record at most."""
        started = time.monotonic()
        self._handle_signals()
        pid = self.pid
        if self.note is not None:
            say(self.note)
        if pid is None:
            try:
                pid = self.source.launch(self.target)
            except CaptureError as error:
                click.echo(f"Error: {printable(str(error))}", err=True)
                return error.status if isinstance(error, CommandError) else 1
        if seconds is not None:
            self.source.stop(seconds)
        try:
            self._record(pid, started)
        finally:
            self.source.close()  # no more samples are taken
            status = self._wait()
        if status < 0 and -status != signal.SIGINT:  # Ctrl-C is no news
            say(f"{self.target[0]} was killed by {signal_name(-status)}")
        return exit_status(status) or int(self._failed)

    def _record(self, pid: int, started: float) -> None:
        path = Path()
        rate = self.source.settings.rate
        meta: dict[str, str | int] = {"command": " ".join(self.target), "rate": rate, "via": self.via}
        try:
            path = self.output.recording_path(self.target[0], pid)
            with RecordingWriter.create(path, meta, EVENTS) as writer:
                if self.note is not None:
                    writer.add(Problem(None, self.note))
                for happening in self._happenings():
                    writer.add(happening)
                    self.tally.add(happening)
                    if isinstance(happening, Problem) and not happening.is_note:
                        self._tell(happening, pid)
                self._is_recording = False
                length = time.monotonic() - started
                writer.set_meta({"seconds": str(round(length, 3)), **self._ending()})
                self.tally.processes, self.tally.threads = writer.processes, writer.threads
                self._finish(writer)
            self._report(path, length)
        except (RecordingError, ExportError) as error:
            self._failed = True
            say(f"{error}; what was written until then is in {path}" if path.is_file() else str(error))
        except OSError as error:
            self._failed = True
            say(f"nothing was recorded: {error.strerror or error}; choose another folder with -o")
        finally:
            self._is_recording, self._interrupts = False, 0

    def _tell(self, problem: Problem, pid: int) -> None:
        """Each problem once, however many processes have it, and whose it is if not the program's own: the
        recording has them all."""
        if problem.text not in self._told:
            self._told.add(problem.text)
            is_plain = problem.pid in (None, pid) or problem.text.startswith("process ")
            say(problem.text if is_plain else f"process {problem.pid}: {problem.text}")

    def _happenings(self) -> Iterator[Happening]:
        """What happens, threads renamed, without what is blocked."""
        for happening in without_blocked(self.source.happenings(), self.block):
            if isinstance(happening, ThreadNamed):
                yield replace(happening, name=self._renamed(happening.name))
            else:
                yield happening

    def _renamed(self, name: str) -> str:
        for pattern, new in self.renamings:
            match = pattern.fullmatch(name)
            if match:
                return match.expand(new)
        return name

    def _ending(self) -> dict[str, str | int]:
        """How the program ended, if it has: as wait(2) gives it."""
        if self.pid is not None or self.source.goes_on:
            return {}
        status = self.source.wait()
        return {"exit_status": -status if status < 0 else status << 8}

    def _finish(self, writer: RecordingWriter) -> None:
        if not self.tally.samples:
            why = f"no samples: {self._why_nothing()}"
            say(why)
            writer.add(Problem(None, why))
            writer.finish()
            return
        try:
            with closing(NamingLine()) as line:
                writer.finish(Symbolizer(progress=Downloads()), self.source.files.opened(), line)
        except KeyboardInterrupt:
            say(f"interrupted: names are missing; get them with: unspool symbolize {writer.path}")

    def _report(self, path: Path, seconds: float) -> None:
        for line in self.tally.lines(self.source.settings.rate, seconds):
            say(line)
        if self._misses_faults:
            say(f"above {TIMER_LIMIT} Hz page faults are not sampled; at -r {TIMER_LIMIT} or less they are")
        for line in self.output.finish(path):
            say(line)
        if self.source.goes_on and self.pid is None:
            say("the program goes on, and unspool waits for its end (Ctrl-C twice: no longer)")

    @property
    def _misses_faults(self) -> bool:
        is_fast = self.via == "in-process" and self.source.settings.rate > TIMER_LIMIT
        return is_fast and self.tally.weight < _MOST_SAMPLED * self.tally.cpu_time

    def _why_nothing(self) -> str:
        """And what to do."""
        period = 1_000_000_000 // self.source.settings.rate
        used = f"used {duration(self.tally.cpu_time)} of the CPU"
        is_short = self.tally.cpu_time < 2 * period
        if is_short and self.pid is not None:
            where = f", or see where it waits: unspool stack {self.pid}" if self.source.goes_on else ""
            return f"process {self.pid} {used}: it was idle; watch it for longer (-d){where}"
        if not self.tally.processes and not self.tally.problems:
            return (
                "the agent was not loaded into the program, or that ended at once; if it uses the CPU, --via "
                "perf can watch it"
            )
        if is_short and self.tally.processes:
            return (
                f"the program {used}, and at {self.source.settings.rate} Hz a sample is taken every "
                f"{duration(period)}; give a higher rate with -r"
            )
        if self.tally.problems:
            return "see above"
        for reason, _ in self.tally.lost.most_common(1):
            return f"all were lost: {reason}"
        return "none was taken" + ("; try --via perf" if self.via == "in-process" else "")

    # ------------------------------------------------------------ signals

    def _handle_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C and a hang-up reach the program as they reach us; what is sent to us alone is passed on."""
        if number == signal.SIGTERM:
            self.source.signal_program(number)
        elif number == signal.SIGINT:
            self._interrupts += 1
        if self._is_recording:
            self.source.stop(_GRACE_SECONDS if self._interrupts < 2 and self.pid is None else 0)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    def _wait(self) -> int:
        """For the program's end, as Source.wait; a second Ctrl-C leaves it alone."""
        while True:
            try:
                return 0 if self.pid is not None else self.source.wait()
            except KeyboardInterrupt:
                if self._interrupts > 1:
                    return 128 + signal.SIGINT


def say(text: str) -> None:
    """On standard error, which belongs to the program: each line says whose it is."""
    with suppress(OSError):  # whoever reads it may be gone
        click.echo(f"unspool: {printable(text)}", err=True)
