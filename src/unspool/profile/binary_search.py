"""Finds a recording's binary again, and proves that it is the same: by build id, or by size and time.

A file that changed is never used: its names would be wrong without anybody noticing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unspool.binaries import Binary, BinaryError
from unspool.capture.samples import BinaryKind, CodeFile

_PROCESS_ROOT = re.compile(r"/proc/[0-9]+/root(?=/)")
_DELETED = " (deleted)"
_HEX = re.compile(r"[0-9a-f]{4,128}")
_MAX_VDSO = 1 << 20  # bytes; it has two to four pages


@dataclass(frozen=True, slots=True)
class FoundBinary:
    """binary: open; None: not found, and state ("missing" or "changed") and note say why. note: what is to be
    known of one that was found, too."""

    binary: Binary | None
    state: str = ""
    note: str = ""


def find_binary(file: CodeFile, debug_dirs: Sequence[str]) -> FoundBinary:
    """By its path, then, by build id only, in debug_dirs and /usr/lib/debug: a debug file names addresses,
    too."""
    if file.kind is BinaryKind.VDSO:
        return _own_vdso(file)
    state, note = "missing", f"{file.path}: not found here"
    for path, by_build_id in _candidates(file, debug_dirs):
        try:
            if not Path(path).is_file():
                continue
            binary = Binary.open(path)
        except (BinaryError, OSError, ValueError) as error:
            note = str(error)
            continue
        try:
            problem = _difference(binary, file, path, by_build_id=by_build_id)
        except (BinaryError, OSError) as error:
            problem = str(error)
        if problem is None:
            unproved = file.build_id is None and not file.size
            return FoundBinary(
                binary, "", f"{path}: nothing proves that it did not change" if unproved else ""
            )
        binary.close()
        if not by_build_id:
            state, note = "changed", f"{path}: it is not the file that was recorded: {problem}"
    return FoundBinary(None, state, note)


def _candidates(file: CodeFile, debug_dirs: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """(path, only a build id counts)"""
    plain = _PROCESS_ROOT.sub("", file.path.removesuffix(_DELETED), count=1)
    if plain.startswith("/"):
        for path in dict.fromkeys((file.path, plain)):
            yield path, False
    if file.build_id is None or not _HEX.fullmatch(file.build_id):
        return
    for directory in (*debug_dirs, "/usr/lib/debug"):
        yield f"{directory}/.build-id/{file.build_id[:2]}/{file.build_id[2:]}", True
        yield f"{directory}/.build-id/{file.build_id[:2]}/{file.build_id[2:]}.debug", True
    for directory in debug_dirs:
        if plain.startswith("/"):
            yield f"{directory}{plain}", True
        yield f"{directory}/{plain.rsplit('/', 1)[-1]}", True


def _difference(binary: Binary, file: CodeFile, path: str, *, by_build_id: bool) -> str | None:
    """Why it is another file; None: it is the same."""
    build_id = None if binary.build_id is None else binary.build_id.hex()
    if binary.arch != file.arch:
        return f"it is for {binary.arch}"
    if file.build_id is not None or by_build_id:
        same = build_id == file.build_id
        return None if same else f"its build id is {build_id or 'missing'}, not {file.build_id}"
    status = Path(path).stat()
    if file.size and status.st_size != file.size:
        return f"it has {status.st_size} bytes, not {file.size}"
    if file.mtime and status.st_mtime_ns != file.mtime:
        return "it was written to since"
    return None


def _own_vdso(file: CodeFile) -> FoundBinary:
    """The vDSO of this process, if it is the one that was recorded: it is in memory only."""
    with suppress(OSError, ValueError, BinaryError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            if line.endswith("[vdso]"):
                start, end = (int(address, 16) for address in line.split()[0].split("-"))
                with Path("/proc/self/mem").open("rb", buffering=0) as memory:
                    memory.seek(start)
                    binary = Binary.from_bytes(memory.read(min(end - start, _MAX_VDSO)), "[vdso]")
                if file.build_id is not None and binary.build_id == bytes.fromhex(file.build_id):
                    return FoundBinary(binary)
    return FoundBinary(None, "missing", "[vdso]: the kernel that runs now has another one")
