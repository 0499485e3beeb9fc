"""Names of the kernel's code and its modules', from /proc/kallsyms (proc(5)).

One symbol a line: address, type, name and, for a module's, "[module]". Without privileges (kptr_restrict) all
addresses are zero. A symbol reaches to the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

_PATH = "/proc/kallsyms"
_MAX_BYTES = 1 << 26  # it has about 10 MB
_CODE = frozenset(b"tTwW")
_MAX_NAME = 1 << 12


class KernelSymbols:
    """Functions by address."""

    def __init__(self, data: bytes) -> None:
        """`data`: the file's bytes; lines that are none of it are passed over."""
        found: dict[int, bytes] = {}
        for line in data.split(b"\n"):
            fields = line.split()
            if len(fields) in (3, 4) and len(fields[1]) == 1 and fields[1][0] in _CODE:
                try:
                    address = int(fields[0], 16)
                except ValueError:
                    continue
                if address:
                    found.setdefault(address, b" ".join(fields[2:])[:_MAX_NAME])
        self._starts = sorted(found)
        self._names = [found[address] for address in self._starts]

    @classmethod
    def of_running_kernel(cls) -> KernelSymbols | None:
        """None: it does not tell where its code is."""
        try:
            with Path(_PATH).open("rb") as file:
                symbols = cls(file.read(_MAX_BYTES))
        except OSError:
            return None
        return symbols if len(symbols) else None

    def lookup(self, address: int) -> str | None:
        """The name of the code at a lookup address, with the module's: "nf_hook [nf_tables]"."""
        index = bisect_right(self._starts, address) - 1
        return self._names[index].decode("utf-8", "backslashreplace") if index >= 0 else None

    def __len__(self) -> int:
        return len(self._starts)
