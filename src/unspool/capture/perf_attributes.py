"""What an event of perf_event records: struct perf_event_attr, and what follows from it for its records.

Constants and layout are those of linux/perf_event.h (uapi); older and newer sizes of the struct are read as
far as they go, and what is missing is 0."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import cached_property

from unspool.capture.samples import Event


class SampleType(IntFlag):
    """Which fields a sample has."""

    IP = 1 << 0
    TID = 1 << 1
    TIME = 1 << 2
    ADDR = 1 << 3
    READ = 1 << 4
    CALLCHAIN = 1 << 5
    ID = 1 << 6
    CPU = 1 << 7
    PERIOD = 1 << 8
    STREAM_ID = 1 << 9
    RAW = 1 << 10
    BRANCH_STACK = 1 << 11
    REGS_USER = 1 << 12
    STACK_USER = 1 << 13
    IDENTIFIER = 1 << 16


class ReadFormat(IntFlag):
    """Which fields a counter's value has."""

    TIME_ENABLED = 1 << 0
    TIME_RUNNING = 1 << 1
    ID = 1 << 2
    GROUP = 1 << 3
    LOST = 1 << 4


class AttributeFlag(IntFlag):
    """The one-bit fields that are used here."""

    DISABLED = 1 << 0
    INHERIT = 1 << 1
    EXCLUDE_KERNEL = 1 << 5
    EXCLUDE_HV = 1 << 6
    MMAP = 1 << 8
    COMM = 1 << 9
    FREQUENCY = 1 << 10
    ENABLE_ON_EXEC = 1 << 12
    TASK = 1 << 13
    WATERMARK = 1 << 14
    SAMPLE_ID_ALL = 1 << 18
    EXCLUDE_CALLCHAIN_KERNEL = 1 << 21
    EXCLUDE_CALLCHAIN_USER = 1 << 22
    MMAP2 = 1 << 23
    COMM_EXEC = 1 << 24
    USE_CLOCKID = 1 << 25


class EventType(IntEnum):
    """The kinds of events; others are numbers of PMUs."""

    HARDWARE = 0
    SOFTWARE = 1


BRANCH_HW_INDEX = 1 << 17
BRANCH_COUNTERS = 1 << 19
SIZE = 128  # of the struct as it is written here
_FIRST_SIZE = 64  # the smallest there has been
DEFAULT_CHAIN_LIMIT = 127  # kernel.perf_event_max_stack, unless it was changed

# type, size, config, period or frequency, sample_type, read_format, flags, wakeup, bp_type, config1, config2,
# branch_sample_type, sample_regs_user, sample_stack_user, clockid, sample_regs_intr, aux_watermark,
# sample_max_stack, 0, aux_sample_size, 0, sig_data
_STRUCT = struct.Struct("<IIQQQQQIIQQQQIiQIHHIIQ")
_SOFTWARE_NAMES = {
    0: "cpu-clock",
    1: "task-clock",
    2: "page-faults",
    3: "context-switches",
    4: "cpu-migrations",
}
_HARDWARE_NAMES = {0: "cycles", 1: "instructions", 2: "cache-references", 3: "cache-misses", 4: "branches"}
_CLOCKS = (0, 1)  # software events that count nanoseconds

# Words of a sample before its first field of varying length, in their order.
_FIXED_FIELDS = (
    SampleType.IDENTIFIER,
    SampleType.IP,
    SampleType.TID,
    SampleType.TIME,
    SampleType.ADDR,
    SampleType.ID,
    SampleType.STREAM_ID,
    SampleType.CPU,
    SampleType.PERIOD,
)
# Words at the end of every other record (attribute sample_id_all), in their order.
_ID_FIELDS = (
    SampleType.TID,
    SampleType.TIME,
    SampleType.ID,
    SampleType.STREAM_ID,
    SampleType.CPU,
    SampleType.IDENTIFIER,
)


@dataclass(frozen=True)
class EventAttributes:
    """One event. period: of each sample, or the frequency if flags has FREQUENCY."""

    type: int
    config: int
    period: int
    sample_type: int
    read_format: int
    flags: int
    branch_sample_type: int = 0
    user_registers: int = 0  # sample_regs_user: a bit a register, in the kernel's numbering
    stack_size: int = 0  # bytes of user stack a sample is to have
    clock: int = 0
    chain_limit: int = 0  # frames of a call chain; 0 = DEFAULT_CHAIN_LIMIT

    @classmethod
    def parse(cls, data: bytes | memoryview) -> EventAttributes:
        """From the bytes of the struct, as many as there are. ValueError: too few."""
        if len(data) < _FIRST_SIZE:
            raise ValueError(f"{len(data)} bytes are no event attributes")
        values = _STRUCT.unpack(bytes(data[:SIZE]).ljust(SIZE, b"\0"))
        kind, _, config, period, sample_type, read_format, flags = values[:7]
        branches, registers, stack_size, clock = values[11:15]
        return cls(
            kind,
            config,
            period,
            sample_type,
            read_format,
            flags,
            branch_sample_type=branches,
            user_registers=registers,
            stack_size=stack_size,
            clock=clock,
            chain_limit=values[17],
        )

    def pack(self, wakeup: int = 0) -> bytes:
        """The struct. wakeup: bytes in the ring, or samples, after which the reader is woken."""
        return _STRUCT.pack(
            *(self.type, SIZE, self.config, self.period, self.sample_type, self.read_format, self.flags),
            *(wakeup, 0, 0, 0, self.branch_sample_type, self.user_registers, self.stack_size, self.clock),
            *(0, 0, self.chain_limit, 0, 0, 0, 0),
        )

    @property
    def name(self) -> str:
        """What perf calls such an event."""
        names = {EventType.SOFTWARE: _SOFTWARE_NAMES, EventType.HARDWARE: _HARDWARE_NAMES}.get(
            EventType(self.type) if self.type in (0, 1) else EventType.HARDWARE, {}
        )
        known = names.get(self.config) if self.type in (0, 1) else None
        return known or f"event {self.type}:{self.config:#x}"

    def event(self, name: str) -> Event:
        """Its name, and the unit of its weights."""
        return Event(name, "nanoseconds" if self.counts_time else "count")

    @property
    def counts_time(self) -> bool:
        """CPU time in nanoseconds."""
        return self.type == EventType.SOFTWARE and self.config in _CLOCKS

    @cached_property
    def fixed_words(self) -> dict[SampleType, int]:
        """Where each field of fixed size lies in a sample, in words from the record's header on."""
        present = [field for field in _FIXED_FIELDS if self.sample_type & field]
        return {field: 1 + index for index, field in enumerate(present)}

    @cached_property
    def id_words(self) -> dict[SampleType, int]:
        """Where each field lies at the end of another record, in words from that record's end on
        (negative)."""
        if not self.flags & AttributeFlag.SAMPLE_ID_ALL:
            return {}
        present = [field for field in _ID_FIELDS if self.sample_type & field]
        return {field: index - len(present) for index, field in enumerate(present)}

    @property
    def weight(self) -> int:
        """Of a sample that does not tell its period."""
        return 1 if self.flags & AttributeFlag.FREQUENCY else max(self.period, 1)

    @property
    def frames_at_most(self) -> int:
        """How long call chains may be."""
        return self.chain_limit or DEFAULT_CHAIN_LIMIT
