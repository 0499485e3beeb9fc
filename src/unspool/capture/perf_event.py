"""Samples of running programs by perf_event: the kernel copies registers and stack, everything else happens
here.

Nothing is put into the program. Its threads and children are followed by the kernel, which also tells what
they map; stacks are walked as they come out of the rings. When unspool ends, in whatever way, the kernel ends
the events, and the program is as it was."""

from __future__ import annotations

import os
import platform
import select
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from unspool.capture import launch
from unspool.capture.errors import CaptureError
from unspool.capture.in_process import CaptureSettings
from unspool.capture.perf_attributes import AttributeFlag, EventAttributes, EventType, SampleType
from unspool.capture.perf_live_files import LiveFiles
from unspool.capture.perf_open import PerfForbidden
from unspool.capture.perf_order import TimeOrder, Window
from unspool.capture.perf_permission import (
    PerfSettings,
    kernel_hidden,
    kernel_is_visible,
    not_permitted,
)
from unspool.capture.perf_processes import ProcessFollower
from unspool.capture.perf_records import RecordParser, scan
from unspool.capture.perf_registers import ALL_REGISTERS
from unspool.capture.perf_rings import PerfRings, use_all_descriptors
from unspool.capture.perf_spaces import Tables
from unspool.capture.perf_threads import CpuTimes, ThreadClocks, running_code, thread_ids
from unspool.capture.program import Program, find_program
from unspool.capture.samples import Event, Happening, Problem, ProcessEnded

EVENTS = [Event("cpu", "nanoseconds")]
_COPIED_A_SECOND = 16 << 20  # bytes of stack, of a thread that is busy all the time
_LARGEST_COPY, _SMALLEST_COPY = 56 << 10, 8 << 10  # bytes; a record has less than 64 KiB
_SECONDS_IN_RING = 0.1  # that a ring must hold
_CPU_CLOCK = 0
_CLOCK_MONOTONIC = 1
_LOOK_SECONDS = 0.25  # between two times that samples are walked
_DRAIN_MILLISECONDS = 50  # at most, between two times that the rings are emptied
_WAITING_AT_MOST = 128 << 20  # bytes that were read and not yet walked


def stack_copy_bytes(rate: int, ring_bytes: int) -> int:
    """How much of the stack is copied with every sample: as much as goes without disturbing the program, and
    as rings of this size can hold."""
    most = min(_COPIED_A_SECOND, int(ring_bytes / _SECONDS_IN_RING)) // rate
    return max(min(most, _LARGEST_COPY) // 4096 * 4096, _SMALLEST_COPY)


def attributes_for(rate: int, *, with_kernel: bool, on_exec: bool) -> EventAttributes:
    """What is recorded at every sample, and of what happens to processes. rate: Hz."""
    flag = AttributeFlag
    flags = flag.DISABLED | flag.MMAP | flag.MMAP2 | flag.COMM | flag.COMM_EXEC | flag.TASK
    flags |= flag.SAMPLE_ID_ALL | flag.USE_CLOCKID | flag.WATERMARK | flag.EXCLUDE_HV
    flags |= flag.INHERIT
    if on_exec:
        flags |= flag.ENABLE_ON_EXEC
    if not with_kernel:
        flags |= flag.EXCLUDE_KERNEL | flag.EXCLUDE_CALLCHAIN_KERNEL
    kind = SampleType
    fields = kind.IDENTIFIER | kind.IP | kind.TID | kind.TIME | kind.PERIOD
    return EventAttributes(
        EventType.SOFTWARE,
        _CPU_CLOCK,
        1_000_000_000 // rate,
        int(fields | kind.CALLCHAIN | kind.REGS_USER | kind.STACK_USER),
        0,
        int(flags),
        user_registers=ALL_REGISTERS[platform.machine()],
        stack_size=stack_copy_bytes(rate, PerfSettings.of_self().ring_bytes),
        clock=_CLOCK_MONOTONIC,
    )


class PerfCapture:
    """One recording. Either launch or attach, then iterate over happenings. Close it in the end. Raises
    CaptureError: perf can't be used here."""

    def __init__(self, settings: CaptureSettings) -> None:
        self.settings = settings
        self.files = LiveFiles(platform.machine())
        self.program: Program | None = None
        self.goes_on = False  # the program has not ended when the recording did
        self._with_kernel = kernel_is_visible()
        self._rings: PerfRings | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._attached: int | None = None
        self._exit = -1  # a descriptor that tells when the process ends
        self._clocks = ThreadClocks()
        self._drain = _Drain()
        self._stop_time = float("inf")

    @property
    def ring_bytes(self) -> int:
        """Of the smallest ring; 0: there is none yet."""
        return 0 if self._rings is None else self._rings.ring_bytes

    def launch(self, command: Sequence[str]) -> int:
        """Start a command; its process id. Raises CommandError, CaptureError."""
        program = self.program = find_program(command[0])
        rings = self._new_rings(on_exec=True)
        failure: list[BaseException] = []

        def body() -> None:
            """Events of this thread pass on to what it starts, and begin when that calls exec. Other threads
            of ours, and what they start, have none."""
            try:
                rings.add_thread(0)
                self._child = launch.start(program, command, launch.inherited_environment())
            except BaseException as error:
                failure.append(error)

        starter = threading.Thread(target=body, name="unspool launch")
        starter.start()
        starter.join()
        if failure:
            raise failure[0]
        assert self._child is not None
        with suppress(OSError):  # before Linux 5.3, or where it is filtered
            self._exit = os.pidfd_open(self._child.pid)
        return self._child.pid

    def attach(self, pid: int) -> None:
        """Watch a process that runs, all of its threads, and what they start from now on. Raises
        CaptureError."""
        use_all_descriptors()
        tids = thread_ids(pid)
        rings = self._new_rings(on_exec=False)
        self._attached = pid
        done: set[int] = set()
        try:
            self._exit = os.pidfd_open(pid)
            while new := [tid for tid in tids if tid not in done]:
                for tid in new:
                    done.add(tid)
                    with suppress(ProcessLookupError):
                        rings.add_thread(tid)
                        self._clocks.add(tid)
                tids = thread_ids(pid)
        except PerfForbidden:
            raise not_permitted(pid) from None
        except ProcessLookupError:
            raise CaptureError(f"process {pid} has ended", "look at another one") from None
        except OSError as error:
            raise CaptureError(
                f"process {pid} can't be watched: {error.strerror}, with {len(done)} threads",
                "raise the limits: ulimit -n unlimited, ulimit -l unlimited; or run it as root",
            ) from None
        rings.enable()

    def stop(self, seconds: float = 0.0) -> None:
        """Take no more samples after so many seconds: `happenings` comes to its end. May be called from a
        signal handler."""
        self._stop_time = min(self._stop_time, time.monotonic() + seconds)

    def signal_program(self, number: int) -> None:
        """Pass a signal on to what was launched, if that still runs."""
        if self._child is not None:
            self._child.send_signal(number)

    def wait(self) -> int:
        """The exit status of what was launched, once it has ended; -n: signal n killed it. 0: nothing was."""
        return 0 if self._child is None else self._child.wait()

    def close(self) -> None:
        self._drain.stop()
        self._clocks.close()
        if self._rings is not None:
            self._rings.close()
            self._rings = None
        if self._exit >= 0:
            os.close(self._exit)
            self._exit = -1

    # ------------------------------------------------------------ the loop

    def happenings(self) -> Iterator[Happening]:
        """What happens, until the program (not what it has started) has ended, or stop was called."""
        rings = self._rings
        assert rings is not None
        if not self._with_kernel:
            yield Problem(None, kernel_hidden())
        parser = RecordParser()
        parser.add_event(self._attributes, rings.ids)
        follower = ProcessFollower(
            *(self.files.arch, parser.events, self.files.find, Tables(self.files.missing)),
            threads=1,
            is_running=True,
        )
        times = CpuTimes(self._attached, self._clocks)
        order = TimeOrder()
        self._drain.start(rings)
        if self._attached is not None:
            yield from self._told(times.added(follower.follow(Window(running_code(self._attached), []))))
        has_ended = False
        while not has_ended and time.monotonic() < self._stop_time:
            self._pause()
            has_ended = self._has_ended()
            self._parse(parser, order, self._drain.take())
            yield from self._told(times.added(follower.follow(order.take())))
            yield from self._told(times.now())
        rings.disable()
        self._drain.stop()
        self._parse(parser, order, self._drain.take())
        self.goes_on = not has_ended
        yield from self._told(times.added(follower.follow(order.take(everything=True))))
        yield from self._told(times.now(at_end=True))
        yield from self._told(times.added(follower.finish(time.monotonic_ns())))
        yield from self._problems(follower.throttled, parser.damaged)

    def _parse(self, parser: RecordParser, order: TimeOrder, data: bytes) -> None:
        view = memoryview(data)
        found = scan(view)
        if found.positions:
            order.add(parser.parse(view, found))
        if found.size < len(data):
            parser.damaged["bytes of the kernel's rings"] += len(data) - found.size
        order.end_round()

    def _pause(self) -> None:
        """A while, or until the program ends."""
        seconds = max(min(_LOOK_SECONDS, self._stop_time - time.monotonic()), 0)
        select.select([self._exit] if self._exit >= 0 else [], [], [], seconds)

    def _has_ended(self) -> bool:
        if self._exit < 0:
            return self._exit_status() is not None
        return bool(select.select([self._exit], [], [], 0)[0])

    def _exit_status(self) -> int | None:
        """As wait(2) gives it; None: it has not ended. It stays to be collected until everything was read."""
        if self._child is None:
            return None
        with suppress(ChildProcessError):
            result = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if result is None:
                return None
            return result.si_status << 8 if result.si_code == os.CLD_EXITED else result.si_status
        return 0

    def _told(self, happenings: Iterator[Happening]) -> Iterator[Happening]:
        """With the exit status of our child, without other processes if they are not to be followed: the
        kernel follows them all, since the command itself is our child."""
        target = self._attached if self._child is None else self._child.pid
        for happening in happenings:
            if not self.settings.follow and getattr(happening, "pid", None) not in (None, target):
                continue
            if isinstance(happening, ProcessEnded) and self._child and happening.pid == self._child.pid:
                happening = replace(happening, exit_status=self._exit_status())
            yield happening

    def _problems(self, throttled: int, damaged: Counter[str]) -> Iterator[Happening]:
        for what, count in damaged.items():
            if count:
                yield Problem(None, f"{count} {what} could not be read")
        for path, reason in self.files.missing.items():
            yield Problem(None, f"{path} is not used: {reason}")
        if throttled:
            yield Problem(
                None,
                f"the kernel stopped sampling {throttled} times for a while, since it took too much time "
                "(kernel.perf_cpu_time_max_percent): give a lower rate with -r",
            )

    def _new_rings(self, *, on_exec: bool) -> PerfRings:
        self._attributes = attributes_for(self.settings.rate, with_kernel=self._with_kernel, on_exec=on_exec)
        self._rings = PerfRings(self._attributes)
        return self._rings


class _Drain:
    """Empties the rings in a thread of its own: walking may take longer than they take to fill."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._read = self._taken = 0  # bytes, each counted by one thread
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, rings: PerfRings) -> None:
        self._thread = threading.Thread(target=self._run, args=(rings,), name="unspool rings", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Bytes that were read and not yet taken."""
        return self._read - self._taken

    def take(self) -> bytes:
        """What was read since, whole records."""
        parts = []
        while self._parts:
            parts.append(self._parts.popleft())
        data = b"".join(parts)
        self._taken += len(data)
        return data

    def stop(self) -> None:
        """After it, everything was read."""
        self._is_stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, rings: PerfRings) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_stopping.is_set()
            if not is_last:
                rings.wait(_DRAIN_MILLISECONDS)
            if self.waiting > _WAITING_AT_MOST and not is_last:  # the kernel counts what finds no room
                self._is_stopping.wait(_DRAIN_MILLISECONDS / 1000)
                continue
            for part in rings.read():
                self._read += len(part)
                self._parts.append(part)
