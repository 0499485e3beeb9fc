"""What the kernel tells about a process or one of its threads: /proc/PID/status (proc(5))."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One reading. It is as of that moment; a thread that runs is elsewhere already."""

    fields: dict[str, str]

    @classmethod
    def of(cls, pid: int, tid: int | None = None) -> TaskStatus:
        """Of a thread, by its id alone or with its process'. Raises FileNotFoundError or
        ProcessLookupError: it is gone; PermissionError."""
        path = f"/proc/{pid}/status" if tid is None else f"/proc/{pid}/task/{tid}/status"
        lines = Path(path).read_text(errors="backslashreplace").splitlines()
        return cls({name: value.strip() for name, _, value in (line.partition(":") for line in lines)})

    @property
    def name(self) -> str:
        return self.fields.get("Name", "")

    @property
    def state(self) -> str:
        """The letter of proc(5): R running, S sleeping, D in an uninterruptible wait, ..."""
        return self.fields.get("State", "")[:1]

    @property
    def process_id(self) -> int:
        return self._number("Tgid")

    @property
    def tracer(self) -> int:
        """The process that traces it; 0: none that we could see."""
        return self._number("TracerPid")

    @property
    def is_kernel_thread(self) -> bool:
        if "Kthread" in self.fields:  # Linux 6.8 and later
            return self.fields["Kthread"] == "1"
        return "2" in (self.fields.get("Pid"), self.fields.get("PPid")) and "VmSize" not in self.fields

    @property
    def user_ids(self) -> set[int]:
        """Real, effective, saved and file system user."""
        return {int(word) for word in self.fields.get("Uid", "").split()}

    @property
    def capabilities(self) -> int:
        """The effective ones, a bit each (capabilities(7))."""
        return int(self.fields.get("CapEff", "0"), 16)

    @property
    def seccomp_mode(self) -> int:
        """0 none, 1 strict, 2 filters."""
        return self._number("Seccomp")

    @property
    def namespace_ids(self) -> list[int]:
        """Its number in each pid namespace, from ours to its own."""
        return [int(word) for word in self.fields.get("NSpid", "").split()]

    @property
    def switches(self) -> tuple[str, str]:
        """How often it was put on and off a processor: equal if it has not run meanwhile."""
        names = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
        return self.fields.get(names[0], ""), self.fields.get(names[1], "")

    def _number(self, name: str) -> int:
        value = self.fields.get(name, "")
        return int(value) if value.isdecimal() else 0
