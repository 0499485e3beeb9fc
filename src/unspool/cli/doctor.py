"""`unspool doctor`: what can be captured here; if not, why, and the command that changes it."""

import os
import platform
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import click

from unspool.binaries import BinaryError
from unspool.cache import Cache
from unspool.capture import CaptureError
from unspool.capture.in_process import CaptureSettings
from unspool.capture.live_process import LiveProcess
from unspool.capture.perf_event import PerfCapture
from unspool.capture.perf_permission import PerfSettings, kernel_is_visible
from unspool.capture.permission import Rights, user_name
from unspool.cli.columns import printable
from unspool.symbols import KernelSymbols, Symbolizer

_ARCHITECTURES = ("x86_64", "aarch64")
_VERBS = {"stack": "stack", "perf": "record --via perf"}
_VERBS_OF_PROCESS = {"stack": "stack", "perf": "record -p"}


class Finding(NamedTuple):
    """needed: without it the mode does not work. fine: True = it is there. remedy: what changes it."""

    what: str
    fine: bool
    needed: bool
    remedy: str = ""


@click.command(short_help="What can be captured here, and what is missing.")
@click.argument("mode", default="stack", metavar="[stack|perf]")
@click.argument("pid", type=int, required=False)
def doctor(mode: str, pid: int | None) -> None:
    """Say what a mode of capturing needs, what of it is here, and the command that brings what is missing.

    With a process id, for this process; with nothing else, in both modes: what stops `unspool stack PID` and
    `unspool record -p PID`. Exit status 1 if a mode does not work.
    """
    modes = [mode]
    if mode.isdecimal() and pid is None:
        modes, pid = list(_MODES), int(mode)
    elif mode not in _MODES:
        raise click.UsageError(f"{mode!r} is no mode: give stack or perf, and a process id or none")
    works = [_report(mode, pid) for mode in modes]
    sys.exit(0 if all(works) else 1)


def _report(mode: str, pid: int | None) -> bool:
    """Print what there is; whether it works."""
    findings = list(_MODES[mode](pid))
    for finding in findings:
        click.echo(_text(finding))
    works = all(finding.fine for finding in findings if finding.needed)
    verb = _VERBS[mode] if pid is None else f"{_VERBS_OF_PROCESS[mode]} {pid}"
    words = f"unspool {verb} {'works' if works else 'does not work'} here"
    click.echo(click.style(f"\n{words}", fg="green" if works else "red"))
    return works


def _text(finding: Finding) -> str:
    word, colour = ("ok", "green") if finding.fine else ("no", "red") if finding.needed else ("--", "yellow")
    line = f"{click.style(f'{word:>4}', fg=colour)}  {printable(finding.what)}"
    return line + (f"\n      {click.style(printable(finding.remedy), bold=True)}" if finding.remedy else "")


def _stack(pid: int | None) -> Iterator[Finding]:
    yield _machine()
    yield _trial() if pid is None else _process(pid)
    yield from _rights()
    yield _deleted_files()
    yield _debuginfod()
    yield _cache()
    if pid is not None:
        yield from _debug_information(pid)


def _machine() -> Finding:
    machine, system = platform.machine(), platform.system()
    return Finding(
        f"{system} on {machine}",
        system == "Linux" and machine in _ARCHITECTURES,
        needed=True,
        remedy="" if machine in _ARCHITECTURES else f"use a machine of {' or '.join(_ARCHITECTURES)}",
    )


def _trial() -> Finding:
    """Looks at a process that it starts for this, as at any other."""
    child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    try:
        return _process(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _process(pid: int) -> Finding:
    try:
        with closing(LiveProcess(pid)) as process:
            stacks = process.stacks()
    except (CaptureError, BinaryError) as error:
        return Finding(error.what, False, needed=True, remedy=error.remedy)
    count = sum(stack is not None for _, stack in stacks)
    what = f"process {pid} was looked at: {count} of {len(stacks)} threads have a stack"
    return Finding(what, count > 0, needed=True)


def _rights() -> Iterator[Finding]:
    rights = Rights.of_self()
    yama = "not there" if rights.yama_scope is None else f"kernel.yama.ptrace_scope = {rights.yama_scope}"
    capability = "with" if rights.has_capability else "without"
    yield Finding(
        f"this is {user_name(rights.user)}, {capability} CAP_SYS_PTRACE; Yama: {yama}; seccomp filters: "
        f"{'yes' if rights.has_seccomp_filters else 'no'}",
        True,
        needed=False,
    )
    for others, whose in ((False, f"of {user_name(rights.user)}"), (True, "of other users")):
        refused = rights.why_not(others)
        if refused is None:
            yield Finding(f"processes {whose} may be looked at", True, needed=False)
        else:
            yield Finding(f"processes {whose} may not be looked at: {refused[0]}", False, False, refused[1])


def _deleted_files() -> Finding:
    """Whether /proc/PID/map_files may be read, which needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE."""
    try:
        first = next(Path("/proc/self/map_files").iterdir())
        with first.open("rb"):
            pass
    except (OSError, StopIteration):
        what = "files that were deleted or replaced while a process runs them can't be read"
        return Finding(what, False, needed=False, remedy="run it as root, or restart such a process")
    return Finding("files that were deleted or replaced while a process runs them can be read", True, False)


def _debuginfod() -> Finding:
    if os.environ.get("DEBUGINFOD_URLS"):
        return Finding("--debuginfod can download missing debug information", True, needed=False)
    what = "--debuginfod can't download missing debug information: $DEBUGINFOD_URLS is not set"
    return Finding(what, False, False, "export DEBUGINFOD_URLS=https://debuginfod.elfutils.org/")


def _cache() -> Finding:
    path = Cache.of_user().root
    if path is None:
        return Finding(
            "nothing is kept between runs: there is no home", False, False, "export XDG_CACHE_HOME=…"
        )
    if _may_be_made(path):
        return Finding(f"what is read from files is kept between runs, in {path}", True, needed=False)
    remedy = "set XDG_CACHE_HOME to a folder that may be written"
    return Finding(f"nothing is kept between runs: {path} may not be written", False, False, remedy)


def _may_be_made(folder: Path) -> bool:
    """Whether files can be written there, the folder being made if need be."""
    for parent in (folder, *folder.parents):
        try:
            return stat.S_ISDIR(parent.stat().st_mode) and os.access(parent, os.W_OK | os.X_OK)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return False


def _debug_information(pid: int) -> Iterator[Finding]:
    """What each file of the process lacks; asks the package database, which takes a while."""
    try:
        process = LiveProcess(pid)
        process.load_modules()
    except (CaptureError, BinaryError):
        return
    symbolizer = Symbolizer()
    files = {mapping.module.binary: None for mapping in process.unwinder.modules.mappings}
    for binary in files:
        if binary is None or binary.path == "[vdso]":
            continue
        findings = symbolizer.findings(binary)
        if findings.has_lines:
            yield Finding(f"{binary.path}: debug information from {findings.debug_file}", True, False)
        for note in findings.notes:
            yield Finding(note.what, False, False, note.remedy)


def _perf(pid: int | None) -> Iterator[Finding]:
    """What `unspool record -p PID` and `--via perf` need."""
    yield _machine()
    settings = PerfSettings.of_self()
    capability = "with" if settings.has_capability else "without"
    paranoid = "not there" if settings.paranoid is None else settings.paranoid
    filters = "yes" if settings.has_seccomp_filters else "no"
    yield Finding(
        f"this is {user_name(settings.user)}, {capability} CAP_PERFMON or CAP_SYS_ADMIN; "
        f"kernel.perf_event_paranoid: {paranoid}; seccomp filters: {filters}",
        True,
        needed=False,
    )
    try:
        sees_kernel = kernel_is_visible()
    except CaptureError as error:
        yield Finding(error.what, False, needed=True, remedy=error.remedy)
        return
    yield Finding("perf events can be opened", True, needed=True)
    if sees_kernel:
        yield Finding("time in the kernel is sampled, too", True, needed=False)
    else:
        cause, remedy = settings.why_no_kernel()
        yield Finding(cause, False, needed=False, remedy=remedy)
    yield _perf_trial(pid)
    yield _kernel_names()


def _perf_trial(pid: int | None) -> Finding:
    """Watches a process for a moment: the given one, or one that it starts for this."""
    child = None
    if pid is None:
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
    target = child if child is not None else pid
    assert target is not None
    try:
        with closing(PerfCapture(CaptureSettings())) as capture:
            capture.attach(target)
            size = capture.ring_bytes >> 10
    except CaptureError as error:
        return Finding(error.what, False, needed=True, remedy=error.remedy)
    finally:
        if child is not None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return Finding(
        f"process {target} can be watched, with {size} KiB of memory a processor", True, needed=True
    )


def _kernel_names() -> Finding:
    if KernelSymbols.of_running_kernel() is None:
        what = "the kernel's functions have no names: it hides its addresses"
        return Finding(what, False, False, "run it as root, or allow it: sudo sysctl kernel.kptr_restrict=0")
    return Finding("the kernel's functions have names", True, needed=False)


_MODES: dict[str, Callable[[int | None], Iterator[Finding]]] = {"stack": _stack, "perf": _perf}
