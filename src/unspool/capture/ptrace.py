"""Stopping one thread of another process and reading its registers, by ptrace(2).

A thread is seized, never attached to: no SIGSTOP is sent, and when the thread of this process that seized it
ends in any way, the kernel lets it go on. All calls for one thread must come from that thread of ours.
"""

import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from unspool.unwind import Registers
from unspool.unwind.registers import REGISTER_NAMES


class _Request(IntEnum):
    """linux/ptrace.h."""

    DETACH = 17
    GETREGSET = 0x4204
    SEIZE = 0x4206
    INTERRUPT = 0x4207


_NT_PRSTATUS = 1
_NT_ARM_TLS = 0x401
_NT_ARM_PAC_MASK = 0x406
_EVENT_STOP = 128
_WALL = 0x40000000
_PR_SET_TIMERSLACK = 29
_FIRST_PAUSE, _LONGEST_PAUSE = 0.00001, 0.0005  # seconds between two looks
_REGISTERS_SIZE = 1024  # more than any register set here

# struct user_regs_struct (sys/user.h), and struct user_pt_regs (asm/ptrace.h), in their order.
_X86_64 = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
    *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
)
_AARCH64 = (*(f"x{n}" for n in range(31)), "sp", "pc", "pstate")
_NAMES = {"x86_64": _X86_64, "aarch64": _AARCH64}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class _IoVector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class NotStopped(Exception):
    """The thread does not stop: it is in an uninterruptible wait in the kernel, or gets no processor."""


class Foreign32Bit(Exception):
    """The thread runs 32-bit code."""


def _ptrace(request: _Request, tid: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, tid, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def use_short_sleeps() -> None:
    """Let this thread's sleeps end when they should: the kernel adds 50 microseconds otherwise."""
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


@contextmanager
def stopped(tid: int, give_up: Callable[[float], bool]) -> Iterator[float]:
    """The thread stands still within. Yields since when at the earliest, as time.monotonic() has it. give_up
    is asked now and then, with the seconds that went by since it was told to stop. Raises OSError (EPERM;
    ESRCH: it is gone), NotStopped: the thread may stop later, and stands until this thread ends."""
    _ptrace(_Request.SEIZE, tid)
    signal = 0
    try:
        start = time.monotonic()
        _ptrace(_Request.INTERRUPT, tid)
        signal, since = _wait_for_stop(tid, start, give_up)
        yield since
    finally:
        try:
            _ptrace(_Request.DETACH, tid, 0, signal)
        except OSError as error:
            if error.errno != errno.ESRCH:  # gone, or not stopped: the kernel detaches when we end
                raise


def _wait_for_stop(tid: int, start: float, give_up: Callable[[float], bool]) -> tuple[int, float]:
    """Returns the signal that the thread was about to receive and must be given back, or 0; and when it was
    last seen not to stand still."""
    pause = _FIRST_PAUSE
    since = start
    while True:
        now = time.monotonic()
        pid, status = os.waitpid(tid, _WALL | os.WNOHANG)
        if pid == tid:
            break
        since = now
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
        if pause == _LONGEST_PAUSE and give_up(now - start):
            raise NotStopped(tid)
    if not os.WIFSTOPPED(status):
        raise ProcessLookupError(errno.ESRCH, f"thread {tid} ended")
    return 0 if status >> 16 == _EVENT_STOP else os.WSTOPSIG(status), since


def _register_set(tid: int, note: int) -> bytes:
    buffer = ctypes.create_string_buffer(_REGISTERS_SIZE)
    vector = _IoVector(ctypes.addressof(buffer), _REGISTERS_SIZE)
    _ptrace(_Request.GETREGSET, tid, note, ctypes.addressof(vector))
    return buffer.raw[: vector.size]


def registers_from_words(arch: str, data: bytes) -> Registers:
    """Registers from the kernel's general register set (NT_PRSTATUS). Raises Foreign32Bit."""
    names = _NAMES[arch]
    if len(data) < 8 * len(names):
        raise Foreign32Bit
    values = dict(zip(names, struct.unpack_from(f"<{len(names)}Q", data), strict=True))
    if arch == "x86_64":
        pc, sp, fp, lr = values["rip"], values["rsp"], values["rbp"], None
    else:
        pc, sp, fp, lr = values["pc"], values["sp"], values["x29"], values["x30"]
    apart = {"rsp", "rbp", "sp", "x29", "x30", "pc"}
    others = {name: values[name] for name in REGISTER_NAMES[arch] if name not in apart}
    return Registers(pc=pc, sp=sp, fp=fp, lr=lr, others=others)


def thread_pointer_from_words(arch: str, data: bytes) -> int | None:
    """Where the C library has its data of the thread; None: this register set does not hold it."""
    if arch != "x86_64":
        return None
    (value,) = struct.unpack_from("<Q", data, 8 * _X86_64.index("fs_base"))
    return int(value)


def read_registers(tid: int, arch: str) -> tuple[Registers, int | None]:
    """Registers of a stopped thread, and its thread pointer if it is known. Raises OSError, Foreign32Bit."""
    data = _register_set(tid, _NT_PRSTATUS)
    registers = registers_from_words(arch, data)
    if arch == "aarch64":
        data = _register_set(tid, _NT_ARM_TLS)
        return registers, int.from_bytes(data[:8], "little")
    return registers, thread_pointer_from_words(arch, data)


def address_bits(tid: int) -> int | None:
    """aarch64: how many bits of an address are not PAC, as the kernel says of a stopped thread."""
    try:
        mask, _ = struct.unpack_from("<QQ", _register_set(tid, _NT_ARM_PAC_MASK))
    except (OSError, struct.error):
        return None
    return (mask & -mask).bit_length() - 1 if mask else None
