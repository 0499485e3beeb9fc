"""Profiling the Python process that one is in: `with unspool.profile() as p:`, `unspool.start()`, `stop()`.

The agent runs here; all else is done by a helper process (cli/profile_helper.py), which this module starts
and talks to in lines of JSON through pipes. Kept light: it is imported with unspool.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from unspool.profile import Profile

    PostProcessor: TypeAlias = Callable[[Profile], Profile]

DEFAULT_RATE = 199  # Hz
_HELPER = "unspool.cli.profile_helper"
_STOP_SECONDS = 5.0  # that a helper gets to end by itself
_REFUSALS = {  # enum session_refusal_reason
    1: "the helper process can't be reached through /proc",
    2: "the agent and the helper process are of different versions of unspool",
    3: "this process' address space is limited (ulimit -v)",
    5: "the handler of SIGPROF can't be installed",
    6: "the helper process has ended",
    7: "this process is being profiled already: stop that profile first (unspool.stop(), or the end of its "
    "with block), or do not run it under unspool record",
}


class ProfilingError(Exception):
    """This process can't be profiled, or its profile can't be used as asked for: why."""


class OwnProfile:
    """A profile of this process: of the CPU time of all its threads. A context manager, or start() and
    stop(), once. Not for several threads at the same time.

    rate: samples a second of CPU time, of every thread, 1 to 10,000. block: a regular expression; samples are
    dropped that hit files whose path it finds, and counted as lost. Both are checked by start.
    """

    def __init__(self, rate: int = DEFAULT_RATE, *, block: str | None = None) -> None:
        self.rate = rate
        self._block = block
        self._pid = os.getpid()
        self._helper: subprocess.Popen[str] | None = None
        self._folder = ""
        self._is_finished = False
        self._lock = threading.Lock()

    # ------------------------------------------------------------ start and stop

    def start(self) -> OwnProfile:
        """Begin; takes about half a second. Returns self. Raises ProfilingError: another profile of this
        process runs, this one was started before, rate or block are not valid, or the helper process can't be
        started or reached."""
        global _running
        with _starting:
            if _running is not None:
                raise ProfilingError(_REFUSALS[7])
            if self._folder:
                raise ProfilingError("a profile is started once; make another one with unspool.profile()")
            self._folder = tempfile.mkdtemp(prefix="unspool-")
            self._remove = weakref.finalize(self, _remove, self._folder, self._pid)
            self._start_helper()
            _running = self
        return self

    def stop(self) -> OwnProfile:
        """End: the recording is complete, with names, and lives as long as this object; save() keeps it.
        Returns self. Does nothing if it has ended. Raises ProfilingError: the helper process was killed or
        could not write, or this is a fork of the process that is profiled."""
        global _running
        self._check_process()
        helper, self._helper = self._helper, None
        if helper is not None:
            _running = None
            try:
                # Before the program's own action for the signal is there again, which may be to end.
                self._ask(helper, {"do": "silence"})
                _agent().unspool_agent_stop()
                self._ask(helper, {"do": "stop"})
                self._is_finished = True
            finally:
                _end(helper)
                _agent().unspool_agent_stop()
        return self

    def __enter__(self) -> OwnProfile:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() == self._pid:  # not in the child of a fork within the block
            self.stop()

    @property
    def is_running(self) -> bool:
        """Between start and stop."""
        return self._helper is not None

    def __repr__(self) -> str:
        """<unspool profile of process 123: 979 samples, 4.85 s of CPU time, 99.3 % complete>"""
        if self.is_running:
            state = f"running at {self.rate} Hz"
        elif not self._is_finished:
            state = "has failed" if self._folder else "not started"
        else:
            try:
                state = self.open().summary
            except ProfilingError as error:
                state = str(error)
        return f"<unspool profile of process {self._pid}: {state}>"

    # ------------------------------------------------------------ results

    def save(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        post_process: PostProcessor | None = None,
    ) -> None:
        """Write the profile to a file, while it runs too: what has been recorded by now.

        format: "html" (a flame graph), "pprof", "collapsed" or "unspool" (the recording, for the unspool
        command); None: as the suffix says (.html, .pb.gz, .collapsed, .unspool). As with `unspool record -o`,
        a recording that is there already is kept, which is an error, and a file of another format is
        replaced. post_process: makes another profile of it first (an unspool.profile.model.Profile of one); a
        recording can't be made of that. Raises ProfilingError; unspool.export.ExportError: the file can't be
        written, or is there."""
        from unspool.export import format_of, write

        if post_process is not None and (format or format_of(path)) == "unspool":
            raise ProfilingError("a recording holds what was recorded: leave out post_process, or save html")
        write(self.open(post_process), path, format)

    def report(
        self, limit: int = 15, post_process: PostProcessor | None = None, *, full_names: bool = False
    ) -> str:
        """What `unspool report` prints, while it runs too. limit: lines a table at most. full_names: of
        functions, instead of short ones. Raises ProfilingError."""
        import click

        from unspool.cli.report_text import report_text
        from unspool.profile.report import report_of

        lines = report_text(report_of(self.open(post_process), limit), {}, None, full_names=full_names)
        return click.unstyle("\n".join(lines)) + "\n"

    def open(self, post_process: PostProcessor | None = None) -> Profile:
        """The profile as NumPy arrays: samples with weights in nanoseconds of CPU time, stacks, frames and
        names; unspool.profile.model.Profile describes them. While it runs too: what has been recorded by now.
        Raises ProfilingError: it was never started, or has failed."""
        from unspool.profile import Profile, RecordingError

        self._check_process()
        if self._helper is not None:
            path = self._ask(self._helper, {"do": "snapshot"})["path"]
        elif self._is_finished:
            path = str(Path(self._folder) / "profile.unspool")
        else:
            raise ProfilingError("there is nothing yet: the profile was never started, or it has failed")
        try:
            profile = Profile.open(path)
        except RecordingError as error:
            raise ProfilingError(str(error)) from None
        return profile if post_process is None else post_process(profile)

    # ------------------------------------------------------------ the helper

    def _start_helper(self) -> None:
        options = {"pid": self._pid, "rate": self.rate, "block": self._block, "folder": self._folder}
        try:
            helper = subprocess.Popen(
                [sys.executable, "-P", "-m", _HELPER, json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for this process
            )
        except OSError as error:
            raise ProfilingError(f"the helper process can't be started: {error}") from None
        try:
            path = self._answer(helper)["session"]
            result = _agent().unspool_agent_start(os.fsencode(path))
            if result:
                reason = _REFUSALS.get(-result, f"the agent refuses (reason {-result})")
                raise ProfilingError(reason)
        except BaseException:
            _end(helper)
            raise
        self._helper = helper

    def _ask(self, helper: subprocess.Popen[str], request: dict[str, object]) -> dict[str, Any]:
        with self._lock:
            assert helper.stdin is not None
            try:
                helper.stdin.write(json.dumps(request) + "\n")
                helper.stdin.flush()
            except OSError:
                raise ProfilingError("the helper process has ended; was it killed?") from None
            return self._answer(helper)

    def _answer(self, helper: subprocess.Popen[str]) -> dict[str, Any]:
        assert helper.stdout is not None
        line = helper.stdout.readline()
        if not line:
            raise ProfilingError("the helper process has ended; standard error may say why")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProfilingError(answer["error"])
        return answer

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ProfilingError(f"this profile is process {self._pid}'s, of which this one is a fork")


def profile(rate: int = DEFAULT_RATE, *, block: str | None = None) -> OwnProfile:
    """A profile of this process, to be used with `with`, or by its start() and stop(). rate, block: as for
    OwnProfile."""
    return OwnProfile(rate, block=block)


def start(rate: int = DEFAULT_RATE, *, block: str | None = None) -> OwnProfile:
    """Begin to profile this process; stop() ends that. rate, block, errors: as for OwnProfile."""
    return OwnProfile(rate, block=block).start()


def stop() -> OwnProfile:
    """End what start() began, and return it. Raises ProfilingError: none runs."""
    if _running is None:
        raise ProfilingError("no profile is running; begin one with unspool.start()")
    return _running.stop()


_starting = threading.Lock()
_running: OwnProfile | None = None
_library: ctypes.CDLL | None = None


def _agent() -> ctypes.CDLL:
    """The agent in this process; it does nothing before it is started."""
    global _library
    if _library is None:
        from unspool.core import library_path

        _library = ctypes.CDLL(str(library_path().with_name("libunspool_agent.so")))
        _library.unspool_agent_start.argtypes = [ctypes.c_char_p]
        _library.unspool_agent_start.restype = ctypes.c_int
        _library.unspool_agent_stop.argtypes = []
        _library.unspool_agent_stop.restype = None
    return _library


def _end(helper: subprocess.Popen[str]) -> None:
    """It ends by itself when its input ends."""
    for pipe in (helper.stdin, helper.stdout):
        if pipe is not None:
            with suppress(OSError):  # it has ended before it read everything
                pipe.close()
    try:
        helper.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        helper.kill()
        helper.wait()


def _remove(folder: str, pid: int) -> None:
    """Not in the child of a fork, whose parent still needs it."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _forget_in_child() -> None:
    """A forked child may have a profile of its own; its parent's goes on without it."""
    global _running, _starting
    _running, _starting = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)
