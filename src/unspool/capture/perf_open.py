"""perf_event_open(2), and with it events where the kernel sends a thread a signal at every sample.

Such an event's file descriptor is ours, its signal the thread's (F_SETOWN_EX); no ring is mapped. Constants
are those of linux/perf_event.h and of asm-generic/fcntl.h."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import signal
import struct

_NUMBER = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE_SIZE = 128
_TYPE_SOFTWARE, _COUNT_CPU_CLOCK = 1, 0
_DISABLED, _EXCLUDE_KERNEL, _EXCLUDE_HV, _REMOVE_ON_EXEC = 1 << 0, 1 << 5, 1 << 6, 1 << 36
_FLAG_CLOEXEC = 8
_IOC_ENABLE, _IOC_REFRESH = 0x2400, 0x2402
_F_SETSIG, _F_SETOWN_EX, _OWNER_THREAD = 10, 15, 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class PerfForbidden(OSError):
    """The kernel refuses: perf_event_paranoid, a seccomp filter, or another user's process."""


def open_event(attribute: bytes, tid: int, processor: int = -1) -> int:
    """A descriptor for an event (struct perf_event_attr) of a thread (0: the calling one) on one processor,
    or on all. Raises PerfForbidden, ProcessLookupError, OSError (no file descriptors left)."""
    number = _NUMBER[platform.machine()]
    descriptor = _libc.syscall(number, attribute, tid, processor, -1, _FLAG_CLOEXEC)
    if descriptor < 0:
        code = ctypes.get_errno()
        refusals = (errno.EACCES, errno.EPERM, errno.ENOSYS, errno.EINVAL)
        kind = PerfForbidden if code in refusals else OSError
        raise kind(code, os.strerror(code))
    return int(descriptor)


def open_trigger(tid: int, period: int) -> int:
    """An event that, once enabled, signals the thread SIGPROF after every `period` ns of its CPU time in user
    code; the file descriptor, which ends it when it is closed.

    In the kernel it sends none, whatever our rights: a signal there would make epoll_wait, nanosleep and
    others return EINTR, or reach the program that execve has just begun, and end it. For the latter's sake it
    is removed when the program is replaced, too (Linux 5.13). Raises PerfForbidden, ProcessLookupError,
    OSError (no file descriptors left)."""
    attribute = ctypes.create_string_buffer(_ATTRIBUTE_SIZE)
    flags = _DISABLED | _EXCLUDE_HV | _EXCLUDE_KERNEL | _REMOVE_ON_EXEC
    struct.pack_into(
        "<IIQQQQQI", attribute, 0, _TYPE_SOFTWARE, _ATTRIBUTE_SIZE, _COUNT_CPU_CLOCK, period, 0, 0, flags, 1
    )
    descriptor = open_event(attribute.raw, tid)
    try:
        fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGPROF)
        fcntl.fcntl(descriptor, _F_SETOWN_EX, struct.pack("ii", _OWNER_THREAD, tid))
        fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_ASYNC)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def enable(descriptor: int, times: int | None = None) -> None:
    """From now on it sends signals, so many times; None = without end."""
    if times is None:
        fcntl.ioctl(descriptor, _IOC_ENABLE, 0)
    else:
        fcntl.ioctl(descriptor, _IOC_REFRESH, times)
