"""Reading another process's memory fails without an exception, whatever the address."""

import os

import pytest

from unspool.capture.live_process import _read


@pytest.mark.parametrize("address", [0, 1 << 47, 1 << 63, (1 << 64) - 8])
def test_unreadable_addresses_yield_nothing(address: int) -> None:
    """A garbage sp may be any number; above 2**63 pread(2) can't even be asked."""
    descriptor = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        assert _read(descriptor, address, 64) == b""
    finally:
        os.close(descriptor)
