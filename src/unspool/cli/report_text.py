"""A report as lines of text, readable at 80 columns. Yields lines; whoever calls prints them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import click

from unspool.capture.samples import FLAGS, BinaryKind, Flag
from unspool.cli.columns import amount, cells, fitted, percent, printable, signal_name, table
from unspool.cli.short_names import COLUMNS, short_name
from unspool.profile.report import EventReport, HotFunction, Report
from unspool.profile.truth import NamelessBinary, Share, Truth
from unspool.unwind import ENDS

_BINARY, _PLACE, _THREAD = 18, 30, 16  # columns at most
_INDENT = "  "
_SHOWN_CUTS, _SHOWN_BINARIES, _SHOWN_PROBLEMS = 8, 8, 10
_WORTH_TELLING = 0.0005  # of the time
_FACTS = ("command", "via", "rate")  # of Report.meta, in this order

_NO_THREADS = {  # see docs/recording.md
    "(ended threads)": "what threads used after they were last looked at",
    "(not recorded)": "processes that were too short, or could not be recorded",
}

_STATES = {
    "functions": "functions only, no lines and inlined calls",
    "none": "no symbols",
    "missing": "its file was not found",
    "changed": "its file is another one now",
    "": "nobody has looked for its names yet",
}
_REMEDIES = {
    BinaryKind.JIT: "record with the runtime's perf map: node --perf-basic-prof",
    BinaryKind.KERNEL: "sysctl kernel.kptr_restrict=0, then record again",
}


def report_text(
    report: Report, commands: Mapping[str, str], width: int | None, *, full_names: bool = False
) -> Iterator[str]:
    """commands: for paths of binaries without names, the command that brings their debug information. width:
    of the terminal; None: nothing is cut. full_names: of functions, else long ones are shortened."""
    yield from _head(report)
    for event in report.events:
        yield ""
        yield from _event_text(event, report, width, full_names)
    yield ""
    yield from _rest_text(report, commands, width)


def _head(report: Report) -> Iterator[str]:
    yield click.style(printable(report.path), bold=True)
    for key in _FACTS:
        if key in report.meta:
            unit = " Hz" if key == "rate" else ""
            yield f"{_INDENT}{key:<9}{printable(str(report.meta[key]))}{unit}"
    started = printable(str(report.meta.get("started", "")))
    if report.duration is not None:
        started += f"{', ' if started else ''}{amount(report.duration, 'nanoseconds')} long"
    yield f"{_INDENT}{'started':<9}{started}"
    status = report.meta.get("exit_status")
    if isinstance(status, int):
        yield f"{_INDENT}{'ended':<9}{_ending(status)}"
    if not report.is_finished:
        words = "not finished: it is still being written, or its writer died; names may be missing"
        yield _INDENT + click.style(words, fg="yellow")


def _ending(status: int) -> str:
    """status: as wait(2) gives it."""
    number = status & 0x7F
    if number:
        return click.style(f"killed by {signal_name(number)}", fg="red")
    status = status >> 8 & 0xFF
    return click.style(f"exit status {status}", fg="yellow" if status else None)


def _event_text(report: EventReport, whole: Report, width: int | None, full_names: bool) -> Iterator[str]:
    name, unit = report.event
    words = f"{amount(report.weight, unit)} in {report.samples:,} {_plural(report.samples, 'sample')}"
    yield _heading(f"event {name} ({unit})", words)
    if not report.samples:
        yield f"{_INDENT}no samples"
        return
    yield ""
    by_total = "hottest functions by total (with what they call)"
    for title, functions in (("hottest functions by self", report.by_self), (by_total, report.by_total)):
        yield _heading(title)
        yield from _functions_text(functions, report, width, full_names)
        yield ""
    if report.lines:
        yield _heading("hottest lines")
        yield from _lines_text(report, width, full_names)
        yield ""
    yield from _threads_text(report, width)
    if len(report.processes) + report.hidden_processes > 1:
        yield ""
        yield from _processes_text(report, width)
    yield ""
    yield from _truth_text(report.truth, report, whole, width)


def _heading(title: str, rest: str = "") -> str:
    return click.style(printable(title), bold=True) + (f"  {rest}" if rest else "")


def _indented(lines: Iterator[str], width: int | None) -> Iterator[str]:
    """The first line is a heading."""
    for number, line in enumerate(lines):
        text = _INDENT + fitted(line, None if width is None else width - len(_INDENT))
        yield click.style(text, dim=True) if number == 0 else text


def _functions_text(
    functions: list[HotFunction], report: EventReport, width: int | None, full_names: bool
) -> Iterator[str]:
    unit, whole = report.event.unit, report.weight
    rows = [
        [
            percent(found.self_weight, whole),
            amount(found.self_weight, unit),
            percent(found.total_weight, whole),
            amount(found.total_weight, unit),
            _base(found.binary),
            found.function,
        ]
        for found in functions
    ]
    heading = ("self", "", "total", "", "binary", "function")
    limits = (None, None, None, None, _BINARY, None)
    yield from _named_table(heading, rows, limits, 4, width, full_names)


def _named_table(
    heading: Sequence[str],
    rows: Sequence[Sequence[str]],
    limits: Sequence[int | None],
    numbers: int,
    width: int | None,
    full_names: bool,
) -> Iterator[str]:
    """A table whose last column has names of functions, which are shortened to fit."""
    if full_names:
        width = None
    else:
        room = COLUMNS
        if width is not None:
            room = width - len(_INDENT)
            for column, limit in enumerate(limits[:-1]):
                room -= max(cells(fitted(row[column], limit)) for row in (heading, *rows)) + 2
        rows = [[*row[:-1], short_name(row[-1], room)] for row in rows]
    yield from _indented(table(heading, rows, limits, numbers=numbers), width)


def _lines_text(report: EventReport, width: int | None, full_names: bool) -> Iterator[str]:
    rows = [
        [
            percent(found.self_weight, report.weight),
            amount(found.self_weight, report.event.unit),
            _base(found.file) + (f":{found.line}" if found.line else ""),
            found.function,
        ]
        for found in report.lines
    ]
    limits = (None, None, _PLACE, None)
    yield from _named_table(("self", "", "line", "function"), rows, limits, 2, width, full_names)


def _threads_text(report: EventReport, width: int | None) -> Iterator[str]:
    count = sum(use.tid > 0 for use in report.threads) + report.hidden_threads
    yield _heading("threads", f"{count:,}")
    unit = report.event.unit
    with_time = any(use.cpu_time is not None for use in report.threads)
    with_pid = len({use.pid for use in report.threads}) > 1
    rows = []
    for use in report.threads:
        tid = str(use.tid) if use.tid > 0 else "-"
        times = [_optional(use.cpu_time), _optional(use.not_sampled)] if with_time else []
        shares = [percent(use.weight, report.weight), amount(use.weight, unit), f"{use.samples:,}"]
        rows.append([*shares, *times, *([str(use.pid)] if with_pid else []), tid, use.name])
    optional = [*(["cpu time", "not sampled"] if with_time else []), *(["pid"] if with_pid else [])]
    heading = ["sampled", "", "samples", *optional, "tid", "name"]
    limits = [*[None] * (len(heading) - 1), _THREAD]
    yield from _indented(table(heading, rows, limits, numbers=len(heading) - 1), width)
    if report.hidden_threads:
        yield _more(report.hidden_threads, "thread")
    for use in report.threads:
        if use.tid < 1 and use.name in _NO_THREADS:
            yield click.style(_line(f"{use.name}: {_NO_THREADS[use.name]}", width), dim=True)


def _processes_text(report: EventReport, width: int | None) -> Iterator[str]:
    yield _heading("processes", f"{len(report.processes) + report.hidden_processes:,}")
    rows = [
        [
            percent(use.weight, report.weight),
            amount(use.weight, report.event.unit),
            f"{use.threads:,}",
            str(use.pid),
            use.command,
        ]
        for use in report.processes
    ]
    limits = (None, None, None, None, None)
    yield from _indented(table(("sampled", "", "threads", "pid", "command"), rows, limits, numbers=4), width)
    if report.hidden_processes:
        yield _more(report.hidden_processes, "process", "processes")


def _more(count: int, one: str, many: str = "") -> str:
    return click.style(f"{_INDENT}… {count:,} more {one if count == 1 else many or one + 's'}", dim=True)


def _plural(count: int, word: str) -> str:
    return word if count == 1 else word + "s"


def _optional(nanoseconds: int | None) -> str:
    return "?" if nanoseconds is None else amount(nanoseconds, "nanoseconds")


def _base(path: str | None) -> str:
    return "[jit]" if path is None else PurePosixPath(path).name or path


# ------------------------------------------------------------------ the truth report


def _truth_text(truth: Truth, report: EventReport, whole: Report, width: int | None) -> Iterator[str]:
    yield _heading("how far this is true", f"percent of {printable(report.event.name)}, and samples")
    shares = (
        ("complete", truth.complete, "to the root, every frame proved", None),
        ("guessed", truth.guessed, "to the root, with something unproved", "yellow"),
        ("cut", truth.cut, "ended before the root", "red"),
    )
    for name, share, meaning, colour in shares:
        text = f"{_INDENT}{name:<9}{_share_text(share, report)} {meaning}"
        yield click.style(text, fg=colour) if colour and share.samples else text
    for cut in truth.cuts[:_SHOWN_CUTS]:
        why = FLAGS[cut.end] if isinstance(cut.end, Flag) else ENDS[cut.end]
        where = "" if cut.binary is None else f"{fitted(_base(cut.binary), _BINARY)}: "
        yield _line(f"{'':<9}{_share_text(cut.share, report)} {where}{why}", width)
    if len(truth.cuts) > _SHOWN_CUTS:
        yield f"{_INDENT}{'':<9}… and {len(truth.cuts) - _SHOWN_CUTS} other kinds"
    for flag, share in truth.marked.items():
        yield _line(f"{'marked':<9}{_share_text(share, report)} {FLAGS[flag]}", width)
    frames = sum(found.frames for found in truth.frames)
    yield f"{_INDENT}frames by how they were found, and their number"
    for found in truth.frames:
        words = f"{'guess: ' if found.guessed else ''}{found.how.name.lower().replace('_', ' ')}"
        text = _line(f"{'':<9}{percent(found.frames, frames):>7} {found.frames:>11,}  {words}", width)
        yield click.style(text, fg="yellow") if found.guessed else text
    if truth.cpu_time is not None and truth.not_sampled is not None:
        missing = abs(truth.not_sampled)
        what = "not sampled" if truth.not_sampled >= 0 else "sampled beyond the kernel's count"
        times = f"{_optional(missing)} of {_optional(truth.cpu_time)} CPU time"
        yield _line(f"{what}  {times} ({percent(missing, truth.cpu_time)})", width)
    elif report.event.unit == "nanoseconds":
        yield _line("not sampled  unknown: the kernel's figure of the CPU time was not recorded", width)


def _share_text(share: Share, report: EventReport) -> str:
    return f"{percent(share.weight, report.weight):>7} {share.samples:>11,} "


def _line(text: str, width: int | None) -> str:
    return _INDENT + fitted(text, None if width is None else width - len(_INDENT))


def _rest_text(report: Report, commands: Mapping[str, str], width: int | None) -> Iterator[str]:
    yield _heading("lost samples", "none" if not report.lost else f"{sum(report.lost.values()):,}")
    for reason, count in sorted(report.lost.items(), key=lambda item: -item[1]):
        yield _line(f"{'':<9}{count:>19,}  {reason}", width)
    nameless = [binary for binary in report.nameless if binary.self_share >= _WORTH_TELLING]
    yield _heading("binaries without names or lines", "" if nameless else "none with a share of the time")
    for binary in nameless[:_SHOWN_BINARIES]:
        yield _line(f"{100 * binary.self_share:>5.1f} % self  {_base(binary.path)}: {_why(binary)}", width)
        remedy = commands.get(binary.path) or _REMEDIES.get(binary.kind)
        if remedy:
            yield f"{'':<16}{click.style(printable(remedy), bold=True)}"
    if len(nameless) > _SHOWN_BINARIES:
        yield _more(len(nameless) - _SHOWN_BINARIES, "binary", "binaries")
    if any(binary.kind is BinaryKind.FILE for binary in nameless):
        again = click.style(f"unspool symbolize {shlex.quote(printable(report.path))}", bold=True)
        yield f"{_INDENT}then: {again}  (--debug-dir DIRECTORY, --debuginfod)"
    if report.problems:
        yield _heading("problems")
        for problem in report.problems[:_SHOWN_PROBLEMS]:
            yield f"{_INDENT}{printable(problem)}"
        if len(report.problems) > _SHOWN_PROBLEMS:
            yield _more(len(report.problems) - _SHOWN_PROBLEMS, "problem")


def _why(binary: NamelessBinary) -> str:
    if binary.kind in _REMEDIES:
        return "nobody named its code"
    return _STATES.get(binary.state, binary.state)
