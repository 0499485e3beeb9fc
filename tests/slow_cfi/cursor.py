"""A bounded cursor over bytes: the data representations that call frame information is made of.

It may not read outside its window: whatever runs past the end is a CfiError with the offset.
"""

from __future__ import annotations

ADDRESS_MASK = (1 << 64) - 1


class CfiError(Exception):
    """Bytes that are no valid call frame information: what is wrong, and at which offset."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"{message} at offset {offset:#x}")
        self.message = message
        self.offset = offset


class Cursor:
    """Reads data[position:end], little-endian; offsets in errors count from data[0]."""

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        return self.end - self.position

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise CfiError(f"{size} bytes run past the end", self.position)
        taken = self.data[self.position : self.position + size]
        self.position += size
        return taken

    def window(self, size: int) -> Cursor:
        """A cursor over the next size bytes, which this one skips."""
        start = self.position
        self.take(size)
        return Cursor(self.data, start, start + size)

    def unsigned(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def signed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little", signed=True)

    def uleb128(self) -> int:
        """DWARF 5, 7.6: groups of 7 bits, lowest first, the top bit says that more follow."""
        value, shift, start = 0, 0, self.position
        while True:
            byte = self.unsigned(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        if value > ADDRESS_MASK:
            raise CfiError("a ULEB128 does not fit in 64 bits", start)
        return value

    def sleb128(self) -> int:
        """As uleb128, and bit 6 of the last byte is the sign."""
        value, shift, start = 0, 0, self.position
        while True:
            byte = self.unsigned(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        if byte & 0x40:
            value -= 1 << shift
        if not -(1 << 63) <= value < 1 << 63:
            raise CfiError("an SLEB128 does not fit in 64 bits", start)
        return value

    def string(self) -> bytes:
        """A null-terminated string, without its terminator."""
        zero = self.data.find(b"\0", self.position, self.end)
        if zero < 0:
            raise CfiError("a string has no end", self.position)
        text = self.take(zero - self.position)
        self.take(1)
        return text

    def initial_length(self) -> tuple[int, bool]:
        """DWARF 5, 7.4: the length of what follows, and whether the format is 64-bit DWARF."""
        length = self.unsigned(4)
        if length == 0xFFFFFFFF:
            return self.unsigned(8), True
        if length >= 0xFFFFFFF0:
            raise CfiError(f"the initial length {length:#x} is reserved", self.position - 4)
        return length, False
