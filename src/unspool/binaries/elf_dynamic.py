"""The dynamic section (PT_DYNAMIC): where symbols are when a file has no section headers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspool.binaries.elf_image import LoadedBytes
from unspool.binaries.elf_symbols import MAX_SYMBOLS, SYMBOL, SymbolPart, make_part

DT_PLTGOT, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_GNU_HASH = 3, 4, 5, 6, 10, 0x6FFFFEF5
MAX_ENTRIES = 1 << 16


@dataclass(frozen=True, slots=True)
class Dynamic:
    """The first value of each tag."""

    values: dict[int, int]

    @property
    def plt_got(self) -> int:
        return self.values.get(DT_PLTGOT, 0)

    def symbols(self, loaded: LoadedBytes) -> SymbolPart | None:
        """The dynamic symbols; None if the file has none. Raises BinaryError."""
        if not {DT_SYMTAB, DT_STRTAB, DT_STRSZ} <= self.values.keys():
            return None
        count = self._symbol_count(loaded)
        if count > MAX_SYMBOLS:
            raise loaded.source.error(
                f"the dynamic symbol table has {count} symbols, more than {MAX_SYMBOLS}"
            )
        raw = loaded.read(self.values[DT_SYMTAB], count * SYMBOL.itemsize) if count else memoryview(b"")
        rows = np.frombuffer(raw, dtype=SYMBOL)
        names = loaded.read(self.values[DT_STRTAB], self.values[DT_STRSZ])
        return make_part(loaded.source, rows, None, names, 0)

    def _symbol_count(self, loaded: LoadedBytes) -> int:
        """No tag says how many symbols there are; the hash tables do."""
        if DT_HASH in self.values:
            return int(np.frombuffer(loaded.read(self.values[DT_HASH], 8), dtype="<u4")[1])
        if DT_GNU_HASH not in self.values:
            return 0
        address = self.values[DT_GNU_HASH]
        buckets, first, bloom, _ = (int(n) for n in np.frombuffer(loaded.read(address, 16), dtype="<u4"))
        bucket_address = address + 16 + 8 * bloom
        chain_address = bucket_address + 4 * buckets
        if not buckets:
            return first
        last = int(np.frombuffer(loaded.read(bucket_address, 4 * buckets), dtype="<u4").max())
        if last < first:  # every bucket is empty: undefined symbols only
            return first
        # The last chain goes on to the first entry with its lowest bit set.
        for size in (1 << 12, 4 * MAX_SYMBOLS):
            raw = loaded.read_some(chain_address + 4 * (last - first), size)
            entries = np.frombuffer(raw, dtype="<u4", count=len(raw) // 4)
            ends = np.flatnonzero(entries & 1)
            if len(ends):
                return last + int(ends[0]) + 1
        raise loaded.source.error("the GNU hash table has no end")


def read_dynamic(data: memoryview) -> Dynamic:
    entries = np.frombuffer(data, dtype="<u8", count=min(len(data) // 16, MAX_ENTRIES) * 2).reshape(-1, 2)
    values: dict[int, int] = {}
    for tag, value in entries.tolist():
        if tag == 0:
            break
        values.setdefault(tag, value)
    return Dynamic(values)
