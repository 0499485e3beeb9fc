"""The program that a command runs: where it is, and whether the agent can be preloaded into it.

As execvp(3) and the dynamic loader see it (ld.so(8), "Secure-execution mode"). The file is not trusted; it is
only read.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unspool.binaries import Binary, BinaryError
from unspool.capture.errors import CaptureError

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit statuses of shells

_SCRIPT_LINE = 256  # bytes of a script's first line that the kernel looks at
_SCRIPT_DEPTH = 5  # scripts that are run by scripts
_DT_NEEDED = 1
_DYNAMIC_ENTRY = struct.Struct("<QQ")
_PERF = "--via perf can watch it"
_PERF_AS_ROOT = f"as root, {_PERF}"


@dataclass(frozen=True, slots=True)
class Program:
    """file: what the kernel runs in the end (for a script its interpreter). obstacle: why the agent can't be
    preloaded, None = it can; remedy: what can be done then. preload_first: libraries that insist on being
    loaded before any other."""

    path: str
    file: str
    obstacle: str | None = None
    remedy: str = ""
    preload_first: tuple[str, ...] = ()

    @property
    def needs_perf(self) -> bool:
        """Nothing but perf can watch it, and perf might."""
        return _PERF in self.remedy


class CommandError(CaptureError):
    """A command can't be run at all. status: the exit status that a shell gives then."""

    def __init__(self, what: str, remedy: str, status: int) -> None:
        super().__init__(what, remedy)
        self.status = status


def find_program(command: str) -> Program:
    """The program of a command, found along PATH. Raises CommandError."""
    path = command if "/" in command else shutil.which(command)
    if path is None:
        raise CommandError(f"{command}: there is no such command", "check its name, and PATH", NOT_FOUND)
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        raise CommandError(f"{path}: {error.strerror}", "check the path", status) from None
    if not stat.S_ISREG(mode) or not os.access(path, os.X_OK):
        remedy = "name a program" if stat.S_ISDIR(mode) else f"make it executable: chmod +x {path}"
        raise CommandError(f"{path} is no executable file", remedy, NOT_EXECUTABLE)
    return _examined(path, _interpreter_of_script(path))


def _interpreter_of_script(path: str) -> str:
    """What the kernel runs for "#!" lines; a script without one is run by the shell, as execvp does it."""
    for _ in range(_SCRIPT_DEPTH):
        start = _start_of_file(path)
        if start.startswith(b"#!"):
            words = start[2:].split(b"\n")[0].split()
            if not words:
                return path
            path = os.fsdecode(words[0])
        elif start and not start.startswith(b"\x7fELF") and b"\0" not in start:
            return "/bin/sh"
        else:
            return path
    return path


def _start_of_file(path: str) -> bytes:
    """Of a regular file; what a script names may be anything, a FIFO that nobody writes, too."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return b""
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # it may have become one
        try:
            return os.read(file, _SCRIPT_LINE)
        finally:
            os.close(file)
    except OSError:
        return b""


def _examined(path: str, file: str) -> Program:
    """With what stands in the way of preloading."""
    if not os.access(file, os.R_OK):
        obstacle = f"{file} may not be read, so that nothing is known of it"
        return Program(path, file, obstacle, _PERF_AS_ROOT)
    try:
        with Binary.open(file) as binary:
            if binary.arch != platform.machine():
                obstacle = f"{file} is a program for {binary.arch}"
                return Program(path, file, obstacle, "run unspool on such a machine")
            if binary.interpreter is None:
                obstacle = f"{file} is statically linked, so that nothing can be preloaded into it"
                return Program(path, file, obstacle, _PERF)
            if _is_privileged(file):
                obstacle = (
                    f"{file} runs with rights of its own (set-user-ID, set-group-ID or capabilities), so "
                    "that nothing may be preloaded into it"
                )
                return Program(path, file, obstacle, _PERF_AS_ROOT)
            return Program(path, file, preload_first=_sanitizers(binary))
    except BinaryError as error:
        if "32-bit" in error.what:
            return Program(path, file, f"{file} is a 32-bit program", "unspool walks 64-bit ones only")
        return Program(path, file, f"{file} can't be preloaded into: {error.what}", _PERF)


def _is_privileged(file: str) -> bool:
    """Whether the loader would be in secure-execution mode."""
    with suppress(OSError):
        status = Path(file).stat()
        if status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid():
            return True
        if status.st_mode & stat.S_ISGID and status.st_gid != os.getegid():
            return True
        return os.geteuid() != 0 and bool(os.getxattr(file, "security.capability"))
    return False


def _sanitizers(binary: Binary) -> tuple[str, ...]:
    """AddressSanitizer's library, which refuses to start unless it comes first, where it is needed."""
    with suppress(BinaryError, struct.error):
        dynamic, strings = binary.section(".dynamic"), binary.section(".dynstr")
        if dynamic is not None and strings is not None:
            names = bytes(strings.data)
            data = dynamic.data
            entries = _DYNAMIC_ENTRY.iter_unpack(data[: len(data) // 16 * 16])
            needed = (names[value:].split(b"\0", 1)[0] for tag, value in entries if tag == _DT_NEEDED)
            return tuple(os.fsdecode(name) for name in needed if name.startswith(b"libasan.so"))
    return ()
