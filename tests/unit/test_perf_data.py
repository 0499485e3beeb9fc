"""perf.data: every sample is there, walked with the code that was mapped at its time."""

import io
import struct
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests import perf_writer as perf
from tests.small_library import IMAGE_BASE, Library
from unspool import How, StackEnd
from unspool.capture import CaptureError
from unspool.capture.perf_data import PerfData
from unspool.capture.samples import (
    BinaryKind,
    Flag,
    Happening,
    Lost,
    Problem,
    ProcessEnded,
    ProcessStarted,
    SampleBatch,
    ThreadNamed,
)

STACK = 0x7FFE_0000_1000
PID = 42
FIELDS = perf.IP | perf.TID | perf.TIME | perf.PERIOD | perf.REGS_USER | perf.STACK_USER
EVENT = perf.Attribute(FIELDS, stack_size=128)
WITH_CHAIN = perf.Attribute(FIELDS | perf.CALLCHAIN, stack_size=128)


@pytest.fixture
def given(library: Callable[[str], Library]) -> Library:
    return library("x86_64")


def words_of(given: Library) -> bytes:
    """What is on the stack while inner is interrupted."""
    at = given.at
    values = (0xB, at("middle_return"), 0, 0, 0, at("outer_return"), 0xF0F0, at("root_return"), 0)
    return struct.pack("<9Q", *values)


def frames_of(given: Library) -> list[int]:
    """The stack of inner, interrupted."""
    return [given.at(label) for label in ("inner_body", "middle_return", "outer_return", "root_return")]


def sample(
    given: Library, time: int, pid: int = PID, *, copied: int = 72, chain: Sequence[int] = ()
) -> bytes:
    """inner is interrupted; so many bytes of its stack were copied."""
    body = given.at("inner_body")
    registers = {"pc": body, "rsp": STACK, "rbp": STACK + 0x30}
    return perf.sample(
        *(perf.words(body), perf.ids(pid, pid), perf.words(time), perf.words(1000)),
        perf.chain(*chain) if chain else b"",
        *(perf.registers(registers), perf.stack(words_of(given)[:copied], 128)),
    )


def mapping(
    given: Library, time: int, pid: int = PID, *, path: str | None = None, base: int = IMAGE_BASE
) -> bytes:
    """The library's code is mapped."""
    segment = next(s for s in given.binary.segments if s.executable)
    offset = segment.file_offset // 4096 * 4096
    start = base + segment.address // 4096 * 4096
    build_id = given.binary.build_id if path is None else b"\1" * 20
    return perf.mmap2(pid, start, 0x2000, offset, path or given.binary.path, time, build_id=build_id)


def imported(folder: Path, data: bytes) -> tuple[list[Happening], PerfData]:
    path = folder / "perf.data"
    path.write_bytes(data)
    with closing(PerfData(str(path))) as source:
        return list(source), source


def batches(happenings: Sequence[Happening]) -> list[SampleBatch]:
    return [happening for happening in happenings if isinstance(happening, SampleBatch)]


def stacks(happenings: Sequence[Happening]) -> dict[int, list[int]]:
    """Addresses by time."""
    return {
        int(batch.times[i]): batch.addresses[int(batch.offsets[i]) : int(batch.offsets[i + 1])].tolist()
        for batch in batches(happenings)
        for i in range(len(batch))
    }


def test_a_stack_copy_is_walked(given: Library, tmp_path: Path) -> None:
    """The frames that CFI says, complete; names, weight and unit are perf's."""
    records = [perf.comm(PID, "prog", 1), mapping(given, 2), sample(given, 3), perf.FINISHED_ROUND]
    happenings, source = imported(tmp_path, perf.perf_file([EVENT], records))
    (batch,) = batches(happenings)
    assert batch.addresses.tolist() == frames_of(given)
    assert batch.how.tolist() == [How.INTERRUPTED, How.CFI, How.CFI, How.CFI]
    assert batch.complete.tolist() == [True]
    assert (batch.pid, batch.tids.tolist(), batch.times.tolist()) == (PID, [PID], [3])
    assert batch.weights.tolist() == [1000]
    assert source.events == [("cpu-clock", "nanoseconds")]
    assert ProcessStarted(PID, None, "prog", 1) in happenings
    assert not source.problems


def test_records_are_put_into_the_order_of_time(given: Library, tmp_path: Path) -> None:
    """The sample stands before the mapping in the file, as from another ring, but was taken after it."""
    records = [sample(given, 3), perf.comm(PID, "prog", 1), mapping(given, 2), perf.FINISHED_ROUND]
    happenings, _ = imported(tmp_path, perf.perf_file([EVENT], records))
    assert stacks(happenings) == {3: frames_of(given)}


def test_a_replaced_mapping_still_serves_earlier_samples(given: Library, tmp_path: Path) -> None:
    """Another file is mapped over the library later; only samples after that lose it."""
    other = mapping(given, 5, path="/nowhere/other.so")
    records = [mapping(given, 2), sample(given, 3), other, sample(given, 6), perf.FINISHED_ROUND]
    happenings, source = imported(tmp_path, perf.perf_file([EVENT], records))
    assert stacks(happenings)[3] == frames_of(given)
    (late,) = [batch for batch in batches(happenings) if batch.times.tolist() == [6]]
    assert late.cut.tolist() == [True]
    assert any("/nowhere/other.so is not used" in note for note in source.notes)


def test_exec_begins_another_program(given: Library, tmp_path: Path) -> None:
    """What was mapped before is gone; it is a new process with the same number."""
    records = [
        *(perf.comm(PID, "sh", 1), mapping(given, 2), sample(given, 3)),
        *(perf.comm(PID, "prog", 4, is_exec=True), sample(given, 5), perf.FINISHED_ROUND),
    ]
    happenings, _ = imported(tmp_path, perf.perf_file([EVENT], records))
    assert stacks(happenings)[3] == frames_of(given)
    (late,) = [batch for batch in batches(happenings) if batch.times.tolist() == [5]]
    assert late.ends.tolist() == [StackEnd.UNMAPPED_PC]
    assert [h.command for h in happenings if isinstance(h, ProcessStarted)] == ["sh", "prog"]


def test_a_forked_process_has_its_parents_code(given: Library, tmp_path: Path) -> None:
    """And its name, until it gets another; its end is told."""
    records = [
        *(perf.comm(PID, "sh", 1), mapping(given, 2), perf.fork(50, PID, 3), sample(given, 4, 50)),
        *(perf.exited(50, 5), perf.FINISHED_ROUND),
    ]
    happenings, _ = imported(tmp_path, perf.perf_file([EVENT], records))
    assert stacks(happenings) == {4: frames_of(given)}
    assert ProcessStarted(50, PID, "sh", 3) in happenings
    assert ProcessEnded(50, 5) in happenings


def test_threads_have_names(given: Library, tmp_path: Path) -> None:
    """A new thread has its parent's name until it is renamed."""
    records = [
        *(perf.comm(PID, "prog", 1), perf.fork(PID, PID, 2, tid=43), perf.comm(PID, "worker", 3, tid=43)),
        *(sample(given, 4), perf.FINISHED_ROUND),
    ]
    happenings, _ = imported(tmp_path, perf.perf_file([EVENT], records))
    names = [(h.tid, h.name, h.time) for h in happenings if isinstance(h, ThreadNamed)]
    assert names == [(PID, "prog", 1), (43, "prog", 2), (43, "worker", 3)]


def test_a_file_with_another_build_id_is_not_used(given: Library, tmp_path: Path) -> None:
    """It has changed since the recording: no stack is walked with it."""
    records = [mapping(given, 2, path=given.binary.path), sample(given, 3), perf.FINISHED_ROUND]
    happenings, source = imported(tmp_path, perf.perf_file([EVENT], records))
    (batch,) = batches(happenings)
    assert batch.cut.tolist() == [True]
    assert any("it has changed since the recording (build id)" in note for note in source.notes)
    assert not source.problems  # the recording itself is sound


def test_the_kernels_frames_come_first(given: Library, tmp_path: Path) -> None:
    """Then what they interrupted, as walked."""
    kernel = [0xFFFF_FFFF_8100_0010, 0xFFFF_FFFF_8100_0100]
    records = [mapping(given, 2), sample(given, 3, chain=[perf.KERNEL_MARK, *kernel]), perf.FINISHED_ROUND]
    happenings, _ = imported(tmp_path, perf.perf_file([WITH_CHAIN], records))
    (batch,) = batches(happenings)
    assert batch.addresses.tolist() == kernel + frames_of(given)
    assert batch.how.tolist()[:3] == [How.KERNEL, How.KERNEL, How.INTERRUPTED]
    assert batch.is_return.tolist() == [False, True, False, True, True, True]


def test_the_kernels_chain_goes_on_where_the_copy_ended(given: Library, tmp_path: Path) -> None:
    """It agrees with the walk up to there; what it adds is a guess, and the sample is marked."""
    frames = frames_of(given)
    by_frame_pointer = [perf.USER_MARK, frames[0], frames[2], frames[3]]  # middle and inner have none
    records = [mapping(given, 2), sample(given, 3, copied=48, chain=by_frame_pointer), perf.FINISHED_ROUND]
    happenings, _ = imported(tmp_path, perf.perf_file([WITH_CHAIN], records))
    (batch,) = batches(happenings)
    assert batch.addresses.tolist() == frames
    assert batch.how.tolist()[2:] == [How.CFI, How.FRAME_POINTER | 0x80]
    assert batch.flags.tolist() == [Flag.JOINED]
    assert batch.guessed.tolist() == [True]


def test_a_chain_that_disagrees_is_not_joined(given: Library, tmp_path: Path) -> None:
    """It has a frame that the walk has not seen."""
    frames = frames_of(given)
    other = [perf.USER_MARK, frames[0], given.at("inner_body") + 1, frames[2], frames[3]]
    records = [mapping(given, 2), sample(given, 3, copied=48, chain=other), perf.FINISHED_ROUND]
    happenings, _ = imported(tmp_path, perf.perf_file([WITH_CHAIN], records))
    (batch,) = batches(happenings)
    assert batch.addresses.tolist() == frames[:3]
    assert batch.ends.tolist() == [StackEnd.STACK_BYTES_ENDED]
    assert batch.flags.tolist() == [0]


def test_what_is_no_code_in_a_chain_is_not_joined(given: Library, tmp_path: Path) -> None:
    """rbp held something else than a frame pointer: the kernel finds anything for a return address."""
    frames = frames_of(given)
    other = [perf.USER_MARK, frames[0], frames[2], 0xA81A_664B_BC42_3001, frames[3]]
    records = [mapping(given, 2), sample(given, 3, copied=48, chain=other), perf.FINISHED_ROUND]
    happenings, _ = imported(tmp_path, perf.perf_file([WITH_CHAIN], records))
    (batch,) = batches(happenings)
    assert batch.addresses.tolist() == frames[:3]
    assert batch.ends.tolist() == [StackEnd.STACK_BYTES_ENDED]
    assert batch.flags.tolist() == [0]


def test_frame_pointer_chains_are_guesses(given: Library, tmp_path: Path) -> None:
    """perf record -g: nothing proves the callers; the root is known by its unwind information."""
    event = perf.Attribute(perf.IP | perf.TID | perf.TIME | perf.CALLCHAIN)
    frames = frames_of(given)
    body = (perf.words(frames[0]), perf.ids(PID, PID), perf.words(3), perf.chain(perf.USER_MARK, *frames))
    records = [mapping(given, 2), perf.sample(*body), perf.FINISHED_ROUND]
    happenings, _ = imported(tmp_path, perf.perf_file([event], records))
    (batch,) = batches(happenings)
    assert batch.addresses.tolist() == frames
    assert batch.how.tolist() == [How.INTERRUPTED, *[How.FRAME_POINTER | 0x80] * 3]
    assert batch.guessed.tolist() == [True]


def test_32_bit_programs_are_named_and_counted(given: Library, tmp_path: Path) -> None:
    """Their samples show where they were taken, and no more."""
    body = (perf.words(0x8048000), perf.ids(PID, PID), perf.words(3), perf.words(1000))
    thirty_two = perf.sample(*body, perf.registers({"pc": 0x8048000}, perf.ABI_32), perf.stack(b""))
    records = [perf.comm(PID, "old", 1), thirty_two, perf.FINISHED_ROUND]
    happenings, _ = imported(tmp_path, perf.perf_file([EVENT], records))
    assert stacks(happenings) == {3: [0x8048000]}
    assert any(isinstance(h, Problem) and "old is a 32-bit program: 1 samples" in h.text for h in happenings)


def test_lost_records_are_counted(given: Library, tmp_path: Path) -> None:
    """Whose, how many, when."""
    records = [mapping(given, 2), sample(given, 3), perf.lost(17, PID, 4), perf.FINISHED_ROUND]
    happenings, _ = imported(tmp_path, perf.perf_file([EVENT], records))
    assert [h for h in happenings if isinstance(h, Lost)] == [Lost(PID, PID, "perf's ring was full", 17, 4)]


def test_several_events_keep_names_and_units(given: Library, tmp_path: Path) -> None:
    """Each sample belongs to the event whose id it bears."""
    fields = perf.IDENTIFIER | perf.IP | perf.TID | perf.TIME | perf.PERIOD
    events = [perf.Attribute(fields, (5, 6)), perf.Attribute(fields, (7,), config=2)]
    records = [
        perf.sample(perf.words(number, 0x1000), perf.ids(PID, PID), perf.words(time, 9))
        for time, number in ((1, 6), (2, 7), (3, 5))
    ]
    names = perf.event_feature(events, ["cpu-clock:u", "page-faults:u"])
    features = {perf.ARCH: perf.text_feature("x86_64"), perf.EVENT_DESC: names}
    happenings, source = imported(tmp_path, perf.perf_file(events, [*records, perf.FINISHED_ROUND], features))
    assert source.events == [("cpu-clock:u", "nanoseconds"), ("page-faults:u", "count")]
    found = {int(time): batch.event for batch in batches(happenings) for time in batch.times}
    assert found == {1: 0, 2: 1, 3: 0}


def test_executable_memory_without_a_file_is_jit_code(given: Library, tmp_path: Path) -> None:
    """Its addresses are no file's."""
    body = (perf.words(0x5000), perf.ids(PID, PID), perf.words(3))
    anonymous = perf.mmap2(PID, 0x4000, 0x2000, 0, "//anon", 2)
    event = perf.Attribute(perf.IP | perf.TID | perf.TIME)
    happenings, _ = imported(tmp_path, perf.perf_file([event], [anonymous, perf.sample(*body)]))
    (batch,) = batches(happenings)
    numbers, relative = batch.code_map.resolve(batch.addresses, batch.is_return)
    assert batch.code_map.files[numbers[0]].kind is BinaryKind.JIT
    assert relative.tolist() == [0x5000]


def everything(given: Library) -> list[bytes]:
    """Records of most kinds."""
    kernel = [perf.KERNEL_MARK, 0xFFFF_FFFF_8100_0010, perf.USER_MARK, *frames_of(given)]
    return [
        *(perf.comm(PID, "prog", 1), mapping(given, 2), sample(given, 3, chain=kernel), perf.FINISHED_ROUND),
        *(perf.fork(50, PID, 4), sample(given, 5, 50, copied=40, chain=kernel), perf.exited(50, 6)),
        *(perf.lost(3, PID, 7), sample(given, 8, chain=kernel), perf.FINISHED_ROUND),
    ]


def test_a_stream_is_as_good_as_a_file(
    given: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """perf record -o - | unspool import -"""
    records = everything(given)
    expected, _ = imported(tmp_path, perf.perf_file([WITH_CHAIN], records))
    path = tmp_path / "stream"
    path.write_bytes(perf.perf_stream([WITH_CHAIN], records))
    with path.open("rb") as file:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        with closing(PerfData("-")) as source:
            happenings = list(source)
    assert stacks(happenings) == stacks(expected)
    assert not source.problems


@pytest.mark.parametrize("size", [7, 100, 100_000])
def test_compressed_records(given: Library, tmp_path: Path, size: int) -> None:
    """perf record -z: records go on from one compressed record to the next."""
    records = everything(given)
    expected, _ = imported(tmp_path, perf.perf_file([WITH_CHAIN], records))
    packed = [*perf.compressed(records, size), perf.FINISHED_ROUND]
    happenings, source = imported(tmp_path, perf.perf_file([WITH_CHAIN], packed))
    assert stacks(happenings) == stacks(expected)
    assert not source.problems


def test_a_file_that_perf_did_not_finish(given: Library, tmp_path: Path) -> None:
    """perf was killed: its records count, and it is told."""
    happenings, source = imported(
        tmp_path, perf.perf_file([WITH_CHAIN], everything(given), is_finished=False)
    )
    assert set(stacks(happenings)) == {3, 5, 8}
    assert any("did not finish" in problem for problem in source.problems)


def test_a_file_that_is_cut_short_anywhere(given: Library, tmp_path: Path) -> None:
    """All samples before the cut are there, and the rest is told; or there is nothing, and the reason."""
    whole = perf.perf_file([WITH_CHAIN], everything(given))
    expected = stacks(imported(tmp_path, whole)[0])
    counts = []
    for size in range(len(whole)):
        try:
            happenings, source = imported(tmp_path, whole[:size])
        except CaptureError:
            assert size < 400  # no header, no event
            continue
        assert source.problems, size
        found = stacks(happenings)
        assert found.items() <= expected.items(), size
        counts.append(len(found))
    assert counts == sorted(counts)
    assert counts[-1] == len(expected)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty"),
        (b"\x7fELF" + bytes(200), "is no perf.data file"),
        (b"2ELIFREP" + bytes(200), "big-endian"),
        (
            perf.perf_file([EVENT], [perf.FINISHED_ROUND], {perf.ARCH: perf.text_feature("s390x")}),
            "was recorded on s390x",
        ),
    ],
)
def test_what_is_no_perf_data(tmp_path: Path, data: bytes, what: str) -> None:
    """It is said, with what to do."""
    with pytest.raises(CaptureError, match=what):
        imported(tmp_path, data)
