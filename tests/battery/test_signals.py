"""Signals stay the program's: its handlers, masks, stacks, timers and calls."""

import sys
from pathlib import Path

import pytest

from tests.battery.harness import PROGRAMS, RATES, build, compare, run


@pytest.mark.parametrize("how", ["libc", "syscall"])
def test_own_handler_for_sigprof_and_own_timers(folder: Path, how: str) -> None:
    """The program's handler gets every signal of the program's timers and none of ours."""
    compare([build(folder, "own_sigprof.c"), how], samples=2)


def test_handler_installed_behind_our_back(folder: Path) -> None:
    """By a raw system call: it is the program's from then on; few strays come until that is noticed."""
    _, fast = compare([build(folder, "own_sigprof.c"), "raw"])
    assert "has replaced unspool's signal handler" in fast.errors, fast


def test_every_action_for_sigprof(folder: Path) -> None:
    compare([build(folder, "sigprof_actions.c")], samples=10)


def test_all_signals_blocked_in_some_threads(folder: Path) -> None:
    compare([build(folder, "blocked_signals.c")], samples=2)


def test_signal_stacks_of_4_kilobytes(folder: Path) -> None:
    compare([build(folder, "small_signal_stacks.c")], samples=5)


@pytest.mark.parametrize("call", ["read", "epoll_wait", "poll", "nanosleep", "futex", "connect"])
def test_no_call_is_interrupted(folder: Path, call: str) -> None:
    compare([build(folder, "interrupted_calls.c"), call])


@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("rate", [0, *RATES])
def test_own_handler_in_a_program_that_profiles_itself(when: str, rate: int) -> None:
    """Installed before the profile, it gets the program's signals and none of ours; installed meanwhile, it
    stays. Afterwards it is there."""
    outcome = run([sys.executable, PROGRAMS / "own_profile.py", when, str(rate)], None)
    assert (outcome.status, outcome.output) == (0, b"ok\n"), outcome
