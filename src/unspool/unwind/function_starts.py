"""Where functions begin, by a file's unwind information: for code whose names were stripped.

.eh_frame_hdr holds a sorted table of (function, FDE), as every linker writes it (LSB, "Exception Frames");
other encodings count as no table. A function that was split has a start for each part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unspool.binaries import Binary, BinaryError
from unspool.unwind.table import RowFlag, UnwindTable

# Version; then how they are written: the pointer pcrel sdata4, the count udata4, the table datarel sdata4.
_USUAL = bytes([1, 0x1B, 0x03, 0x3B])
_TABLE_AT = 12
_NOT_OURS = RowFlag.NONE | RowFlag.DEBUG_FRAME | RowFlag.CODE


def function_starts(binary: Binary, table: UnwindTable, lookups: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For relative lookup addresses (uint64[n]) the relative addresses where their functions begin, int64[n];
    -1: the file does not say. table: the file's."""
    starts = all_starts(binary)
    found = np.full(len(lookups), -1, np.int64)
    index = np.searchsorted(starts, lookups.astype(np.int64), "right") - 1
    for i in np.flatnonzero(index >= 0).tolist():
        row = table.lookup(int(lookups[i]))
        if row is not None and not row.flags & _NOT_OURS:
            found[i] = starts[index[i]]
    return found


def all_starts(binary: Binary) -> NDArray[np.int64]:
    """The relative addresses where functions begin, sorted; none: the file does not say."""
    nothing = np.zeros(0, np.int64)
    try:
        section = binary.section(".eh_frame_hdr")
        data = memoryview(b"") if section is None else section.data
    except BinaryError:
        return nothing
    if section is None or len(data) < _TABLE_AT or bytes(data[:4]) != _USUAL:
        return nothing
    count = min(int.from_bytes(data[8:12], "little"), (len(data) - _TABLE_AT) // 8)
    starts = np.frombuffer(data, "<i4", 2 * count, _TABLE_AT)[::2].astype(np.int64)
    starts += section.address - binary.image_address
    return np.unique(starts[starts >= 0])
