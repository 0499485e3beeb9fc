"""Where `unspool record` writes, and in which format.

A recording is always made; where another format is asked for, it lies in a hidden folder beside the output
until it was exported.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unspool.cli.columns import file_size
from unspool.export import FORMATS, ExportError, format_of, write
from unspool.profile import Profile

RECORDING = "unspool"


@dataclass
class Output:
    """path: None = a name that is not taken yet, in this folder. format: a key of FORMATS."""

    path: Path | None
    format: str
    folder: Path | None = None  # where the recording lies that is to be exported

    @classmethod
    def of(cls, path: str | None, format_: str | None) -> Output:
        """From the command line. Raises ExportError: it can't be written."""
        if path is None:
            _check_folder(Path())
            return cls(None, format_ or RECORDING)
        if path == "-":
            raise ExportError("-: standard output belongs to the program", "give a file name with -o")
        target = Path(path)
        if target.is_dir():
            raise ExportError(f"{path}: this is a folder", "give a file name with -o")
        format_ = format_ or format_of(path)
        if format_ is None:
            suffixes = ", ".join(facts.suffix for facts in FORMATS.values())
            raise ExportError(
                f"{path}: its suffix stands for no format", f"use one of {suffixes}, or give -f"
            )
        if format_ == RECORDING:
            for name in (path, f"{path}-wal", f"{path}-journal"):
                _check_free(name)
        if not target.parent.is_dir():
            remedy = f"mkdir -p {_quoted(target.parent)}"
            raise ExportError(f"{path}: there is no folder {target.parent}", remedy)
        _check_folder(target.parent)
        return cls(target, format_)

    def recording_path(self, command: str, pid: int) -> Path:
        """Where the recording is to be written; nothing is there yet. Raises OSError."""
        if self.path is not None and self.format == RECORDING:
            return self.path
        name = re.sub(r"[^\w.+-]", "_", Path(command).name)[:100] or "command"
        stem = f"unspool-{name}-{pid}"
        if self.format != RECORDING:
            self.path = self.path or _free(stem, FORMATS[self.format].suffix)
            self.folder = Path(tempfile.mkdtemp(prefix=".unspool-", dir=self.path.parent))
            return self.folder / f"{stem}.unspool"
        return _free(stem, ".unspool")

    def finish(self, recording: Path) -> Iterator[str]:
        """Export what was asked for, and say where it is and what to do next. Raises ExportError,
        RecordingError: the recording stays."""
        if self.folder is None or self.path is None:
            yield f"written to {recording} ({file_size(recording.stat().st_size)})"
            yield f"next: unspool report {_quoted(recording)}"
            return
        write(Profile.open(str(recording)), self.path, self.format)
        self.discard(recording)
        yield f"written to {self.path} ({file_size(self.path.stat().st_size)}), {FORMATS[self.format].what}"

    def discard(self, recording: Path) -> None:
        """The recording is not wanted."""
        recording.unlink(missing_ok=True)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _check_free(name: str) -> None:
    try:
        os.lstat(name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ExportError(f"{name}: {error.strerror}", "choose another name with -o") from None
    raise ExportError(f"{name}: it is there already", "choose another name with -o, or move it away")


def _check_folder(folder: Path) -> None:
    """Before the program runs, since it may run for long: makes a file there, which is gone again."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        what = f"{folder.absolute()}: no files can be made here ({error.strerror})"
        raise ExportError(what, "choose another folder with -o") from None


def _free(stem: str, suffix: str) -> Path:
    path = Path(f"{stem}{suffix}")
    number = 1
    while path.exists():
        number += 1
        path = Path(f"{stem}-{number}{suffix}")
    return path


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
