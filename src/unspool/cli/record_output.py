"""Where `unspool record` writes, and in which format.

A recording is always made; where another format is asked for, it is made in a temporary file and exported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unspool.profile import RecordingError

RECORDING = "unspool"


@dataclass
class Output:
    """path: None = a name that is not taken yet, in this folder. format: RECORDING or one of the exports'."""

    path: Path | None
    format: str

    @classmethod
    def of(cls, path: str | None, format_: str | None) -> Output:
        """From the command line. Raises RecordingError."""
        target = None if path is None else Path(path)
        if target is not None and target.exists():
            raise RecordingError(str(target), "it is there already", "choose another name, or move it away")
        return cls(target, format_ or RECORDING)

    def recording_path(self, command: str, pid: int) -> Path:
        """Where the recording is to be written; nothing is there yet."""
        if self.path is not None and self.format == RECORDING:
            return self.path
        name = re.sub(r"[^\w.+-]", "_", Path(command).name) or "command"
        folder = Path()
        path = folder / f"unspool-{name}-{pid}.unspool"
        number = 1
        while path.exists():
            number += 1
            path = folder / f"unspool-{name}-{pid}-{number}.unspool"
        return path

    def finish(self, recording: Path) -> Iterator[str]:
        """Export what was asked for, and say where it is and what to do next."""
        size = recording.stat().st_size
        yield f"written to {recording} ({size / 1e6:.1f} MB)"
        yield f"next: unspool report {recording}"
