"""Core files of real programs, written by the kernel, by gdb and by qemu-user: the stacks are those that the
living process had, or those that the program must have."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from tests.integration.targets import PROGRAMS, SYMBOLIZER, build, functions, started
from unspool.binaries import Binary
from unspool.capture import CaptureError
from unspool.capture.core_dump import CoreDump
from unspool.capture.core_file import CoreFile
from unspool.capture.core_notes import Signal
from unspool.capture.live_process import LiveProcess
from unspool.cli.stack_frames import ThreadLines, symbolize_threads
from unspool.unwind import How, StackEnd

CRASH = ["innermost", "compare", "handle", "die"]
SYSROOT = "/usr/aarch64-linux-gnu"
ALL_PAGES = "0x37"  # coredump_filter (core(5)): private file-backed mappings too

Stacks = dict[int, tuple[tuple[int, ...], StackEnd]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def core_by_gdb(pid: int, folder: Path) -> Path:
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    path = folder / "gdb.core"
    command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(pid)]
    subprocess.run([*command, "-ex", f"gcore {path}"], check=True, capture_output=True)
    return path


def core_by_kernel(pid: int, folder: Path) -> Path:
    """The process ends by SIGABRT; it must have been started in the folder."""
    resource.prlimit(pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.kill(pid, signal.SIGABRT)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    (path,) = folder.glob("core*")
    return path


# A core_pattern that names a pipe or another folder belongs to the machine, not to a test.
KERNEL_WRITES_HERE = not {"|", "/"} & set(Path("/proc/sys/kernel/core_pattern").read_text())
MAKERS = [core_by_gdb, *([core_by_kernel] if KERNEL_WRITES_HERE else [])]
Maker = Callable[[int, Path], Path]


def stacks_of(process: LiveProcess | CoreDump) -> Stacks:
    stacks = {thread.tid: stack for thread, stack in process.stacks()}
    assert all(stack is not None for stack in stacks.values())
    return {tid: (stack.addresses, stack.end) for tid, stack in stacks.items() if stack is not None}


def threads_of_core(core: CoreDump) -> list[ThreadLines]:
    return symbolize_threads(core.stacks(), SYMBOLIZER, None, None)


def wanted_in(wanted: list[str], names: list[str | None]) -> bool:
    rest = iter(names)
    return all(any(name == want for name in rest) for want in wanted)


@pytest.fixture(autouse=True)
def core_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Core files are written into tmp_path, and do not stay there."""
    monkeypatch.chdir(tmp_path)
    yield
    for path in tmp_path.glob("*core*"):
        path.unlink()


@pytest.mark.parametrize(
    ("maker", "arguments"),
    [
        (core_by_gdb, ("blocked.c",)),
        (core_by_gdb, ("jit_page.c",)),
        (MAKERS[-1], ("blocked.c",)),
        (MAKERS[-1], ("alternate_stack.c",)),
        (MAKERS[-1], ("alternate_stack.c", "null")),
        (MAKERS[-1], ("deep.c",)),
        (MAKERS[-1], ("exception.cpp",)),
        (MAKERS[-1], ("jit_page.c",)),
        (MAKERS[-1], ("arena_stack.c",)),
    ],
)
def test_a_core_has_the_stacks_of_the_process(
    maker: Maker, arguments: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    """Every thread: the same frames, the same end; and nothing is missing."""
    with started(build(folder, arguments[0]), *arguments[1:]) as target:
        live = stacks_of(LiveProcess(target.pid))
        path = maker(target.pid, tmp_path)
    with CoreDump.open(path) as core:
        assert stacks_of(core) == live
        assert (core.pid, core.missing, core.problems) == (target.pid, {}, [])
        assert core.command.startswith(f"{folder}/{arguments[0].split('.')[0]}")


@pytest.mark.parametrize("maker", MAKERS)
def test_without_the_program_the_pages_in_the_core_serve(maker: Maker, folder: Path, tmp_path: Path) -> None:
    """The program is gone, but its headers, its unwind information and its code are in the core."""
    program = Path(shutil.copy(build(folder, "blocked.c"), tmp_path / "gone"))
    with Binary.open(program) as binary:
        build_id = binary.build_id
    assert build_id is not None
    with started(program) as target:
        live = stacks_of(LiveProcess(target.pid))
        Path(f"/proc/{target.pid}/coredump_filter").write_text(ALL_PAGES)
        path = maker(target.pid, tmp_path)
    program.unlink()
    with CoreDump.open(path) as core:
        assert stacks_of(core) == live
        assert list(core.missing) == [str(program)]
        assert f"debuginfod-find executable {build_id.hex()}" in core.missing[str(program)]


@pytest.mark.parametrize("maker", MAKERS)
def test_the_right_program_is_told_from_another_one(maker: Maker, folder: Path, tmp_path: Path) -> None:
    """At its path lies another program; the right one is named, or lies in a sysroot, by path or by name."""
    right = build(folder, "blocked.c")
    program = Path(shutil.copy(right, tmp_path / "blocked"))
    with started(program) as target:
        live = stacks_of(LiveProcess(target.pid))
        path = maker(target.pid, tmp_path)
    shutil.copy(build(folder, "deep.c"), program)
    with CoreDump.open(path) as core:
        waiting = dict(stacks_of(core))[target.pid]
        assert waiting[1] is StackEnd.NO_UNWIND_INFO and waiting[0] == live[target.pid][0][: len(waiting[0])]
        assert "build id" in core.missing[str(program)]
    with CoreDump.open(path, program) as core:
        core.load_modules()
        assert "not the program of this core" in core.missing[str(program)]
    by_path = tmp_path / "root" / tmp_path.relative_to("/")
    by_path.mkdir(parents=True)
    shutil.copy(right, by_path)
    for executable, sysroots in ((right, []), (None, [tmp_path / "root"]), (None, [folder])):
        with CoreDump.open(path, executable, sysroots) as core:
            assert stacks_of(core) == live
            assert core.missing == {}


@pytest.mark.parametrize("maker", MAKERS)
def test_compressed_cut_and_damaged(maker: Maker, folder: Path, tmp_path: Path) -> None:
    """zstd makes no difference; a compressed file that ends early is a core that ends early."""
    with started(build(folder, "blocked.c")) as target:
        live = stacks_of(LiveProcess(target.pid))
        path = maker(target.pid, tmp_path)
    compressed = tmp_path / "core.zst"
    data = zstandard.ZstdCompressor(write_checksum=True).compress(path.read_bytes())
    compressed.write_bytes(data)
    with CoreDump.open(compressed) as core:
        assert stacks_of(core) == live
        assert core.problems == []
    compressed.write_bytes(data[: len(data) * 3 // 4])
    with closing(CoreFile(compressed)) as file:
        assert file.problems[0] == "the compressed file is cut short"
        assert file.lost_ranges
    compressed.write_bytes(data[:-8] + bytes(8))
    with pytest.raises(CaptureError, match="damaged zstd data"):
        CoreDump.open(compressed)


def crash_in_gdb(program: Path, folder: Path) -> Path:
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    path = folder / "gdb.core"
    command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", program]
    commands = ["handle SIGUSR1 nostop noprint pass", "run", f"gcore {path}"]
    command += [word for line in commands for word in ("-ex", line)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def crash_alone(program: Path, folder: Path) -> Path:
    limited = ["sh", "-c", 'ulimit -c unlimited; exec "$0"', program]
    assert subprocess.run(limited, cwd=folder).returncode == -signal.SIGSEGV
    (path,) = folder.glob("core*")
    return path


@pytest.mark.parametrize("crash", [crash_in_gdb, *([crash_alone] if KERNEL_WRITES_HERE else [])])
def test_what_killed_it(crash: Callable[[Path, Path], Path], folder: Path, tmp_path: Path) -> None:
    """The thread that died comes first, with the signal and the address that it wrote to."""
    path = crash(build(folder, "crash.c"), tmp_path)
    with CoreDump.open(path) as core:
        threads = threads_of_core(core)
    assert len(threads) == 3
    assert core.signal == Signal(signal.SIGSEGV, threads[0].thread.tid, code=1, address=0x1230)
    assert wanted_in(CRASH, functions(threads[0]))
    assert all(thread.stack is not None and thread.stack.complete for thread in threads)
    assert {thread.thread.name for thread in threads} == {"crash", ""}, "only the process has a name"


@pytest.mark.parametrize("linkage", ["static", "dynamic"])
def test_qemu_lists_no_files(linkage: str, tmp_path: Path) -> None:
    """qemu-user's cores of aarch64: the program is named, libraries are found as their loader knows them."""
    for tool in ("aarch64-linux-gnu-gcc", "qemu-aarch64-static"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    program = tmp_path / "crash"
    command = ["aarch64-linux-gnu-gcc", "-O2", "-g", "-pthread", f"-{linkage}", "-o", program]
    subprocess.run([*command, PROGRAMS / "crash.c"], check=True)
    # qemu writes the program's core; the kernel would add one of qemu itself: with no memory in it.
    script = 'ulimit -c unlimited; echo 0 >/proc/self/coredump_filter; exec "$@"'
    qemu = ["qemu-aarch64-static", "-L", SYSROOT, "-s", str(1 << 20), program]
    subprocess.run(["sh", "-c", script, "sh", *qemu], cwd=tmp_path)
    (path,) = tmp_path.glob("qemu_*.core")
    with CoreDump.open(path, program, [SYSROOT]) as core:
        threads = threads_of_core(core)
        assert (core.arch, core.missing) == ("aarch64", {})
        assert str(program) in core.unchecked, "no page of it is in the core"
    assert core.signal == Signal(signal.SIGSEGV, threads[0].thread.tid)
    assert wanted_in(CRASH, functions(threads[0]))
    hows = [frame.how for frame in threads[0].stack or ()]
    assert How.SIGNAL_FRAME in hows
    assert len(threads) == 3
    assert all(thread.stack is not None and thread.stack.complete for thread in threads)
    program.unlink()
    with CoreDump.open(path, None, [SYSROOT]) as core:
        core.load_modules()
        assert list(core.missing) == [str(program)]
