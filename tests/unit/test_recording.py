"""What is recorded comes back: stacks, weights, names, processes and threads, what was lost."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.recordings import (
    CODE_MAP,
    CPU,
    IMAGE_BASE,
    JIT_START,
    KERNEL_START,
    PROGRAM,
    Recording,
    named,
    stack_names,
)
from unspool.capture.samples import (
    BinaryKind,
    CodeNames,
    Flag,
    Lost,
    Problem,
    ProcessEnded,
    ProcessStarted,
    SampleBatch,
    ThreadEnded,
    ThreadNamed,
    ThreadTime,
)
from unspool.core_interface import GUESS
from unspool.profile import Profile, RecordingError, RecordingWriter, process_book, stack_writer
from unspool.profile import recording as recording_module
from unspool.unwind import How, StackEnd


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "made.unspool")


def test_a_sample_comes_back(recording: Recording) -> None:
    """Time, event, thread, weight, end, flags, and each frame with its address and how it was found."""
    recording.sample(
        ["work", ("main", How.CFI_EXACT)],
        weight=5_025_125,
        pid=7,
        tid=8,
        time=1_234,
        flags=Flag.STALE_MODULES,
        end=StackEnd.STACK_BYTES_ENDED,
    )
    profile = recording.finish()
    assert profile.sample_time.tolist() == [1_234]
    assert profile.sample_weight.tolist() == [5_025_125]
    assert profile.sample_end.tolist() == [StackEnd.STACK_BYTES_ENDED]
    assert profile.sample_flags.tolist() == [Flag.STALE_MODULES]
    assert profile.events == [CPU]
    assert [(thread.process, thread.tid) for thread in profile.threads] == [(0, 8)]
    assert [process.pid for process in profile.processes] == [7]
    assert profile.stack_parent.tolist() == [-1, 0]
    assert profile.stack_how.tolist() == [How.CFI_EXACT, How.INTERRUPTED]
    frames = profile.stack_frame
    assert profile.frame_address[frames].tolist() == [0x121, 0x020]  # relative; main's is a return address
    assert profile.frame_is_return[frames].tolist() == [True, False]
    assert profile.binaries == [PROGRAM]
    assert stack_names(profile, 0) == [["work"], ["main"]]
    assert profile.is_finished


def test_functions_files_and_lines(recording: Recording) -> None:
    """A return address is looked up one byte earlier, an inlined function stands before its caller."""
    recording.sample([("inner<middle<outer", How.INTERRUPTED, 0x21), ("main", How.CFI, 0x42)])
    profile = recording.finish()
    assert stack_names(profile, 0) == [["inner", "middle", "outer"], ["main"]]
    innermost = profile.stack_frame[profile.sample_stack[0]]
    entries = slice(profile.line_offsets[innermost], profile.line_offsets[innermost + 1])
    files = [profile.files[file] for file in profile.line_file[entries]]
    assert files == ["/synthetic/inner.c", "/synthetic/middle.c", "/synthetic/outer.c"]
    assert profile.line_number[entries].tolist() == [0x21] * 3
    main = profile.functions.index("main")
    assert profile.line_number[profile.line_function == main].tolist() == [0x42]


def test_the_same_stack_is_stored_once(recording: Recording) -> None:
    """A stack that another one begins with as well; but one that was found otherwise is another one."""
    for _ in range(3):
        recording.sample(["work", "main"])
        recording.sample(["main"])
    recording.sample(["work", ("main", How.CFI | GUESS)])
    profile = recording.finish()
    # main as a caller, work below it, main interrupted, main guessed, work below that
    assert len(profile.tree) == 5
    assert len(profile.frame_address) == 3
    assert profile.sample_stack[:6].tolist() == [1, 2] * 3


def test_signal_frames(recording: Recording) -> None:
    """What a signal interrupted is looked up as it is, and so is the code that returns from the handler."""
    stack = ["handler", ("restorer", How.CFI), ("work", How.SIGNAL_FRAME), "main"]
    # The return address of a handler is the first byte of the code that returns from it.
    recording.sample([stack[0], ("restorer", How.INTERRUPTED, 0), *stack[2:]])
    profile = recording.finish()
    assert stack_names(profile, 0) == [["handler"], ["restorer"], ["work"], ["main"]]
    nodes = profile.stack_frame.tolist()[::-1]
    assert profile.frame_is_return[nodes].tolist() == [False, False, False, True]


def test_what_begins_at_its_return_address(recording: Recording) -> None:
    """Below some outermost functions nobody called: there is no function before the return address."""
    recording.address("padding")
    recording.writer.add(
        SampleBatch(
            *(1, 0, np.array([5], np.uint64), np.array([1]), np.array([1], np.uint64)),
            *(np.zeros(1, np.uint8), np.zeros(1, np.uint8), np.array([0, 2], np.uint64)),
            np.array([recording.address("work"), IMAGE_BASE], np.uint64),
            *(np.array([How.INTERRUPTED, How.CFI], np.uint8), CODE_MAP),
        )
    )
    assert stack_names(recording.finish(), 0) == [["work"], ["[unknown]+0x100000"]]


def test_code_without_a_name_is_an_address(recording: Recording) -> None:
    """Of its binary, or of no binary."""
    recording.sample(["?", "main"])
    recording.sample([""])
    profile = recording.finish()
    assert stack_names(profile, 0) == [["program+0xff0020"], ["main"]]
    assert stack_names(profile, 1) == [["[unknown]+0x10"]]
    unnamed = [
        name for name, known in zip(profile.functions, profile.function_is_named, strict=True) if not known
    ]
    assert unnamed == ["program+0xff0020", "[unknown]+0x10"]


def test_stacks_without_frames(recording: Recording) -> None:
    """Time in the kernel whose caller nobody knows has a name; any sample has a frame."""
    recording.sample([], flags=Flag.KERNEL_CALLER_UNKNOWN, weight=3)
    recording.sample(["work"], weight=5)
    recording.sample([], end=StackEnd.UNMAPPED_PC, weight=7)
    profile = recording.finish()
    expected = {"[kernel, caller unknown]": 3, "work": 5, "[unknown]+0x0": 7}
    assert named(profile, profile.self_weights()) == expected
    assert profile.sample_verdicts[2].tolist() == [True, False, True]


def test_jit_code_is_named_by_who_knows_it(recording: Recording) -> None:
    """Each process has its own; it is asked when the process ends. Names are asked by lookup addresses."""
    for pid in (1, 2):
        recording.add(ProcessStarted(pid, None, "node", 0))
        recording.add(CodeNames(pid, lambda address, pid=pid: f"js{pid}_{address:x}"))  # type: ignore[misc]
        recording.sample(["jit", ("jit", How.FRAME_POINTER | GUESS, 0x40), "main"], pid=pid)
    recording.add(ProcessEnded(1, 1 << 40))
    profile = recording.finish()
    assert stack_names(profile, 0)[:2] == [[f"js1_{JIT_START + 0x20:x}"], [f"js1_{JIT_START + 0x40:x}"]]
    assert stack_names(profile, 1)[0] == [f"js2_{JIT_START + 0x20:x}"]
    kinds = [
        (file.kind, process) for file, process in zip(profile.binaries, profile.binary_process, strict=True)
    ]
    assert kinds.count((BinaryKind.JIT, 0)) == kinds.count((BinaryKind.JIT, 1)) == 1
    js = profile.functions.index(f"js1_{JIT_START + 0x20:x}")
    assert profile.function_binary[js] == -1


def test_the_kernel_is_named_by_who_knows_it(recording: Recording) -> None:
    """Its frames come before the one that it interrupted; only the first is no return address."""
    recording.add(CodeNames(None, lambda address: f"k_{address - KERNEL_START:x}"))
    kernel = [("kernel", How.KERNEL, 0x20), ("kernel", How.KERNEL, 0x30), ("read", How.INTERRUPTED), "main"]
    recording.sample(kernel)  # type: ignore[arg-type]
    profile = recording.finish()
    assert stack_names(profile, 0) == [["k_20"], ["k_30"], ["read"], ["main"]]


def test_a_perf_map_names_jit_code_of_live_processes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes from a file may be of another machine, where the number was another process'."""

    class Map:
        def lookup(self, address: int) -> str:
            return "from the map"

    monkeypatch.setattr(recording_module.PerfMap, "of_process", lambda pid: Map())
    found = []
    for is_live in (True, False):
        recording = Recording(tmp_path / f"{is_live}.unspool", is_live=is_live)
        recording.sample(["jit"])
        profile = recording.finish()
        found.append(stack_names(profile, 0)[0][0])
    assert found == ["from the map", f"[jit]+{JIT_START + 0x20:#x}"]


def test_a_pid_is_used_again(recording: Recording) -> None:
    """Exec, and a new process with an old number: each is a process of its own, with its own threads."""
    recording.add(ProcessStarted(5, None, "shell", 10), ThreadNamed(5, 5, "sh", 10))
    recording.sample(["work"], pid=5, time=20, weight=1)
    recording.add(ProcessStarted(5, None, "exec'd", 30))
    recording.sample(["work"], pid=5, time=40, weight=2)
    recording.sample(["work"], pid=5, tid=6, time=41, weight=4)
    recording.add(ProcessEnded(5, 50, 256))
    recording.sample(["work"], pid=5, time=45, weight=8)  # was still on its way
    recording.add(ProcessStarted(5, 1, "another", 60))
    recording.sample(["work"], pid=5, time=70, weight=16)
    profile = recording.finish()
    processes = [(p.command, p.start_time, p.end_time, p.exit_status) for p in profile.processes]
    assert processes == [("shell", 10, 30, None), ("exec'd", 30, 50, 256), ("another", 60, None, None)]
    weights = [
        (profile.threads[t].process, profile.threads[t].tid, int(w))
        for t, w in enumerate(profile.thread_weights())
    ]
    assert weights == [(0, 5, 1), (1, 5, 10), (1, 6, 4), (2, 5, 16)]
    assert profile.sample_process.tolist() == [0, 1, 1, 1, 2]


def test_children_know_their_parents(recording: Recording) -> None:
    """A pid means the process that has it when the child starts."""
    recording.add(
        ProcessStarted(1, None, "a", 0), ProcessStarted(1, None, "b", 1), ProcessStarted(2, 1, "c", 2)
    )
    recording.add(ProcessStarted(3, 999, "d", 3))
    assert [process.parent for process in recording.finish().processes] == [None, None, 1, None]


def test_a_tid_is_used_again(recording: Recording) -> None:
    """A name changes; after the end of a thread its number is another thread's."""
    recording.add(ThreadNamed(5, 6, "first", 1), ThreadNamed(5, 6, "renamed", 2))
    recording.sample(["work"], pid=5, tid=6, time=3, weight=1)
    recording.add(ThreadTime(5, 6, 100, 20), ThreadTime(5, 6, 150, 30), ThreadEnded(5, 6, 10))
    recording.sample(["work"], pid=5, tid=6, time=9, weight=2)  # was still on its way
    recording.add(ThreadNamed(5, 6, "second", 11))
    recording.sample(["work"], pid=5, tid=6, time=12, weight=4)
    recording.add(ThreadEnded(5, 6, 13))
    recording.sample(["work"], pid=5, tid=6, time=14, weight=8)  # nobody said that it began
    profile = recording.finish()
    threads = [(t.name, t.end_time, t.user_time, t.system_time, t.cpu_time) for t in profile.threads]
    assert threads == [
        ("renamed", 10, 150, 30, 180),
        ("second", 13, None, None, None),
        ("", None, None, None, None),
    ]
    assert profile.thread_weights().tolist() == [3, 4, 8]
    assert profile.not_sampled() == [177, None, None]


def test_memory_of_what_ended_is_bounded(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only samples of what ended last can still be told from those of something new."""
    monkeypatch.setattr(process_book, "_KEPT", 2)
    for pid in range(10):
        recording.add(
            ProcessStarted(pid, None, "short", pid), ThreadEnded(pid, pid, pid), ProcessEnded(pid, pid)
        )
    for tid in range(100, 110):
        recording.add(ThreadNamed(50, tid, "short", 1), ThreadEnded(50, tid, 1))
    book = recording.writer._book
    assert book.current(7) is None and book.current(9) is not None
    assert len(book.process_at(50, 1).threads) == 2
    assert len(recording.finish().processes) == 11


def test_what_was_lost_and_what_went_wrong(recording: Recording) -> None:
    recording.add(
        ProcessStarted(5, None, "p", 1), Lost(5, 6, "the ring was full", 10, 2), Lost(None, None, "x", 1, 3)
    )
    recording.add(Problem(5, "not followed: static program"), Problem(None, "no kernel samples"))
    profile = recording.finish()
    assert [(lost.process, lost.thread, lost.reason, lost.count) for lost in profile.lost] == [
        (0, 0, "the ring was full", 10),
        (None, None, "x", 1),
    ]
    assert profile.problems == [(0, "not followed: static program"), (None, "no kernel samples")]


def test_what_can_not_be_is_lost(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers from a file may be anything."""
    monkeypatch.setattr(recording_module, "MAX_DEPTH", 4)
    recording.sample(["work", "main"], weight=1)
    recording.sample(["work", "main"], weight=1 << 63)
    recording.sample(["work"] * 4)
    recording.sample(["work"] * 3)
    recording.sample(["work", "main"], time=1 << 63)
    profile = recording.finish()
    assert len(profile.sample_stack) == 2
    assert sum(lost.count for lost in profile.lost) == 3


def test_a_large_batch_is_the_same_as_many_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether frames are found together or one by one, and with caches that forget everything."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 12, 300)
    addresses = (IMAGE_BASE + rng.integers(0, 5, int(lengths.sum())) * 0x100).astype(np.uint64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64)
    how = np.full(len(addresses), How.CFI, np.uint8)
    how[rng.random(len(how)) < 0.1] = How.LEAF | GUESS

    def batch(first: int, last: int) -> SampleBatch:
        begin, end = int(offsets[first]), int(offsets[last])
        n = last - first
        return SampleBatch(
            *(1, 0, np.arange(first, last).astype(np.uint64), np.ones(n, np.int64)),
            *(np.arange(first, last).astype(np.uint64), np.zeros(n, np.uint8), np.zeros(n, np.uint8)),
            *(offsets[first : last + 1] - offsets[first], addresses[begin:end], how[begin:end], CODE_MAP),
        )

    def recorded(name: str, step: int) -> list[tuple[int, list[tuple[int, bool, int]]]]:
        recording = Recording(tmp_path / name)
        for first in range(0, 300, step):
            recording.add(batch(first, min(first + step, 300)))
        profile = recording.finish()
        keys = set(
            zip(
                profile.stack_parent.tolist(),
                profile.stack_frame.tolist(),
                profile.stack_how.tolist(),
                strict=True,
            )
        )
        assert len(keys) == len(profile.tree), "a stack was stored twice"
        found = []
        for node, weight in zip(profile.sample_stack.tolist(), profile.sample_weight.tolist(), strict=True):
            frames = []
            while node >= 0:
                frame = profile.stack_frame[node]
                is_return = bool(profile.frame_is_return[frame])
                frames.append((int(profile.frame_address[frame]), is_return, int(profile.stack_how[node])))
                node = int(profile.stack_parent[node])
            found.append((weight, frames))
        return found

    together = recorded("together", 300)
    assert [len(frames) for _, frames in together] == [max(length, 1) for length in lengths]
    assert recorded("one by one", 1) == together
    monkeypatch.setattr(recording_module, "_FRAMES_AT_ONCE", 50)
    assert recorded("in parts", 300) == together
    monkeypatch.setattr(stack_writer, "_NODES_KEPT", 40)
    monkeypatch.setattr(stack_writer, "_FRAMES_KEPT", 3)
    assert recorded("forgetful", 300) == together
    assert recorded("forgetful, one by one", 7) == together


def test_stacks_with_one_hash_are_told_apart(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash only finds candidates."""
    monkeypatch.setattr(stack_writer, "_MULTIPLIERS", np.zeros(1, np.uint64))
    batch = SampleBatch(
        *(1, 0, np.arange(4).astype(np.uint64), np.ones(4, np.int64), np.ones(4, np.uint64)),
        *(np.zeros(4, np.uint8), np.zeros(4, np.uint8), np.array([0, 2, 4, 5, 7], np.uint64)),
        np.array([recording.address(name) for name in ("a", "b", "a", "c", "a", "a", "b")], np.uint64),
        *(np.array([How.INTERRUPTED, How.CFI, How.INTERRUPTED, How.CFI, 0, 0, 1], np.uint8), CODE_MAP),
    )
    recording.add(batch)
    profile = recording.finish()
    assert profile.sample_stack[0] == profile.sample_stack[3]
    assert len(set(profile.sample_stack.tolist())) == 3


def test_text_that_is_none(recording: Recording) -> None:
    """Bytes in names that are no UTF-8 (surrogates in Python) do not keep anybody from reading."""
    recording.add(ProcessStarted(1, None, "bad\udcff\ud800", 0), ThreadNamed(1, 1, "n\udc80", 0))
    profile = recording.finish()
    assert profile.processes[0].command == "bad\\udcff\\ud800"
    assert profile.threads[0].name == "n\\udc80"


def test_facts(tmp_path: Path) -> None:
    """What the source says comes back, and may change; start and end are those of the samples else."""
    recording = Recording(tmp_path / "r", meta={"command": "prog", "rate": 199})
    recording.sample(["work"], time=50)
    recording.sample(["work"], time=40)
    recording.writer.set_meta({"rate": 99, "end_time": 60})
    profile = recording.finish()
    assert {key: profile.meta[key] for key in ("command", "rate")} == {"command": "prog", "rate": 99}
    assert (profile.meta["start_time"], profile.meta["end_time"]) == (40, 60)
    assert "started" in profile.meta


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    """Nor is what is left of another recording taken for this one's."""
    path = tmp_path / "there"
    path.write_text("mine")
    with pytest.raises(RecordingError, match="there already"):
        RecordingWriter.create(path, {}, [CPU])
    assert path.read_text() == "mine"
    (tmp_path / "new-wal").write_text("left")
    with pytest.raises(RecordingError, match="there already"):
        RecordingWriter.create(tmp_path / "new", {}, [CPU])
    assert not (tmp_path / "new").exists()
    with pytest.raises(RecordingError, match="can't be made"):
        RecordingWriter.create(tmp_path / "no" / "such", {}, [CPU])


def test_one_file_is_left(recording: Recording) -> None:
    """However large the log became; and the format is not that of a file in the making."""
    for number in range(50):
        recording.sample([f"f{number}", "main"])
    recording.finish()
    assert [path.name for path in recording.path.parent.iterdir()] == ["made.unspool"]
    assert recording.path.read_bytes()[18:20] == b"\1\1"


def test_it_can_be_read_while_it_is_written(recording: Recording) -> None:
    """Also without anything new that happens: the last second is there."""
    recording.sample(["work", "main"], weight=3)
    deadline = time.monotonic() + 30
    while not (count := len((profile := Profile.open(str(recording.path))).sample_stack)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert count == 1 and not profile.is_finished
    assert stack_names(profile, 0) == [["program+0x20"], ["program+0x121"]]
    recording.sample(["work", "main"], weight=4)
    assert len(profile.sample_time) == 1  # loaded later, but as of then
    assert recording.finish().total_weight() == 7


def test_a_reader_does_not_keep_it_from_being_finished(recording: Recording) -> None:
    """One file is left when the last reader has gone and the next command looks."""
    recording.sample(["work", "main"])
    with closing(sqlite3.connect(recording.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM samples").fetchone()
        assert recording.finish().is_finished
    assert Profile.open(str(recording.path)).total_weight() == 1
    assert [path.name for path in recording.path.parent.iterdir()] == ["made.unspool"]


def test_without_finish_it_is_unfinished(recording: Recording) -> None:
    """Leaving the block commits."""
    with pytest.raises(KeyboardInterrupt), recording.writer:
        recording.sample(["work", "main"])
        raise KeyboardInterrupt
    profile = Profile.open(str(recording.path))
    assert not profile.is_finished
    assert profile.total_weight() == 1
