"""What agents send with samples that lack a table: the registers, and the stack as far as it can be read."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from tests.agent_session import AgentSample, AgentSession, Watched
from tests.integration.targets import build
from unspool import Binary, How, Stack, StackBytes, Unwinder
from unspool.capture.session_layout import AreaState, LostReason
from unspool.core import RegisterValues
from unspool.core_interface import PC_NUMBER, SP_NUMBER
from unspool.core_session import COPY
from unspool.unwind.registers import from_core

ARCH = platform.machine()
NO_TABLE_YET = 2
RED_ZONE = {"x86_64": 128, "aarch64": 0}[ARCH]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sampled"), "sampled.c")


def sampled_without_table(session: AgentSession, program: Path, *arguments: str) -> Watched:
    """Until there are some samples of the program that lack its own table; it goes on."""
    process = session.start(program, *arguments)
    session.serve(lambda: any(watched.state is AreaState.RUNNING for watched in session.processes))
    (watched,) = session.processes
    session.publish(watched, pending=(program.name,))
    session.serve(lambda: sum(bool(sample.values["flags"]) for sample in watched.samples) > 10)
    assert process.poll() is None
    return watched


def unwinder(watched: Watched) -> Unwinder:
    """With all that the process has mapped."""
    found = Unwinder(ARCH)
    for entry in watched.map.entries:
        if entry.executable and entry.is_file:
            binary = Binary.open(entry.path)
            base = binary.image_base(entry.start, entry.file_offset, entry.end)
            found.add_module(binary, base, start=entry.start, end=entry.end)
    return found


def head(sample: AgentSample) -> np.void:
    assert sample.copy is not None
    first: np.void = np.frombuffer(sample.copy, COPY, 1)[0]
    return first


def walked(sample: AgentSample, with_modules: Unwinder) -> Stack:
    """From nothing but the copy."""
    assert sample.copy is not None
    about = head(sample)
    values = {n: v for n, v in enumerate(about["values"].tolist()) if int(about["known"]) >> n & 1}
    registers = from_core(RegisterValues(values, False), ARCH, How.INTERRUPTED, guessed=False)
    return with_modules.walk(registers, StackBytes(int(about["address"]), sample.copy[COPY.itemsize :]))


@pytest.mark.parametrize("is_told", [True, False])
def test_a_copy_is_what_it_takes_to_walk_the_stack(program: Path, is_told: bool) -> None:
    """Whether the agent knows where the thread's stack is, or not."""
    with AgentSession() as session:
        session.tells_stacks = is_told
        watched = sampled_without_table(session, program, "until")
        with_modules = unwinder(watched)
        stack = next(entry for entry in watched.map.entries if entry.path == "[stack]")
    samples = [sample for sample in watched.samples if sample.values["flags"]]
    for sample in samples:
        about = head(sample)
        assert about["values"][PC_NUMBER[ARCH]] == sample.addresses[0]
        assert about["values"][SP_NUMBER[ARCH]] == sample.values["sp"] == about["address"] + RED_ZONE
        assert about["size"] == min(
            stack.end - int(about["address"]), about["size"] if not is_told else 1 << 60
        )
        assert len(sample.copy or b"") == COPY.itemsize + int(about["size"])
        found = walked(sample, with_modules)
        # In the vDSO, which is none of the files, a walk from the copy ends.
        assert found.complete or with_modules.modules.find(found[len(found) - 1].lookup_address) is None
    assert sum(walked(sample, with_modules).complete for sample in samples) > 5


def test_other_samples_have_no_copy(program: Path) -> None:
    with AgentSession() as session:
        watched = sampled_without_table(session, program, "until")
        session.publish(watched)
        count = len(watched.samples)
        session.serve(lambda: len(watched.samples) > count + 10)
    for sample in watched.samples:
        assert (sample.copy is not None) == bool(sample.values["flags"] & NO_TABLE_YET)
    assert any(sample.copy is None for sample in watched.samples)


@pytest.mark.parametrize("is_told", [True, False])
def test_without_leave_to_read_memory_only_known_stacks_are_copied(program: Path, is_told: bool) -> None:
    with AgentSession() as session:
        session.tells_stacks = is_told
        watched = sampled_without_table(session, program, "until")
        watched.area.set_field("no_reading", 1)
        session.drain(watched)
        count = len(watched.samples) + 1
        session.serve(lambda: len(watched.samples) > count + 5)
    without_table = [sample for sample in watched.samples[count:] if sample.values["flags"]]
    assert without_table
    for sample in without_table:
        about = head(sample)
        assert about["address"] == sample.values["sp"]  # what is below it can't be read
        assert bool(about["size"]) == is_told


def test_copies_leave_a_part_of_the_ring_to_samples(program: Path) -> None:
    """Nobody reads: more samples come, without a copy."""
    ring = 1 << 17
    with AgentSession(rate=250, ring_size=ring) as session:
        watched = sampled_without_table(session, program, "burn", "0.5", "2")
        session.drain(watched)
        before = len(watched.samples)
        assert session._programs[0].wait(180) == 0
        session.drain(watched)
    new = watched.samples[before:]
    with_copy = [sample.copy for sample in new if sample.copy is not None]
    assert 0 < len(with_copy) < len(new) - 10
    assert all(sample.copy is None for sample in new[len(with_copy) :])
    assert sum(map(len, with_copy)) < ring * 3 // 4
    assert watched.lost(LostReason.RING_FULL) == 0
