"""Processes that can't be looked at: one message with the cause and what helps, and exit status 1."""

import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.targets import build, functions, started, threads_of
from unspool.capture import CaptureError, ptrace
from unspool.capture.live_process import LiveProcess
from unspool.capture.task_status import TaskStatus

NOBODY = 65534
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def refused(*arguments: str | int, prefix: tuple[str, ...] = ()) -> str:
    """What the command says, which must be one line, and end with status 1."""
    command = [*prefix, sys.executable, "-m", "unspool", "stack", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1, result
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("Error: ").rstrip()


def in_child(become: Callable[[], None], look: Callable[[], str]) -> str:
    """What somebody else gets: a child that has become it first."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            become()
            text = look()
        except BaseException as error:
            text = repr(error)
        finally:
            os.write(there, text.encode())
            os._exit(0)
    os.close(there)
    with os.fdopen(here) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def is_kernel_thread(pid: int) -> bool:
    try:
        return TaskStatus.of(pid).is_kernel_thread
    except OSError:
        return False


def refused_in_child(pid: int, become: Callable[[], None]) -> str:
    def look() -> str:
        with pytest.raises(CaptureError) as error:
            LiveProcess(pid).stacks()
        return str(error.value)

    return in_child(become, look)


@pytest.mark.parametrize("pid", [4_000_000, 0, 1 << 40])
def test_no_such_process(pid: int) -> None:
    assert refused(pid) == f"there is no process {pid}: see `ps -e` for those that are"


def test_a_zombie() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert refused(child).startswith(f"process {child} has ended (a zombie): ")
    finally:
        os.waitpid(child, 0)


def test_a_kernel_thread() -> None:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    kernel_threads = [pid for pid in pids if is_kernel_thread(pid)]
    if not kernel_threads:
        pytest.skip("no kernel thread can be seen here")
    pid = kernel_threads[0]
    assert refused(pid) == f"process {pid} is a kernel thread: it has no stack of a program"


def test_a_32_bit_program(tmp_path: Path) -> None:
    """One that waits for signals for ever, in 32-bit code."""
    program = tmp_path / "program"
    code = b"\xb8\x1d\0\0\0\xcd\x80\xeb\xf7"  # again: mov $29,%eax (pause); int $0x80; jmp again
    base, headers = 0x10000, 52 + 32
    file_header = struct.pack(
        "<4s5B7xHHIIIIIHHHHHH",
        b"\x7fELF",
        1,
        1,
        1,
        0,
        0,
        2,
        3,
        1,
        base + headers,
        52,
        0,
        0,
        52,
        32,
        1,
        0,
        0,
        0,
    )
    segment = struct.pack("<8I", 1, 0, base, base, headers + len(code), headers + len(code), 5, 0x1000)
    program.write_bytes(file_header + segment + code)
    program.chmod(0o700)
    try:
        process = subprocess.Popen([program])
    except OSError:
        pytest.skip("this kernel runs no 32-bit programs")
    try:
        assert refused(process.pid).startswith(f"process {process.pid} is a 32-bit program: ")
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_traced_already(folder: Path) -> None:
    """As by gdb or strace: the tracer is named."""
    with started(build(folder, "blocked.c")) as target:
        with ptrace.stopped(target.pid, lambda seconds: seconds > 5):
            message = refused(target.pid)
        tracer = TaskStatus.of(os.getpid()).name
    assert f"it is traced by {tracer} (process {os.getpid()}), and a process has one tracer only" in message


def test_a_thread_that_there_is_not(folder: Path) -> None:
    with started(build(folder, "deep.c")) as target:
        assert refused("--thread", 1, target.pid) == (
            f"process {target.pid} has no thread 1: its threads are {target.pid}"
        )


@ROOT_ONLY
def test_a_user_may_look_at_its_own_processes() -> None:
    """Without any privilege: no /proc/PID/map_files, no more than ptrace of one's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with started(build(Path(name), "deep.c"), user=NOBODY) as target:
            names = in_child(
                lambda: os.setresuid(NOBODY, NOBODY, NOBODY),
                lambda: " ".join(map(str, functions(threads_of(target.pid)[0]))),
            )
    assert " wait_for_line descend descend " in names and names.count("descend") == 10_000
    assert " main " in names and names.endswith(" _start")


@ROOT_ONLY
def test_a_process_of_another_user(folder: Path) -> None:
    with started(build(folder, "deep.c")) as target:
        message = refused_in_child(target.pid, lambda: os.setresuid(NOBODY, NOBODY, NOBODY))
    assert message == (
        f"process {target.pid} may not be looked at: it belongs to user root, and this is user nobody: "
        f"run it as root: sudo unspool stack {target.pid}"
    )


@ROOT_ONLY
def test_a_process_that_has_made_itself_unreadable(folder: Path) -> None:
    """PR_SET_DUMPABLE: what a change of user clears."""
    here, there = os.pipe()
    target = os.fork()
    if target == 0:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        os.write(there, b"x")
        signal.pause()
    os.read(here, 1)
    try:
        message = refused_in_child(target, lambda: os.setresuid(NOBODY, NOBODY, NOBODY))
    finally:
        os.kill(target, signal.SIGKILL)
        os.waitpid(target, 0)
    assert "it has made itself unreadable (PR_SET_DUMPABLE)" in message


@ROOT_ONLY
def test_a_root_without_the_capability(folder: Path) -> None:
    """As in a container."""
    prefix = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
    with started(build(folder, "deep.c")) as target:
        message = refused(target.pid, prefix=prefix)
    assert "this root has no CAP_SYS_PTRACE, as in a container: start the container with --cap-add" in message


def test_a_seccomp_filter_that_forbids_ptrace(folder: Path) -> None:
    def forbid_ptrace() -> None:
        number = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
        program = b"".join(
            struct.pack("<HBBI", *instruction)
            for instruction in (
                (0x20, 0, 0, 0),  # load the number of the system call
                (0x15, 0, 1, number),  # unless it is ptrace, skip one
                (0x06, 0, 0, 0x00050001),  # fail with EPERM
                (0x06, 0, 0, 0x7FFF0000),  # allow
            )
        )
        buffer = ctypes.create_string_buffer(program)
        filters = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
        libc = ctypes.CDLL(None)
        assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
        assert libc.prctl(22, 2, filters, 0, 0) == 0  # PR_SET_SECCOMP, filter

    with started(build(folder, "deep.c")) as target:
        message = refused_in_child(target.pid, forbid_ptrace)
    assert "a seccomp filter of this process forbids ptrace, as in a container: " in message


def test_unspool_itself() -> None:
    with pytest.raises(CaptureError, match="it is unspool itself: name another process"):
        LiveProcess(os.getpid()).stacks()
