"""Decompression of sections, bounded: what a file declares or hides can't take memory out of proportion.

Output is limited to 128 times the input plus 1 MiB (debug sections shrink to a tenth at best; zstd could
reach 200,000 times) and grows only as the input really yields it.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Callable

import zstandard

MAX_RATIO = 128
SLACK = 1 << 20
_CHUNK = 1 << 20
_ZSTD_WINDOW = 1 << 27  # zstd's own default limit; xz -9 needs 64 MiB
_XZ_MEMORY = 1 << 27
ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD = 1, 2


class CompressionError(Exception):
    """What is wrong, without the file's name."""


def size_limit(compressed_size: int) -> int:
    return compressed_size * MAX_RATIO + SLACK


def decompress_section(data: memoryview) -> bytes:
    """A section with SHF_COMPRESSED: Elf64_Chdr (gABI "Compressed Sections"), then the stream."""
    if len(data) < 24:
        raise CompressionError("no room for the compression header")
    kind, _, size, _ = struct.unpack_from("<IIQQ", data)
    if kind == ELFCOMPRESS_ZLIB:
        return _sized(_zlib, data[24:], size)
    if kind == ELFCOMPRESS_ZSTD:
        return _sized(_zstd, data[24:], size)
    raise CompressionError(f"unknown compression type {kind}")


def decompress_zdebug(data: memoryview) -> bytes:
    """GNU's older form, `.zdebug_*`: "ZLIB", the size as 8 bytes big-endian, then the stream."""
    if bytes(data[:4]) != b"ZLIB" or len(data) < 12:
        raise CompressionError("no ZLIB header")
    return _sized(_zlib, data[12:], int.from_bytes(data[4:12], "big"))


def decompress_xz(data: memoryview) -> bytes:
    """A whole .xz stream of unknown size (.gnu_debugdata)."""
    limit = size_limit(len(data))
    try:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        out = decoder.decompress(data, max_length=limit + 1)
    except (lzma.LZMAError, MemoryError) as problem:
        raise CompressionError(f"bad xz data ({problem})") from problem
    if len(out) > limit:
        raise CompressionError(f"more than {MAX_RATIO} times larger when decompressed")
    if not decoder.eof:
        raise CompressionError("xz data ends early")
    return out


def _sized(decode: Callable[[memoryview, int], bytes], data: memoryview, size: int) -> bytes:
    if size > size_limit(len(data)):
        raise CompressionError(f"declares {size} bytes, more than {MAX_RATIO} times its compressed size")
    try:
        out = decode(data, size + 1)
    except (zlib.error, zstandard.ZstdError, MemoryError) as problem:
        raise CompressionError(f"bad compressed data ({problem})") from problem
    if len(out) != size:
        relation = "more" if len(out) > size else f"only {len(out)}"
        raise CompressionError(f"declares {size} bytes but holds {relation}")
    return out


def _zlib(data: memoryview, limit: int) -> bytes:
    decoder = zlib.decompressobj()
    out = decoder.decompress(data, limit)
    if len(out) == limit - 1 and not decoder.eof:  # all bytes are there, their checksum is not
        raise CompressionError("zlib data ends early")
    return out


def _zstd(data: memoryview, limit: int) -> bytes:
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    parts: list[bytes] = []
    left = limit
    with decoder.stream_reader(data, read_across_frames=True) as reader:
        while left and (part := reader.read(min(left, _CHUNK))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)
