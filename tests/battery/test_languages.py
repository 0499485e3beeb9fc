"""Programs in other languages, with other libcs and runtimes, each as it is usually built."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.battery.harness import PROGRAMS, build, compare


def need(command: str) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")


def test_sanitized_program(folder: Path) -> None:
    """With AddressSanitizer, whose library must come first; also as a child."""
    program = build(folder, "sanitized.c", "-fsanitize=address", "-O1", name="sanitized")
    for outcome in compare([program], samples=5):
        assert "AddressSanitizer" not in outcome.errors
        assert outcome.processes == 2


def test_musl_program(folder: Path) -> None:
    """Dynamically linked to musl: the agent needs no libc."""
    program = build(folder, "allocation.c", name="allocation-musl", compiler="musl-gcc")
    compare([program], samples=5)
    compare([build(folder, "processes.c", name="processes-musl", compiler="musl-gcc"), "spawn"], samples=5)


def test_static_program(folder: Path) -> None:
    """Nothing can be preloaded into it: it runs, and one line says so."""
    program = build(folder, "allocation.c", "-static", name="allocation-static")
    for outcome in compare([program], samples=0):
        assert "statically linked" in outcome.errors, outcome.errors
    compare(["sh", "-c", '"$0" && sort --version >/dev/null', program], samples=0)


def test_rust_program(folder: Path) -> None:
    need("rustc")
    program = folder / "threads"
    subprocess.run(["rustc", "-O", "-g", "-o", program, PROGRAMS / "threads.rs"], check=True)
    compare([program], samples=5)


def test_go_program_with_c(folder: Path) -> None:
    """Linked dynamically; its runtime has its own handler for SIGPROF."""
    need("go")
    program = folder / "cgo"
    environment = {
        **os.environ,
        "CGO_ENABLED": "1",
        "GOCACHE": str(folder / "go-cache"),
        "GOPATH": str(folder / "go"),
    }
    command = ["go", "build", "-o", program, PROGRAMS / "cgo.go"]
    subprocess.run(command, check=True, env=environment, cwd=folder)
    compare([program])


def test_node() -> None:
    need("node")
    compare(["node", PROGRAMS / "server.js"], samples=5)


def test_jvm(folder: Path) -> None:
    need("javac")
    subprocess.run(["javac", "-d", folder, PROGRAMS / "Work.java"], check=True)
    compare(["java", "-Xmx256m", "-cp", folder, "Work"], samples=5)


def test_python() -> None:
    compare([sys.executable, PROGRAMS / "work.py"], samples=5)


@pytest.mark.parametrize("is_child", [False, True])
def test_privileged_program(folder: Path, tmp_path: Path, is_child: bool) -> None:
    """A set-user-ID program is left alone, started by unspool or by a program that it records."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a program of another user")
    program = tmp_path / "environment"
    shutil.copy(build(folder, "environment.c"), program)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    command = ["sh", "-c", '"$0"; exit $?', program] if is_child else [program]
    for outcome in compare(command, samples=0):
        assert is_child or "rights of its own" in outcome.errors, outcome.errors
