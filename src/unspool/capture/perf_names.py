"""Names of code without a file: the kernel's, if this is the recorded one or if perf has kept its symbols
(~/.debug), and JIT code's, from the map that a runtime has written. Nothing is read before a name is asked
for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from unspool.symbols import KernelSymbols, PerfMap

_NOTES = "/sys/kernel/notes"
_NOTE_HEADER = 12  # sizes of name and content, type: u32 each
_GNU_BUILD_ID = 3
_MAX_BYTES = 1 << 26


def kernel_names(build_ids: Sequence[bytes], release: str) -> Callable[[int], str | None]:
    """From a lookup address to a name. build_ids: of the recorded kernel; without any, its release decides
    ("6.1.0-18-amd64"; "": not known)."""

    @cache
    def symbols() -> KernelSymbols | None:
        return _symbols(build_ids, release)

    def lookup(address: int) -> str | None:
        known = symbols()
        return None if known is None else known.lookup(address)

    return lookup


def jit_names(pid: int) -> Callable[[int], str | None]:
    """From a lookup address in JIT code of a process of this machine, which may have ended, to a name."""

    @cache
    def perf_map() -> PerfMap | None:
        return PerfMap.of_process(pid)

    def lookup(address: int) -> str | None:
        known = perf_map()
        return None if known is None else known.lookup(address)

    return lookup


def _symbols(build_ids: Sequence[bytes], release: str) -> KernelSymbols | None:
    if running_build_id() in build_ids if build_ids else release in ("", running_release()):
        return KernelSymbols.of_running_kernel()
    with suppress(RuntimeError):
        for build_id in build_ids:
            kept = Path.home() / ".debug" / "[kernel.kallsyms]" / build_id.hex() / "kallsyms"
            with suppress(OSError), kept.open("rb") as file:
                return KernelSymbols(file.read(_MAX_BYTES))
    return None


def running_release() -> str:
    """Of this machine's kernel."""
    return os.uname().release


def running_build_id() -> bytes | None:
    """Of this machine's kernel. The format is that of ELF's notes."""
    try:
        data = Path(_NOTES).read_bytes()
    except OSError:
        return None
    at = 0
    while at + _NOTE_HEADER <= len(data):
        name_size, size, kind = (
            int.from_bytes(data[at + 4 * i : at + 4 * i + 4], "little") for i in range(3)
        )
        content = at + _NOTE_HEADER + (name_size + 3) // 4 * 4
        if kind == _GNU_BUILD_ID and data[at + _NOTE_HEADER : content] == b"GNU\0":
            return data[content : content + size]
        at = content + (size + 3) // 4 * 4
    return None
