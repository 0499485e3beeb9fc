"""Processes: children of every kind, other roots and users, other preloaded libraries."""

import os
from pathlib import Path

import pytest

from tests.battery.harness import build, compare, run


@pytest.mark.parametrize(
    ("way", "processes"), [("fork", 20), ("vfork", 10), ("spawn", 10), ("exec", 5), ("daemon", 2)]
)
def test_children(folder: Path, way: str, processes: int) -> None:
    """Each is in the recording under its own id, and found the environment that it was given."""
    _, fast = compare([build(folder, "processes.c"), way], samples=5)
    assert fast.processes >= processes, fast


def test_children_are_not_followed(folder: Path) -> None:
    program = build(folder, "processes.c")
    for way in ("fork", "vfork", "spawn", "exec"):
        outcome = run([program, way], 2000, options=["--no-follow"])
        assert (outcome.status, outcome.output[-3:]) == (0, b"ok\n"), outcome
        assert outcome.processes == 1


def test_fork_while_the_loader_is_locked(folder: Path) -> None:
    compare([build(folder, "fork_in_loader.c")], samples=2)


def test_large_environment_on_the_small_stack_of_vfork(folder: Path) -> None:
    for outcome in compare([build(folder, "vfork_environment.c")], samples=2):
        assert "too large" in outcome.errors, outcome.errors


def test_program_replaces_itself_300_times(folder: Path) -> None:
    compare([build(folder, "exec_chain.c")])


@pytest.mark.parametrize(
    "how", ["unshare", "unshare-pid", "unshare-user", "chroot", "setuid", "chdir", "non-dumpable"]
)
def test_other_world(folder: Path, tmp_path: Path, how: str) -> None:
    compare([build(folder, "other_world.c"), how, tmp_path], samples=2)


@pytest.mark.parametrize("as_child", [[], ["child"]])
def test_environment(folder: Path, as_child: list[str]) -> None:
    """environ, main's third argument, getenv and /proc/self/environ are what they are bare."""
    program = build(folder, "environment.c")
    for setting in ("A=", "LD_PRELOAD=", "LD_PRELOAD=libm.so.6", "LD_LIBRARY_PATH=/nowhere"):
        compare(["env", setting, program, *as_child], samples=0)


def test_environment_without_capabilities(folder: Path) -> None:
    """Without the right to say by itself where the environment ends (CAP_SYS_RESOURCE)."""
    if os.geteuid() != 0:
        pytest.skip("only root has it")
    program = build(folder, "environment.c")
    compare(
        [program], prefix=["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"], samples=0
    )


def test_another_preloaded_library(folder: Path) -> None:
    """It is called as before, once for each call, and does not see us either."""
    other = build(folder, "preloaded.c", "-shared", "-fPIC", "-ldl", name="preloaded.so")
    program = build(folder, "with_preload.c")
    for outcome in compare(["env", f"LD_PRELOAD={other}", program, "parent"], samples=5):
        assert b"hidden 1" in outcome.output
