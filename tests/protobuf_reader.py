"""Reads protobuf's wire format, as https://protobuf.dev/programming-guides/encoding/ describes it, without
the protobuf package: only what pprof's format has."""

from __future__ import annotations

from collections import defaultdict

_VARINT, _BYTES = 0, 2


class Message:
    """Fields by number: what was there, in order."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = defaultdict(list)
        position = 0
        while position < len(data):
            key, position = _varint(data, position)
            value: int | bytes
            if key & 7 == _VARINT:
                value, position = _varint(data, position)
            elif key & 7 == _BYTES:
                size, position = _varint(data, position)
                value, position = data[position : position + size], position + size
                assert len(value) == size
            else:
                raise ValueError(f"wire type {key & 7}")
            self._fields[key >> 3].append(value)

    def number(self, field: int) -> int:
        """0 if it is not there."""
        values = self._fields.get(field, [0])
        assert len(values) == 1 and isinstance(values[0], int)
        return values[0]

    def numbers(self, field: int) -> list[int]:
        """A repeated field of numbers, packed or not."""
        numbers = []
        for value in self._fields.get(field, []):
            if isinstance(value, int):
                numbers.append(value)
                continue
            position = 0
            while position < len(value):
                number, position = _varint(value, position)
                numbers.append(number)
        return numbers

    def texts(self, field: int) -> list[str]:
        return [value.decode() for value in self._bytes(field)]

    def messages(self, field: int) -> list[Message]:
        return [Message(value) for value in self._bytes(field)]

    def _bytes(self, field: int) -> list[bytes]:
        values = self._fields.get(field, [])
        return [value for value in values if isinstance(value, bytes)]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, position
