"""The files that running processes map, each opened once; perf's counterpart for what runs now of
perf_files.py."""

from __future__ import annotations

from unspool.binaries import Binary, BinaryError
from unspool.capture.mapped_file import open_mapped_file
from unspool.capture.memory_map import MapEntry
from unspool.capture.perf_files import ANONYMOUS, FoundFile, code_file, own_vdso
from unspool.capture.perf_records import Mapped
from unspool.capture.samples import BinaryKind, CodeFile


class LiveFiles:
    """missing: files that can't be used, and why."""

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self.missing: dict[str, str] = {}
        self._found: dict[tuple[str, str, int], FoundFile] = {}

    def find(self, mapped: Mapped) -> FoundFile:
        """The file of a mapping. A process may have ended by now; then its path must lead to the same
        inode."""
        if mapped.path != "[vdso]" and mapped.path.startswith(ANONYMOUS):
            return FoundFile(None, CodeFile.without_file(BinaryKind.JIT, self.arch))
        key = (mapped.path, mapped.device, mapped.inode)
        found = self._found.get(key)
        if found is None:
            found = self._open(mapped)
            if found.binary is not None:  # else another process may reach it
                self._found[key] = found
        return found

    def opened(self) -> dict[CodeFile, Binary]:
        """All that were found so far."""
        return {file.code_file: file.binary for file in self._found.values() if file.binary is not None}

    def _open(self, mapped: Mapped) -> FoundFile:
        if mapped.path == "[vdso]":
            binary = own_vdso()
            if binary is None:
                return FoundFile(None, CodeFile(mapped.path, None, self.arch, BinaryKind.VDSO))
            return FoundFile(binary, code_file(binary, mapped.path, BinaryKind.VDSO))
        entry = MapEntry(
            *(mapped.start, mapped.end, "r-xp", mapped.file_offset, mapped.device, mapped.inode, mapped.path)
        )
        try:
            binary = open_mapped_file(mapped.pid, entry)
        except BinaryError as error:
            self.missing.setdefault(mapped.path, error.what)
            return FoundFile(None, CodeFile(mapped.path, None, self.arch))
        if binary.arch != self.arch:
            self.missing.setdefault(mapped.path, f"it is for {binary.arch}")
            return FoundFile(None, CodeFile(mapped.path, None, binary.arch))
        return FoundFile(binary, code_file(binary, mapped.path.removesuffix(" (deleted)")))
