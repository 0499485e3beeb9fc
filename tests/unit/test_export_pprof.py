"""pprof's format: read back by a decoder that shares nothing with the encoder, and by go tool pprof."""

from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path

import pytest

from tests.profile_maker import ProfileMaker
from tests.protobuf_reader import Message
from unspool.capture.samples import Event
from unspool.export.pprof import pprof
from unspool.profile.model import LostSamples
from unspool.unwind import StackEnd

# Field numbers of pprof's proto/profile.proto.
SAMPLE_TYPE, SAMPLE, MAPPING, LOCATION, FUNCTION, STRINGS = 1, 2, 3, 4, 5, 6
TIME, PERIOD_TYPE, PERIOD, COMMENT, DEFAULT_TYPE = 9, 11, 12, 13, 14


class Decoded:
    """A file of pprof's in words."""

    def __init__(self, data: bytes) -> None:
        self.message = Message(gzip.decompress(data))
        self.strings = self.message.texts(STRINGS)
        self.mappings = {mapping.number(1): mapping for mapping in self.message.messages(MAPPING)}
        self.locations = {location.number(1): location for location in self.message.messages(LOCATION)}
        self.functions = {function.number(1): function for function in self.message.messages(FUNCTION)}

    @property
    def sample_types(self) -> list[tuple[str, str]]:
        return [(self.text(kind, 1), self.text(kind, 2)) for kind in self.message.messages(SAMPLE_TYPE)]

    def text(self, message: Message, field: int) -> str:
        return self.strings[message.number(field)]

    def lines(self, location: int) -> list[str]:
        """FUNCTION FILE:LINE of each, innermost first."""
        found = []
        for line in self.locations[location].messages(4):
            function = self.functions[line.number(1)]
            found.append(f"{self.text(function, 2)} {self.text(function, 4)}:{line.number(2)}")
        return found

    def samples(self) -> list[tuple[list[list[str]], list[int], dict[str, str | int]]]:
        """Stack, innermost first, values, and labels of each sample."""
        return [
            (
                [self.lines(location) for location in sample.numbers(1)],
                sample.numbers(2),
                {self.text(label, 1): self.text(label, 2) or label.number(3) for label in sample.messages(3)},
            )
            for sample in self.message.messages(SAMPLE)
        ]


def decoded(maker: ProfileMaker) -> Decoded:
    return Decoded(pprof(maker.profile()))


def test_a_sample_has_its_count_and_weight_and_its_stack_with_inlined_calls() -> None:
    maker = ProfileMaker()
    thread = maker.thread("worker", pid=10, tid=11, command="app --fast")
    maker.sample(thread, "main@app:main.c:7 | work@app:work.c:3 / add@app:add.h:9", weight=400, times=2)
    found = decoded(maker)
    assert found.sample_types == [("samples", "count"), ("cpu", "nanoseconds")]
    assert found.strings[found.message.number(DEFAULT_TYPE)] == "cpu"
    assert found.samples() == [
        (
            [["add add.h:9", "work work.c:3"], ["main main.c:7"]],
            [2, 800],
            {"thread": "worker", "tid": 11, "process": "app --fast", "pid": 10, "stack": "complete"},
        )
    ]


def test_addresses_are_the_files_own_and_lie_within_the_call() -> None:
    maker = ProfileMaker(binary_paths={"app": "/opt/app"})
    maker.sample(maker.thread("worker"), "main@app | work@app")  # frames 0 and 1, image at 0x400000
    found = decoded(maker)
    called, interrupted = found.locations[1], found.locations[2]
    assert called.number(3) == 0x400000 + 0x1000 - 1  # a return address, 1 less
    assert interrupted.number(3) == 0x400000 + 0x1010
    mapping = found.mappings[called.number(2)]
    assert found.text(mapping, 5) == "/opt/app"
    assert found.text(mapping, 6) == b"app".hex()
    assert (mapping.number(2), mapping.number(3), mapping.number(4)) == (0, 2**64 - 1, 0)


def test_code_without_a_file_keeps_its_addresses() -> None:
    maker = ProfileMaker()
    maker.sample(maker.thread("worker"), "compiled@[jit]")
    found = decoded(maker)
    assert found.locations[1].number(3) == 0x1000
    assert found.text(found.mappings[1], 5) == "[jit]"


def test_mappings_say_what_is_known_and_a_frame_without_a_name_has_no_line() -> None:
    maker = ProfileMaker()
    maker.sample(maker.thread("worker"), "main@app:main.c:1 | plain@libplain.so | @libstripped.so")
    found = decoded(maker)
    flags = {
        found.text(mapping, 5).split("/")[-1]: [mapping.number(field) for field in (7, 8, 9, 10)]
        for mapping in found.mappings.values()
    }
    assert flags == {"app": [1, 1, 1, 1], "libplain.so": [1, 0, 0, 0], "libstripped.so": [0, 0, 0, 0]}
    assert found.samples()[0][0] == [[], ["plain :0"], ["main main.c:1"]]


def test_the_program_comes_first_among_mappings() -> None:
    maker = ProfileMaker()
    maker.sample(maker.thread("worker"), "start@libc.so.6 | main@app")
    found = decoded(maker)
    assert found.text(next(iter(found.mappings.values())), 5) == "/usr/lib/app"


def test_a_function_that_comes_from_two_files_is_one_for_each() -> None:
    maker = ProfileMaker()
    thread = maker.thread("worker")
    maker.sample(thread, "eval@app:eval.c:1")
    maker.sample(thread, "eval@app:cases.h:2")
    assert sorted(stack[0][0] for stack, _, _ in decoded(maker).samples()) == [
        "eval cases.h:2",
        "eval eval.c:1",
    ]


def test_labels_say_which_stacks_are_guessed_and_where_they_were_cut() -> None:
    maker = ProfileMaker()
    thread = maker.thread("worker")
    maker.sample(thread, "?main@app | work@app")
    maker.sample(thread, "lost@plugin.so", end=StackEnd.LOOP)
    labels = {labels["stack"] for _, _, labels in decoded(maker).samples()}
    assert labels == {"guessed", "[cut: a loop, in plugin.so]"}


def test_several_events_have_values_of_their_own() -> None:
    maker = ProfileMaker(events=[Event("cpu", "nanoseconds"), Event("faults", "count")])
    thread = maker.thread("worker")
    maker.sample(thread, "main@app", weight=1000)
    maker.sample(thread, "main@app", weight=3, event=1, times=2)
    found = decoded(maker)
    names = [
        ("cpu_samples", "count"),
        ("cpu", "nanoseconds"),
        ("faults_samples", "count"),
        ("faults", "count"),
    ]
    assert found.sample_types == names
    assert sorted(values for _, values, _ in found.samples()) == [[0, 0, 2, 6], [1, 1000, 0, 0]]


def test_time_period_and_what_was_lost() -> None:
    maker = ProfileMaker(meta={"rate": 200, "started": "2026-01-02T03:04:05.678+00:00"})
    maker.lost.append(LostSamples(0, None, None, "the ring was full", 7))
    found = decoded(maker)
    assert found.message.number(TIME) == 1767323045_678_000_000
    assert found.message.number(PERIOD) == 5_000_000
    (period_type,) = found.message.messages(PERIOD_TYPE)
    assert (found.text(period_type, 1), found.text(period_type, 2)) == ("cpu", "nanoseconds")
    assert [found.strings[comment] for comment in found.message.numbers(COMMENT)] == ["lost samples: 7"]


@pytest.mark.parametrize("started", ["", "yesterday", "0001-01-01T00:00:00"])
def test_a_start_that_is_no_moment_is_left_out(started: str) -> None:
    assert decoded(ProfileMaker(meta={"started": started})).message.number(TIME) == 0


def test_names_of_any_kind_can_be_written() -> None:
    maker = ProfileMaker()
    maker.sample(maker.thread("\udc80"), "f\n\0\udcff@app")
    ((stack, _, labels),) = decoded(maker).samples()
    assert stack == [["f\\n\\x00\\udcff :0"]]
    assert labels["thread"] == "\\udc80"


def many_stacks() -> ProfileMaker:
    maker = ProfileMaker()
    thread, other = maker.thread("main"), maker.thread("worker", tid=2)
    maker.sample(thread, "main@app:a.c:1 | parse@app:a.c:9 / skip@app:a.h:2", weight=30_000_000, times=3)
    maker.sample(
        thread, "main@app:a.c:2 | parse@app:a.c:10 | read@libc.so.6 | sys_read@[kernel]", weight=5_000_000
    )
    maker.sample(other, "clone@libc.so.6 | fib@app:f.c:1 | fib@app:f.c:1 | fib@app:f.c:1", weight=40_000_000)
    maker.sample(other, "clone@libc.so.6 | @libstripped.so | parse@app:a.c:10", weight=1_000_000)
    return maker


def test_go_tool_pprof_reads_it_and_its_totals_are_ours(tmp_path: Path) -> None:
    profile = many_stacks().profile()
    (tmp_path / "out.pb.gz").write_bytes(pprof(profile))
    command = ["go", "tool", "pprof", "-top", "-unit=ns", "-nodefraction=0", "-nodecount=1000", "out.pb.gz"]
    top = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    total = re.search(r"of (\d+)ns total", top)
    assert total and int(total[1]) == profile.total_weight()
    row = re.compile(r"\s*(\d+)(?:ns)?\s+\S+%?\s+\S+%\s+(\d+)(?:ns)?\s+\S+%?\s+(\S+)", re.ASCII)
    found = {match[3]: (int(match[1]), int(match[2])) for match in map(row.match, top.splitlines()) if match}
    ours = zip(profile.self_weights().tolist(), profile.total_weights().tolist(), strict=True)
    expected = dict(zip(profile.functions, ours, strict=True))
    stripped = next(name for name in expected if name.startswith("libstripped.so+"))
    expected["[libstripped.so]"] = expected.pop(stripped)
    assert found == expected
    comments = ["go", "tool", "pprof", "-comments", "out.pb.gz"]
    said = subprocess.run(comments, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert said.strip() == "lost samples: 0"
