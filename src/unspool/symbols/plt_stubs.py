"""Names for the stubs of the procedure linkage table, by which calls reach other files: read@plt.

No symbol table lists them. A stub jumps through a slot of the global offset table, and the slot's relocation
names the function (psABIs: x86_64 and AArch64, "Procedure Linkage Table"). The file is not trusted: what is
no such stub has no name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unspool.binaries import Binary, SymbolTable
from unspool.binaries.elf_relocate import RELA
from unspool.binaries.elf_symbols import SYMBOL
from unspool.binaries.symbol_table import FUNCTION, GLOBAL

STUB = "@plt"  # stands behind the function's name
_SECTIONS = (".plt", ".plt.sec", ".plt.got")
_KINDS = {"x86_64": (6, 7), "aarch64": (1025, 1026)}  # GLOB_DAT, JUMP_SLOT
_MOST_BYTES = 1 << 24  # of a section
_ENDBR64, _BTI_C = 0xFA1E0FF3, 0xD503245F

Numbers = NDArray[np.uint64]


class StubTable(SymbolTable):
    """Symbols that stand for the stubs of the functions whose names they have."""

    def name(self, index: int) -> str:
        return super().name(index) + STUB


def plt_stubs(binary: Binary) -> StubTable | None:
    """None: there are none. Raises BinaryError."""
    symbols = np.frombuffer(_bytes_of(binary, ".dynsym", SYMBOL.itemsize), SYMBOL)
    names = bytes(_bytes_of(binary, ".dynstr", 1)) + b"\0"
    slots, of_slot = _slots(binary, len(symbols))
    if not len(slots):
        return None
    starts, sizes, targets = (np.concatenate(part) for part in zip(*_stubs(binary), strict=True))
    place = np.minimum(np.searchsorted(slots, targets), len(slots) - 1)
    name = symbols["name"][of_slot[place]].astype(np.uint64)
    known = (slots[place] == targets) & (name > 0) & (name < len(names))
    count = int(np.count_nonzero(known))
    if not count:
        return None
    return StubTable(
        starts[known],
        sizes[known],
        np.full(count, FUNCTION, np.uint8),
        np.full(count, GLOBAL, np.uint8),
        np.ones(count, np.uint32),
        name[known],
        names,
        [],
    )


def _bytes_of(binary: Binary, name: str, unit: int) -> memoryview:
    section = binary.section(name)
    data = memoryview(b"") if section is None or section.size > _MOST_BYTES else section.data
    return data[: len(data) // unit * unit]


def _slots(binary: Binary, symbol_count: int) -> tuple[Numbers, Numbers]:
    """The addresses of slots that are a symbol's, sorted, and which symbol's."""
    rows = np.concatenate(
        [np.frombuffer(_bytes_of(binary, name, RELA.itemsize), RELA) for name in (".rela.plt", ".rela.dyn")]
    )
    symbol = rows["info"] >> np.uint64(32)
    chosen = np.isin(rows["info"] & np.uint64(0xFFFFFFFF), _KINDS[binary.arch])
    chosen &= (symbol > 0) & (symbol < symbol_count)
    order = np.argsort(rows["offset"][chosen], kind="stable")
    return rows["offset"][chosen][order].astype(np.uint64), symbol[chosen][order].astype(np.uint64)


def _stubs(binary: Binary) -> list[tuple[Numbers, Numbers, Numbers]]:
    """Of each section: where stubs begin, their sizes, the slots through which they jump."""
    find = _x86_64_stubs if binary.arch == "x86_64" else _aarch64_stubs
    found = []
    for name in _SECTIONS:
        section = binary.section(name)
        data = np.frombuffer(_bytes_of(binary, name, 8), np.uint8)
        address = np.uint64(0 if section is None else section.address)
        found.append(find(data, address, 8 if name == ".plt.got" else 16))
    return found


def _x86_64_stubs(data: NDArray[np.uint8], address: np.uint64, unit: int) -> tuple[Numbers, Numbers, Numbers]:
    """[endbr64] [bnd] jmp *slot(%rip), at every multiple of unit."""
    padded = np.append(data, np.zeros(16, np.uint8))
    begins = np.arange(0, len(data), unit)
    is_marked = _words(padded, begins) == _ENDBR64
    at = begins + 4 * is_marked
    at += padded[at] == 0xF2
    is_jump = (padded[at] == 0xFF) & (padded[at + 1] == 0x25)
    begins, at = begins[is_jump], at[is_jump]
    distance = _words(padded, at + 2).astype(np.int32).astype(np.int64).astype(np.uint64)
    sizes = np.where(is_marked[is_jump], 16, unit).astype(np.uint64)
    return address + begins.astype(np.uint64), sizes, address + at.astype(np.uint64) + np.uint64(6) + distance


def _aarch64_stubs(
    data: NDArray[np.uint8], address: np.uint64, unit: int
) -> tuple[Numbers, Numbers, Numbers]:
    """[bti c]; adrp x16, page; ldr x17, [x16, #offset]; add x16, …; br x17"""
    words = np.append(data[: len(data) // 4 * 4].view("<u4"), np.zeros(1, np.uint32))
    is_stub = (words[:-1] & 0x9F00001F == 0x90000010) & (words[1:] & 0xFFC003FF == 0xF9400211)
    at = np.flatnonzero(is_stub)
    pages = ((words[at] >> 5 & 0x7FFFF) << 2 | words[at] >> 29 & 3).astype(np.int64)
    pages = np.where(pages & 1 << 20, pages - (1 << 21), pages) << 12
    offsets = (words[at + 1] >> 10 & 0xFFF).astype(np.uint64) * np.uint64(8)
    is_marked = (at > 0) & (words[np.maximum(at - 1, 0)] == _BTI_C)
    begins = address + (at * 4).astype(np.uint64)
    slots = (begins & ~np.uint64(0xFFF)) + pages.astype(np.uint64) + offsets
    marked = is_marked.astype(np.uint64) * np.uint64(4)
    return begins - marked, np.uint64(16) + marked, slots


def _words(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The 32 bits at each place."""
    parts = [data[at + i].astype(np.uint32) << np.uint32(8 * i) for i in range(4)]
    words: NDArray[np.uint32] = parts[0] | parts[1] | parts[2] | parts[3]
    return words
