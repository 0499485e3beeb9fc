"""Fuzzes the reader of perf.data with damaged files: nothing but CaptureError may come out, soon, in little
memory, and what comes out of a file that can be read is sound.

    python -m tests.fuzz.perf SECONDS [SEED]

Inputs are small whole files (seeds, written here) with a few places overwritten by values that break readers:
sizes and types of records, counts within samples, anything. A failing input is kept in
out/fuzz/perf-FAILURE.bin."""

from __future__ import annotations

import os
import random
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from tests import perf_writer as perf
from tests.fuzz import elf
from tests.fuzz.loop import TIME_LIMIT, Step, fuzz
from unspool.capture import CaptureError
from unspool.capture.perf_data import PerfData
from unspool.capture.samples import SampleBatch

_FILE_HEADER = 104
_CHAIN = perf.chain(perf.KERNEL_MARK, 0xFFFFFFFF81000000, perf.USER_MARK, 0x401010, 0x401020)


def seeds() -> list[bytes]:
    """Small files that together lead through every path of the reader."""
    plain, rich = _plain_records(), _rich_records()
    return [
        perf.perf_file([_PLAIN], plain, _features([_PLAIN])),
        perf.perf_stream([_PLAIN], plain, _features([_PLAIN])),
        perf.perf_file(_RICH, rich, _features(_RICH)),
        perf.perf_file([_PLAIN], [*perf.compressed(plain, 200), perf.FINISHED_ROUND]),
        perf.perf_file([_PLAIN], plain, is_finished=False),
    ]


_PLAIN = perf.Attribute(
    perf.IP | perf.TID | perf.TIME | perf.PERIOD | perf.CALLCHAIN | perf.REGS_USER | perf.STACK_USER,
    stack_size=64,
)
_RICH_FIELDS = perf.IDENTIFIER | perf.IP | perf.TID | perf.TIME | perf.ID | perf.READ | perf.CALLCHAIN
_RICH_FIELDS |= perf.RAW | perf.BRANCH_STACK | perf.REGS_USER | perf.STACK_USER
_RICH = [
    perf.Attribute(
        _RICH_FIELDS, (11, 12), read_format=perf.GROUP | perf.FORMAT_ID, branch_sample_type=1 << 17
    ),
    perf.Attribute(_RICH_FIELDS, (13,), config=2, read_format=perf.TOTAL_TIME_ENABLED),
]


def _features(events: Sequence[perf.Attribute]) -> dict[int, bytes]:
    return {
        perf.BUILD_ID: perf.build_id_feature({"/bin/prog": bytes(range(20)), "[vdso]": bytes(20)}),
        perf.HOSTNAME: perf.text_feature("elsewhere"),
        perf.ARCH: perf.text_feature("x86_64"),
        perf.COMMAND: struct.pack("<I", 2) + perf.text_feature("perf") + perf.text_feature("record"),
        perf.EVENT_DESC: perf.event_feature(events, ["event"] * len(events)),
    }


def _processes() -> list[bytes]:
    return [
        perf.comm(1, "init", 0),
        perf.mmap2(1, 0x400000, 0x3000, 0, "/bin/prog", 1, build_id=bytes(range(20))),
        perf.mmap2(1, 0x7000000, 0x3000, 0, "//anon", 2),
        perf.mmap2(-1, 0xFFFFFFFF81000000, 0x1000000, 0, "[kernel.kallsyms]_text", 0, misc=perf.KERNEL),
        perf.fork(2, 1, 3),
        perf.comm(2, "prog", 4, is_exec=True),
        perf.fork(2, 2, 5, tid=3),
    ]


def _endings() -> list[bytes]:
    ends = [perf.exited(2, 20, tid=3), perf.exited(2, 21), perf.lost(5, 1, 22)]
    return [*ends, perf.record(13, perf.words(4) + perf.ids(1, 1) + perf.words(23)), perf.FINISHED_ROUND]


def _plain_records() -> list[bytes]:
    registers = perf.registers({"pc": 0x401000, "rsp": 0x7FFF0000, "rbp": 0x7FFF0020})
    samples = [
        perf.sample(
            *(perf.words(0x401000), perf.ids(pid, pid), perf.words(time), perf.words(1000)),
            *(_CHAIN, registers, perf.stack(struct.pack("<4Q", 0x401010, 0, 0x401020, 0), 64)),
        )
        for time, pid in ((6, 1), (7, 2), (8, 2))
    ]
    return [*_processes(), *samples[:2], perf.FINISHED_ROUND, samples[2], *_endings()]


def _rich_records() -> list[bytes]:
    registers = perf.registers({"pc": 0x401000, "rsp": 0x7FFF0000, "rbp": 0x7FFF0020})
    group = perf.words(2, 100, 11, 200, 13)
    single = perf.words(100, 50)
    raw = struct.pack("<I", 12) + bytes(12)
    branches = (perf.words(1, 0, 0x401000, 0x401010, 0), perf.words(1, 0x401000, 0x401010, 0))
    samples = [
        perf.sample(
            *(perf.words(number, 0x401000), perf.ids(2, 3), perf.words(time, number)),
            *((group, single)[number == 13], _CHAIN, raw, branches[number == 13], registers),
            perf.stack(struct.pack("<4Q", 0x401010, 0, 0x401020, 0), 64),
        )
        for time, number in ((6, 11), (7, 13), (8, 12))
    ]
    return [*_processes(), *samples, perf.FINISHED_ROUND, *_endings()]


def mutated(data: bytes, steps: Sequence[Step]) -> bytes:
    """The file with each step's damage done, in order."""
    out = bytearray(data)
    for kind, place, value in steps:
        if not out:
            break
        _DAMAGE[kind % len(_DAMAGE)](out, place, value)
    return bytes(out)


def _header_of_record(out: bytearray, place: int, value: int) -> None:
    """Size, type or misc of one of the records."""
    at = int.from_bytes(out[40:48], "little") if out[8:9] != b"\x10" else 16
    starts = []
    while at + 8 <= len(out):
        starts.append(at)
        size = int.from_bytes(out[at + 6 : at + 8], "little")
        if size < 8:
            break
        at += size
    if starts:
        field, width = ((0, 4), (4, 2), (6, 2), (6, 2))[value % 4]
        elf.overwrite(out, starts[place % len(starts)] + field, width, value // 4)


def _word(out: bytearray, place: int, value: int) -> None:
    """Eight bytes where the records have theirs: counts, sizes, addresses, times."""
    elf.overwrite(out, place % max(1, len(out) // 8) * 8, 8, value)


_DAMAGE: list[Callable[[bytearray, int, int], None]] = [_header_of_record, _header_of_record, _word, _word]
_DAMAGE += elf.GENERAL_DAMAGE


def exercise(data: bytes) -> int:
    """Reads a file to its end. Returns how many samples it has."""
    samples, began = 0, time.process_time()
    descriptor = os.memfd_create("fuzz")
    try:
        os.write(descriptor, data)
        with closing(PerfData(f"/proc/self/fd/{descriptor}")) as source:
            for happening in source:
                if isinstance(happening, SampleBatch):
                    samples += len(happening)
                    assert 0 <= happening.event < len(source.events)
                    happening.code_map.resolve(happening.addresses, happening.is_return)
    except CaptureError as error:
        assert error.what
        assert error.remedy
    finally:
        os.close(descriptor)
    assert time.process_time() - began < TIME_LIMIT
    return samples


def main(seconds: float, seed: int) -> int:
    return 0 if fuzz("perf", seeds(), mutated, exercise, seconds, seed) else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)))
