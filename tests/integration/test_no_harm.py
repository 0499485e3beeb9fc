"""A process that was looked at goes on as before: whatever its threads did, and however unspool ended."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.targets import build, functions, next_line, started, threads_of
from unspool.capture import CaptureError
from unspool.capture.live_process import LiveProcess
from unspool.capture.task_status import TaskStatus


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def states(pid: int) -> list[TaskStatus]:
    """Of all threads that there are long enough."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found.append(TaskStatus.of(pid, int(task.name)))
    return found


def assert_free(pid: int) -> None:
    """No thread is stopped or traced, at most a moment from now."""
    held: list[TaskStatus] = []
    for _ in range(100):
        held = [status for status in states(pid) if status.tracer or status.state in "tT"]
        if not held:
            return
        time.sleep(0.01)
    raise AssertionError(f"held: {[(status.name, status.state, status.tracer) for status in held]}")


def counts(target: subprocess.Popen[str]) -> list[int]:
    """What busy.c has counted: computed, slept, received, signals, failures."""
    return [int(word) for word in next_line(target, ask=True).split()]


def assert_goes_on(target: subprocess.Popen[str]) -> None:
    """Every thread of busy.c makes progress, and none saw a call fail."""
    assert_free(target.pid)
    before = counts(target)
    for _ in range(100):
        time.sleep(0.02)
        after = counts(target)
        if all(a < b for a, b in zip(before[:3], after[:3], strict=True)):
            break
    else:
        raise AssertionError(f"a thread stands still: {before}, {after}")
    assert after[4] == 0


def in_child(action: Callable[[], None]) -> int:
    """The id of a child that does this until it is killed."""
    child = os.fork()
    if child == 0:
        try:
            while True:
                action()
        finally:
            os._exit(1)
    return child


def test_threads_go_on_and_signals_arrive(folder: Path) -> None:
    """Every signal that is sent while threads are stopped and let go is delivered once. Real-time signals
    are queued, so that none may be missing."""
    sent = 0
    with started(build(folder, "busy.c")) as target:
        for _ in range(60):
            for _ in range(20):
                os.kill(target.pid, signal.SIGRTMIN)
                sent += 1
            assert len(list(LiveProcess(target.pid).capture())) == 5
        for _ in range(100):
            if counts(target)[3] == sent:
                break
            time.sleep(0.02)
        assert counts(target)[3] == sent
        assert_goes_on(target)


def test_a_kill_at_any_moment_sets_the_process_free(folder: Path) -> None:
    """50 times: unspool is killed in the middle of its work."""
    with started(build(folder, "busy.c")) as target:
        for _ in range(50):
            child = in_child(lambda: list(LiveProcess(target.pid).capture()).clear())
            time.sleep(random.uniform(0.001, 0.03))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            assert_free(target.pid)
        assert_goes_on(target)


def test_ctrl_c_at_any_moment_sets_the_process_free(folder: Path) -> None:
    """Of the command, as a user runs it."""
    with started(build(folder, "busy.c")) as target:
        for _ in range(6):
            command = [sys.executable, "-m", "unspool", "stack", str(target.pid)]
            unspool = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0.2, 0.8))
            unspool.send_signal(signal.SIGINT)
            assert unspool.wait(10) in (0, 1, -signal.SIGINT)
            assert_free(target.pid)
        assert_goes_on(target)


def test_a_stopped_process_stays_stopped(folder: Path) -> None:
    with started(build(folder, "busy.c")) as target:
        target.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, target.pid, os.WSTOPPED)
        threads = threads_of(target.pid)
        assert len(threads) == 5
        assert all(thread.stack is not None and thread.stack.complete for thread in threads)
        time.sleep(0.05)
        assert [status.state for status in states(target.pid)] == ["T"] * 5
        target.send_signal(signal.SIGCONT)
        assert_goes_on(target)


def test_an_uninterruptible_wait_is_left_alone(folder: Path) -> None:
    """The parent of a vfork is told to stop, and is not held when it comes back to its program, although
    we are still there."""
    with started(build(folder, "vfork_parent.c")) as target:
        list(LiveProcess(target.pid).capture())
        assert next_line(target, ask=True) == "done\n"
        assert_free(target.pid)


def test_threads_come_and_go(folder: Path) -> None:
    """Those that are gone are left out, nothing fails, and every stack is one that there can be."""
    with started(build(folder, "churn.c")) as target:
        for _ in range(15):
            for thread in threads_of(target.pid):
                if thread.stack is None:
                    assert thread.thread.problem == "it has ended"
                elif thread.stack.complete:
                    assert functions(thread)[-1] in ("_start", "clone3", "__clone3"), functions(thread)
        assert_free(target.pid)


def test_the_program_is_replaced_meanwhile(folder: Path) -> None:
    """execve at any moment: either stacks of one program, or an error; never a mixture."""
    complete = 0
    with started(build(folder, "lives.c")) as target:
        for _ in range(40):
            try:
                threads = threads_of(target.pid)
            except CaptureError:
                continue
            for thread in threads:
                names = functions(thread)
                lives = [name for name in names if name in ("first_life", "second_life")]
                assert len(lives) <= 1
                if lives and thread.stack is not None and thread.stack.complete:
                    assert names[:2] == [*lives, "main"], names
                    complete += 1
        assert_free(target.pid)
    assert complete > 0


def test_a_process_that_ends_meanwhile(folder: Path) -> None:
    """Killed at any moment: stacks of what was there, or an error that says that it has ended."""
    program = build(folder, "busy.c")
    for _ in range(10):
        with started(program) as target:
            killer = in_child(
                lambda: (time.sleep(random.uniform(0, 0.02)), os.kill(target.pid, 9), os._exit(0))
            )
            try:
                for _ in range(20):
                    threads_of(target.pid)
                    if target.poll() is not None:
                        break
            except CaptureError as error:
                assert "ended" in error.what or "no process" in error.what
            os.waitpid(killer, 0)
