"""The formats by name and suffix, and writing a file of one."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from unspool.export.errors import ExportError
from unspool.profile import Profile
from unspool.profile.database import open_for_reading, translated


class Format(NamedTuple):
    """suffix: of file names. what: in a few words. encode: a profile and the number of an event as the
    contents of a file. one_event: it can hold only one event."""

    suffix: str
    what: str
    encode: Callable[[Profile, int], bytes]
    one_event: bool = False


def _html(profile: Profile, _event: int) -> bytes:
    from unspool.export.flamegraph import flame_graph

    return flame_graph(profile)


def _pprof(profile: Profile, _event: int) -> bytes:
    from unspool.export.pprof import pprof

    return pprof(profile)


def _collapsed(profile: Profile, event: int) -> bytes:
    from unspool.export.collapsed import collapsed

    return collapsed(profile, event)


def _recording(profile: Profile, _event: int) -> bytes:
    with (
        closing(open_for_reading(profile.path)) as recording,
        closing(sqlite3.connect(":memory:")) as copy,
        translated(profile.path),
    ):
        recording.backup(copy)
        return copy.serialize()


FORMATS = {
    "html": Format(".html", "a flame graph for the browser, in one file", _html),
    "pprof": Format(".pb.gz", "for go tool pprof and what reads its format", _pprof),
    "collapsed": Format(
        ".collapsed", "a line a stack, for flamegraph.pl and the like", _collapsed, one_event=True
    ),
    "unspool": Format(".unspool", "the recording itself", _recording),
}


def format_of(path: str | os.PathLike[str]) -> str | None:
    """The format that a file name's suffix stands for; None: it stands for none."""
    name = os.fspath(path).lower()
    return next((format for format, facts in FORMATS.items() if name.endswith(facts.suffix)), None)


def write(
    profile: Profile, path: str | os.PathLike[str], format: str | None = None, event: str | None = None
) -> None:
    """Write a profile to a file, or with "-" to standard output. What was in the file is replaced, at once
    and only when all is well; only a recording is never replaced by another. format: a key of FORMATS; None:
    as the suffix says. event: for a format that can hold only one, which; None: the only one. Raises
    ExportError and RecordingError."""
    path = os.fspath(path)
    format = format or format_of(path)
    if format not in FORMATS:
        suffixes = ", ".join(facts.suffix for facts in FORMATS.values())
        what = f"{path}: its suffix stands for no format" if format is None else f"no such format: {format}"
        raise ExportError(what, f"give one of {', '.join(FORMATS)}, or a file name with one of {suffixes}")
    if format == "unspool" and path != "-" and Path(path).is_file():
        raise ExportError(f"{path}: it is there already", "choose another name, or move it away")
    data = FORMATS[format].encode(profile, _event(profile, format, event))
    try:
        if path == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            _replace(Path(path), data)
    except OSError as error:
        raise ExportError(
            f"{path}: {error.strerror or error}", "check its directory, and how much space there is"
        ) from None


def _event(profile: Profile, format: str, event: str | None) -> int:
    names = [known.name for known in profile.events]
    if event is not None and event not in names:
        raise ExportError(f"the recording has no event {event}", f"its events are {', '.join(names)}")
    if event is None and FORMATS[format].one_event and len(names) > 1:
        raise ExportError(f"{format} can hold only one event", f"choose one of {', '.join(names)}")
    return 0 if event is None else names.index(event)


def _replace(path: Path, data: bytes) -> None:
    """By a file beside it that takes its place; what is no file (a pipe, /dev/null) is written to."""
    path = path.resolve()
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            path.write_bytes(data)
            return
    beside = path.with_name(f".{path.name[:200]}.{os.getpid()}")
    try:
        with beside.open("xb") as file:
            file.write(data)
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
