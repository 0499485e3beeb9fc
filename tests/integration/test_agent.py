"""The agent in small programs: samples come, stacks are complete, and the program notices nothing."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.agent_session import AGENT, AgentSession, Watched
from tests.integration.targets import build
from unspool import How, StackEnd
from unspool.capture.session_layout import AreaState, LostReason, Refusal, SlotState, Wish

STALE, NO_TABLE_YET = 1, 2
TIMER, BOOTSTRAP = 1, 3


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sampled"), "sampled.c")


def only(session: AgentSession) -> Watched:
    (watched,) = session.processes
    return watched


def burn_more(process: subprocess.Popen[str], ticks: int = 20) -> None:
    """Until the program has used more CPU time: 0.2 s."""

    def used() -> int:
        return sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))

    end = used() + ticks
    while used() < end:
        time.sleep(0.01)


def assert_all_complete(watched: Watched, at_least: int) -> None:
    ends = Counter((sample.end.name, sample.complete) for sample in watched.samples)
    assert ends == {("ROOT", True): len(watched.samples)}
    assert len(watched.samples) >= at_least
    assert not watched.area.fields["lost"].any()


# ---------------------------------------------------------------- samples


def test_every_stack_of_a_busy_program_is_complete(program: Path) -> None:
    """burn_deep calls itself 40 times: so many frames share its code."""
    with AgentSession() as session:
        assert session.run(program, "burn", "0.5", "40") == (0, "ok\n", "")
    watched = only(session)
    assert_all_complete(watched, 30)
    for sample in watched.samples:
        assert sample.kinds[0] is How.INTERRUPTED
        inside = [frame for frame in sample.addresses if watched.map.find(frame).path == str(program)]  # type: ignore[union-attr]
        if len(inside) >= 42:
            assert max(Counter(inside).values()) >= 39
    assert sum(len(sample.addresses) >= 42 for sample in watched.samples) > len(watched.samples) // 2
    assert {int(sample.values["trigger"]) for sample in watched.samples} == {TIMER}
    assert {int(sample.values["flags"]) for sample in watched.samples} == {0}


def test_times_grow_and_a_signal_is_never_early(program: Path) -> None:
    """The thread's CPU time at each sample lies at or after the time that the timer was set to."""
    with AgentSession() as session:
        session.run(program, "burn", "0.5")
    values = np.array([sample.values for sample in only(session).samples])
    assert (np.diff(values["time"].astype(np.int64)) > 0).all()
    assert (np.diff(values["cpu_time"].astype(np.int64)) > 0).all()
    assert (values["cpu_time"] >= values["due"]).all()
    assert (values["due"] > 0).all()
    assert not values["user_time"].any()


def test_user_and_system_time_come_when_asked_for(program: Path) -> None:
    """Their sum is the CPU time, as far as the kernel tells them in microseconds."""
    with AgentSession(flags=1) as session:
        session.run(program, "burn", "0.3")
    for sample in only(session).samples:
        times = sample.values
        assert abs(int(times["user_time"]) + int(times["system_time"]) - int(times["cpu_time"])) < 1_000_000


def test_threads_are_sampled_each_by_its_own_clock(program: Path) -> None:
    """Six threads that burn the same time get about the same number of samples; the main thread waits."""
    with AgentSession() as session:
        assert session.run(program, "threads", "0.6", "6") == (0, "ok\n", "")
    watched = only(session)
    assert_all_complete(watched, 60)
    counts = Counter(int(sample.values["tid"]) for sample in watched.samples)
    counts.pop(watched.pid, None)
    assert len(counts) == 6
    assert min(counts.values()) * 4 > max(counts.values())
    slots = {int(sample.values["slot"]) for sample in watched.samples}
    assert len(slots - {watched.pid % 4096}) == 6


def test_slots_of_ended_threads_are_given_back(program: Path) -> None:
    """Whichever thread runs the agent's code next deletes the timer of one that is gone."""
    with AgentSession() as session:
        session.start(program, "until")
        session.serve(lambda: any(w.samples for w in session.processes))
        watched = session.processes[0]
        gone = watched.area.core.add_thread(watched.pid + 1, Wish.TIMER, 0)
        assert gone is not None
        session.serve(lambda: watched.area.slots["state"][gone] == SlotState.FAILED)
        watched.area.core.change_thread(gone, Wish.END)
        session.serve(lambda: watched.area.slots["state"][gone] == SlotState.FREE)
        assert watched.area.core.release_slot(gone)
        assert watched.area.slots["tid"][gone] == 0


def test_jumps_out_of_waits_for_signals_leave_no_slot_held(tmp_path: Path) -> None:
    """A signal of ours that sigtimedwait has taken is looked at without being interrupted."""
    program = build(tmp_path, "signal_waits.c")
    with AgentSession() as session:
        assert session.run(program, "40") == (0, "ok\n", "")
    states = only(session).area.slots["state"]
    assert not (states == SlotState.BUSY).any()


def test_a_blocked_signal_is_late_and_says_so(program: Path) -> None:
    """Where the signal was blocked for 0.3 s of CPU time, one sample is that late; the others are not."""
    with AgentSession() as session:
        assert session.run(program, "block", "0.4") == (0, "ok\n", "")
    late = [int(sample.values["cpu_time"]) - int(sample.values["due"]) for sample in only(session).samples]
    assert sum(lateness > 250_000_000 for lateness in late) == 1


def test_a_signal_of_ours_from_outside_is_a_sample(program: Path) -> None:
    """It is told apart from the timer's."""
    with AgentSession(rate=1) as session:
        process = session.start(program, "until")
        session.serve(lambda: bool(session.processes) and only(session).state is AreaState.RUNNING)
        watched = only(session)
        session.send_signal(watched, watched.pid)
        session.serve(lambda: any(sample.values["trigger"] == BOOTSTRAP for sample in watched.samples))
        assert session.finish(process) == ("ok\n", "")
    triggers = [int(sample.values["trigger"]) for sample in watched.samples]
    assert triggers.count(BOOTSTRAP) == 1
    assert watched.area.field("foreign") == 0


# ---------------------------------------------------------------- modules


def test_modules_without_a_table_yet_are_told(program: Path) -> None:
    """And when the table is there the samples have another epoch and are complete."""
    with AgentSession() as session:
        process = session.start(program, "until")
        session.serve(lambda: bool(session.processes) and only(session).state is AreaState.RUNNING)
        watched = only(session)
        session.publish(watched, pending=(program.name,))
        session.serve(lambda: any(sample.values["epoch"] == 2 for sample in watched.samples))
        session.publish(watched)
        session.serve(lambda: any(sample.values["epoch"] == 3 for sample in watched.samples))
        session.finish(process)
    pending = [sample for sample in watched.samples if sample.values["epoch"] == 2]
    assert pending and all(int(sample.values["flags"]) & NO_TABLE_YET for sample in pending)
    later = [sample for sample in watched.samples if sample.values["epoch"] == 3]
    assert later and all(sample.complete and not sample.values["flags"] for sample in later)


def test_samples_are_stale_from_a_change_until_the_maps_were_read_again(program: Path) -> None:
    """The program (here: the test in its place) counts a change up; the next list knows of it."""
    with AgentSession() as session:
        process = session.start(program, "until")
        session.serve(lambda: bool(session.processes) and only(session).state is AreaState.RUNNING)
        watched = only(session)
        watched.area.set_field("changes", watched.area.field("changes") + 1)
        session.serve(lambda: any(sample.values["flags"] for sample in watched.samples))
        session.publish(watched)
        session.serve(lambda: any(sample.values["epoch"] == 2 for sample in watched.samples))
        session.finish(process)
    stale = [sample for sample in watched.samples if sample.values["epoch"] == 1]
    assert int(stale[-1].values["flags"]) == STALE
    later = [sample for sample in watched.samples if sample.values["epoch"] == 2]
    assert later and not any(sample.values["flags"] for sample in later)


def test_lists_change_while_handlers_read_them(program: Path) -> None:
    """Sixty lists in a row, four buffers: every stack is complete, whichever it was walked with."""
    with AgentSession(rate=997) as session:
        process = session.start(program, "threads-until", "0", "4")
        session.serve(lambda: bool(session.processes) and only(session).state is AreaState.RUNNING)
        watched = only(session)
        for _ in range(60):
            count = len(watched.samples)
            session.publish(watched)
            session.serve(lambda: len(watched.samples) > count)  # noqa: B023
        session.finish(process)
    assert {(sample.end, sample.complete) for sample in watched.samples} == {(StackEnd.ROOT, True)}
    assert len({int(sample.values["epoch"]) for sample in watched.samples}) > 3


@pytest.mark.parametrize(("is_told", "end"), [(True, StackEnd.ROOT), (False, StackEnd.UNREADABLE_MEMORY)])
def test_without_leave_to_read_memory_only_known_stacks_are_walked(
    program: Path, is_told: bool, end: StackEnd
) -> None:
    """no_reading: nothing is read by process_vm_readv; what is on the thread's own stack still is."""
    with AgentSession() as session:
        session.tells_stacks = is_told
        process = session.start(program, "until")
        session.serve(lambda: bool(session.processes and only(session).samples))
        watched = only(session)
        watched.area.set_field("no_reading", 1)
        session.drain(watched)
        before = len(watched.samples) + 1
        session.serve(lambda: len(watched.samples) > before + 5)
        session.finish(process)
    assert {sample.end for sample in watched.samples[before:]} == {end}


# ---------------------------------------------------------------- nothing is changed


@pytest.mark.parametrize("what", ["errno", "mask", "handler", "small"])
def test_the_program_finds_everything_as_it_left_it(program: Path, what: str) -> None:
    """errno; the signal mask; its own handler of the signal; the smallest stack for signals."""
    with AgentSession() as session:
        assert session.run(program, what, "0.3") == (0, "ok\n", "")
    assert len(only(session).samples) > 10
    assert bool(only(session).area.field("foreign")) == (what == "handler")


def test_at_most_512_bytes_of_the_programs_stack_are_used(program: Path) -> None:
    """Below what the kernel itself puts there; measured on a painted alternate stack."""
    with AgentSession() as session:
        status, output, _ = session.run(program, "measure", "0.4")
    assert status == 0 and 0 < int(output) <= 512


def test_a_signal_that_is_not_ours_does_what_it_would_have_done(program: Path) -> None:
    """By default SIGPROF ends a program."""
    with AgentSession() as session:
        process = session.start(program, "until")
        session.serve(lambda: bool(session.processes and only(session).samples))
        process.send_signal(signal.SIGPROF)
        session.finish(process)
    assert process.returncode == -signal.SIGPROF


def test_a_full_ring_loses_samples_and_counts_them(program: Path) -> None:
    """Nobody reads: what fits is kept, the rest is counted as lost."""
    with AgentSession(rate=250, ring_size=1 << 17) as session:
        process = session.start(program, "burn", "0.5", "2000")
        session.serve(lambda: bool(session.processes) and only(session).state is AreaState.RUNNING)
        watched = only(session)
        before = len(watched.samples)
        assert process.wait(180) == 0
        session.drain(watched)
    lost = watched.lost(LostReason.RING_FULL)
    assert sum(72 + 9 * len(sample.addresses) for sample in watched.samples[before:]) <= 1 << 17
    assert lost > 20
    assert watched.area.slots["samples"][watched.pid % 4096] == len(watched.samples)


# ---------------------------------------------------------------- processes, beginning and end


def test_a_forked_child_is_sampled_from_the_start(program: Path) -> None:
    """It has its parent's list of modules, so that its first stack is complete."""
    with AgentSession() as session:
        assert session.run(program, "fork", "1.0") == (0, "ok\n", "")
    parent, child = session.processes
    for watched in (parent, child):
        assert_all_complete(watched, 20)
    assert child.area.field("parent_pid") == parent.pid
    assert (parent.area.field("origin"), child.area.field("origin")) == (1, 2)
    assert {int(sample.values["tid"]) for sample in child.samples} == {child.pid}


def test_no_sample_is_taken_after_the_session_has_ended(program: Path) -> None:
    """The timer goes, the program goes on."""
    with AgentSession() as session:
        process = session.start(program, "until")
        session.serve(lambda: bool(session.processes and len(only(session).samples) > 5))
        watched = only(session)
        session.memory.stop()
        timers = Path(f"/proc/{process.pid}/timers")
        session.serve(lambda: watched.state is AreaState.STOPPED)
        session.drain(watched)
        count = len(watched.samples)
        if timers.exists():
            assert timers.read_text() == ""
        burn_more(process)
        assert session.finish(process) == ("ok\n", "")
    assert len(watched.samples) == count


def test_agents_stop_when_the_unspool_process_has_died(program: Path) -> None:
    """Its heartbeat is old and its pid is nobody's."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    with AgentSession() as session:
        session.memory.header["unspool_pid"] = gone.pid
        process = session.start(program, "until")
        session.serve(lambda: bool(session.processes and len(only(session).samples) > 5))
        watched = only(session)
        session.memory.header["heartbeat"] = time.monotonic_ns() - 6 * 10**9
        while watched.state is AreaState.RUNNING:
            assert process.poll() is None
        assert process.communicate(timeout=180) == ("ok\n", "")


def test_a_quiet_agent_takes_no_samples(program: Path) -> None:
    """A seccomp filter was seen: no system call is made any more."""
    with AgentSession() as session:
        process = session.start(program, "until")
        session.serve(lambda: bool(session.processes and len(only(session).samples) > 5))
        watched = only(session)
        watched.area.set_field("quiet", 1)
        burn_more(process, 2)
        session.drain(watched)
        count = len(watched.samples)
        burn_more(process)
        assert session.finish(process) == ("ok\n", "")
    assert len(watched.samples) == count


@pytest.mark.parametrize(
    "field", ["magic", "version", "arch", "file_size", "area_size", "ring_size", "period"]
)
def test_what_is_no_session_is_left_alone(program: Path, field: str) -> None:
    """The program runs as if nothing had been."""
    with AgentSession() as session:
        session.memory.header[field] = 0
        assert session.run(program, "burn", "0.05") == (0, "ok\n", "")
        assert not session.memory.claimed().size


def test_a_path_that_leads_nowhere_does_no_harm(program: Path, tmp_path: Path) -> None:
    """A file that is missing, empty, or a directory."""
    empty = tmp_path / "empty"
    empty.touch()
    with AgentSession() as session:
        for path in (tmp_path / "missing", empty, tmp_path):
            environment = session.environment(UNSPOOL_SESSION=str(path))
            assert session.run(program, "burn", "0.05", env=environment) == (0, "ok\n", "")


def test_a_limited_address_space_is_left_to_the_program(program: Path) -> None:
    """The unspool process is told why."""
    limit = 1 << 30
    with AgentSession() as session:
        process = session.start(
            program,
            "burn",
            "0.05",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY)),
        )
        assert session.finish(process) == ("ok\n", "")
        assert session.memory.new_refusals() == [(process.pid, Refusal.ADDRESS_SPACE)]
        assert not session.processes


def test_without_a_free_area_the_program_runs_unsampled(program: Path) -> None:
    """All areas are others'."""
    with AgentSession() as session:
        session.memory.header["claims"][:] = 1
        process = session.start(program, "burn", "0.05")
        assert process.communicate(timeout=180) == ("ok\n", "")
        assert session.memory.new_refusals() == [(process.pid, Refusal.NO_AREA)]


START_AND_STOP = """
import ctypes, os, signal, sys
agent = ctypes.CDLL(sys.argv[1])
def burn(seconds):
    end = os.times().user + seconds
    while os.times().user < end:
        sum(range(1000))
def mappings():
    return open("/proc/self/maps").read().count("memfd:")
burn(0.02)
files = os.listdir("/proc/self/fd")
for i in range(int(sys.argv[3])):
    assert agent.unspool_agent_start(sys.argv[2].encode()) == 0
    assert agent.unspool_agent_start(sys.argv[2].encode()) == -7
    assert mappings() == 3, mappings()
    burn(0.05)
    agent.unspool_agent_stop()
    agent.unspool_agent_stop()
    assert mappings() == 0, mappings()
    assert os.listdir("/proc/self/fd") == files
    assert signal.getsignal(signal.SIGPROF) == signal.SIG_DFL
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    assert not int(status["SigCgt"], 16) >> signal.SIGPROF - 1 & 1
burn(0.1)
print("ok")
"""


def test_a_running_program_starts_and_stops_it_often() -> None:
    """Nothing stays: no mapping, no descriptor, no handler, no timer."""
    with AgentSession() as session:
        environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        command = [sys.executable, "-c", START_AND_STOP, str(AGENT), session.memory.path, "10"]
        assert session.run(*command, env=environment) == (0, "ok\n", "")
    assert len(session.processes) == 10
    assert all(watched.state is AreaState.STOPPED for watched in session.processes)
    assert sum(len(watched.samples) for watched in session.processes) > 10
