"""Samples that are walked once more, from the copy of their stack that a fake agent sends with them."""

from __future__ import annotations

import os
import platform
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing

import numpy as np
import pytest

from tests.unit.test_in_process import LATE, PERIOD, Session, code
from unspool.capture import late_walk
from unspool.capture.in_process import CaptureSettings, InProcessCapture
from unspool.capture.mapped_code import CodeRange, KnownFile
from unspool.capture.samples import Flag, SampleBatch
from unspool.core_interface import FP_NUMBER, GUESS, LR_NUMBER, PC_NUMBER, SP_NUMBER
from unspool.core_session import COPY
from unspool.unwind import How, StackEnd
from unspool.unwind.table import RowFlag, UnwindTable

ARCH = platform.machine()
SP = 0x7FFF_1230_0000
CUT = {"end": StackEnd.NO_UNWIND_INFO, "flags": Flag.NO_TABLE_YET}


@pytest.fixture
def session() -> Iterator[Session]:
    """With all tables. The signals that new threads are sent are for a real agent."""
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
    with closing(InProcessCapture(CaptureSettings())) as capture:
        session = Session(capture)
        session.published()
        while any(r.known is not None and r.known.pending is not None for r in ranges(session)):
            session.step()
        yield session


def ranges(session: Session) -> list[CodeRange]:
    (process,) = session.capture._followed.values()
    return process._history.current.ranges


def own_file(session: Session) -> KnownFile:
    """libunspool.so."""
    (found,) = [r.known for r in ranges(session) if r.start <= code() < r.end]
    assert found is not None
    return found


def root(session: Session) -> int:
    """A return address in code that nobody called."""
    for r in ranges(session):
        if r.known is not None and r.known.unwind is not None and r.known.unwind.core_table is not None:
            rows = r.known.unwind.core_table.rows()
            at_end = rows[(rows["flags"] & RowFlag.END != 0) & (rows["end"] - rows["start"] > 2)]
            if len(at_end):
                return r.image_base + int(at_end["start"][0]) + 2
    raise AssertionError("no file has a first function")


def copy(caller: int, pc: int | None = None, stack: bytes | None = None, address: int = SP) -> bytes:
    """Of a thread at the first instruction of a function that `caller` called."""
    data = caller.to_bytes(8, "little") * 2 if stack is None else stack
    head = np.zeros(1, COPY)
    head["address"], head["size"] = address, len(data)
    values = {PC_NUMBER[ARCH]: code() if pc is None else pc, SP_NUMBER[ARCH]: SP, FP_NUMBER[ARCH]: 0}
    if ARCH in LR_NUMBER:
        values[LR_NUMBER[ARCH]] = caller
    for number, value in values.items():
        head["values"][0, number] = value
        head["known"][0] |= 1 << number
    return head.tobytes() + data


def only(session: Session) -> SampleBatch:
    (batch,) = session.samples()
    return batch


def room(session: Session) -> int:
    return session.capture._memory.reader.copy_room.left


def test_a_sample_without_its_table_becomes_complete(session: Session) -> None:
    before = room(session)
    caller = root(session)
    session.agent.sample([code()], [0], LATE, **CUT, copy=copy(caller))
    session.agent.sample([code()], [0], LATE + PERIOD, **CUT)  # nothing can be done for this one
    session.finish()
    late = next(batch for batch in session.samples() if batch.complete.all())
    assert late.addresses.tolist() == [code(), caller]
    assert late.how.tolist() == [How.INTERRUPTED, How.CFI]
    assert late.weights.sum() > 0
    (other,) = [batch for batch in session.samples() if batch is not late]
    assert (other.flags.tolist(), len(other.addresses)) == ([Flag.NO_TABLE_YET], 1)
    assert room(session) == before


def test_a_sample_that_ended_in_a_new_library_becomes_complete(session: Session) -> None:
    """Its list of modules lacked the library, which is in the map that was read after it."""
    (process,) = session.capture._followed.values()
    process._history.version += 1
    process._history._changes[process._history.version] = [(code() & ~0xFFF, code() + 0x1000)]
    session.agent.sample([code()], [0], LATE, end=StackEnd.UNMAPPED_PC, copy=copy(root(session)))
    session.finish()
    assert only(session).complete.all()
    assert len(only(session).addresses) == 2


def test_a_sample_that_nothing_is_missing_of_is_not_walked_again(session: Session) -> None:
    end = StackEnd.BAD_RETURN_ADDRESS
    session.agent.sample([code()], [0], LATE, end=end, copy=copy(root(session)))
    session.finish()
    assert (only(session).ends.tolist(), only(session).flags.tolist()) == ([end], [0])


@pytest.mark.parametrize("what", ["unloaded", "replaced"])
def test_code_that_may_have_been_other_code_is_not_walked_through(session: Session, what: str) -> None:
    (process,) = session.capture._followed.values()
    session.agent.sample([code()], [0], LATE, **CUT, copy=copy(root(session)))
    if what == "unloaded":
        session.agent.fields["unloads"] += 1
    else:  # a file's code lay there when the map was read before
        history = process._history
        mine = next(r for r in history.current.ranges if r.start <= code() < r.end)
        history.current.ranges = [
            r._replace(image_base=r.image_base + 0x1000) if r is mine else r for r in history.current.ranges
        ]
    session.step()
    session.finish()
    batch = only(session)
    assert len(batch.addresses) == 1 and batch.flags[0] & Flag.NO_TABLE_YET
    assert batch.cut.all()


def test_samples_wait_for_the_tables_of_the_code_on_their_stacks(session: Session) -> None:
    known = own_file(session)
    table, known.unwind, known.pending = known.unwind, None, Future[UnwindTable]()
    session.agent.sample([code()], [0], LATE, **CUT, copy=copy(root(session)))
    session.step()
    assert session.samples() == []
    assert table is not None
    known.pending.set_result(table)
    session.step()
    assert only(session).complete.all()


def test_samples_do_not_wait_without_end(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_walk, "WAIT_SECONDS", 0.0)
    known = own_file(session)
    known.unwind, known.pending = None, Future[UnwindTable]()
    session.agent.sample([code()], [0], LATE, **CUT, copy=copy(root(session)))
    session.step()
    assert only(session).flags.tolist() == [Flag.NO_TABLE_YET]
    assert only(session).ends.tolist() == [StackEnd.NO_UNWIND_INFO]


def test_whoever_asks_for_all_samples_gets_those_that_wait(session: Session) -> None:
    known = own_file(session)
    table, known.unwind = known.unwind, None
    known.pending = pending = Future[UnwindTable]()
    session.agent.sample([code()], [0], LATE, **CUT, copy=copy(root(session)))
    capture = session.capture
    asking = threading.Thread(target=capture.catch_up)
    asking.start()
    assert table is not None
    threading.Timer(0.3, pending.set_result, [table]).start()
    for happening in capture.happenings():
        session.happenings.append(happening)
        if isinstance(happening, SampleBatch):
            assert asking.is_alive() and pending.done()
            capture.stop()
    asking.join()
    assert only(session).complete.all()


def test_without_room_copies_are_left_out(session: Session) -> None:
    session.capture._memory.reader.copy_room.left = 1000
    session.agent.sample([code()], [0], LATE, **CUT, copy=copy(root(session)))
    session.finish()
    assert only(session).flags.tolist() == [Flag.NO_TABLE_YET]
    assert room(session) == 1000


def test_a_walk_that_ends_no_better_changes_nothing(session: Session) -> None:
    """Cut at once, where the agent has found a caller."""
    session.agent.sample([code(), code() + 64], [How.INTERRUPTED, How.CFI], LATE, **CUT, copy=copy(0x10))
    session.finish()
    batch = only(session)
    assert batch.addresses.tolist() == [code(), code() + 64]
    assert batch.flags.tolist() == [Flag.NO_TABLE_YET]


def test_a_longer_stack_is_taken_though_it_is_cut(session: Session) -> None:
    session.agent.sample([code()], [0], LATE, **CUT, copy=copy(code() + 64))
    session.finish()
    batch = only(session)
    assert batch.addresses.tolist()[:2] == [code(), code() + 64]
    assert batch.cut.all() and batch.flags.tolist() == [0]


def test_without_a_last_look_at_the_map_only_complete_stacks_count(session: Session) -> None:
    """Of a process that has ended: whatever else it had mapped in the end nobody knows."""
    (process,) = session.capture._followed.values()
    session.agent.sample([code()], [0], LATE, **CUT, copy=copy(code() + 64))
    session.agent.sample([code()], [0], LATE + PERIOD, **CUT, copy=copy(root(session)))
    process.has_ended = True
    session.happenings += session.capture._look(None)
    batch = only(session)
    assert batch.flags.tolist() == [Flag.NO_TABLE_YET, 0]
    assert batch.complete.tolist() == [False, True]
    assert np.diff(batch.offsets).tolist() == [1, 2]


def test_any_registers_and_bytes_do_no_harm(session: Session) -> None:
    """What a program writes into its ring is not trusted."""
    chance = random.Random(os.environ.get("PYTEST_SEED", "copies"))
    places = [r.start + chance.randrange(r.end - r.start) for r in ranges(session) for _ in range(3)]
    for number in range(200):
        words = [
            chance.choice([chance.getrandbits(64), SP + 8 * chance.randrange(40), *places]) for _ in range(40)
        ]
        stack = b"".join(word.to_bytes(8, "little") for word in words)[: chance.randrange(320)]
        head = np.zeros(1, COPY)
        head["address"] = chance.choice([SP, SP + 3, 0, (1 << 64) - 400])
        head["size"] = len(stack)
        head["values"] = [[chance.choice([*words, SP]) for _ in range(head["values"].shape[1])]]
        head["known"] = chance.getrandbits(33)
        size = -(-len(stack) // 8) * 8
        record = head.tobytes() + stack.ljust(size, b"\0")
        session.agent.sample([code()], [GUESS], LATE + number * PERIOD, **CUT, copy=record)
    session.finish()
    assert sum(len(batch) for batch in session.samples()) == 200
