"""What would make stacks better, in lines: files that are missing, debug information, what a core lost."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from unspool.binaries import Binary
from unspool.capture.live_process import LiveProcess
from unspool.capture.process import CapturedProcess
from unspool.cli.stack_frames import ThreadLines
from unspool.symbols import Symbolizer


def notes_about(
    process: CapturedProcess, symbolizer: Symbolizer, threads: Iterable[ThreadLines]
) -> list[str]:
    """Of the process, and of the binaries whose frames are shown; a sentence each."""
    binaries = dict.fromkeys(
        line.frame.module.binary
        for thread in threads
        for line in thread.lines
        if line.frame.module and line.frame.module.binary
    )
    return [
        *process.problems,
        *(f"{name}: not used: {why}" for name, why in process.missing.items()),
        *dict.fromkeys(_about_binaries(binaries, symbolizer, process)),
    ]


def _about_binaries(
    binaries: Iterable[Binary], symbolizer: Symbolizer, process: CapturedProcess
) -> Iterator[str]:
    without_lines = []
    for binary in binaries:
        findings = symbolizer.findings(binary, ask_packages=False)
        if not findings.has_lines and binary.path != "[vdso]":
            without_lines.append(PurePosixPath(binary.path).name)
        for note in findings.notes:
            yield note.what + (f": {note.remedy}" if note.remedy else "")
    if without_lines:
        names = ", ".join(without_lines)
        remedy = "install their debug packages, or try --debug-dir or --debuginfod"
        if isinstance(process, LiveProcess):
            remedy = f"`unspool doctor stack {process.pid}` names packages that bring it, if there are any"
        yield f"no debug information, hence no files, lines and inlined calls, for {names}: {remedy}"
