"""The command that brings a binary's debug file, as far as this machine's package database can tell.

It asks dpkg or rpm, never the network, and only when somebody wants to know what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess

_SECONDS = 5


def install_command(path: str) -> str:
    """A command for the shell, or '' where nothing is known about the file."""
    if not path.startswith("/") or path.startswith("/proc/"):
        return ""
    if shutil.which("dpkg-query"):
        return _debian_command(path)
    if shutil.which("rpm"):
        package = _output("rpm", "-qf", "--qf", "%{NAME}\\n", "--", path)
        return f"dnf debuginfo-install {package[0]}" if package else ""
    return ""


def _debian_command(path: str) -> str:
    real = os.path.realpath(path)
    # Packages list files under /lib even where that is a link to /usr/lib.
    names = dict.fromkeys((path, real, real.removeprefix("/usr"), f"/usr{path}"))
    lines = _output("dpkg-query", "--search", *(name for name in names if name.startswith("/")))
    packages = [line.split(":")[0] for line in lines if ": " in line and not line.startswith("diversion ")]
    if not packages:
        return ""
    package = packages[0]
    wanted = [f"{package}-dbgsym", f"{package}-dbg", f"{package.removesuffix('-minimal')}-dbg"]
    known = set(_output("apt-cache", "pkgnames", package.removesuffix("-minimal")))
    available = [name for name in wanted if name in known]
    if available:
        return f"apt install {available[0]}"
    return f"apt install {wanted[0]} (from the debug archive, see https://wiki.debian.org/HowToGetABacktrace)"


def _output(*command: str) -> list[str]:
    """The lines that a command prints; none if it can't be run."""
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.splitlines()
