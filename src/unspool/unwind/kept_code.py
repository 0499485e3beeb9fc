"""The code of files, kept for walks without filling memory with it: a large program has 100 MB of code, of
which walks read a little.

Large code is copied into a temporary file that has no name, and that is mapped: only pages that are read take
memory. The program's own file is never mapped, since whoever cuts it short would end the reader (SIGBUS).
"""

from __future__ import annotations

import mmap
import tempfile
from weakref import WeakKeyDictionary

from unspool.binaries import Binary, BinaryError, Segment
from unspool.cache import Cache

_LARGE = 1 << 20  # bytes
_PIECE = 1 << 20

# Code is read once a file, however many unwinders use it.
_known: WeakKeyDictionary[Binary, dict[Segment, memoryview]] = WeakKeyDictionary()


def segment_code(binary: Binary, segment: Segment) -> memoryview:
    """The file's bytes of an executable segment; empty if they can't be read."""
    known = _known.setdefault(binary, {})
    if segment not in known:
        try:
            known[segment] = _read(binary, segment)
        except BinaryError:
            known[segment] = memoryview(b"")
    return known[segment]


def _read(binary: Binary, segment: Segment) -> memoryview:
    if segment.file_size >= _LARGE:
        try:
            return _mapped_copy(binary, segment)
        except (OSError, ValueError):  # no room for it
            pass
    return binary.code(segment.address, segment.file_size)


def _mapped_copy(binary: Binary, segment: Segment) -> memoryview:
    """Raises BinaryError, OSError, ValueError."""
    folder = Cache.of_user().root
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        for offset in range(0, segment.file_size, _PIECE):
            piece = binary.code(segment.address + offset, min(_PIECE, segment.file_size - offset))
            file.write(piece)
            if len(piece) < min(_PIECE, segment.file_size - offset):
                break
        file.flush()
        return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
