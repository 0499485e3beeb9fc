"""`unspool report`: figures that can be worked out by hand, and text that fits a terminal."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.recordings import CPU, Recording
from unspool.capture.samples import (
    BinaryKind,
    Event,
    Flag,
    Lost,
    Problem,
    ProcessEnded,
    ProcessStarted,
    ThreadNamed,
    ThreadTime,
)
from unspool.cli import report as report_module
from unspool.cli import unspool
from unspool.cli.report_text import report_text
from unspool.core_interface import GUESS
from unspool.profile import Profile
from unspool.profile.report import Report, report_of
from unspool.profile.truth import Cut, FramesFound, Share
from unspool.unwind import How, StackEnd

MS = 1_000_000


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """100 ms of samples: 40 in leaf (inlined into work), 30 in fib, 20 in a guessed stack, 10 in a cut
    one."""
    meta: dict[str, str | int] = {"command": "prog --serve", "rate": 199, "via": "in-process"}
    recording = Recording(tmp_path / "r.unspool", meta=meta)
    recording.add(ProcessStarted(100, None, "prog --serve", 1), ThreadNamed(100, 100, "main", 1))
    recording.sample([("leaf<work", How.INTERRUPTED, 0x11), "main"], weight=40 * MS)
    recording.sample(["fib", "fib", "fib", "main"], weight=30 * MS)
    recording.sample(["jit", ("work", How.FRAME_POINTER | GUESS), "main"], weight=20 * MS, tid=101)
    recording.sample(["work"], weight=10 * MS, end=StackEnd.STACK_BYTES_ENDED, tid=101)
    recording.add(ThreadTime(100, 100, 60 * MS, 15 * MS), ThreadTime(100, 101, 30 * MS, 0))
    recording.add(ProcessEnded(100, 1 << 40, 0), Lost(100, 101, "the ring was full", 3, 5))
    return recording


def made(recording: Recording, limit: int = 15) -> Report:
    return report_of(recording.finish(), limit)


def text(recording: Recording, width: int | None = 80) -> list[str]:
    return plain(made(recording), width)


def plain(report: Report, width: int | None = 80) -> list[str]:
    """Without colours."""
    return [click.unstyle(line) for line in report_text(report, {}, width)]


def test_hot_functions(recording: Recording) -> None:
    """By self and by total; recursion counts once, an inlined function has its own time."""
    (event,) = made(recording).events
    assert (event.samples, event.weight) == (4, 100 * MS)
    assert [(f.function, f.self_weight // MS, f.total_weight // MS) for f in event.by_self] == [
        ("leaf", 40, 40),
        ("fib", 30, 30),
        ("[jit]+0x70000020", 20, 20),
        ("work", 10, 70),
    ]
    assert [(f.function, f.total_weight // MS) for f in event.by_total][:2] == [("main", 90), ("work", 70)]
    assert {f.binary for f in event.by_self} == {"/synthetic/program", "[jit]"}


def test_hot_lines(recording: Recording) -> None:
    (event,) = made(recording).events
    assert [(line.file, line.line, line.function, line.self_weight // MS) for line in event.lines] == [
        ("/synthetic/leaf.c", 0x11, "leaf", 40),
        ("/synthetic/fib.c", 0x20, "fib", 30),
        ("/synthetic/work.c", 0x20, "work", 10),
    ]


def test_threads(recording: Recording) -> None:
    """What the kernel says beside what was sampled."""
    (event,) = made(recording).events
    assert [(use.tid, use.name, use.weight // MS, use.samples) for use in event.threads] == [
        (100, "main", 70, 2),
        (101, "", 30, 2),
    ]
    assert [(use.cpu_time, use.not_sampled) for use in event.threads] == [(75 * MS, 5 * MS), (30 * MS, 0)]


def test_the_truth(recording: Recording) -> None:
    """Complete, guessed and cut; cut why and where; frames by how; what no sample covers."""
    report = made(recording)
    truth = report.events[0].truth
    assert (truth.complete, truth.guessed, truth.cut) == (
        Share(2, 70 * MS),
        Share(1, 20 * MS),
        Share(1, 10 * MS),
    )
    assert truth.cuts == [Cut(StackEnd.STACK_BYTES_ENDED, "/synthetic/program", Share(1, 10 * MS))]
    assert truth.frames == [
        FramesFound(How.CFI, False, 5),
        FramesFound(How.INTERRUPTED, False, 4),
        FramesFound(How.FRAME_POINTER, True, 1),
    ]
    assert (truth.cpu_time, truth.not_sampled) == (105 * MS, 5 * MS)
    assert report.lost == {"the ring was full": 3}
    assert [(b.path, b.kind, b.self_share) for b in report.nameless] == [("[jit]", BinaryKind.JIT, 0.2)]


def test_where_stacks_were_cut(tmp_path: Path) -> None:
    """In the binary of the outermost frame, unless a flag says why: then that has nothing to do with it."""
    recording = Recording(tmp_path / "r")
    recording.sample(["work", "jit"], end=StackEnd.NO_UNWIND_INFO)
    recording.sample(["jit", "work"], end=StackEnd.NO_UNWIND_INFO)
    recording.sample(["main", "jit"], end=StackEnd.NO_UNWIND_INFO, weight=5)
    recording.sample([], flags=Flag.KERNEL_CALLER_UNKNOWN)
    recording.sample(["work"], flags=Flag.STALE_MODULES)
    for function in ("work", "jit", "work"):
        flags = Flag.NO_TABLE_YET | Flag.STALE_MODULES
        recording.sample([function], end=StackEnd.BAD_RETURN_ADDRESS, flags=flags)
    for function in ("work", "jit"):
        recording.sample([function], end=StackEnd.NO_UNWIND_INFO, flags=Flag.STALE_MODULES)
    report = made(recording)
    truth = report.events[0].truth
    assert [(cut.end, cut.binary, cut.share) for cut in truth.cuts] == [
        (Flag.NO_TABLE_YET, None, Share(3, 3)),
        (Flag.STALE_MODULES, None, Share(2, 2)),
        (StackEnd.NO_UNWIND_INFO, "[jit]", Share(2, 6)),
        (StackEnd.NO_UNWIND_INFO, "/synthetic/program", Share(1, 1)),
        (Flag.KERNEL_CALLER_UNKNOWN, None, Share(1, 1)),
    ]
    assert truth.marked == {
        Flag.STALE_MODULES: Share(6, 6),
        Flag.NO_TABLE_YET: Share(3, 3),
        Flag.KERNEL_CALLER_UNKNOWN: Share(1, 1),
    }
    assert truth.guessed == Share(1, 1)
    assert any(line.endswith("  3  a library's unwind table was not there yet") for line in plain(report))
    assert (truth.cpu_time, truth.not_sampled) == (None, None)


def test_the_text(recording: Recording) -> None:
    """What a user looks for is there, with its figures."""
    lines = text(recording)
    whole = "\n".join(lines)
    for wanted in (
        "command  prog --serve",
        "rate     199 Hz",
        "event cpu (nanoseconds)  100 ms in 4 samples",
        "40.0 %  40.0 ms  40.0 %  40.0 ms  program  leaf",
        "40.0 %  40.0 ms  leaf.c:17  leaf",
        "70.0 %  70.0 ms        2   75.0 ms      5.00 ms  100  main",
        "complete  70.0 %           2  to the root, every frame proved",
        "guessed   20.0 %           1  to the root, with something unproved",
        "cut       10.0 %           1  ended before the root",
        "10.0 %           1  program: the copy of the stack is too short",
        "guess: frame pointer",
        "not sampled  5.00 ms of 105 ms CPU time (4.8 %)",
        "3  the ring was full",
        "lost samples  3",
        "20.0 % self  [jit]: nobody named its code",
    ):
        assert wanted in whole, f"{wanted!r} is missing in\n{whole}"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exit status 0"),
        (3 << 8, "exit status 3"),
        (11, "killed by SIGSEGV"),
        (0x80 | 6, "killed by SIGABRT"),
    ],
)
def test_how_the_program_ended(tmp_path: Path, status: int, words: str) -> None:
    """exit_status: as wait(2) gives it."""
    assert f"  ended    {words}" in text(Recording(tmp_path / "r", meta={"exit_status": status}))


@pytest.mark.parametrize("status", ["no number", -1, 1 << 60, 127])
def test_an_exit_status_may_be_anything(tmp_path: Path, status: str | int) -> None:
    text(Recording(tmp_path / "r", meta={"exit_status": status}))


def test_it_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """Whatever names say; and columns stay in line."""
    recording = Recording(tmp_path / "r")
    recording.add(ProcessStarted(100, None, "command " * 50, 1), ThreadNamed(100, 100, "thread " * 50, 1))
    recording.add(ProcessStarted(101, None, "second\x1b[31m", 1), Lost(None, None, "reason " * 40, 5, 1))
    for number in range(30):
        name = f"std::vector<std::basic_string<char>, allocator<{number}>>::push_back(" + "x" * 200
        recording.sample([name.replace("<", "_"), "main"], weight=10**9 * number, pid=100 + number % 2)
    lines = text(recording)
    assert all(len(line) <= 80 for line in lines if not line.startswith("  command")), max(lines, key=len)
    assert "\x1b[31m" not in "\n".join(lines)
    assert any("…" in line for line in lines)


def test_names_are_shortened_to_fit_a_terminal(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r")
    recording.sample([f"{'warehouse' * 9}::shop::churn(int)"], weight=MS)
    assert sum(line.endswith("  shop::churn") for line in text(recording, 80)) == 3  # self, total, lines


LONG = f"std::vector<{'std::pair<int, int>, ' * 20}int>::push_back(std::pair<int, int>&&)"


@pytest.mark.parametrize(
    ("options", "function"), [([], "std::vector<…>::push_back"), (["--full-names"], LONG)]
)
def test_names_are_short_unless_asked_for_in_full(tmp_path: Path, options: list[str], function: str) -> None:
    """Also where no terminal is; JSON has them in full."""
    recording = Recording(tmp_path / "r")
    recording.sample([LONG.replace("<", "\0")], weight=MS)  # "<" would be an inlined call
    recording.finish()
    with closing(sqlite3.connect(recording.path, isolation_level=None)) as connection:
        connection.execute("UPDATE functions SET name = ?", (LONG,))
    output = CliRunner().invoke(unspool, ["report", *options, str(recording.path)]).output
    assert output.count(f"  {function}\n") == 3  # self, total, lines
    output = CliRunner().invoke(unspool, ["report", "--json", *options, str(recording.path)]).output
    assert json.loads(output)["events"][0]["by_self"][0]["function"] == LONG


def test_full_names_are_not_cut_on_a_terminal(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r")
    recording.sample(["f" * 300])
    lines = list(report_text(made(recording), {}, 80, full_names=True))
    assert sum(line.endswith("f" * 300) for line in lines) == 3


def test_nothing_is_cut_where_nothing_must_fit(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r")
    recording.sample(["f" * 300])
    assert any("f" * 300 in line for line in text(recording, None))


def test_samples_that_say_more_than_the_kernel_are_told(tmp_path: Path) -> None:
    """In the flame graph's words."""
    recording = Recording(tmp_path / "r")
    recording.sample(["work"], weight=11 * MS)
    recording.add(ThreadTime(100, 100, 10 * MS, 0))
    assert "  sampled beyond the kernel's count  1.00 ms of 10.0 ms CPU time (10.0 %)" in text(recording)


def test_several_events(tmp_path: Path) -> None:
    """Each with its name and unit; only the one that measures time is compared with CPU times."""
    recording = Recording(tmp_path / "r", events=[CPU, Event("page-faults", "count"), Event("idle", "count")])
    recording.sample(["work"], weight=5 * MS, event=0)
    recording.sample(["fault"], weight=1_234, event=1)
    recording.add(ThreadTime(100, 100, 7 * MS, 0))
    report = made(recording)
    assert [event.event.name for event in report.events] == ["cpu", "page-faults", "idle"]
    assert [event.by_self[0].function for event in report.events[:2]] == ["work", "fault"]
    assert report.events[0].truth.not_sampled == 2 * MS
    assert report.events[1].truth.not_sampled is None
    whole = "\n".join(plain(report))
    assert "event page-faults (count)  1,234 in 1 sample" in whole
    assert "event idle (count)  0 in 0 samples" in whole


def test_processes(tmp_path: Path) -> None:
    """Only where there are several; the same pid may be there twice."""
    recording = Recording(tmp_path / "r")
    recording.add(ProcessStarted(1, None, "first", 1))
    recording.sample(["work"], pid=1, weight=1)
    recording.add(ProcessStarted(1, None, "second", 5_000_000_000))
    recording.sample(["work"], pid=1, weight=3, time=6_000_000_000)
    report = made(recording)
    assert [(use.pid, use.command, use.weight) for use in report.events[0].processes] == [
        (1, "second", 3),
        (1, "first", 1),
    ]
    assert "75.0 %" in next(line for line in plain(report) if line.endswith("second"))


def test_limits_say_what_they_hide(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r")
    for tid in range(1, 6):
        recording.sample([f"f{tid}"], tid=tid, weight=tid)
    report = made(recording, 2)
    (event,) = report.events
    assert [function.function for function in event.by_self] == ["f5", "f4"]
    assert [use.tid for use in event.threads] == [5, 4]
    assert "… 3 more threads" in "\n".join(plain(report))


def test_who_has_neither_samples_nor_time_is_only_counted(tmp_path: Path) -> None:
    """What stands for no thread is explained, and not counted. The same pid may be of two processes."""
    recording = Recording(tmp_path / "r")
    recording.add(ProcessStarted(7, None, "perf-exec", 1), ThreadNamed(7, 7, "perf-exec", 1))
    recording.add(ProcessStarted(7, None, "prog", 2), ThreadNamed(7, 7, "main", 2))
    recording.add(ThreadNamed(7, 8, "idle", 2), ThreadTime(7, 8, 0, 0))
    recording.add(ThreadNamed(7, -1, "(not recorded)", 2), ThreadTime(7, -1, 5 * MS, 0))
    recording.sample(["work"], pid=7, weight=MS)
    report = made(recording)
    (event,) = report.events
    assert [use.name for use in event.threads] == ["(not recorded)", "main"]
    assert [(use.command, use.threads) for use in event.processes] == [("prog", 2)]
    assert (event.hidden_threads, event.hidden_processes) == (2, 1)
    lines = list(plain(report))
    assert "threads  3" in lines and "processes  2" in lines
    assert "  … 2 more threads" in lines and "  … 1 more process" in lines
    assert "  (not recorded): processes that were too short, or could not be recorded" in lines
    assert any(line.endswith("  -  (not recorded)") for line in lines)
    assert not any("idle" in line or "perf-exec" in line for line in lines)


def test_what_is_unfinished_says_so(tmp_path: Path) -> None:
    """Frames have addresses then."""
    recording = Recording(tmp_path / "r")
    recording.sample(["work"])
    recording.writer._commit()
    report = report_of(Profile.open(str(recording.path)), 5)
    whole = "\n".join(plain(report))
    assert "not finished" in whole
    assert "nobody has looked for its names yet" in whole
    assert "program+0x20" in whole
    recording.finish()


def test_the_command_that_brings_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of binaries that matter, as the package database says, and then the one that names frames."""
    recording = Recording(tmp_path / "my recording")
    recording.sample(["work"])
    recording.finish()
    with closing(sqlite3.connect(recording.path, isolation_level=None)) as connection:
        connection.execute("UPDATE binaries SET symbols = 'functions'")
    monkeypatch.setattr(report_module, "install_command", lambda path: f"apt install {path[1:]}-dbg")
    output = CliRunner().invoke(unspool, ["report", str(recording.path)]).output
    assert "100.0 % self  program: functions only, no lines and inlined calls" in output
    assert "apt install synthetic/program-dbg" in output
    assert f"then: unspool symbolize '{recording.path}'" in output


def test_json_has_the_same_facts(recording: Recording) -> None:
    recording.finish()
    facts = json.loads(CliRunner().invoke(unspool, ["report", "--json", str(recording.path)]).output)
    (event,) = facts["events"]
    assert event["by_self"][0]["function"] == "leaf"
    assert event["truth"]["cut"] == {"samples": 1, "weight": 10 * MS}
    assert event["truth"]["cuts"][0]["end"] == "stack_bytes_ended"
    assert facts["lost"] == {"the ring was full": 3}


def test_problems(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r")
    recording.add(ProcessStarted(7, None, "static", 1), Problem(7, "not followed: a static program"))
    recording.add(Problem(None, "no kernel samples"), Problem(None, "no kernel samples"))
    for pid in (8, 9):
        recording.add(ProcessStarted(pid, None, "sort", 1), Problem(pid, "it has a handler"))
    report = made(recording)
    assert report.problems == [
        "process 7: not followed: a static program",
        "no kernel samples",
        "2 processes: it has a handler",
    ]
    assert "  no kernel samples" in list(plain(report))


def test_a_recording_without_samples(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r")
    lines = text(recording)
    assert "event cpu (nanoseconds)  0 s in 0 samples" in lines
    assert "  no samples" in lines


def test_what_can_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("no")
    for verb in ("report", "symbolize"):
        result = CliRunner().invoke(unspool, [verb, str(tmp_path / "r")])
        assert result.exit_code == 1
        assert result.output.startswith(f"Error: {tmp_path}/r: this is no recording: give a file")


@pytest.mark.parametrize(
    "arguments",
    [
        ["symbolize", "r", "--debug-dir"],
        ["import", "perf.data", "--debug-dir"],
        ["import", "perf.data", "--sysroot"],
        ["stack", "1", "--debug-dir"],
        ["stack", "--core", "c", "--sysroot"],
    ],
)
def test_a_folder_to_search_that_is_not_there_is_an_error(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "file").touch()
    for folder, why in ((tmp_path / "none", "does not exist"), (tmp_path / "file", "is a file")):
        result = CliRunner().invoke(unspool, [*arguments, str(folder)])
        assert result.exit_code == 2
        assert f"{folder}' {why}" in result.output
