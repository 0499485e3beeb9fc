"""Return addresses and lookup addresses: two types, and the only rule that turns one into the other.

A return address is what a call pushed. It is reported as it is, but it must not be looked up: the call
may have been the last instruction of its function, so that the return address is the next function's
first byte. What is looked up is the lookup address.
"""

from typing import NewType, TypeAlias

ReturnAddress = NewType("ReturnAddress", int)
LookupAddress = NewType("LookupAddress", int)
FrameAddress: TypeAlias = ReturnAddress | LookupAddress  # a frame's pc: one or the other


def lookup_address(address: int, *, is_return_address: bool) -> LookupAddress:
    """What to look up for a frame's pc: the pc itself where the frame was interrupted (by a sample or
    by a signal), the byte before it where the frame called."""
    return LookupAddress(address - 1 if is_return_address else address)
