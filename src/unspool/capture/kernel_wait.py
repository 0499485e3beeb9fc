"""A thread that waits in the kernel and can't be stopped: what /proc/PID/task/TID/syscall knows of its
registers.

The kernel writes one line (proc(5)): "running", or the system call's number, its arguments, sp and pc. The
arguments are the registers in which they were passed; no other register is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unspool.capture.task_status import TaskStatus
from unspool.unwind import Registers

_ARGUMENTS = {
    "x86_64": ("rdi", "rsi", "rdx", "r10", "r8", "r9"),
    "aarch64": ("x0", "x1", "x2", "x3", "x4", "x5"),
}


@dataclass(frozen=True, slots=True)
class KernelWait:
    """Two that are equal say that the thread has not run in between, hence has changed nothing."""

    words: tuple[str, ...]
    switches: tuple[str, str]

    @classmethod
    def of(cls, pid: int, tid: int) -> KernelWait | None:
        """None: it runs. Raises OSError."""
        words = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
        if len(words) not in (3, 9):
            return None
        return cls(tuple(words), TaskStatus.of(pid, tid).switches)

    def registers(self, arch: str) -> Registers:
        """pc, sp and, within a system call, its arguments."""
        *arguments, sp, pc = (int(word, 16) for word in self.words[1:])
        return Registers(pc=pc, sp=sp, others=dict(zip(_ARGUMENTS[arch], arguments, strict=False)))
