"""Who may look at a process: what the kernel demands for ptrace(2), what is the case here, what changes it.

The kernel's rules: ptrace(2), "Ptrace access mode checking"; Yama's: Documentation/admin-guide/LSM/Yama.rst.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from unspool.capture.errors import CaptureError
from unspool.capture.task_status import TaskStatus

_CAP_SYS_PTRACE = 19
_SECCOMP_FILTERS = 2
CONTAINER_REMEDY = (
    "start the container with --cap-add=SYS_PTRACE (Kubernetes: securityContext.capabilities.add: "
    "[SYS_PTRACE]), or run unspool on the host"
)


@dataclass(frozen=True, slots=True)
class Rights:
    """What this process may do. yama_scope: kernel.yama.ptrace_scope, None where there is no Yama."""

    user: int
    has_capability: bool  # CAP_SYS_PTRACE
    yama_scope: int | None
    has_seccomp_filters: bool

    @classmethod
    def of_self(cls) -> Rights:
        status = TaskStatus.of(os.getpid())
        return cls(
            os.geteuid(),
            bool(status.capabilities >> _CAP_SYS_PTRACE & 1),
            _yama_scope(),
            status.seccomp_mode == _SECCOMP_FILTERS,
        )

    def why_not(self, others: bool) -> tuple[str, str] | None:
        """(cause, remedy) if processes of this user, or of other users, may not be looked at."""
        if self.yama_scope == 3:
            return "kernel.yama.ptrace_scope = 3 forbids it to everyone", "set another value, and reboot"
        if self.has_capability:
            return None
        if self.user == 0:
            return "this root has no CAP_SYS_PTRACE, as in a container", CONTAINER_REMEDY
        if self.yama_scope == 2:
            return "kernel.yama.ptrace_scope = 2 allows it to root only", "run it as root"
        if others:
            return (
                f"only root may look at processes of other users than {user_name(self.user)}",
                "run it as root",
            )
        if self.yama_scope == 1:
            return (
                "kernel.yama.ptrace_scope = 1 allows a user only processes that this one has started",
                "run it as root, or allow it: sudo sysctl kernel.yama.ptrace_scope=0",
            )
        return None


def not_permitted(pid: int) -> CaptureError:
    """Why the kernel has refused to let this process look at another one."""
    what, remedy = _reason(pid)
    return CaptureError(f"process {pid} may not be looked at: {what}", remedy)


def _reason(pid: int) -> tuple[str, str]:
    as_root = f"run it as root: sudo unspool stack {pid}"
    try:
        status = TaskStatus.of(pid)
        owner = Path(f"/proc/{pid}/mem").stat().st_uid
    except OSError:
        return "it has ended", "look at another one"
    if status.process_id == os.getpid():
        return "it is unspool itself", "name another process"
    if status.tracer:
        tracer = _name_of(status.tracer)
        return (
            f"it is traced by {tracer}, and a process has one tracer only",
            f"detach or end {tracer} first",
        )
    rights = Rights.of_self()
    is_other = status.user_ids != {rights.user}
    refused = rights.why_not(is_other)
    if is_other and not rights.has_capability and rights.user:
        users = ", ".join(user_name(user) for user in sorted(status.user_ids))
        return f"it belongs to {users}, and this is {user_name(rights.user)}", as_root
    if refused is not None:
        cause, remedy = refused
        return cause, remedy.replace("run it as root", as_root)
    if not rights.has_capability and owner != rights.user:
        return "it has made itself unreadable (PR_SET_DUMPABLE), or a set-user-ID program is", as_root
    if rights.has_seccomp_filters:
        return "a seccomp filter of this process forbids ptrace, as in a container", CONTAINER_REMEDY
    return (
        "the kernel refuses it although user and capabilities would allow it",
        "see what a security module says (SELinux, AppArmor: sudo dmesg), or whether its user namespace is "
        "another one",
    )


def user_name(user: int) -> str:
    """For people."""
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"


def _name_of(pid: int) -> str:
    try:
        return f"{TaskStatus.of(pid).name} (process {pid})"
    except OSError:
        return f"process {pid}"


def _yama_scope() -> int | None:
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return None
