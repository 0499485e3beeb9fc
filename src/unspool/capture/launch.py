"""Starts the command of `unspool record` as its shell would have: same files, signals, environment, and the
agent preloaded.

The agent takes what is added to the environment out again before the program looks.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from unspool.capture.errors import CaptureError
from unspool.capture.program import NOT_EXECUTABLE, CommandError, Program
from unspool.core import library_path

SESSION_VARIABLE = "UNSPOOL_SESSION"
PRELOAD_VARIABLE = "LD_PRELOAD"
_AGENT = "libunspool_agent.so"
_SHELL = "/bin/sh"
_WAITID = {"x86_64": 247, "aarch64": 95}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def agent_path() -> Path:
    """Where the agent is: beside the library. Raises CaptureError."""
    path = library_path().with_name(_AGENT)
    if not path.exists():
        raise CaptureError(f"{path} is not there", "install the package unspool anew with pip")
    return path


def preloading(environment: dict[bytes, bytes], session: str, first: Sequence[str]) -> dict[bytes, bytes]:
    """The environment with the agent in it, before what the program itself preloads. first: libraries that
    must be loaded even before the agent. Raises CaptureError."""
    agent = str(agent_path())
    if any(separator in agent for separator in " :"):  # ld.so(8) knows no way to quote them
        raise CaptureError(
            f"{agent} can't be preloaded: its path has a space or a colon in it", "install unspool elsewhere"
        )
    libraries = [*map(os.fsencode, first), os.fsencode(agent)]
    own = environment.get(os.fsencode(PRELOAD_VARIABLE))
    if own:
        libraries.append(own)
    return {
        **environment,
        os.fsencode(PRELOAD_VARIABLE): b":".join(libraries),
        os.fsencode(SESSION_VARIABLE): os.fsencode(session),
    }


def inherited_environment() -> dict[bytes, bytes]:
    """What this process was given, without what its Python has added (PEP 538: LC_CTYPE)."""
    environment = dict(os.environb)
    if environment.get(b"LC_CTYPE") == b"C.UTF-8":
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
        if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
            del environment[b"LC_CTYPE"]
    return environment


def start(
    program: Program, command: Sequence[str], environment: dict[bytes, bytes]
) -> subprocess.Popen[bytes]:
    """The command in a child process, as execvp(3) runs it. Raises CommandError."""
    try:
        return _spawn(program.path, command, environment)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without "#!"
            return _spawn(_SHELL, [_SHELL, program.path, *command[1:]], environment)
        raise CommandError(
            f"{program.path} can't be started: {error.strerror}", "see execve(2)", NOT_EXECUTABLE
        ) from None


def _spawn(path: str, command: Sequence[str], environment: dict[bytes, bytes]) -> subprocess.Popen[bytes]:
    # glibc's posix_spawn would leave its own signals (32, 33) ignored in the program.
    subprocess._USE_POSIX_SPAWN = False  # type: ignore[misc]
    return subprocess.Popen(list(command), executable=path, env=environment, close_fds=False)


def cpu_time_of_tree(pid: int) -> int:
    """Nanoseconds that the kernel has counted for a child that has ended and was not collected yet, with all
    children that it and theirs have waited for. 0: it is gone."""
    usage = (ctypes.c_long * 18)()  # struct rusage: two timevals, then counts
    information = ctypes.create_string_buffer(128)
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    if _libc.syscall(_WAITID[platform.machine()], os.P_PID, pid, information, flags, usage) < 0:
        return 0
    return (usage[0] + usage[2]) * 1_000_000_000 + (usage[1] + usage[3]) * 1_000


def exit_status(return_code: int) -> int:
    """What a shell says of a process that ended, which Popen gives as -signal or as its status."""
    return 128 - return_code if return_code < 0 else return_code
