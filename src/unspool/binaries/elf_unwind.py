"""Where .eh_frame is in a file without section headers: PT_GNU_EH_FRAME leads to .eh_frame_hdr.

Its format is the LSB's ("Exception Frames"); encodings are DW_EH_PE_*.
"""

from __future__ import annotations

import numpy as np

from unspool.binaries.binary import UnwindSection
from unspool.binaries.elf_image import LoadedBytes

_VALUE_FORMS = {0x00: "<u8", 0x02: "<u2", 0x03: "<u4", 0x04: "<u8", 0x0A: "<i2", 0x0B: "<i4", 0x0C: "<i8"}
_OMIT = 0xFF
_ABSOLUTE, _PCREL, _DATAREL = 0, 0x10, 0x30
_MASK = (1 << 64) - 1


class HeaderError(Exception):
    """.eh_frame_hdr can't be used; says why."""


def eh_frame_through_header(header: memoryview, address: int, loaded: LoadedBytes) -> UnwindSection:
    """.eh_frame as .eh_frame_hdr, at a virtual address, tells it. It ends with the last FDE that the search
    table knows, else (open-ended) with its segment. Raises HeaderError, BinaryError."""
    if len(header) < 4 or header[0] != 1:
        raise HeaderError(f"version {header[0]} instead of 1" if len(header) >= 4 else "cut short")
    _, pointer_encoding, count_encoding, table_encoding = header[:4]
    start, position = _decode(header, 4, pointer_encoding, address)
    segment = loaded.segment_at(start)
    if segment is None:
        raise HeaderError(f"points to {start:#x}, where the file has nothing")
    segment_end = segment.address + segment.file_size
    end = None
    if count_encoding != _OMIT:
        count, position = _decode(header, position, count_encoding, address)
        last = _last_fde(header, position, count, table_encoding, address)
        if last is not None and start <= last < segment_end:
            end = _entry_end(last, segment_end, loaded)
    data = loaded.read(start, (segment_end if end is None else end) - start)
    return UnwindSection("eh_frame", start, data, end is None)


def _decode(header: memoryview, position: int, encoding: int, address: int) -> tuple[int, int]:
    """A DW_EH_PE value: (value, position after it)."""
    form = _VALUE_FORMS.get(encoding & 0x0F)
    base = {_ABSOLUTE: 0, _PCREL: address + position, _DATAREL: address}.get(encoding & 0xF0)
    if form is None or base is None:
        raise HeaderError(f"pointer encoding {encoding:#x}")
    end = position + np.dtype(form).itemsize
    if end > len(header):
        raise HeaderError("cut short")
    return (int(np.frombuffer(header[position:end], dtype=form)[0]) + base) & _MASK, end


def _last_fde(header: memoryview, position: int, count: int, encoding: int, address: int) -> int | None:
    """The greatest FDE address in the search table of (function, FDE) pairs; None if it can't be read."""
    form = _VALUE_FORMS.get(encoding & 0x0F)
    if encoding & 0xF0 not in (_ABSOLUTE, _DATAREL) or form is None or not count:
        return None
    if count > (len(header) - position) // (2 * np.dtype(form).itemsize):
        return None
    fdes = np.frombuffer(header, dtype=form, count=2 * count, offset=position)[1::2]
    return (int(fdes.max()) + (address if encoding & 0xF0 == _DATAREL else 0)) & _MASK


def _entry_end(address: int, limit: int, loaded: LoadedBytes) -> int | None:
    """Where the entry at an address ends; None if it has no length or reaches past the limit."""
    start = bytes(loaded.read_some(address, 12))
    length, prefix = int.from_bytes(start[:4], "little"), 4
    if length == 0xFFFFFFFF:  # 64-bit DWARF
        length, prefix = int.from_bytes(start[4:], "little"), 12
    end = address + prefix + length
    return end if length and len(start) >= prefix and end <= limit else None
