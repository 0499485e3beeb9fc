"""`unspool doctor`: what works here, what does not, and the exit status that says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.targets import build, started


def doctor(*arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, "-m", "unspool", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_it_tries_what_it_says() -> None:
    """A process is really looked at; the last line sums up, and so does the exit status."""
    result = doctor()
    assert result.returncode == 0, result
    assert "was looked at: 1 of 1 threads have a stack" in result.stdout
    assert result.stdout.endswith("\nunspool stack works here\n")
    assert result.stderr == ""


def test_of_a_process_it_names_what_each_file_lacks(tmp_path: Path) -> None:
    with started(build(tmp_path, "deep.c")) as target:
        result = doctor("stack", str(target.pid))
    assert result.returncode == 0, result
    assert f"ok  {tmp_path}/deep: debug information from {tmp_path}/deep" in result.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give up its rights")
def test_it_fails_where_the_mode_does_not_work(tmp_path: Path) -> None:
    prefix = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
    with started(build(tmp_path, "deep.c")) as target:
        result = doctor("stack", str(target.pid), prefix=prefix)
    assert result.returncode == 1
    assert "this root has no CAP_SYS_PTRACE" in result.stdout
    assert "--cap-add=SYS_PTRACE" in result.stdout
    assert result.stdout.endswith(f"\nunspool stack {target.pid} does not work here\n")


def test_a_process_alone_is_looked_at_in_both_modes(tmp_path: Path) -> None:
    with started(build(tmp_path, "deep.c")) as target:
        result = doctor(str(target.pid))
    assert result.returncode == 0, result
    stack, perf = result.stdout.split(f"\nunspool stack {target.pid} works here\n")
    assert f"process {target.pid} was looked at: 1 of 1 threads" in stack
    assert f"process {target.pid} can be watched" in perf
    assert perf.endswith(f"\nunspool record -p {target.pid} works here\n")


def test_what_stops_both_modes_is_said(tmp_path: Path) -> None:
    result = doctor("4000000")
    assert result.returncode == 1, result
    assert (
        result.stdout.count("  no  there is no process 4000000\n      see `ps -e` for those that are\n") == 2
    )
    assert result.stdout.endswith("\nunspool record -p 4000000 does not work here\n")


def test_an_unknown_mode_is_a_usage_error() -> None:
    assert doctor("nothing").returncode == 2
