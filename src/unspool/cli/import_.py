"""`unspool import`: a recording from what `perf record` has written."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from unspool.capture import CaptureError
from unspool.capture.perf_data import PerfData
from unspool.capture.perf_header import is_perf_data
from unspool.capture.samples import Lost, SampleBatch
from unspool.cli.columns import printable
from unspool.cli.downloads import Downloads
from unspool.profile.errors import RecordingError
from unspool.profile.naming import NamingProgress
from unspool.profile.recording import RecordingWriter
from unspool.symbols import Symbolizer

_EVERY = 0.2  # seconds between two lines of progress
_NOTES_SHOWN = 20


@dataclass
class Counts:
    """Samples of a recording, by how much is known of their stacks."""

    complete: int = 0
    guessed: int = 0
    cut: int = 0
    lost: int = 0

    @property
    def samples(self) -> int:
        return self.complete + self.guessed + self.cut

    def add(self, batch: SampleBatch) -> None:
        self.complete += int(batch.complete.sum())
        self.guessed += int(batch.guessed.sum())
        self.cut += int(batch.cut.sum())


@click.command("import", short_help="Make a recording of what `perf record` has written.")
@click.argument("perf_data", metavar="PERF.DATA")
@click.option("-o", "--output", type=click.Path(), help="The recording (default: PERF.DATA.unspool).")
@click.option(
    "--sysroot",
    "sysroots",
    type=click.Path(exists=True, file_okay=False),
    multiple=True,
    help="Search the programs' files here.",
)
@click.option(
    "--debug-dir",
    "debug_dirs",
    type=click.Path(exists=True, file_okay=False),
    multiple=True,
    help="Search debug files here too.",
)
@click.option("--debuginfod", is_flag=True, help="Download missing debug files from $DEBUGINFOD_URLS.")
def import_(
    perf_data: str,
    output: str | None,
    sysroots: tuple[str, ...],
    debug_dirs: tuple[str, ...],
    debuginfod: bool,
) -> None:
    """Walk the stacks of PERF.DATA (- is standard input) and write a recording.

    Of a file that is cut short or damaged, what can be read is imported; the rest is reported, and the exit
    status is 1.
    """
    output = output or default_output(perf_data)
    symbolizer = Symbolizer(debug_dirs, debuginfod=debuginfod, progress=Downloads())
    try:
        counts, problems, notes = import_perf_data(perf_data, output, sysroots, symbolizer)
    except (CaptureError, RecordingError) as error:
        raise click.ClickException(printable(str(error))) from None
    for note in notes[:_NOTES_SHOWN]:
        click.echo(printable(note), err=True)
    if len(notes) > _NOTES_SHOWN:
        click.echo(
            f"{len(notes) - _NOTES_SHOWN} more notes: unspool query {output} 'select * from problems'",
            err=True,
        )
    _tell_damage(problems)
    lost = f", {counts.lost} lost" if counts.lost else ""
    click.echo(
        f"{output}: {counts.samples} samples ({counts.complete} complete, {counts.guessed} guessed, "
        f"{counts.cut} cut{lost}); look at it: unspool report {output}"
    )
    if not counts.samples:
        click.echo(f"{printable(perf_data)} has no sample: see what perf record has printed", err=True)
    if problems or not counts.samples:
        sys.exit(1)


def default_output(perf_data: str) -> str:
    """Beside nothing but in the current folder, named for what is imported."""
    return "perf.unspool" if perf_data == "-" else f"{Path(perf_data).name}.unspool"


@contextmanager
def as_recording(path: str) -> Iterator[str]:
    """For verbs that look at recordings: the path itself, or if it is of a perf.data file, that of a
    recording made of it, which lives as long as the context. Raises CaptureError, RecordingError."""
    if not is_perf_data(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="unspool-") as folder:
        recording = str(Path(folder) / f"{Path(path).name}.unspool")
        _, problems, _ = import_perf_data(path, recording, (), Symbolizer(progress=Downloads()))
        _tell_damage(problems)
        yield recording


def _tell_damage(problems: list[str]) -> None:
    for problem in problems:
        click.echo(click.style(f"damaged: {printable(problem)}", fg="red"), err=True)


def import_perf_data(
    perf_data: str, output: str, sysroots: tuple[str, ...], symbolizer: Symbolizer
) -> tuple[Counts, list[str], list[str]]:
    """Writes the recording. Returns what it has, what of perf.data could not be read, and what else is to be
    known. Raises CaptureError, RecordingError."""
    counts = Counts()
    progress = ImportProgress()
    with closing(PerfData(perf_data, sysroots, progress.reading)) as source:
        meta = {"via": "perf.data", **source.meta}
        with RecordingWriter.create(output, meta, source.events, is_live=False) as writer:
            try:
                for happening in source:
                    writer.add(happening)
                    if isinstance(happening, SampleBatch):
                        counts.add(happening)
                    elif isinstance(happening, Lost):
                        counts.lost += happening.count
                if source.started is not None:
                    started = datetime.fromtimestamp(source.started / 1e9, UTC)
                    writer.set_meta({"started": started.isoformat(timespec="milliseconds")})
                writer.set_meta(source.meta)  # by now the command is known
                writer.finish(symbolizer, source.opened, progress.naming)
            except KeyboardInterrupt:
                for path in (output, f"{output}-wal", f"{output}-shm"):
                    with suppress(OSError):
                        Path(path).unlink()
                raise
            finally:
                progress.end()
    return counts, source.problems, source.notes


class ImportProgress:
    """One line on standard error, if that is a terminal: how far it is, and how long it will take."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._began = self._last = time.monotonic()
        self._phase = ""

    def reading(self, done: int, total: int | None) -> None:
        """Bytes of perf.data."""
        if total is None:
            self._show("importing", f"{done / 1e6:.0f} MB")
        elif total:
            self._show("importing", self._part(done, total))

    def naming(self, progress: NamingProgress) -> None:
        """Frames that are looked up."""
        if progress.total:
            name = printable(Path(progress.binary).name)
            self._show("naming functions", f"{self._part(progress.done, progress.total)} {name}")

    def end(self) -> None:
        """Leave no trace."""
        if self._is_shown:
            click.echo("\r\x1b[K", err=True, nl=False)

    def _show(self, phase: str, text: str) -> None:
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._began = phase, now
        if self._is_shown and now - self._last > _EVERY:
            self._last = now
            click.echo(f"\r{phase}: {text}\x1b[K", err=True, nl=False)

    def _part(self, done: int, total: int) -> str:
        spent = time.monotonic() - self._began
        left = f", {spent * (total - done) / done:.0f} s left" if done and spent > 1 else ""
        return f"{100 * done // total} %{left}"
