"""Whether an address is where a system call returns to, by the code before it."""

from __future__ import annotations

from unspool.binaries import Binary, BinaryError

_INSTRUCTION = {"x86_64": b"\x0f\x05", "aarch64": b"\x01\x00\x00\xd4"}  # syscall; svc #0


def follows_system_call(binary: Binary, relative_address: int) -> bool:
    """relative_address: of the interrupted instruction. False where the code can't be read."""
    instruction = _INSTRUCTION[binary.arch]
    address = binary.image_address + relative_address - len(instruction)
    try:
        return bytes(binary.code(address, len(instruction))) == instruction
    except BinaryError:
        return False
