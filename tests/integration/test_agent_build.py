"""libunspool_agent.so as each compiler makes it: it needs nothing of the programs that it is loaded into."""

from __future__ import annotations

import platform
import re
import shutil
from itertools import dropwhile
from pathlib import Path

import pytest

from tests.agent_session import AgentSession
from tests.compilers import run
from tests.integration.targets import PROGRAMS, build
from unspool import StackEnd
from unspool.capture import session_layout as layout
from unspool.capture.memory_map import MemoryMap

ROOT = Path(__file__).parents[2]
STACK_SIZE = 32768  # of a workspace
WORKSPACES, WORKSPACE_SIZE = 128, 270336

COMPILERS = {"gcc": platform.machine(), "clang-19": platform.machine(), "aarch64-linux-gnu-gcc": "aarch64"}


@pytest.fixture(scope="module", params=COMPILERS)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The architecture and the library."""
    compiler = request.param
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    folder = tmp_path_factory.mktemp(compiler)
    machine = COMPILERS[compiler]
    options = ["-G", "Ninja", f"-DCMAKE_C_COMPILER={compiler}", "-DUNSPOOL_WARNINGS_AS_ERRORS=ON"]
    options += ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={machine}"]
    run("cmake", "-S", ROOT, "-B", folder, *options)
    run("cmake", "--build", folder, "-j", "2", "--target", "unspool_agent")
    return machine, folder / "core/src/agent/libunspool_agent.so"


def test_it_needs_no_library_and_no_symbol(compiled: tuple[str, Path]) -> None:
    """No DT_NEEDED; what is undefined is weak; no thread-local data, no text relocation."""
    _, library = compiled
    dynamic = run("readelf", "-dW", library)
    assert "(NEEDED)" not in dynamic and "TEXTREL" not in dynamic
    symbols = run("readelf", "--dyn-syms", "-W", library)
    undefined = [line.split() for line in symbols.splitlines() if " UND " in line][1:]
    assert undefined
    assert {fields[4] for fields in undefined} == {"WEAK"}
    assert " TLS " not in symbols
    segments = run("readelf", "-lW", library)
    assert not re.search(r"^ *TLS ", segments, re.M)
    assert re.search(r"GNU_STACK.* RW +0x", segments)


def test_it_exports_hooks_and_nothing_of_the_core(compiled: tuple[str, Path]) -> None:
    """A program may have libunspool.so, too; and no symbol versions are asked for."""
    _, library = compiled
    symbols = run("readelf", "--dyn-syms", "-W", library)
    defined = {fields.split()[7] for fields in symbols.splitlines()[3:] if fields and " UND " not in fields}
    assert {"unspool_agent_start", "unspool_agent_stop"} <= defined
    own = {name for name in defined if name.startswith(("unspool_", "agent_", "mem", "str"))}
    assert own == {"unspool_agent_start", "unspool_agent_stop"}
    assert "VERNEED" not in run("readelf", "-dW", library)


def test_it_works_as_each_compiler_makes_it(compiled: tuple[str, Path], tmp_path: Path) -> None:
    """Samples of a program, and of a child that it forks; aarch64: of a program in an emulator."""
    machine, library = compiled
    if machine == platform.machine():
        program = build(tmp_path, "sampled.c")
        with AgentSession() as session:
            environment = session.environment(LD_PRELOAD=str(library))
            assert session.run(program, "fork", "0.3", env=environment) == (0, "ok\n", "")
    else:
        program = tmp_path / "sampled"
        run("aarch64-linux-gnu-gcc", "-O2", "-pthread", "-o", program, PROGRAMS / "sampled.c")
        session = _emulated(program, library)
    assert session.processes
    for watched in session.processes:
        later = [sample for sample in watched.samples if sample.values["epoch"]]
        if machine != platform.machine():
            # The emulator has no process_vm_readv: stacks can't be read before they are told, PLT stubs,
            # which are known by their code, not at all.
            later = list(dropwhile(lambda sample: sample.end is StackEnd.UNREADABLE_MEMORY, later))
            in_stub = [s for s in later if s.end is StackEnd.NO_UNWIND_INFO and len(s.addresses) == 1]
            assert len(in_stub) <= 3
            later = [s for s in later if s.end is not StackEnd.NO_UNWIND_INFO or len(s.addresses) > 1]
        assert len(later) > 10
        assert [sample for sample in later if not sample.complete] == []


def _emulated(program: Path, library: Path) -> AgentSession:
    """After its end. The kernel does not know where an emulated program has code; it prints that itself."""
    if shutil.which("qemu-aarch64-static") is None:
        pytest.skip("qemu-aarch64-static is not installed")
    maps: dict[int, MemoryMap] = {}
    with AgentSession(arch="aarch64", maps=maps) as session:
        variables = {"LD_PRELOAD": library, "UNSPOOL_SESSION": session.memory.path, "PRINT_MAPS": "1"}
        options = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
        command = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", *options, program, "burn", "0.6"]
        process = session.start(*command, env=None)
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "end\n")
        maps[process.pid] = MemoryMap.parse("".join(lines).encode())
        session.look()
        assert not session.processes or session.processes[0].pid == process.pid
        for watched in session.processes:
            session.publish(watched)
        assert session.finish(process) == ("ok\n", "")
    return session


def test_it_is_loaded_into_programs_of_another_libc(tmp_path: Path) -> None:
    """musl: samples come, and the program's own handler is called."""
    program = tmp_path / "sampled"
    run("musl-gcc", "-O2", "-g", "-o", program, PROGRAMS / "sampled.c")
    for what in ("burn", "handler", "fork", "small"):
        with AgentSession() as session:
            assert session.run(program, what, "0.3") == (0, "ok\n", "")
        assert session.processes
        assert all(len(watched.samples) > 10 for watched in session.processes)


def stack_used(session: AgentSession) -> int:
    """The most that any handler has used of its own stack, in bytes: the rest is zero still."""
    used = 0
    with Path(session.memory.path).open("rb", buffering=0) as file:
        for watched in session.processes:
            area = layout.AREAS_OFFSET + watched.number * session.memory.area_size
            for number in range(WORKSPACES):
                file.seek(area + layout.AREA_SIZE - (WORKSPACES - number) * WORKSPACE_SIZE)
                used = max(used, len(file.read(STACK_SIZE).lstrip(b"\0")))
    return used


def test_handlers_use_half_of_their_stack_at_most(tmp_path: Path) -> None:
    """Where code has to be followed, and where CFI has to be run."""
    programs = [
        build(tmp_path, "sampled.c", "-g0", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"),
        build(tmp_path, "sampled.c", "-fno-omit-frame-pointer"),
    ]
    most = 0
    for program in programs:
        with AgentSession() as session:
            assert session.run(program, "threads", "0.2", "3") == (0, "ok\n", "")
            most = max(most, stack_used(session))
    assert 2000 < most <= STACK_SIZE // 2
