"""Running programs watched by perf events: from their start, or while they run; the program is never
disturbed."""

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from unspool.binaries import Binary
from unspool.capture import CaptureError, perf_permission
from unspool.capture.in_process import CaptureSettings
from unspool.capture.perf_event import PerfCapture, attributes_for, stack_copy_bytes
from unspool.capture.perf_open import PerfForbidden
from unspool.capture.samples import (
    Happening,
    Lost,
    Problem,
    ProcessEnded,
    ProcessStarted,
    SampleBatch,
    ThreadNamed,
    ThreadTime,
)
from unspool.cli.doctor import doctor
from unspool.symbols import Symbolizer

LATE = 'void late(void (*burn)(unsigned long), unsigned long n) { burn(n); __asm__ volatile(""); }\n'
MILLISECONDS = 150
RATE = 499
EXIT_STATUS = 7
NOBODY = 65534
INHERIT_STAT = 1 << 11


@pytest.fixture(scope="module")
def program() -> Iterator[list[str]]:
    """The command: much is as long as three of little; burn is called by all. Another user may run it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "late.c").write_text(LATE)
        source = str(Path(__file__).with_name("perf_program.c"))
        library, binary = str(folder / "late.so"), str(folder / "program")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", str(folder / "late.c"), "-o", library], check=True)
        subprocess.run(["gcc", "-O2", "-g", source, "-o", binary, "-pthread", "-ldl"], check=True)
        yield [binary, library, str(MILLISECONDS)]


def launched(command: Sequence[str], settings: CaptureSettings) -> tuple[list[Happening], int]:
    """What happens from a command's start to its end, and its exit status."""
    with closing(PerfCapture(settings)) as capture:
        capture.launch(command)
        happenings = list(capture.happenings())
        return happenings, capture.wait()


def batches(happenings: Sequence[Happening]) -> list[SampleBatch]:
    return [happening for happening in happenings if isinstance(happening, SampleBatch)]


def seconds_by_function(happenings: Sequence[Happening]) -> Counter[str]:
    """Time in each function or what it calls, without inlined ones."""
    symbolizer = Symbolizer()
    opened: dict[str, Binary] = {}
    result: Counter[str] = Counter()
    for batch in batches(happenings):
        numbers, relative = batch.code_map.resolve(batch.addresses, batch.is_return)
        for i in range(len(batch)):
            names = set()
            for j in range(int(batch.offsets[i]), int(batch.offsets[i + 1])):
                path = batch.code_map.files[numbers[j]].path
                if not path.endswith(("/program", "/late.so")):
                    continue
                if path not in opened:
                    opened[path] = Binary.open(path)
                address = int(relative[j]) - bool(batch.is_return[j])
                names |= {
                    place.function for place in symbolizer.lookup(opened[path], address) if place.function
                }
            for name in names:
                result[name] += int(batch.weights[i]) / 1e9
    return result


def check_times(happenings: Sequence[Happening]) -> None:
    """Every function has its time: a sample is taken every 2 ms, so that 150 ms are 75 +- 9 samples; the
    bounds are four times as wide."""
    seconds = seconds_by_function(happenings)
    unit = MILLISECONDS / 1000
    for name, units in {"little": 2, "much": 3, "late": 1, "burn": 6}.items():
        assert seconds[name] == pytest.approx(units * unit, rel=0.3), (name, seconds)


def test_a_command_is_watched_from_its_start(program: list[str]) -> None:
    """Threads, children and libraries that are opened later, too; every stack is complete."""
    happenings, status = launched(program, CaptureSettings(RATE))
    assert status == EXIT_STATUS
    check_times(happenings)
    found = batches(happenings)
    stacks = sum(len(batch) for batch in found)
    assert sum(int(batch.complete.sum()) for batch in found) >= 0.98 * stacks
    assert any(isinstance(h, ThreadNamed) and h.name == "second" for h in happenings)
    started = [h for h in happenings if isinstance(h, ProcessStarted)]
    assert len({h.pid for h in started}) == 2
    ended = {h.pid: h.exit_status for h in happenings if isinstance(h, ProcessEnded)}
    assert ended[started[0].pid] == EXIT_STATUS << 8
    assert not [h for h in happenings if isinstance(h, Lost)]


def test_a_command_is_watched_where_no_descriptor_tells_its_end(
    program: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 5.3, or where pidfd_open is filtered."""

    def refused(pid: int) -> int:
        raise PermissionError(pid)

    monkeypatch.setattr(os, "pidfd_open", refused)
    happenings, status = launched(program, CaptureSettings(RATE))
    assert status == EXIT_STATUS
    assert batches(happenings)


def test_weights_are_the_kernels_cpu_time(program: list[str]) -> None:
    """What the kernel counted for all threads, those that ended too (thread 0 has the rest of them), is what
    samples weigh."""
    happenings, _ = launched(program, CaptureSettings(RATE))
    times = {(h.pid, h.tid): h.user + h.system for h in happenings if isinstance(h, ThreadTime)}
    weights = sum(int(batch.weights.sum()) for batch in batches(happenings))
    assert len(times) >= 3
    assert sum(times.values()) == pytest.approx(weights, rel=0.05)


def test_the_kernel_does_not_count_for_threads_that_end() -> None:
    """inherit_stat makes it write into rings of other processors, which loses their records."""
    attributes = attributes_for(RATE, with_kernel=True, on_exec=True)
    assert not attributes.flags & INHERIT_STAT


@pytest.mark.parametrize(
    ("rate", "ring", "size"),
    [
        (10, 8 << 20, 56 << 10),
        (199, 8 << 20, 56 << 10),
        (999, 8 << 20, 16 << 10),
        (4999, 8 << 20, 8 << 10),
        (199, 512 << 10, 24 << 10),
        (999, 512 << 10, 8 << 10),
    ],
)
def test_how_much_of_the_stack_is_copied(rate: int, ring: int, size: int) -> None:
    """16 MiB a second at most; a ring holds a tenth of a second."""
    assert stack_copy_bytes(rate, ring) == size


def test_without_following_children(program: list[str]) -> None:
    """Only the command's own process; its threads belong to it."""
    happenings, _ = launched(program, CaptureSettings(RATE, follow=False))
    assert len({batch.pid for batch in batches(happenings)}) == 1
    assert seconds_by_function(happenings)["much"] > 0


@contextmanager
def waiting(program: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The program, before it does anything."""
    with subprocess.Popen([*program, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        yield process


def go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def test_a_running_process_is_attached_to(program: list[str]) -> None:
    """What it had mapped before is known; what it maps and starts later is followed; its end ends it all."""
    with waiting(program) as process, closing(PerfCapture(CaptureSettings(RATE))) as capture:
        capture.attach(process.pid)
        go(process)
        happenings = list(capture.happenings())
        assert process.wait() == EXIT_STATUS
    check_times(happenings)
    assert not capture.goes_on


def test_a_process_goes_on_when_it_is_left(program: list[str]) -> None:
    """Stopped while the process runs: it ends as if nobody had watched."""
    with waiting(program) as process, closing(PerfCapture(CaptureSettings(RATE))) as capture:
        capture.attach(process.pid)
        capture.stop(0.2)
        go(process)
        happenings = list(capture.happenings())
        assert capture.goes_on
        capture.close()
        assert process.wait() == EXIT_STATUS
    assert batches(happenings)


def test_an_idle_process_is_no_error(tmp_path: Path) -> None:
    """It is an answer, too, which says what to do, and the recording says it. It has a thread."""
    with subprocess.Popen(["sleep", "60"]) as process:
        command = [
            sys.executable,
            "-m",
            "unspool",
            "record",
            "-p",
            str(process.pid),
            "-d",
            "0.3",
            "-o",
            "idle.unspool",
        ]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        process.kill()
    assert result.returncode == 0, result.stderr
    assert f"no samples: process {process.pid} used 0.0 ms of the CPU: it was idle" in result.stderr
    assert f"(-d), or see where it waits: unspool stack {process.pid}\n" in result.stderr
    assert "1 process, 1 thread, " in result.stderr
    report = subprocess.run(
        [sys.executable, "-m", "unspool", "report", "idle.unspool"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert b"it was idle" in report.stdout


def test_a_process_goes_on_when_unspool_is_killed(program: list[str]) -> None:
    """The kernel ends the events with their descriptors."""
    with waiting(program) as process:
        watcher = os.fork()
        if watcher == 0:
            capture = PerfCapture(CaptureSettings(RATE))
            capture.attach(process.pid)
            go(process)
            for happening in capture.happenings():
                if isinstance(happening, SampleBatch):
                    os.kill(os.getpid(), signal.SIGKILL)
            os._exit(1)
        assert os.waitpid(watcher, 0)[1] == signal.SIGKILL
        assert process.wait() == EXIT_STATUS


def test_another_user_watches_its_own_program(program: list[str]) -> None:
    """At kernel.perf_event_paranoid 2 too: one event a thread and processor; what is not seen is said."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        result = b"failed"
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            happenings, status = launched(program, CaptureSettings(RATE))
            check_times(happenings)
            hidden = [h for h in happenings if isinstance(h, Problem) and "perf_event_paranoid" in h.text]
            result = f"{status} {len(hidden)}".encode()
        except BaseException as error:
            result = repr(error).encode()
        finally:
            os.write(writing, result)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answer = file.read().decode()
    os.waitpid(child, 0)
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    if paranoid > 2:
        assert "allows perf events to root only" in answer
    else:
        assert answer == f"{EXIT_STATUS} {int(paranoid == 2)}"


def test_where_perf_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why, and what changes it; doctor's exit status is 1."""

    def refuse(*_: object) -> int:
        raise PerfForbidden(13, "Permission denied")

    monkeypatch.setattr(perf_permission, "open_event", refuse)
    with pytest.raises(CaptureError, match="perf events can't be used"):
        PerfCapture(CaptureSettings())
    result = CliRunner().invoke(doctor, ["perf"])
    assert result.exit_code == 1
    assert "unspool record --via perf does not work here" in result.output


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        (perf_permission.PerfSettings(0, True, False, None, None), "this kernel has no perf events"),
        (perf_permission.PerfSettings(0, False, False, 2, 516), "this root has neither CAP_PERFMON"),
        (perf_permission.PerfSettings(1000, False, False, 4, 516), "perf_event_paranoid = 4 allows"),
        (perf_permission.PerfSettings(1000, False, True, 2, 516), "a seccomp filter forbids"),
        (perf_permission.PerfSettings(1000, True, False, 2, 516), "although its settings would allow"),
    ],
)
def test_every_reason_has_a_remedy(settings: perf_permission.PerfSettings, cause: str) -> None:
    """In words, and with a command where there is one."""
    what, remedy = settings.why_not()
    assert cause in what
    assert remedy


def test_no_such_process() -> None:
    """It says so."""
    reason = "there is no process 4194305"
    with closing(PerfCapture(CaptureSettings())) as capture, pytest.raises(CaptureError, match=reason):
        capture.attach(4194305)
