"""Writes small perf.data files and streams, so that a test builds its condition in front of the reader.

    perf_file([Attribute(sample_type=IP | TID | TIME)], [comm(1, "sh"), sample(...), FINISHED_ROUND])

It writes what it is told, also what is invalid, and checks nothing. Layouts: linux/perf_event.h and
tools/perf/Documentation/perf.data-file-format.txt.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import zstandard

IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU = (1 << n for n in range(8))
PERIOD, STREAM_ID, RAW, BRANCH_STACK, REGS_USER, STACK_USER = (1 << n for n in range(8, 14))
IDENTIFIER = 1 << 16
TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING, FORMAT_ID, GROUP, FORMAT_LOST = (1 << n for n in range(5))
FREQUENCY, SAMPLE_ID_ALL, EXCLUDE_CALLCHAIN_USER = 1 << 10, 1 << 18, 1 << 22
KERNEL, USER = 1, 2  # of misc: where the processor was
KERNEL_MARK, USER_MARK = 2**64 - 128, 2**64 - 512  # in call chains
X86_64_REGISTERS = 0xFF0FFF  # all but segment registers, as perf record asks for
ABI_NONE, ABI_32, ABI_64 = 0, 1, 2
BUILD_ID, HOSTNAME, RELEASE, ARCH, COMMAND, EVENT_DESC = 2, 3, 4, 6, 11, 12  # features

# The kernel's order of registers, as far as X86_64_REGISTERS has them.
_ORDER = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "pc", "flags", "cs", "ss")
_REGISTERS = (*_ORDER, *(f"r{n}" for n in range(8, 16)))


@dataclass
class Attribute:
    """struct perf_event_attr, and the ids of its event."""

    sample_type: int
    ids: tuple[int, ...] = ()
    type: int = 1
    config: int = 0
    period: int = 1000
    read_format: int = 0
    flags: int = SAMPLE_ID_ALL
    branch_sample_type: int = 0
    registers: int = X86_64_REGISTERS
    stack_size: int = 0

    def pack(self) -> bytes:
        """128 bytes."""
        head = struct.pack(
            "<IIQQQQQ", self.type, 128, self.config, self.period, self.sample_type, *self._flags()
        )
        middle = struct.pack("<IIQQQQI", 0, 0, 0, 0, self.branch_sample_type, self.registers, self.stack_size)
        return (head + middle).ljust(128, b"\0")

    def _flags(self) -> tuple[int, int]:
        return self.read_format, self.flags


def record(kind: int, body: bytes, misc: int = 0) -> bytes:
    """A header and what follows it."""
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *(value & 2**64 - 1 for value in values))


FINISHED_ROUND = record(68, b"")


def sample(*body: bytes, mode: int = USER) -> bytes:
    """Its fields, in the order of the layout; see the functions below."""
    return record(9, b"".join(body), mode)


def ids(pid: int, tid: int) -> bytes:
    return struct.pack("<ii", pid, tid)


def chain(*addresses: int) -> bytes:
    """A call chain, marks included."""
    return words(len(addresses), *addresses)


def registers(values: Mapping[str, int], abi: int = ABI_64) -> bytes:
    """Those of X86_64_REGISTERS; the rest are 0."""
    return words(abi, *(values.get(name, 0) for name in _REGISTERS)) if abi else words(0)


def stack(data: bytes, size: int | None = None) -> bytes:
    """A stack copy. size: bytes that the event asks for, filled up with rubbish."""
    size = len(data) if size is None else size
    return words(size) + data.ljust(size, b"\xee") + words(len(data))


def mmap2(
    pid: int,
    start: int,
    length: int,
    offset: int,
    path: str,
    time: int,
    *,
    build_id: bytes | None = None,
    inode: int = 0,
    device: tuple[int, int] = (0, 0),
    protection: int = 5,
    misc: int = USER,
) -> bytes:
    """A mapping; with the trailer of TID | TIME."""
    if build_id is not None:
        misc |= 1 << 14
        identity = struct.pack("<B3x20s", len(build_id), build_id)
    else:
        identity = struct.pack("<IIQQ", *device, inode, 0)
    body = struct.pack("<iiQQQ", pid, pid, start, length, offset) + identity
    body += struct.pack("<II", protection, 2) + _padded(path)
    return record(10, body + ids(pid, pid) + words(time), misc)


def comm(pid: int, name: str, time: int, *, tid: int | None = None, is_exec: bool = False) -> bytes:
    body = ids(pid, pid if tid is None else tid) + _padded(name)
    return record(3, body + ids(pid, pid) + words(time), 1 << 13 if is_exec else 0)


def fork(pid: int, parent: int, time: int, *, tid: int | None = None) -> bytes:
    body = struct.pack("<iiiiQ", pid, parent, pid if tid is None else tid, parent, time)
    return record(7, body + ids(pid, pid) + words(time))


def exited(pid: int, time: int, *, tid: int | None = None) -> bytes:
    body = struct.pack("<iiiiQ", pid, pid, pid if tid is None else tid, pid, time)
    return record(4, body + ids(pid, pid) + words(time))


def lost(count: int, pid: int, time: int) -> bytes:
    return record(2, words(7, count) + ids(pid, pid) + words(time))


def compressed(records: Sequence[bytes], size: int = 100) -> list[bytes]:
    """Records of one zstd stream, each with the bytes of so many others, as perf record -z writes them."""
    data = b"".join(records)
    compressor = zstandard.ZstdCompressor().compressobj()
    result = []
    for at in range(0, len(data), size):
        packed = compressor.compress(data[at : at + size]) + compressor.flush(
            zstandard.COMPRESSOBJ_FLUSH_BLOCK
        )
        result.append(record(81, packed))
    return result


def _padded(text: str) -> bytes:
    data = text.encode() + b"\0"
    return data.ljust((len(data) + 7) // 8 * 8, b"\0")


# ---------------------------------------------------------------- files


def text_feature(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<I", len(data)) + data


def event_feature(attributes: Sequence[Attribute], names: Sequence[str]) -> bytes:
    """What the events are called."""
    result = struct.pack("<II", len(attributes), 128)
    for attribute, name in zip(attributes, names, strict=True):
        result += attribute.pack() + struct.pack("<I", len(attribute.ids)) + text_feature(name)
        result += words(*attribute.ids)
    return result


def build_id_feature(build_ids: Mapping[str, bytes]) -> bytes:
    result = b""
    for path, build_id in build_ids.items():
        body = struct.pack("<i20sB3x", -1, build_id, len(build_id)) + _padded(path)
        result += record(0, body, USER | 1 << 15)
    return result


def perf_file(
    attributes: Sequence[Attribute],
    records: Sequence[bytes],
    features: Mapping[int, bytes] | None = None,
    *,
    is_finished: bool = True,
) -> bytes:
    """What perf record -o FILE writes. is_finished: else perf was killed before its last step."""
    features = {ARCH: text_feature("x86_64")} if features is None else features
    id_bytes = [words(*attribute.ids) for attribute in attributes]
    at = 104
    sections = []
    for data in id_bytes:
        sections.append((at, len(data)))
        at += len(data)
    rows = b"".join(
        a.pack() + struct.pack("<QQ", *section) for a, section in zip(attributes, sections, strict=True)
    )
    data = b"".join(records)
    data_at = at + len(rows)
    table_at = data_at + len(data)
    bits = sum(1 << number for number in features)
    header = struct.pack("<8sQQ", b"PERFILE2", 104, 144) + struct.pack("<QQ", at, len(rows))
    header += struct.pack("<QQQQ", data_at, len(data) if is_finished else 0, 0, 0) + bits.to_bytes(
        32, "little"
    )
    result = header + b"".join(id_bytes) + rows + data
    if not is_finished:
        return result
    offset = table_at + 16 * len(features)
    table = b""
    for number in sorted(features):
        table += struct.pack("<QQ", offset, len(features[number]))
        offset += len(features[number])
    return result + table + b"".join(features[number] for number in sorted(features))


def perf_stream(
    attributes: Sequence[Attribute], records: Sequence[bytes], features: Mapping[int, bytes] | None = None
) -> bytes:
    """What perf record -o - writes."""
    features = {ARCH: text_feature("x86_64")} if features is None else features
    result = struct.pack("<8sQ", b"PERFILE2", 16)
    for attribute in attributes:
        result += record(64, attribute.pack() + words(*attribute.ids))
    for number, data in features.items():
        result += record(80, words(number) + data)
    return result + b"".join(records)
