"""Results kept on disk between runs, under $XDG_CACHE_HOME/unspool: bytes by kind and key.

    unspool/KIND-VERSION/KEY: a header with size and checksum, then the bytes

A cache is never needed: whatever fails here is a miss, and what is damaged counts as absent and is
written anew. Files appear by rename, so that readers see whole files only and two writers can't disturb
each other. The total size is bounded; what was not used for longest goes first.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO

from unspool.binaries import Binary

_MAGIC = b"UNSPOOL\0"
_HEADER = struct.Struct("<8sIIQ")  # magic, CRC-32 of the bytes, 0, their number
_MAX_BYTES = 2 << 30  # of all files together
_ABANDONED = 3600  # seconds after which a temporary file has no writer any more
_TEMPORARY = ".writing-"


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of content; another version of its format is another directory."""

    name: str
    version: str

    @property
    def directory(self) -> str:
        return f"{self.name}-{self.version}"


def key_of(binary: Binary) -> str | None:
    """The key for what follows from a file alone: its build id, and a digest of what must be equal too. None:
    a file without a build id, or from memory, is not cached.

    Anybody can write a file with libc's build id and other contents, which must not become what root's cache
    says about libc. So the owner is part of the key, and whether the file was reached through a process
    (/proc/PID/root of a container, whose root user may be our root)."""
    if binary.build_id is None or binary.owner is None:
        return None
    rest = (binary.arch, binary.type, binary.entry, binary.image_address, binary.segments)
    digest = blake2b(repr(rest).encode(), digest_size=8).hexdigest()
    place = "-other" if binary.path.startswith("/proc/") else ""
    return f"{binary.build_id[:64].hex()}-{digest}-{binary.owner}{place}"


class Cache:
    """`root`: the directory, None = there is none; `max_bytes`: of all files together."""

    def __init__(self, root: Path | None, max_bytes: int = _MAX_BYTES) -> None:
        self.root = root
        self._max_bytes = max_bytes

    @classmethod
    def of_user(cls) -> Cache:
        """As the XDG Base Directory Specification says: $XDG_CACHE_HOME, else ~/.cache."""
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if not base.is_absolute():  # the specification: relative paths are to be ignored
            try:
                base = Path.home() / ".cache"
            except RuntimeError:
                return cls(None)
        return cls(base / "unspool")

    @classmethod
    def none(cls) -> Cache:
        """Keeps nothing."""
        return cls(None)

    def read(self, kind: Kind, key: str, max_age: float | None = None) -> bytes | None:
        """What was written last, or None; `max_age`: in seconds since it was written."""
        path = self._path(kind, key)
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                written = os.fstat(file.fileno()).st_mtime
                header = file.read(_HEADER.size)
                data = file.read()
            if max_age is not None:
                return data if self._intact(header, data) and time.time() - written < max_age else None
            os.utime(path)  # this is what "read last" means; atime may be switched off
        except (OSError, MemoryError):
            return None
        return data if self._intact(header, data) else None

    def write(self, kind: Kind, key: str, data: bytes | memoryview) -> None:
        """Keep data, and make room for it. Failures (no space, no permission) have no effect."""
        if self.root is None or len(data) > self._max_bytes:
            return
        with suppress(OSError), self.temporary_file(kind) as file:
            file.write(_HEADER.pack(_MAGIC, zlib.crc32(data), 0, len(data)))
            file.write(data)
            self.keep(kind, key, file)

    def temporary_file(self, kind: Kind) -> IO[bytes]:
        """A file to be filled, and removed when it is closed unless it was kept. Raises OSError."""
        if self.root is None:
            return tempfile.NamedTemporaryFile(prefix="unspool-")
        directory = self.root / kind.directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tempfile.NamedTemporaryFile(prefix=_TEMPORARY, dir=directory)

    def keep(self, kind: Kind, key: str, file: IO[bytes]) -> None:
        """Take a finished temporary file over as it is, without a header. Failures have no effect."""
        path = self._path(kind, key)
        if path is None:
            return
        with suppress(OSError):
            file.flush()
            link = f"{file.name}-{key[:16]}"
            os.link(file.name, link)  # the file's own name goes when it is closed
            Path(link).replace(path)
            self._make_room()

    def file(self, kind: Kind, key: str) -> Path | None:
        """The path of what was kept, which counts as used now; None: nothing was."""
        path = self._path(kind, key)
        with suppress(OSError):
            if path is not None:
                os.utime(path)
                return path
        return None

    def _path(self, kind: Kind, key: str) -> Path | None:
        if not re.fullmatch(r"[0-9a-z-]{1,200}", key):
            raise ValueError(f"not a key: {key!r}")
        return None if self.root is None else self.root / kind.directory / key

    @staticmethod
    def _intact(header: bytes, data: bytes) -> bool:
        if len(header) != _HEADER.size:
            return False
        magic, checksum, _, size = _HEADER.unpack(header)
        return bool(magic == _MAGIC and size == len(data) and checksum == zlib.crc32(data))

    def _make_room(self) -> None:
        """Remove files that were not read for longest until the rest takes 3/4 of the bound."""
        files = self._files()
        total = sum(size for _, size, _ in files)
        if total <= self._max_bytes:
            return
        for _, size, path in sorted(files):
            if total <= self._max_bytes * 3 // 4:
                break
            with suppress(OSError):  # another process may have removed it
                Path(path).unlink()
            total -= size

    def _files(self) -> list[tuple[float, int, str]]:
        """(time of the last use, size, path) of each file; removes what dead writers left behind."""
        found: list[tuple[float, int, str]] = []
        if self.root is None:
            return found
        with suppress(OSError):
            for directory in list(os.scandir(self.root)):
                if not directory.is_dir(follow_symlinks=False):
                    continue
                for entry in os.scandir(directory.path):
                    with suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        if not entry.name.startswith(_TEMPORARY):
                            found.append((status.st_mtime, status.st_size, entry.path))
                        elif time.time() - status.st_mtime > _ABANDONED:
                            Path(entry.path).unlink()
        return found
