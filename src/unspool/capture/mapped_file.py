"""Opens the file that a process has mapped: also if it was deleted, lies in another mount namespace, or is
in memory only (the vDSO).

The ways, best first: /proc/PID/map_files (the very file, whatever its path leads to by now; needs
privileges), /proc/PID/exe, the path as the process sees it. By path only a file with the mapping's inode
number counts: a package upgrade replaces files under running programs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from unspool.binaries import Binary, BinaryError
from unspool.capture.memory_map import MapEntry

_DELETED = " (deleted)"
_MAX_VDSO = 1 << 20  # bytes; it has two to four pages
_NO_FILE = ("[", "anon_inode:", "//anon")
_AS_ITS_USER = "run unspool as the process' user or as root"


def open_mapped_file(pid: int, mapping: MapEntry) -> Binary:
    """The mapped file. Its `path` is one by which we see it, or saw it before it was deleted: debug files
    are searched beside it. Raises BinaryError."""
    if mapping.path == "[vdso]":
        return _open_vdso(pid, mapping)
    if not mapping.path or mapping.path.startswith(_NO_FILE):
        what = f"no file is mapped at {mapping.start:#x} ({mapping.path or 'anonymous memory'})"
        raise BinaryError(f"process {pid}", what, None, "JIT code can be named by a perf map")
    path = seen_path(pid, mapping.path.removesuffix(_DELETED))
    for candidate in (f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}", f"/proc/{pid}/exe", path):
        if candidate.startswith(f"/proc/{pid}/map_files/") or _is_mapped(candidate, mapping):
            with suppress(BinaryError):
                binary = Binary.open(candidate)
                binary.path = path
                return binary
    raise _unreachable(pid, path, mapping)


def seen_path(pid: int, path: str) -> str:
    """The path by which we see a file of a process: through /proc/PID/root where its root or its mounts
    are not ours."""
    with suppress(OSError):
        for link in ("ns/mnt", "root"):
            theirs, ours = Path(f"/proc/{pid}/{link}").stat(), Path(f"/proc/self/{link}").stat()
            if (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino):
                return f"/proc/{pid}/root{path}"
    return path


def _is_mapped(path: str, mapping: MapEntry) -> bool:
    """Whether a path leads to the mapped file. File systems without a device of their own (btrfs, overlay)
    may show another device number in /proc/PID/maps than stat does; there the inode number alone decides."""
    try:
        status = Path(path).stat()
        device = tuple(int(number, 16) for number in mapping.device.split(":"))
    except (OSError, ValueError):
        return False
    seen = (os.major(status.st_dev), os.minor(status.st_dev))
    return status.st_ino == mapping.inode and (seen == device or 0 in (seen[0], device[0]))


def _open_vdso(pid: int, mapping: MapEntry) -> Binary:
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            data = os.pread(memory.fileno(), min(mapping.end - mapping.start, _MAX_VDSO), mapping.start)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        what = f"process {pid}'s memory can't be read ({reason})"
        raise BinaryError("[vdso]", what, None, _AS_ITS_USER) from None
    return Binary.from_bytes(data, "[vdso]")


def _unreachable(pid: int, path: str, mapping: MapEntry) -> BinaryError:
    try:
        replaced = Path(path).stat().st_ino != mapping.inode
    except PermissionError:
        return BinaryError(path, "may not be read", None, _AS_ITS_USER)
    except (OSError, ValueError):
        replaced = False
    if replaced or mapping.path.endswith(_DELETED):
        what = f"process {pid} still runs a file that was {'replaced' if replaced else 'deleted'} since"
        return BinaryError(path, what, None, "run unspool as root, or restart the process")
    return BinaryError(path, "can't be read", None, "check that the file exists and may be read")
