"""Finds the files that a core file's process had mapped, and checks that they are those: by build id, else by
program headers. A file that differs is not used."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unspool.binaries import Binary, BinaryError

_DELETED = " (deleted)"
_NO_PATH = ("/memfd:", "/dev/", "/SYSV", "/anon_hugepage", "[")  # no path leads to these


@dataclass(slots=True)
class CoreFiles:
    """missing: files that can't be used: why, and what helps. unchecked: those that are used although the
    core has nothing to check them by."""

    arch: str
    executable: str | None
    sysroots: Sequence[str]
    missing: dict[str, str] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    _opened: dict[tuple[int, int], Binary] = field(default_factory=dict)  # by device and inode number

    def find(
        self, path: str, image: Binary | None, fits: Callable[[Binary], bool], *, is_program: bool = False
    ) -> Binary | None:
        """The file that was mapped under a path, or else image: what the core itself has of it. fits says
        whether a file's segments can be what is mapped."""
        reason = "not found"
        for candidate in self._candidates(path, image, is_program):
            try:
                binary = self._open(candidate)
                difference = self._difference(binary, image, fits)
            except BinaryError as error:
                if isinstance(error.__cause__, FileNotFoundError) and candidate != self.executable:
                    continue
                difference = error.what
            if not difference:
                if image is None:
                    self.unchecked.append(candidate)
                return binary
            if candidate == self.executable:
                self.missing[candidate] = f"not the program of this core: {difference}"
            else:
                same_path = candidate == path.removesuffix(_DELETED)
                reason = difference if same_path else f"{candidate}: {difference}"
        if image is not None or not path.startswith(_NO_PATH):
            self.missing.setdefault(path.removesuffix(_DELETED), f"{reason}; {_remedy(image)}")
        return image

    def _candidates(self, path: str, image: Binary | None, is_program: bool) -> Iterator[str]:
        if is_program and self.executable is not None:
            yield self.executable
        path = path.removesuffix(_DELETED)
        if path and not path.startswith(_NO_PATH):
            for folder in self.sysroots:
                yield str(Path(folder) / path.lstrip("/"))
                yield str(Path(folder) / Path(path).name)
            yield path
        if image is not None and image.build_id is not None:
            yield str(_debuginfod_cache() / image.build_id.hex() / "executable")

    def _open(self, path: str) -> Binary:
        """One Binary a file, however many paths lead to it. Raises BinaryError."""
        try:
            status = Path(path).stat()
        except (OSError, ValueError):
            return Binary.open(path)  # which says why not
        key = (status.st_dev, status.st_ino)
        if key not in self._opened:
            self._opened[key] = Binary.open(path)
        return self._opened[key]

    def _difference(self, binary: Binary, image: Binary | None, fits: Callable[[Binary], bool]) -> str:
        """Why a file is not the one that was mapped; "" if it is, or if nothing tells. Raises BinaryError."""
        if binary.type not in ("exec", "dyn"):
            return "neither a program nor a library"
        if binary.arch != self.arch:
            return f"for {binary.arch}, the core is for {self.arch}"
        if image is not None and image.build_id is not None:
            found = binary.build_id
            if found != image.build_id:
                expected = image.build_id.hex()
                return f"its build id is {found.hex() if found else 'missing'}, the core has {expected}"
        elif image is not None and (binary.entry, binary.segments) != (image.entry, image.segments):
            return "its program headers differ from those in the core"
        return "" if fits(binary) else "its code is not what is mapped in the core"


def _debuginfod_cache() -> Path:
    """Where debuginfod-find keeps what it fetched."""
    if path := os.environ.get("DEBUGINFOD_CACHE_PATH"):
        return Path(path)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "debuginfod_client"


def _remedy(image: Binary | None) -> str:
    folder = "name the folder that holds it with --sysroot"
    if image is None or image.build_id is None:
        return folder
    return f"{folder}, or fetch it: debuginfod-find executable {image.build_id.hex()}"
