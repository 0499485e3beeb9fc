"""Samples from what `perf record` has written: a file, or a stream on a pipe.

Memory does not grow with the file. What can't be read is told in `problems`; all the rest counts.
"""

from __future__ import annotations

import io
import os
import platform
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from unspool.binaries import Binary
from unspool.capture.errors import CaptureError
from unspool.capture.perf_command import RecordedCommand
from unspool.capture.perf_files import RecordedFiles
from unspool.capture.perf_header import read_header
from unspool.capture.perf_names import jit_names, kernel_names
from unspool.capture.perf_order import TimeOrder
from unspool.capture.perf_processes import ProcessFollower
from unspool.capture.perf_records import RecordChunk, RecordParser
from unspool.capture.perf_registers import ALL_REGISTERS
from unspool.capture.perf_spaces import Tables
from unspool.capture.perf_stream import RecordStream
from unspool.capture.samples import CodeFile, CodeNames, Event, Happening, Problem, ProcessStarted

_ARCHITECTURES = ("x86_64", "aarch64")
_X86_64_EXTRAS = 0xFE00  # numbers of flags and segment registers


class PerfData:
    """A recording of perf. Iterate over it once, for what happened, in order.

    path: "-" is standard input. sysroots: folders to look for files in, before their own paths. progress: is
    told bytes done and in all (None: not known). events: of the recording. problems: what could not be read
    of it; notes: files that are not used, and the like; both are complete after the iteration. Raises
    CaptureError: there is nothing to read at all."""

    def __init__(
        self,
        path: str,
        sysroots: Sequence[str] = (),
        progress: Callable[[int, int | None], None] = lambda done, total: None,
    ) -> None:
        self.path = path
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.started: int | None = None
        self._command = RecordedCommand()
        self._file, size, written = _open(path)
        try:
            self._begin(size, written, sysroots, progress)
        except BaseException:
            self._file.close()
            raise

    def _begin(
        self,
        size: int | None,
        written: int | None,
        sysroots: Sequence[str],
        progress: Callable[[int, int | None], None],
    ) -> None:
        self._header = read_header(self._file, self.path, size)
        self._parser = RecordParser()
        for event in self._header.events:
            self._parser.add_event(event.attributes, event.ids)
        self._stream = RecordStream(self._file, self._header, self._parser, progress)
        self._chunks = self._from_first_sample(self._stream.chunks())
        if not self._parser.events:
            raise CaptureError(
                f"{self.path} tells of no event", "it is damaged, or perf record recorded nothing"
            )
        self.arch = self._architecture()
        self._written = written
        self._is_local = self._header.hostname in ("", platform.node())
        self._files = RecordedFiles(
            self.arch,
            self._header.build_ids,
            written,
            is_local=self._is_local,
            sysroots=sysroots,
        )
        self.events = list(self._named_events())

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    @property
    def opened(self) -> dict[CodeFile, Binary]:
        """The files that were found."""
        return self._files.opened

    @property
    def meta(self) -> dict[str, str]:
        """What perf knew of machine and command; only what is known. Complete after the iteration."""
        header = self._header
        known = {
            "command": self._command.of(header.command) or " ".join(header.command),
            "perf_command": " ".join(header.command),
            "host": header.hostname,
            "kernel": header.release,
            "arch": self.arch,
            "perf_version": header.version,
        }
        return {name: value for name, value in known.items() if value}

    def __iter__(self) -> Iterator[Happening]:
        order = TimeOrder()
        follower = ProcessFollower(
            self.arch, self._parser.events, self._files.find, Tables(self._files.missing)
        )
        yield CodeNames(None, kernel_names(self._header.kernel_build_ids, self._header.release))
        for chunk in self._chunks:
            order.add(chunk)
            self._command.note_records(chunk.others)
            yield from self._with_jit_names(follower.follow(order.take()))
        yield from self._with_jit_names(follower.follow(order.take(everything=True)))
        yield from follower.finish(order.latest)
        if self._written is not None:
            self.started = max(self._written - (order.latest - follower.begin), 0)
        self._tell(follower.throttled)
        yield from (Problem(None, text) for text in self.problems + self.notes)

    def _with_jit_names(self, happenings: Iterator[Happening]) -> Iterator[Happening]:
        """Of a recording of this machine, perf maps may still name the JIT code."""
        for happening in happenings:
            self._command.note(happening)
            yield happening
            if self._is_local and isinstance(happening, ProcessStarted):
                yield CodeNames(happening.pid, jit_names(happening.pid))

    def _from_first_sample(self, chunks: Iterator[RecordChunk]) -> Iterator[RecordChunk]:
        """The same, read so far that all events are known: a stream tells of them before the first sample."""
        first = []
        for chunk in chunks:
            first.append(chunk)
            if chunk.samples:
                break
        return chain(first, chunks)

    def _tell(self, throttled: int) -> None:
        self.problems = self._header.problems + self._stream.problems
        for kind, count in self._parser.damaged.items():
            if count:
                self.problems.append(f"{count} {kind} are damaged and left out")
        for kind, count in self._parser.unknown.items():
            self.problems.append(f"{count} {kind} are left out")
        self.notes = [f"{path} is not used: {reason}" for path, reason in self._files.missing.items()]
        self.notes += [
            f"{path} is used unchecked: the recording has neither its build id nor its inode"
            for path in sorted(self._files.unchecked)
        ]
        if throttled:
            self.notes.append(f"the kernel stopped sampling {throttled} times for a while: too many samples")

    def _architecture(self) -> str:
        recorded = self._header.arch
        if not recorded:
            known = ALL_REGISTERS["x86_64"] | _X86_64_EXTRAS
            wide = any(event.user_registers & ~known for event in self._parser.events)
            recorded = "aarch64" if wide else platform.machine()
        if recorded not in _ARCHITECTURES:
            raise CaptureError(
                f"{self.path} was recorded on {recorded}",
                f"unspool reads recordings of {' and '.join(_ARCHITECTURES)}",
            )
        return recorded

    def _named_events(self) -> Iterator[Event]:
        names = self._header.names
        for number, attributes in enumerate(self._parser.events):
            ids = self._parser.ids_of(number)
            name = next((names[one] for one in ids if one in names), None)
            yield attributes.event(name or attributes.name)


def _open(path: str) -> tuple[io.BufferedReader, int | None, int | None]:
    """The file, its size, and when it was written (nanoseconds); None: not known, it is a stream."""
    if path == "-":
        return io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False), 1 << 20), None, None
    if Path(path).is_dir():
        raise CaptureError(
            f"{path} is a folder (perf record --threads)", "record without --threads, into one file"
        )
    try:
        file = Path(path).open("rb")  # noqa: SIM115 (PerfData closes it)
        status = os.fstat(file.fileno())
    except OSError as error:
        raise CaptureError(f"{path} can't be read ({error.strerror})", "check path and rights") from None
    is_file = stat.S_ISREG(status.st_mode)
    return file, status.st_size if is_file else None, status.st_mtime_ns if is_file else None
