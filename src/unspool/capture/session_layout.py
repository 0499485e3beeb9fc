"""The memory that unspool and the agents share, as NumPy sees it: core/src/agent/session.h, field by field.

What the fields mean, and who may write them, is said there; tests/unit/test_session_layout.py compares all of
it with the header. Only fields that this side uses have names.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

MAGIC = 0x4E53534553505355
VERSION = 3
ALIGNMENT = 65536
AREAS = 256
SLOTS = 4096
MODULES = 4096
MODULE_BUFFERS = 4
REFUSALS = 64
AREAS_OFFSET = ALIGNMENT
LOST_REASONS = 8
HEARTBEAT_LIMIT = 5_000_000_000  # ns


class SessionState(IntEnum):
    RUNNING = 1
    STOPPING = 2


class SessionFlag(IntFlag):
    TIMES = 1
    NO_FOLLOW = 2


class Refusal(IntEnum):
    UNREACHABLE = 1
    NOT_A_SESSION = 2
    ADDRESS_SPACE = 3
    NO_AREA = 4
    SIGNAL = 5
    STOPPING = 6
    RUNNING = 7
    STATIC = 8
    MACHINE = 9
    PRIVILEGED = 10
    UNREADABLE = 11
    ENVIRONMENT = 12


class AreaState(IntEnum):
    CLAIMED = 0
    WAITING = 1
    RUNNING = 2
    STOPPED = 3


class Origin(IntEnum):
    START = 1
    FORK = 2


class Note(IntFlag):
    OWN_HANDLER = 1
    SECCOMP = 2
    HANDLER_LOST = 4


class LostReason(IntEnum):
    RING_FULL = 0
    NO_WORKSPACE = 1
    NO_SLOT = 2
    NO_MODULES = 3
    TOO_SLOW = 4


class Wish(IntEnum):
    NOTHING = 0
    TIMER = 1
    OUTSIDE = 2
    END = 3


class SlotState(IntEnum):
    FREE = 0
    BUSY = 1
    TIMER = 2
    OUTSIDE = 3
    FAILED = 4


def _struct(size: int, **fields: tuple[int, str]) -> np.dtype[np.void]:
    """offset and format of each field."""
    return np.dtype(
        {
            "names": list(fields),
            "formats": [format_ for _, format_ in fields.values()],
            "offsets": [offset for offset, _ in fields.values()],
            "itemsize": size,
        }
    )


HEADER = _struct(
    1792,
    magic=(0, "<u8"),
    version=(8, "<u4"),
    arch=(12, "<u4"),
    file_size=(16, "<u8"),
    area_size=(24, "<u8"),
    ring_size=(32, "<u8"),
    zone_offset=(40, "<u8"),
    zone_size=(48, "<u8"),
    cookie=(56, "<u8"),
    period=(64, "<u8"),
    signal=(72, "<u4"),
    address_bits=(76, "<u4"),
    flags=(80, "<u4"),
    unspool_pid=(84, "<u4"),
    state=(128, "<u4"),
    heartbeat=(136, "<u8"),
    doorbell=(192, "<u4"),
    refusal_count=(196, "<u4"),
    refusals=(256, f"({REFUSALS},2)<u4"),  # pid, reason
    claims=(768, f"({AREAS},)<u4"),
)

SLOT = _struct(
    128,
    tid=(0, "<u4"),
    wish=(4, "<u4"),
    perf_fd=(8, "<i4"),
    stack_start=(16, "<u8"),
    stack_end=(24, "<u8"),
    stack_is_main=(32, "<u4"),
    state=(64, "<u4"),
    error=(68, "<i4"),
    due=(80, "<u8"),
    samples=(88, "<u8"),
)

MODULE = _struct(
    48,
    start=(0, "<u8"),
    end=(8, "<u8"),
    image_base=(16, "<u8"),
    table=(24, "<u8"),
)

MODULE_LIST = _struct(
    16 + MODULES + MODULES * MODULE.itemsize,
    count=(0, "<u4"),
    pending_count=(4, "<u4"),
    changes=(8, "<u4"),
    is_pending=(16, f"({MODULES},)u1"),
)
MODULE_OFFSET = 16 + MODULES  # of the first module in a list

# Up to the ring, without what only the agent uses.
AREA_FIELDS = _struct(
    4096,
    pid=(0, "<u4"),
    parent_pid=(4, "<u4"),
    origin=(8, "<u4"),
    first_tid=(12, "<u4"),
    started=(16, "<u8"),
    area_address=(24, "<u8"),
    zone_address=(32, "<u8"),
    agent_address=(40, "<u8"),
    state=(64, "<u4"),
    notes=(68, "<u4"),
    changes=(72, "<u4"),
    foreign=(80, "<u8"),
    lost=(88, f"({LOST_REASONS},)<u8"),
    unloads=(152, "<u4"),
    replacing=(156, "<u4"),
    quiet=(208, "<u4"),
    no_reading=(212, "<u4"),
    signalling=(216, "<u4"),
    ring_wanted=(328, "<u4"),
    threads_wanted=(332, "<u4"),
)
SLOTS_OFFSET = 45056
MODULE_LISTS_OFFSET = 569344
_WORKSPACES_OFFSET = MODULE_LISTS_OFFSET + MODULE_BUFFERS * MODULE_LIST.itemsize + 4032
AREA_SIZE = _WORKSPACES_OFFSET + 128 * 270336  # without the ring
