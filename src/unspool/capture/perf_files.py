"""The files that were mapped when perf recorded: found again, and used only if they are still the same.

perf says which file by its build id (in the record of the mapping, or in the file's header), else by device
and inode. What is not the same file any more is looked up in perf's own copies (~/.debug) and then left out:
code of another version would give wrong stacks."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from unspool.binaries import Binary, BinaryError
from unspool.capture.mapped_file import open_mapped_file
from unspool.capture.memory_map import MemoryMap
from unspool.capture.perf_records import Mapped
from unspool.capture.samples import BinaryKind, CodeFile

_DELETED = " (deleted)"
_BUILD_ID_BYTES = 20  # perf keeps so many and fills up with zeros
ANONYMOUS = ("//anon", "/dev/zero", "/SYSV", "/anon_hugepage", "anon_inode:", "[", "/memfd:")


@dataclass(frozen=True)
class FoundFile:
    """A file of a recording; binary: None: it is not there (any more)."""

    binary: Binary | None
    code_file: CodeFile


@dataclass
class RecordedFiles:
    """Finds files. build_ids: by path, from the header; written: when the recording was finished (nanoseconds
    of the file's clock; None: not known); is_local: it was recorded on this machine. missing: why files are
    not used, by path. unchecked: files used although nothing says that they are the same."""

    arch: str
    build_ids: Mapping[str, Sequence[bytes]]
    written: int | None
    is_local: bool
    sysroots: Sequence[str] = ()
    missing: dict[str, str] = field(default_factory=dict)
    unchecked: set[str] = field(default_factory=set)
    _found: dict[tuple[str, bytes | None, int, str], FoundFile] = field(default_factory=dict)

    def find(self, mapped: Mapped) -> FoundFile:
        """The file of a mapping, each opened once."""
        key = (mapped.path, mapped.build_id, mapped.inode, mapped.device)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._find(mapped)
        return found

    @property
    def opened(self) -> dict[CodeFile, Binary]:
        """All that were found so far."""
        return {file.code_file: file.binary for file in self._found.values() if file.binary is not None}

    def _find(self, mapped: Mapped) -> FoundFile:
        if mapped.path == "[vdso]":
            return self._vdso(mapped)
        if mapped.path.startswith(ANONYMOUS):
            return FoundFile(None, CodeFile.without_file(BinaryKind.JIT, self.arch))
        wanted = [mapped.build_id] if mapped.build_id else list(self.build_ids.get(mapped.path, ()))
        path = mapped.path.removesuffix(_DELETED)
        reason = "it is not there"
        for candidate in self._candidates(path, wanted):
            try:
                binary = Binary.open(candidate)
            except BinaryError as error:
                if candidate == path:
                    reason = error.what
                continue
            refusal = self._difference(binary, candidate, mapped, wanted)
            if refusal is None:
                binary.path = path if candidate.endswith("/elf") else candidate
                return FoundFile(binary, code_file(binary, path))
            binary.close()
            reason = refusal
        self.missing.setdefault(path, reason)
        build_id = wanted[0].hex() if wanted else None
        return FoundFile(None, CodeFile(_printable(path), build_id, self.arch, BinaryKind.FILE))

    def _candidates(self, path: str, wanted: Sequence[bytes]) -> list[str]:
        found = []
        for root in self.sysroots:
            found += [os.path.join(root, path.lstrip("/")), os.path.join(root, Path(path).name)]  # noqa: PTH118
        found.append(path)
        with suppress(RuntimeError):
            for build_id in wanted:
                name = build_id.hex()
                found.append(str(Path.home() / ".debug" / ".build-id" / name[:2] / name[2:] / "elf"))
        return found

    def _difference(
        self, binary: Binary, candidate: str, mapped: Mapped, wanted: Sequence[bytes]
    ) -> str | None:
        """Why a file is not the one that was mapped; None: it is."""
        if binary.arch != self.arch:
            return f"it is for {binary.arch}, and {self.arch} was recorded"
        if wanted:
            return None if _same_build_id(binary, wanted) else "it has changed since the recording (build id)"
        if candidate != mapped.path or not self.is_local or not mapped.inode:
            self.unchecked.add(candidate)
            return None
        try:
            status = Path(candidate).stat()
        except OSError as error:
            return f"it can't be read ({error.strerror})"
        if status.st_ino != mapped.inode:
            return "it was replaced since the recording (inode)"
        if self.written is not None and status.st_mtime_ns > self.written:
            return "it was written to after the recording"
        return None

    def _vdso(self, mapped: Mapped) -> FoundFile:
        """This kernel's vDSO is the recorded one if the build ids say so, or both are of one machine."""
        wanted = [mapped.build_id] if mapped.build_id else list(self.build_ids.get("[vdso]", ()))
        known = CodeFile("[vdso]", wanted[0].hex() if wanted else None, self.arch, BinaryKind.VDSO)
        if self.arch != platform.machine() or not (wanted or self.is_local):
            return FoundFile(None, known)
        binary = own_vdso()
        if binary is not None and (not wanted or _same_build_id(binary, wanted)):
            return FoundFile(binary, code_file(binary, "[vdso]", BinaryKind.VDSO))
        return FoundFile(None, known)


def own_vdso() -> Binary | None:
    """That of this kernel, as this process has it."""
    with suppress(BinaryError, OSError, StopIteration):
        entries = MemoryMap.of_process(os.getpid()).entries
        own = next(entry for entry in entries if entry.path == "[vdso]")
        return open_mapped_file(os.getpid(), own)
    return None


def _same_build_id(binary: Binary, wanted: Sequence[bytes]) -> bool:
    return binary.build_id is not None and _filled(binary.build_id) in {_filled(one) for one in wanted}


def _filled(build_id: bytes) -> bytes:
    return build_id[:_BUILD_ID_BYTES].ljust(_BUILD_ID_BYTES, b"\0")


def code_file(binary: Binary, path: str, kind: BinaryKind = BinaryKind.FILE) -> CodeFile:
    """A file that was opened, by the path that the process has mapped."""
    size = mtime = 0
    if binary.build_id is None and kind is BinaryKind.FILE:
        with suppress(OSError):
            status = Path(binary.path).stat()
            size, mtime = status.st_size, status.st_mtime_ns
    build_id = binary.build_id.hex() if binary.build_id else None
    return CodeFile(_printable(path), build_id, binary.arch, kind, binary.image_address, size, mtime)


def _printable(path: str) -> str:
    """A path that is not UTF-8, in words that a database takes."""
    return os.fsencode(path).decode(errors="backslashreplace")
