"""In-process capture: a program with the agent in it, watched from here.

This side does all that the agent need not: it finds processes, threads and code, puts tables where agents see
them, takes samples out of the rings. What fails here ends the recording, never the program.
"""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unspool.capture import launch
from unspool.capture.errors import CaptureError
from unspool.capture.followed_process import FollowedProcess
from unspool.capture.late_walk import WAIT_SECONDS
from unspool.capture.mapped_code import CodeFiles
from unspool.capture.memory_map import MemoryMap
from unspool.capture.program import Program, find_program
from unspool.capture.samples import Event, Happening, Problem, ThreadNamed, ThreadTime
from unspool.capture.session_layout import AreaState, Refusal, SessionFlag
from unspool.capture.session_memory import Area, SessionMemory
from unspool.capture.task_status import TaskStatus
from unspool.capture.thread_triggers import TIMER_LIMIT, PerfRights

EVENTS = [Event("cpu", "nanoseconds")]
DEFAULT_RATE = 199  # Hz
HIGHEST_RATE = 10_000

_LOOK_SECONDS = 0.02
_LEAST_PAUSE = 0.004  # seconds that a look rests at least, however fast threads come
_PATIENCE_SECONDS = 5.0  # that another thread waits at most for the one that looks
_SMALL_RING, _LARGE_RING = 1 << 20, 4 << 20  # bytes
_NOT_RECORDED_ID, _NOT_RECORDED = -1, "(not recorded)"
_LEAST_REST = 1_000_000  # ns: less is not worth a word
_USE_PERF = "--via perf can watch it"
_USE_PERF_AS_ROOT = f"as root, {_USE_PERF}"
_REFUSALS = {
    Refusal.UNREACHABLE: "it can't reach unspool's memory (another root folder, another user, no /proc); "
    + _USE_PERF,
    Refusal.NOT_A_SESSION: f"its agent is of another version of unspool; {_USE_PERF}",
    Refusal.ADDRESS_SPACE: "its address space is limited (ulimit -v), and what unspool maps could be "
    f"missing; {_USE_PERF}",
    Refusal.NO_AREA: f"more processes are recorded at the same time than can be; {_USE_PERF}",
    Refusal.SIGNAL: f"the handler of SIGPROF could not be installed; {_USE_PERF}",
    Refusal.STATIC: f"it is statically linked, so that nothing can be preloaded into it; {_USE_PERF}",
    Refusal.MACHINE: "it is 32-bit or for another machine; unspool walks 64-bit programs of this one",
    Refusal.PRIVILEGED: "it runs with rights of its own (set-user-ID, set-group-ID or capabilities), so that "
    f"nothing may be preloaded into it; {_USE_PERF_AS_ROOT}",
    Refusal.UNREADABLE: f"its file may not be read, so that nothing is known of it; {_USE_PERF_AS_ROOT}",
    Refusal.ENVIRONMENT: "the environment that vfork's child has for it is too large for the stack there; "
    + _USE_PERF,
}


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """rate: Hz. follow: children too."""

    rate: int = DEFAULT_RATE
    follow: bool = True


class InProcessCapture:
    """One session. Close it in the end. Raises CaptureError."""

    def __init__(self, settings: CaptureSettings) -> None:
        if not 1 <= settings.rate <= HIGHEST_RATE:
            raise CaptureError(
                f"samples can't be taken at {settings.rate} Hz", f"give a rate of 1 to {HIGHEST_RATE}"
            )
        self.settings = settings
        ring = _LARGE_RING if settings.rate > TIMER_LIMIT else _SMALL_RING
        flags = SessionFlag.TIMES if settings.follow else SessionFlag.TIMES | SessionFlag.NO_FOLLOW
        self._memory = SessionMemory(1_000_000_000 // settings.rate, ring, flags)
        self.files = CodeFiles(self._memory.arch, self._memory.store_table)
        self._rights = PerfRights()
        self._followed: dict[int, FollowedProcess] = {}  # by the number of its area
        self._known: set[int] = set()
        self._by_inner_number: dict[int, list[int]] | None = None  # as at this look
        self._unreadable: dict[int, list[int]] = {}  # areas of processes that we may not look at: which
        self._went_on: dict[int, tuple[bytes, int]] = {}  # after exec: start time, told_up_to
        self._cpu_time_told = 0  # ns, of all that have ended
        self._refusals: Counter[str] = Counter()  # processes that are not recorded, by reason
        self._untold: list[Problem] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._ends_with: int | None = None
        self._stop_time = float("inf")
        self._wants_silence = False
        self._is_silent = threading.Event()
        self._wants_all = False
        self._rang = False
        self._waits_until = 0.0  # once recording ends: how long samples may wait for tables
        self._has_given_all = threading.Event()
        self.program: Program | None = None
        self.goes_on = False  # the program has not ended when the recording did

    @property
    def path(self) -> str:
        """By which agents reach this session."""
        return self._memory.path

    def launch(self, command: Sequence[str]) -> int:
        """Start a command, with the agent preloaded if that is possible; its process id. Raises
        CommandError."""
        program = self.program = find_program(command[0])
        environment = launch.inherited_environment()
        if program.obstacle is None:
            environment = launch.preloading(environment, self._memory.path, program.preload_first)
        self._child = launch.start(program, command, environment)
        self._ends_with = self._child.pid
        _use_all_descriptors()
        return self._child.pid

    def watch(self, pid: int) -> None:
        """Record a process that starts its agent itself, until it ends."""
        self._ends_with = pid
        _use_all_descriptors()

    def stop(self, seconds: float = 0.0) -> None:
        """Take no more samples after so many seconds: `happenings` comes to its end. May be called from a
        signal handler."""
        self._stop_time = min(self._stop_time, time.monotonic() + seconds)

    def silence(self) -> None:
        """Send no more signals; none is sent once this returns. To be called from another thread than
        `happenings` runs in, before the program's own action for the signal is restored."""
        self._wants_silence = True
        self._is_silent.wait(_PATIENCE_SECONDS)

    def catch_up(self) -> None:
        """Once this returns, all samples that were taken before have come out of `happenings`. To be called
        from another thread, too."""
        self._has_given_all.clear()
        self._wants_all = True
        self._has_given_all.wait(_PATIENCE_SECONDS)

    def signal_program(self, number: int) -> None:
        """Pass a signal on to what was launched, if that still runs."""
        if self._child is not None:
            self._child.send_signal(number)

    @property
    def recorded_processes(self) -> int:
        """How many processes had an agent."""
        return len(self._known)

    def close(self) -> None:
        self._memory.close()
        for process in self._followed.values():
            process.close()
        self._followed.clear()
        self.files.close()

    def wait(self) -> int:
        """The exit status of what was launched, once it has ended; -n: signal n killed it."""
        assert self._child is not None
        return self._child.wait()

    # ------------------------------------------------------------ the loop

    def happenings(self) -> Iterator[Happening]:
        """What happens, until the command (not what it has started) has ended, or stop was called."""
        if self.program is not None and self.program.obstacle is not None:
            yield Problem(None, f"{self.program.obstacle}; {self.program.remedy}")
        status, owes_all = None, False
        while status is None and time.monotonic() < self._stop_time:
            self._memory.beat()
            status = self._exit_status()
            wants_all, self._wants_all = self._wants_all, False
            if wants_all:
                for process in self._followed.values():
                    process.hurry()
            yield from self._look(status)
            owes_all |= wants_all
            if owes_all and not any(process.waits_for_tables for process in self._followed.values()):
                self._has_given_all.set()
                owes_all = False
            self._silence_if_wanted()
            if status is None:
                self._rang = self._memory.doorbell.wait(self._pause())
        self._memory.stop()
        self._wants_silence = True
        self._silence_if_wanted()
        self.goes_on = status is None
        self._waits_until = self._waits_until or time.monotonic() + WAIT_SECONDS
        for number in list(self._followed):
            yield from self._end(number, None)
        if status is not None and self.settings.follow:
            yield from self._not_recorded()
        yield from self._problems()
        yield from self._more_refusals()

    def _pause(self) -> float:
        """Seconds until the next look, if nobody rings."""
        due = [process.next_look for process in self._followed.values() if process.has_new_threads]
        if not due:
            return _LOOK_SECONDS
        return min(_LOOK_SECONDS, max(_LEAST_PAUSE, min(due) - time.monotonic()))

    def _not_recorded(self) -> Iterator[Happening]:
        """What the kernel has counted for the command and all its children, beyond what was told of them:
        processes that ended before they were looked at or could not be recorded, and the ends of others."""
        if self._child is None or not self._known:
            return
        rest = launch.cpu_time_of_tree(self._child.pid) - self._cpu_time_told
        if rest > _LEAST_REST:
            # Time 0: of the process that has ended by now, not of a later one with its pid.
            yield ThreadNamed(self._child.pid, _NOT_RECORDED_ID, _NOT_RECORDED, 0)
            yield ThreadTime(self._child.pid, _NOT_RECORDED_ID, rest, 0)

    def _look(self, status: int | None) -> Iterator[Happening]:
        yield from self._find_processes()
        has_new_tables = self.files.take_finished()
        rang, self._rang = self._rang, False
        for number, process in list(self._followed.items()):
            is_child = self._child is not None and process.pid == self._child.pid
            yield from process.look(rang=rang, has_new_tables=has_new_tables)
            if is_child and status is not None:
                self._waits_until = time.monotonic() + WAIT_SECONDS
                yield from self._end(number, status)
            elif process.has_ended and not process.waits_for_tables:
                yield from self._end(number, None)
        yield from self._problems()

    def _silence_if_wanted(self) -> None:
        if self._wants_silence:
            for process in self._followed.values():
                process.silence()
            self._is_silent.set()

    def _problems(self) -> Iterator[Happening]:
        for pid, reason in self._memory.new_refusals():
            if reason in _REFUSALS:
                self._refuse(pid, _REFUSALS[reason])
        yield from [*self._untold, *(Problem(None, text) for text in self.files.problems)]
        self._untold.clear()
        self.files.problems.clear()

    def _refuse(self, pid: int, reason: str) -> None:
        """The first of each reason is told at once, the others by their number in the end."""
        self._refusals[reason] += 1
        if self._refusals[reason] == 1:
            self._untold.append(Problem(pid, f"process {pid} is not recorded: {reason}"))

    def _more_refusals(self) -> Iterator[Happening]:
        for reason, count in self._refusals.items():
            if count > 1:
                others = "another process is" if count == 2 else f"{count - 1} other processes are"
                yield Problem(None, f"{others} not recorded, for the same reason: {reason}")

    def _exit_status(self) -> int | None:
        """As wait(2) gives it; None: it has not ended. It stays to be collected until everything was read."""
        if self._ends_with is None:
            return None
        if self._child is None:
            return None if Path(f"/proc/{self._ends_with}").exists() else 0
        with suppress(ChildProcessError):
            result = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if result is None:
                return None
            return result.si_status << 8 if result.si_code == os.CLD_EXITED else result.si_status
        return 0

    # ------------------------------------------------------------ processes

    def _find_processes(self) -> Iterator[Happening]:
        self._by_inner_number = None
        for number in self._memory.claimed().tolist():
            if number in self._unreadable:
                self._free_if_gone(number)
            elif number not in self._followed:
                yield from self._begin(number)

    def _begin(self, number: int) -> Iterator[Happening]:
        try:
            area = self._memory.area(number)
        except CaptureError as error:
            self.files.problems.append(str(error))
            return
        if area.field("state") == AreaState.CLAIMED:  # being filled in, unless who claimed it was killed
            candidates = self._with_number(self._memory.claimant(number))
            if not any(Path(f"/proc/{candidate}").exists() for candidate in candidates):
                self._memory.free_area(number)
            return
        pid, unreadable = self._outer_pid(area)
        if pid is None:
            self._leave(number, area, unreadable)
            return
        before = [n for n, process in self._followed.items() if process.pid == pid]
        for other in before:
            self._followed[other].has_ended = self._followed[other].has_other_program = True
            yield from self._end(other, None)
        parent_pid = area.field("parent_pid")
        parent = next((p for p in self._followed.values() if p.pid == parent_pid), None)
        try:
            process = FollowedProcess(
                self._memory, area, pid, self.files, self.settings.rate, self._rights, parent
            )
        except (ProcessLookupError, FileNotFoundError):
            self._leave(number, area, [])
            return
        except PermissionError:
            self._leave(number, area, [pid])
            return
        self._followed[number] = process
        self._known.add(number)
        start_time, told = self._went_on.pop(pid, (b"", 0))
        went_on = start_time == process.start_time != b""
        with suppress(ProcessLookupError):
            yield from process.begin(
                from_outside=went_on or self._child is None, told_before=told if went_on else None
            )

    def _outer_pid(self, area: Area) -> tuple[int | None, list[int]]:
        """Our number of the process whose area this is; it may be in a pid namespace of its own. Where there
        is none: those that it may be, since they can't be looked at."""
        pid, address = area.field("pid"), area.field("area_address")
        unreadable: list[int] = []
        for candidate in self._with_number(pid):
            try:
                if self._has_mapped(candidate, address):
                    return candidate, []
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError:
                unreadable.append(candidate)
        return None, unreadable

    def _with_number(self, pid: int) -> Iterator[int]:
        """Processes that have this number, in our pid namespace or in one of their own."""
        yield pid
        if self._by_inner_number is None:  # once a look: processes may come and go by the hundred
            self._by_inner_number = _by_inner_number()
        yield from self._by_inner_number.get(pid, ())

    def _has_mapped(self, pid: int, address: int) -> bool:
        """Raises OSError."""
        entry = MemoryMap.of_process(pid).find(address)
        return entry is not None and entry.inode == self._memory.identity[1]

    def _leave(self, number: int, area: Area, unreadable: list[int]) -> None:
        """Nobody's area is free. That of a process which can't be looked at stays: the agent in it uses it as
        long as it lives."""
        if not unreadable:
            self._memory.free_area(number)
            return
        area.set_field("quiet", 1)
        self._unreadable[number] = unreadable
        self._refuse(unreadable[0], "its memory map may not be read; run unspool as root")

    def _free_if_gone(self, number: int) -> None:
        if not any(Path(f"/proc/{pid}").exists() for pid in self._unreadable[number]):
            del self._unreadable[number]
            self._memory.free_area(number)

    def _end(self, number: int, status: int | None) -> Iterator[Happening]:
        process = self._followed.pop(number)
        try:
            yield from process.end(status, self._waits_until)
        finally:
            process.close()
        self._cpu_time_told += process.cpu_time_told
        if process.has_other_program:
            self._went_on[process.pid] = process.start_time, process.told_up_to
        if process.has_ended or status is not None:
            self._memory.free_area(number)


def _by_inner_number() -> dict[int, list[int]]:
    """The processes in pid namespaces of their own, by the number that they have there."""
    found: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError, IndexError):
                ids = TaskStatus.of(int(path.name)).namespace_ids
                if len(ids) > 1:
                    found.setdefault(ids[-1], []).append(int(path.name))
    return found


def _use_all_descriptors() -> None:
    """One is open for each file that is mapped; the program that was started keeps the limit it had."""
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
