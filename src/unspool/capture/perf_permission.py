"""Who may use perf_event: what the kernel demands, what is the case here, what changes it.

The kernel's rules: Documentation/admin-guide/perf-security.rst, and perf_event_open(2). Distributions know
kernel.perf_event_paranoid = 3 and 4, too, which allow nothing to users.
"""

from __future__ import annotations

import mmap
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from unspool.capture.errors import CaptureError
from unspool.capture.perf_attributes import AttributeFlag, EventAttributes, EventType
from unspool.capture.perf_open import PerfForbidden, open_event
from unspool.capture.perf_rings import wanted_ring_bytes
from unspool.capture.permission import user_name
from unspool.capture.task_status import TaskStatus

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_MLOCK = Path("/proc/sys/kernel/perf_event_mlock_kb")
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
_SECCOMP_FILTERS = 2
_NOBODY = 3  # from this value on users may use nothing
_NO_KERNEL = 2  # from this value on users see nothing of the kernel
_AS_ROOT = "run it as root"
_CONTAINER = (
    "start the container with --cap-add=PERFMON (Kubernetes: securityContext.capabilities.add: [PERFMON]), "
    "or run unspool on the host"
)


@dataclass(frozen=True, slots=True)
class PerfSettings:
    """What decides. paranoid: kernel.perf_event_paranoid, None: the kernel has no perf events. mlock: KiB of
    rings that a user may have for each processor."""

    user: int
    has_capability: bool  # CAP_PERFMON or CAP_SYS_ADMIN
    has_seccomp_filters: bool
    paranoid: int | None
    mlock: int | None

    @classmethod
    def of_self(cls) -> PerfSettings:
        status = TaskStatus.of(os.getpid())
        return cls(
            os.geteuid(),
            bool(status.capabilities & (1 << _CAP_PERFMON | 1 << _CAP_SYS_ADMIN)),
            status.seccomp_mode == _SECCOMP_FILTERS,
            _number(_PARANOID),
            _number(_MLOCK),
        )

    @property
    def ring_bytes(self) -> int:
        """That the ring of a processor may surely have."""
        if self.has_capability or self.mlock is None:
            return wanted_ring_bytes()
        return min((self.mlock << 10) - mmap.PAGESIZE, wanted_ring_bytes())

    def why_not(self) -> tuple[str, str]:
        """(cause, remedy): the kernel has refused an event of our own process."""
        if platform.system() != "Linux" or self.paranoid is None:
            return "this kernel has no perf events", "record a command from inside: unspool record -- COMMAND"
        if self.user == 0 and not self.has_capability:
            return "this root has neither CAP_PERFMON nor CAP_SYS_ADMIN, as in a container", _CONTAINER
        if self.paranoid >= _NOBODY and not self.has_capability:
            return (
                f"kernel.perf_event_paranoid = {self.paranoid} allows perf events to root only",
                f"{_AS_ROOT}, or allow it: sudo sysctl kernel.perf_event_paranoid=2",
            )
        if self.has_seccomp_filters:
            return "a seccomp filter forbids perf events, as in a container", _CONTAINER
        return (
            "the kernel refuses perf events although its settings would allow them",
            "see what a security module says (SELinux, AppArmor: sudo dmesg)",
        )

    def why_no_kernel(self) -> tuple[str, str]:
        """(cause, remedy): time in the kernel is not seen."""
        return (
            f"kernel.perf_event_paranoid = {self.paranoid} hides the kernel from users: time that a program "
            "spends in system calls is not sampled",
            f"{_AS_ROOT}, or allow it: sudo sysctl kernel.perf_event_paranoid=1",
        )


def kernel_is_visible() -> bool:
    """Whether samples may be taken in the kernel. Raises CaptureError: none may be taken at all."""
    for flags in (AttributeFlag(0), AttributeFlag.EXCLUDE_KERNEL):
        attributes = EventAttributes(
            EventType.SOFTWARE, 0, 1 << 40, 0, 0, int(flags | AttributeFlag.DISABLED)
        )
        try:
            os.close(open_event(attributes.pack(), 0))
        except PerfForbidden:
            continue
        return not flags
    cause, remedy = PerfSettings.of_self().why_not()
    raise CaptureError(f"perf events can't be used: {cause}", remedy)


def kernel_hidden() -> str:
    """What to tell where the kernel is not visible."""
    return ": ".join(PerfSettings.of_self().why_no_kernel())


def not_permitted(pid: int) -> CaptureError:
    """Why the kernel has refused events of a process although it allows those of our own."""
    what = f"process {pid} may not be watched"
    try:
        status = TaskStatus.of(pid)
    except OSError:
        return CaptureError(f"process {pid} has ended", "look at another one")
    user = os.geteuid()
    if user and status.user_ids != {user}:
        users = ", ".join(user_name(other) for other in sorted(status.user_ids))
        return CaptureError(
            f"{what}: it belongs to {users}, and this is {user_name(user)}",
            f"{_AS_ROOT}: sudo unspool record -p {pid}",
        )
    if user:
        reason = "it has made itself unreadable (PR_SET_DUMPABLE), or a set-user-ID program is"
        return CaptureError(f"{what}: {reason}", f"{_AS_ROOT}: sudo unspool record -p {pid}")
    return CaptureError(f"{what}: this root has no right to trace it, as in a container", _CONTAINER)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
