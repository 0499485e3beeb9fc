"""Opens the file that a process has mapped: also if it was deleted, lies in another mount namespace, or is
in memory only (the vDSO).

The ways, best first: /proc/PID/map_files (the very file, whatever its path leads to by now; needs
privileges), /proc/PID/exe, /proc/PID/root with the mapping's path, and the path itself. By path only a file
with the mapping's inode number counts: a package upgrade replaces files under running programs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unspool.binaries import Binary, BinaryError

_DELETED = " (deleted)"
_MAX_VDSO = 1 << 20
_NO_FILE = ("[", "anon_inode:", "//anon")


@dataclass(frozen=True, slots=True)
class ProcessMapping:
    """One line of /proc/PID/maps: the addresses start <= a < end hold a file's bytes from file_offset on.
    path: as the process' mount namespace has it; '' = no file. device: (major, minor)."""

    start: int
    end: int
    readable: bool
    writable: bool
    executable: bool
    file_offset: int
    device: tuple[int, int]
    inode: int
    path: str
    deleted: bool = False


def read_mappings(pid: int) -> list[ProcessMapping]:
    """All mappings of a process, in order of their addresses. Raises OSError."""
    text = Path(f"/proc/{pid}/maps").read_bytes()
    return [mapping for line in text.split(b"\n") if (mapping := parse_mapping(line)) is not None]


def parse_mapping(line: bytes) -> ProcessMapping | None:
    """A line of /proc/PID/maps; None if it is no such line. Format: proc(5)."""
    fields = line.split(None, 5)
    if len(fields) < 5:
        return None
    try:
        start, end = (int(number, 16) for number in fields[0].split(b"-"))
        major, minor = (int(number, 16) for number in fields[3].split(b":"))
        offset, inode = int(fields[2], 16), int(fields[4])
    except ValueError:
        return None
    path = os.fsdecode(fields[5]).replace("\\012", "\n") if len(fields) > 5 else ""
    deleted = path.endswith(_DELETED)
    r, w, x = (letter in fields[1] for letter in (b"r", b"w", b"x"))
    path = path.removesuffix(_DELETED)
    return ProcessMapping(start, end, r, w, x, offset, (major, minor), inode, path, deleted)


def open_mapping(pid: int, mapping: ProcessMapping) -> Binary:
    """The mapped file; its `path` is one that leads to it, or to where it was. Raises BinaryError."""
    if mapping.path == "[vdso]":
        return _open_vdso(pid, mapping)
    if not mapping.path or mapping.path.startswith(_NO_FILE):
        what = f"no file is mapped at {mapping.start:#x} ({mapping.path or 'anonymous memory'})"
        raise BinaryError(f"process {pid}", what, None, "JIT code can be named by a perf map")
    path = seen_path(pid, mapping.path)
    for candidate in (f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}", f"/proc/{pid}/exe", path):
        # map_files names the mapping itself; overlay file systems show another inode number there.
        if candidate.startswith(f"/proc/{pid}/map_files") or _is_mapped(candidate, mapping):
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


def _is_mapped(path: str, mapping: ProcessMapping) -> bool:
    """Whether a path leads to the mapped file. File systems without a device of their own (btrfs, overlay)
    may show another device number in /proc/PID/maps than stat does; there the inode number alone decides."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return False
    device = (os.major(status.st_dev), os.minor(status.st_dev))
    return status.st_ino == mapping.inode and (
        device == mapping.device or 0 in (device[0], mapping.device[0])
    )


def _open_vdso(pid: int, mapping: ProcessMapping) -> Binary:
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(mapping.start)
            data = memory.read(min(mapping.end - mapping.start, _MAX_VDSO))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = "run unspool as the process' user or as root"
        raise BinaryError(
            "[vdso]", f"process {pid}'s memory can't be read ({reason})", None, remedy
        ) from None
    return Binary.from_bytes(data, "[vdso]")


def _unreachable(pid: int, path: str, mapping: ProcessMapping) -> BinaryError:
    try:
        replaced = Path(path).stat().st_ino != mapping.inode
    except PermissionError:
        return BinaryError(path, "may not be read", None, "run unspool as the process' user or as root")
    except (OSError, ValueError):
        replaced = False
    if replaced or mapping.deleted:
        what = f"process {pid} still runs a file that was {'replaced' if replaced else 'deleted'} since"
        return BinaryError(path, what, None, "run unspool as root, or restart the process")
    return BinaryError(path, "can't be read", None, "check that the file exists and may be read")
