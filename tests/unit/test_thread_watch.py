"""What is seen of a process whose threads come and go."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest

from unspool.capture.thread_watch import ThreadWatch


@pytest.fixture
def watch() -> Iterator[ThreadWatch]:
    with closing(ThreadWatch(os.getpid())) as watch:
        yield watch


def test_map_is_read_through_a_thread_that_has_just_begun(
    watch: ThreadWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main thread has ended, and each other one ends as soon as it has made the next."""
    lists = iter([{1, 2}, {1, 3}, {1, 4}])
    monkeypatch.setattr(watch, "_tids", lambda: next(lists))
    monkeypatch.setattr(watch, "_text", lambda path: b"map" if path == "task/4/maps" else b"")
    assert watch.memory_map() == b"map"


def test_process_that_nobody_has_collected_has_no_map(
    watch: ThreadWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_tids", lambda: {1})
    monkeypatch.setattr(watch, "_text", lambda path: b"")
    with pytest.raises(ProcessLookupError):
        watch.memory_map()


def test_name_is_that_of_the_program_before_exec() -> None:
    """A name that the program gives itself counts, and that of a process nobody has collected."""
    renames = "read x; echo -n renamed > /proc/$$/comm; echo; read x; exec cat"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["sh", "-c", renames], **pipes, bufsize=0) as process:
        assert process.stdin is not None and process.stdout is not None
        with closing(ThreadWatch(process.pid)) as watch, closing(ThreadWatch(process.pid)) as after_exec:
            watch.look()
            thread = watch.threads[process.pid]
            assert (thread.name, thread.is_renamed) == ("sh", True)
            process.stdin.write(b"\n")
            process.stdout.read(1)
            watch.read()
            assert thread.name == "renamed"
            process.stdin.write(b"\nthrough cat")
            process.stdout.read(1)
            watch.read()
            after_exec.look()
            assert (thread.name, after_exec.threads[process.pid].name) == ("renamed", "cat")


def test_a_thread_that_names_itself_just_after_its_start(
    watch: ThreadWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is seen before that, and lives less long than names are read again."""
    tids, name = {1}, "program"
    fields = " ".join(["0"] * 30)
    monkeypatch.setattr(watch, "_tids", lambda: tids)
    monkeypatch.setattr(watch, "_cpu_time", lambda tid: 0)
    monkeypatch.setattr(watch, "_text", lambda path: f"1 ({name}) S {fields}".encode())
    monkeypatch.setattr("unspool.capture.thread_watch._LOOK_COST", 1e9)  # every call looks
    assert watch.look() == ([1], [])
    assert watch.threads[1].name == "program"
    name = "worker"
    assert watch.look() == ([], [])
    assert watch.threads[1].name == "worker"
    for _ in range(5):
        watch.look()
    name = "other"
    watch.look()
    assert watch.threads[1].name == "worker"  # it is not young any more
    tids = {2}
    assert [thread.tid for thread in watch.look()[1]] == [1]


def test_id_that_is_used_again_is_another_thread(watch: ThreadWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both were there when the threads were listed; only the time of their start tells them apart."""
    start, used = 5, 300
    monkeypatch.setattr(watch, "_tids", lambda: {1})
    monkeypatch.setattr(watch, "_cpu_time", lambda tid: used)
    monkeypatch.setattr(watch, "_text", lambda path: f"1 (x) S {'0 ' * 18}{start} {'0 ' * 30}".encode())
    monkeypatch.setattr("unspool.capture.thread_watch._LOOK_COST", 1e9)  # every call looks
    assert watch.look() == ([1], [])
    first = watch.threads[1]
    start, used = 6, 20
    watch.read()
    assert first.cpu_time == 300
    assert watch.look() == ([1], [first])
    assert watch.threads[1] is not first
    assert watch.threads[1].cpu_time == 20
    assert watch.look() == ([], [])
