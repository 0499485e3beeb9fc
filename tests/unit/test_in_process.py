"""What unspool makes of what agents write, with an agent that does what the test wants."""

import mmap
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.fake_agent import FakeAgent
from unspool.capture import followed_process, in_process
from unspool.capture.blocklist import without_blocked
from unspool.capture.in_process import CaptureSettings, InProcessCapture
from unspool.capture.memory_map import MemoryMap
from unspool.capture.samples import (
    Flag,
    Happening,
    Lost,
    Problem,
    ProcessEnded,
    ProcessStarted,
    SampleBatch,
    ThreadNamed,
    ThreadTime,
)
from unspool.capture.session_layout import AreaState, LostReason, Refusal
from unspool.core import ffi, library
from unspool.core_session import SAMPLE, RingDamaged, RingSamples
from unspool.unwind import How, StackEnd

PERIOD = 1_000_000_000 // 199
RING_FULL = "unspool did not get the CPU in time to take them; a lower rate (-r) helps"
LATE = 10**12  # ns: more CPU time than this process has used
HOW = [How.INTERRUPTED, How.CFI]


@pytest.fixture
def capture() -> Iterator[InProcessCapture]:
    """The signals that new threads are sent are for a real agent."""
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
    with closing(InProcessCapture(CaptureSettings())) as capture:
        yield capture


class Session:
    """Runs the capture of this process until the test is done."""

    def __init__(self, capture: InProcessCapture) -> None:
        self.capture = capture
        self.agent = FakeAgent(capture.path)
        self.happenings: list[Happening] = []
        capture.watch(os.getpid())
        self._steps = capture.happenings()
        self._seen = threading.Event()

    def until(self, done: Callable[[], bool]) -> None:
        """Go on until this is so."""
        for happening in self._steps:
            self.happenings.append(happening)
            if done():
                return
        assert done()

    def published(self) -> None:
        """Until the agent has a list of modules."""
        while not self.agent.epoch:
            self.step()

    def step(self) -> None:
        """One look at everything."""
        for process in self.capture._followed.values():
            process.hurry()
        self.happenings += self.capture._look(None)

    def finish(self) -> list[Happening]:
        self.capture.stop()
        self.happenings += self._steps
        return self.happenings

    def samples(self) -> list[SampleBatch]:
        return [happening for happening in self.happenings if isinstance(happening, SampleBatch)]


def code() -> int:
    """An address in libunspool.so."""
    return int(ffi.cast("uintptr_t", ffi.addressof(library, "unspool_walk")))


def test_samples_with_their_binaries_and_weights(capture: InProcessCapture) -> None:
    session = Session(capture)
    session.published()
    session.agent.sample([code(), code() + 1], HOW, LATE)
    session.agent.sample([code()], HOW[:1], LATE + PERIOD)
    happenings = session.finish()
    (batch,) = session.samples()
    assert isinstance(happenings[0], ProcessStarted) and happenings[0].pid == os.getpid()
    assert isinstance(happenings[-1], ProcessEnded)
    assert batch.tids.tolist() == [threading.get_native_id()] * 2
    assert batch.weights[1] == PERIOD
    files, relative = batch.code_map.resolve(batch.addresses, batch.is_return)
    assert {batch.code_map.files[n].path.rpartition("/")[2] for n in files} == {"libunspool.so"}
    assert relative[1] == relative[0] + 1
    assert batch.complete.all()


def test_modules_have_tables(capture: InProcessCapture) -> None:
    session = Session(capture)
    session.published()
    modules = session.agent.modules()
    (own,) = [m for m in modules if m["start"] <= code() < m["end"]]
    while not own["table"]:  # it may be compiled first
        session.step()
        (own,) = [m for m in session.agent.modules() if m["start"] <= code() < m["end"]]
    assert own["table"] >= 1 << 32
    assert (modules["start"][1:] >= modules["end"][:-1]).all()


def test_threads_have_names(capture: InProcessCapture) -> None:
    session = Session(capture)
    session.step()
    names = [h.name for h in session.happenings if isinstance(h, ThreadNamed)]
    assert names


def test_a_sample_of_code_that_is_mapped_no_more_is_stale(capture: InProcessCapture) -> None:
    """Its epoch is that of a list that has changed since."""
    session = Session(capture)
    session.published()
    (process,) = capture._followed.values()
    start = code() & ~0xFFF
    process._history.version += 1
    process._history._changes[process._history.version] = [(start, start + 0x1000)]
    session.agent.sample([code()], HOW[:1], LATE)
    session.agent.sample([0x1000], HOW[:1], LATE + PERIOD)
    session.finish()
    (batch,) = session.samples()
    assert batch.flags.tolist() == [Flag.STALE_MODULES, 0]
    assert batch.complete.tolist() == [False, True]


@pytest.mark.parametrize(("unloads", "complete"), [(0, True), (1, False)])
def test_what_may_have_changed_but_has_not(capture: InProcessCapture, unloads: int, complete: bool) -> None:
    """The agent says that the modules may have changed: libraries were loaded. The map says what has changed,
    unless code was taken away meanwhile."""
    session = Session(capture)
    session.published()
    session.agent.sample([code()], HOW[:1], LATE, flags=Flag.STALE_MODULES)
    session.agent.fields["unloads"] += unloads
    session.step()
    session.finish()
    (batch,) = session.samples()
    assert batch.flags.tolist() == [0 if complete else Flag.STALE_MODULES]
    assert batch.complete.tolist() == [complete]


def test_a_stack_that_ended_at_unknown_code_is_stale_if_code_has_come(capture: InProcessCapture) -> None:
    """Its end may be where the new code is; one that reached its root is not touched by that."""
    session = Session(capture)
    session.published()
    (process,) = capture._followed.values()
    for end in (StackEnd.ROOT, StackEnd.BAD_RETURN_ADDRESS):
        session.agent.sample([code()], HOW[:1], LATE + end * PERIOD, end=end)
    process._history.version += 1
    process._history._changes[process._history.version] = [(0x1000, 0x2000)]
    session.finish()
    (batch,) = session.samples()
    assert dict(zip(batch.ends.tolist(), batch.flags.tolist(), strict=True)) == {
        StackEnd.BAD_RETURN_ADDRESS: Flag.STALE_MODULES,
        StackEnd.ROOT: 0,
    }


def test_a_return_address_in_new_code_has_the_map_read_once(capture: InProcessCapture) -> None:
    """For each list of modules: it may also be no code at all."""
    session = Session(capture)
    session.published()
    (process,) = capture._followed.values()
    epoch = session.agent.epoch
    for expected in (True, False):
        session.agent.sample([code()], HOW[:1], LATE, end=StackEnd.BAD_RETURN_ADDRESS, epoch=epoch)
        process._drain()
        assert process._met_unknown == expected
        session.step()


def test_a_stack_that_is_in_no_map_has_it_read_no_oftener_than_it_may_cost(capture: InProcessCapture) -> None:
    session = Session(capture)
    session.published()
    (process,) = capture._followed.values()
    process._next_map = process._next_forced_map = time.monotonic() + 10  # after a reading of half a second
    session.agent.sample([code()], HOW[:1], LATE)  # sp is 0
    process._drain()
    assert process._next_map >= process._next_forced_map


def test_tables_that_a_program_says_are_mapped_beyond_all_addresses(capture: InProcessCapture) -> None:
    session = Session(capture)
    session.agent.fields["zone_address"] = (1 << 64) - 1
    session.published()
    assert len(session.agent.modules())


def test_lost_samples_are_told_once(capture: InProcessCapture) -> None:
    session = Session(capture)
    session.published()
    session.agent.fields["lost"][0] = 3
    session.step()
    session.agent.fields["lost"][0] = 5
    session.finish()
    lost = [h for h in session.happenings if isinstance(h, Lost)]
    assert [(h.reason, h.count) for h in lost] == [(RING_FULL, 3), (RING_FULL, 2)]


def test_lost_samples_of_programs_that_lie_can_be_added_up(capture: InProcessCapture) -> None:
    session = Session(capture)
    session.published()
    session.agent.fields["lost"][:] = (1 << 64) - 1
    counts = [h.count for h in session.finish() if isinstance(h, Lost)]
    assert len(counts) == len(LostReason) and sum(counts) * 10**6 < 1 << 63


def test_notes_become_problems(capture: InProcessCapture) -> None:
    session = Session(capture)
    session.published()
    session.agent.fields["notes"] = 1
    session.finish()
    assert any("SIGPROF itself" in h.text for h in session.happenings if isinstance(h, Problem))


@pytest.mark.parametrize("where", [0, 4])
def test_a_damaged_ring_ends_the_samples_of_its_process_only(capture: InProcessCapture, where: int) -> None:
    from unspool.capture.session_layout import AREA_SIZE

    session = Session(capture)
    session.published()
    session.agent.sample([code()], HOW[:1], LATE)
    session.agent.memory[AREA_SIZE + where] ^= 0xFF
    session.finish()
    assert session.samples() == []
    assert isinstance(session.happenings[-1], Problem)


def test_a_ring_that_is_filled_again_and_again_is_left_for_a_while(
    capture: InProcessCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(capture)
    session.published()
    reads = 0

    def read(area: object) -> tuple[RingSamples, bool]:
        nonlocal reads
        reads += 1
        if reads > 1000:
            raise RingDamaged
        return RingSamples(*(np.zeros(0, kind) for kind in (SAMPLE, "u8", "u8", "u1")), copies={}), True

    monkeypatch.setattr(capture._memory.reader, "read", read)
    session.step()
    assert 0 < reads < 1000


@pytest.mark.parametrize("reason", [r for r in Refusal if r not in (Refusal.STOPPING, Refusal.RUNNING)])
def test_refusals_are_told(capture: InProcessCapture, reason: Refusal) -> None:
    session = Session(capture)
    session.agent.header["refusals"][0] = (77, reason)
    session.agent.header["refusal_count"] = 1
    session.finish()
    problems = [h for h in session.happenings if isinstance(h, Problem) and h.pid == 77]
    assert len(problems) == 1 and "process 77 is not recorded: " in problems[0].text
    assert ("ulimit -v" in problems[0].text) == (reason is Refusal.ADDRESS_SPACE)


def test_refusals_for_one_reason_are_counted(capture: InProcessCapture) -> None:
    session = Session(capture)
    refusals = [(70, Refusal.STATIC), (71, Refusal.MACHINE), (72, Refusal.STATIC), (73, Refusal.STATIC)]
    session.agent.header["refusals"][: len(refusals)] = refusals
    session.agent.header["refusal_count"] = len(refusals)
    texts = [h.text for h in session.finish() if isinstance(h, Problem) and "not recorded" in h.text]
    starts = ["process 70 is", "process 71 is", "2 other processes are"]
    assert [text.split(" not recorded")[0] for text in texts] == starts
    assert "statically linked" in texts[2]


def test_every_refusal_of_agents_is_known() -> None:
    header = Path(__file__).parents[2] / "core/src/agent/session.h"
    numbers = re.findall(r"SESSION_REFUSED_\w+\s*=\s*(\d+)", header.read_text())
    assert [int(number) for number in numbers] == list(Refusal)


def test_blocked_files_lose_their_samples(capture: InProcessCapture) -> None:
    session = Session(capture)
    session.published()
    session.agent.sample([code()], HOW[:1], LATE)
    session.agent.sample([0x1000, code()], HOW, LATE + PERIOD)
    kept = list(without_blocked(session.finish(), re.compile("libunspool")))
    (batch,) = [h for h in kept if isinstance(h, SampleBatch)]
    assert batch.addresses.tolist() == [0x1000, code()]
    assert [h.count for h in kept if isinstance(h, Lost)] == [1]


def test_an_area_of_a_process_that_is_gone_is_given_back(capture: InProcessCapture) -> None:
    agent = FakeAgent(capture.path, 3, pid=4_000_000)
    assert list(capture._look(None)) == []
    assert agent.header["claims"][3] == 0
    assert agent.fields["pid"] == 0


def test_an_area_is_given_back_where_its_process_was_killed_before_it_was_filled_in(
    capture: InProcessCapture,
) -> None:
    agents = [FakeAgent(capture.path, 3, pid=4_000_000), FakeAgent(capture.path, 4)]
    for agent in agents:
        agent.state(AreaState.CLAIMED)
    assert list(capture._look(None)) == []
    assert [int(agents[0].header["claims"][n]) for n in (3, 4)] == [0, os.getpid()]


def test_a_process_that_ends_while_it_is_first_looked_at_leaves_no_descriptor(
    capture: InProcessCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_ended(*_: object) -> bool:
        raise ProcessLookupError

    monkeypatch.setattr(followed_process, "_has_mapped", has_ended)
    agent = FakeAgent(capture.path)
    list(capture._look(None))
    assert agent.header["claims"][0] == 0
    files = Path("/proc/self/fd").iterdir()
    assert f"/proc/{os.getpid()}" not in [str(file.readlink()) for file in files if file.is_symlink()]


def test_impossible_start_of_a_process(capture: InProcessCapture) -> None:
    session = Session(capture)
    session.agent.fields["started"] = (1 << 64) - 1
    session.published()
    (started,) = [h for h in session.finish() if isinstance(h, ProcessStarted)]
    assert started.time < 1 << 62


def test_area_of_a_process_that_may_not_be_looked_at_is_not_given_away(
    capture: InProcessCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent in it goes on using its area until the process ends."""

    def refuse(pid: int) -> MemoryMap:
        raise PermissionError(pid)

    monkeypatch.setattr(MemoryMap, "of_process", refuse)
    with subprocess.Popen(["sleep", "60"]) as process:
        agent = FakeAgent(capture.path, pid=process.pid)
        happenings = [happening for _ in range(2) for happening in capture._look(None)]
        assert (int(agent.header["claims"][0]), int(agent.fields["pid"])) == (process.pid, process.pid)
        assert agent.fields["quiet"] == 1
        texts = [happening.text for happening in happenings if isinstance(happening, Problem)]
        assert len(texts) == 1 and f"process {process.pid} is not recorded" in texts[0]
        process.kill()
    list(capture._look(None))
    assert (int(agent.header["claims"][0]), int(agent.fields["pid"])) == (0, 0)


def test_processes_that_have_ended_cost_little(
    capture: InProcessCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are found at a look, /proc is looked through once for those in other pid namespaces."""
    looks = []
    monkeypatch.setattr(in_process, "_by_inner_number", lambda: looks.append(1) or {})
    ended = subprocess.Popen(["true"])
    ended.wait()
    for number in range(3):
        FakeAgent(capture.path, number, ended.pid)
    list(capture._look(None))
    assert len(looks) == 1
    assert capture._memory.claimed().size == 0


def test_no_time_is_told_twice_after_exec(capture: InProcessCapture) -> None:
    """It may be seen that a process runs another program before that has an area."""
    with subprocess.Popen(["true"]) as capture._child:  # else the time before the recording does not count
        session = Session(capture)
        session.published()
        burn(0.1)
        session.agent.fields["area_address"] = 4096
        with mmap.mmap(-1, 4096):  # the map has changed
            session.step()
        FakeAgent(capture.path, 1)
        session.step()
        burn(0.1)
        session.finish()
    told, living = 0, dict[int, int]()
    for happening in session.happenings:
        if isinstance(happening, ThreadTime):
            living[happening.tid] = happening.user + happening.system
        elif isinstance(happening, ProcessEnded):
            told, living = told + sum(living.values()), {}
    assert sum(isinstance(happening, ProcessStarted) for happening in session.happenings) == 2
    assert told == pytest.approx(time.process_time_ns(), rel=0.02)


def burn(seconds: float) -> None:
    """CPU time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
