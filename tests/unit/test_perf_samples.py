"""Samples with every kind of field: what lies between the ones that matter is skipped exactly."""

import struct

import numpy as np
import pytest

from tests import perf_writer as perf
from unspool.capture.perf_attributes import EventAttributes
from unspool.capture.perf_samples import SampleColumns, parse_samples

HEAD = perf.IP | perf.TID | perf.TIME | perf.PERIOD
TAIL = perf.CALLCHAIN | perf.REGS_USER | perf.STACK_USER
MASK = 0b1_1100_0000  # rbp, rsp, pc


def columns(attribute: perf.Attribute, *middle: bytes) -> tuple[SampleColumns, np.ndarray]:
    """Two equal samples with these bytes between PERIOD and what follows it."""
    between = dict(zip((perf.READ, perf.RAW | perf.BRANCH_STACK), middle, strict=False))
    sample = perf.sample(
        *(perf.words(0x1000), perf.ids(7, 8), perf.words(99), perf.words(5)),
        *(between.get(perf.READ, b""), perf.chain(perf.USER_MARK, 0x1000, 0x2000)),
        *(between.get(perf.RAW | perf.BRANCH_STACK, b""), perf.words(perf.ABI_64, 1, 2, 3)),
        perf.stack(b"stack---", 16),
        mode=perf.KERNEL,
    )
    words = np.frombuffer(sample * 2, np.uint64)
    half = len(words) // 2
    starts, ends = np.array([0, half]), np.array([half, 2 * half])
    found, damaged = parse_samples(words, starts, ends, EventAttributes.parse(attribute.pack()))
    assert damaged == 0
    return found, words


def check(found: SampleColumns, words: np.ndarray) -> None:
    """Both samples have the values that were written."""
    assert (found.ips.tolist(), found.pids.tolist(), found.tids.tolist()) == ([0x1000] * 2, [7] * 2, [8] * 2)
    assert (found.times.tolist(), found.weights.tolist(), found.modes.tolist()) == (
        [99] * 2,
        [5] * 2,
        [1] * 2,
    )
    assert found.chain_count.tolist() == [3, 3]
    assert words[found.chain_at + 2].tolist() == [0x2000] * 2
    assert found.abi.tolist() == [2, 2]
    assert words[found.registers_at + 2].tolist() == [3, 3]
    assert found.stack_size.tolist() == [8, 8]
    assert words[found.stack_at].tobytes() == b"stack---" * 2


@pytest.mark.parametrize(
    ("read_format", "value"),
    [
        (0, perf.words(1)),
        (
            perf.TOTAL_TIME_ENABLED | perf.TOTAL_TIME_RUNNING | perf.FORMAT_ID | perf.FORMAT_LOST,
            perf.words(*range(5)),
        ),
        (perf.GROUP, perf.words(2, 10, 20)),
        (perf.GROUP | perf.TOTAL_TIME_ENABLED | perf.FORMAT_ID, perf.words(2, 9, 10, 1, 20, 2)),
        (perf.GROUP | perf.FORMAT_ID | perf.FORMAT_LOST, perf.words(1, 10, 1, 0)),
    ],
)
def test_counters(read_format: int, value: bytes) -> None:
    """READ: one counter or a group, with times, ids and losses."""
    fields = HEAD | perf.READ | TAIL
    check(*columns(perf.Attribute(fields, read_format=read_format, registers=MASK, stack_size=16), value))


@pytest.mark.parametrize("size", [0, 4, 12, 20])
def test_raw_data(size: int) -> None:
    """Four bytes of size, then data up to the next eight bytes."""
    raw = (struct.pack("<I", size) + bytes(size)).ljust((size + 4 + 7) // 8 * 8, b"\0")
    attribute = perf.Attribute(HEAD | perf.RAW | TAIL, registers=MASK, stack_size=16)
    check(*columns(attribute, b"", raw))


@pytest.mark.parametrize(
    ("flags", "head", "entry_words"), [(0, (2,), 3), (1 << 17, (2, 5), 3), (1 << 19, (2,), 4)]
)
def test_branches(flags: int, head: tuple[int, ...], entry_words: int) -> None:
    """Three words each; with a hardware index before them, or a word of counters for each."""
    branches = perf.words(*head, *range(2 * entry_words))
    attribute = perf.Attribute(
        HEAD | perf.BRANCH_STACK | TAIL, registers=MASK, stack_size=16, branch_sample_type=flags
    )
    check(*columns(attribute, b"", branches))


@pytest.mark.parametrize("count", [4, 1 << 31, (1 << 64) - 1])
def test_counts_that_lead_outside(count: int) -> None:
    """Such a sample is damaged; the one beside it is not."""
    attribute = EventAttributes.parse(perf.Attribute(perf.IP | perf.CALLCHAIN).pack())
    good = perf.sample(perf.words(1), perf.chain(1, 2, 3))
    bad = perf.sample(perf.words(2), perf.words(count, 1, 2, 3))
    words = np.frombuffer(good + bad, np.uint64)
    half = len(words) // 2
    found, damaged = parse_samples(words, np.array([0, half]), np.array([half, 2 * half]), attribute)
    assert (found.ips.tolist(), damaged) == ([1], 1)
