"""Finds the file that has a binary's functions and lines: the binary itself or a separate debug file.

The order: the binary; by build id and by debug link in the user's directories, then in /usr/lib/debug; a
download, if the user asked for it. A file is taken only if it is proved to belong to the binary: by an equal
build id, or by the CRC-32 that the debug link holds.

Formats: GDB's manual, "Debugging Information in Separate Files".
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unspool.binaries import Binary, BinaryError
from unspool.symbols.dwarf_image import has_dwarf

_SYSTEM_DIRECTORY = "usr/lib/debug"
_PROCESS_ROOT = re.compile(r"/proc/[0-9]+/root(?=/)")
_CHUNK = 1 << 20


@dataclass(slots=True)
class Search:
    """`found`: the file, open; None: there is none; `rejected`: what is wrong with files that were there."""

    found: Binary | None = None
    rejected: list[str] = field(default_factory=list)


def find_debug_file(binary: Binary, directories: Sequence[str]) -> Search:
    """`directories`: searched first, each laid out as /usr/lib/debug is, or simply holding debug files."""
    search = Search()
    try:
        if has_dwarf(binary):
            search.found = binary
            return search
    except BinaryError as error:
        search.rejected.append(str(error))
    for path in _candidates(binary, directories):
        candidate = _opened(path, binary, search)
        if candidate is None:
            continue
        reason = _why_not(candidate, binary, path)
        if reason is None:
            search.found = candidate
            return search
        candidate.close()
        search.rejected.append(f"{path}: {reason}")
    return search


def _candidates(binary: Binary, directories: Sequence[str]) -> Iterator[str]:
    """Paths in the order in which they are tried."""
    root = process_root(binary.path)
    # What is in the container comes before what is in our own file system.
    roots = [*directories, *dict.fromkeys((f"{root}/{_SYSTEM_DIRECTORY}", f"/{_SYSTEM_DIRECTORY}"))]
    if binary.build_id is not None and len(binary.build_id) > 1:
        name = binary.build_id.hex()
        for directory in roots:
            yield f"{directory}/.build-id/{name[:2]}/{name[2:]}.debug"
    link = _link_name(binary)
    if link is None:
        return
    # Debian and others: /lib is a link to /usr/lib; debug files may be under either name.
    paths = (binary.path,) if root else (binary.path, os.path.realpath(binary.path))
    folders = dict.fromkeys(str(Path(path).parent) for path in paths)
    for folder in folders:
        if folder.startswith("/"):
            yield f"{folder}/{link}"
            yield f"{folder}/.debug/{link}"
    for directory in directories:
        yield f"{directory}/{link}"
    for directory in roots:
        for folder in folders:
            inside = folder[len(root) :] if folder.startswith(f"{root}/") else folder
            if inside.startswith("/"):
                yield f"{directory}{inside}/{link}"


def process_root(path: str) -> str:
    """`/proc/PID/root` where a path leads through it, else ''."""
    match = _PROCESS_ROOT.match(path)
    return match.group() if match else ""


def _link_name(binary: Binary) -> str | None:
    """The debug link's file name; None where there is none, or one that leads elsewhere."""
    try:
        link = binary.debug_link
    except BinaryError:
        return None
    if link is None or not link[0] or "/" in link[0] or link[0] in (".", "..") or "\\x" in link[0]:
        return None
    return link[0]


def _opened(path: str, binary: Binary, search: Search) -> Binary | None:
    try:
        if not Path(path).is_file() or (Path(binary.path).exists() and Path(path).samefile(binary.path)):
            return None
        return Binary.open(path)
    except (BinaryError, OSError) as error:
        search.rejected.append(str(error))
        return None


def _why_not(candidate: Binary, binary: Binary, path: str) -> str | None:
    """Why a file can't be the binary's debug file; None if it is."""
    try:
        if candidate.arch != binary.arch:
            return f"it is for {candidate.arch}"
        if not has_dwarf(candidate) and candidate.section(".symtab") is None:
            return "it has neither debug information nor symbols"
        if candidate.build_id is not None and binary.build_id is not None:
            same = candidate.build_id == binary.build_id
            return None if same else f"its build id {candidate.build_id.hex()} is another one"
        link = binary.debug_link
        if link is None:
            return "nothing proves that it belongs to the binary: no build id, no debug link"
        checksum = _file_checksum(path)
    except (BinaryError, OSError) as error:
        return str(error)
    return None if checksum == link[1] else f"its checksum is {checksum:#010x}, not {link[1]:#010x}"


def _file_checksum(path: str) -> int:
    checksum = 0
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
