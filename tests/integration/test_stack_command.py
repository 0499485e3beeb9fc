"""`unspool stack`, as a user types it: its options, its text, its JSON."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.integration.targets import build, started
from unspool.cli import unspool

THREADS = 4


@pytest.fixture(scope="module")
def pid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A process with four threads, which stay where they are."""
    with started(build(tmp_path_factory.mktemp("programs"), "blocked.c")) as target:
        yield target.pid


def stack(*arguments: str | int) -> Result:
    result = CliRunner().invoke(unspool, ["stack", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def as_json(*arguments: str | int) -> dict[str, Any]:
    found = json.loads(stack("--json", *arguments).stdout)
    assert isinstance(found, dict)
    return found


def test_text_names_process_threads_functions_lines_and_files(pid: int) -> None:
    text = stack(pid).stdout
    lines = text.splitlines()
    assert re.fullmatch(rf"process {pid}  /\S+/blocked", lines[0])
    assert [line for line in lines if line.startswith("thread ")] == [
        f"thread {thread['tid']}  blocked  sleeping  complete" for thread in as_json(pid)["threads"]
    ]
    assert re.search(r"^    5  read_line +blocked.c:\d+ +blocked$", text, re.M)
    assert re.search(r"^    0  \S+ +futex-internal\.[ch]:\d+ +libc.so.6  inlined$", text, re.M)
    stops = r"each stood still for [\d.]+ ms or less, [\d.]+ ms typically"
    assert re.fullmatch(rf"{THREADS} threads: {THREADS} complete; {stops}", lines[-1])


def test_json_has_the_same_facts(pid: int) -> None:
    found = as_json(pid)
    assert (found["pid"], found["namespace_pid"], len(found["threads"])) == (pid, pid, THREADS)
    assert found["command"].endswith("/blocked")
    main = found["threads"][0]
    assert (main["tid"], main["name"], main["state"]) == (pid, "blocked", "sleeping")
    assert (main["end"], main["complete"], main["guessed"], main["problem"]) == ("root", True, False, None)
    assert 0 < main["stopped_seconds"] < 10
    assert {"pc", "sp", "fp", "rbx" if found["arch"] == "x86_64" else "x19"} <= set(main["registers"])
    frame = next(frame for frame in main["frames"] if frame["function"] == "main")
    assert frame["file"].endswith("/blocked.c") and frame["line"] > 0
    assert frame["binary"].endswith("/blocked")
    assert (frame["inlined"], frame["how"], frame["guessed"]) == (False, "cfi", False)
    assert int(frame["address"], 16) > int(frame["relative_address"], 16) > 0
    assert main["frames"][0]["how"] == "interrupted"


def test_a_limit_of_frames(pid: int) -> None:
    """Inlined functions are no frames; what is left out is counted."""
    whole, limited = as_json(pid)["threads"], as_json("-n", 2, pid)["threads"]
    for a, b in zip(whole, limited, strict=True):
        assert len({frame["address"] for frame in b["frames"]}) == 2
        assert b["frames"] == a["frames"][: len(b["frames"])]
        assert b["frame_count"] == a["frame_count"]
    hidden = whole[0]["frame_count"] - 2
    assert f"       … {hidden} more frames\n" in stack("-n", 2, pid).stdout


def test_some_threads_only(pid: int) -> None:
    tids = [thread["tid"] for thread in as_json(pid)["threads"]]
    chosen = as_json("--thread", tids[1], "--thread", tids[3], pid)["threads"]
    assert [thread["tid"] for thread in chosen] == [tids[1], tids[3]]


def test_without_inlined_functions(pid: int) -> None:
    whole, without = as_json(pid)["threads"], as_json("--no-inlines", pid)["threads"]
    assert any(frame["inlined"] for thread in whole for frame in thread["frames"])
    for a, b in zip(whole, without, strict=True):
        assert b["frames"] == [frame for frame in a["frames"] if not frame["inlined"]]
    assert "inlined" not in stack("--no-inlines", pid).stdout


def test_registers(pid: int) -> None:
    registers = as_json(pid)["threads"][0]["registers"]
    text = stack("--registers", "--thread", pid, pid).stdout
    for name, value in registers.items():
        assert f"{name} {int(value, 16):016x}" in text
    assert f"{int(registers['sp'], 16):016x}" not in stack("--thread", pid, pid).stdout


def test_no_colours_where_there_is_no_terminal(pid: int) -> None:
    assert "\x1b[" not in stack(pid).stdout
    assert "\x1b[" not in stack("--json", pid).stdout


def test_names_can_not_command_the_terminal(tmp_path: Path) -> None:
    """A thread calls itself by an escape sequence."""
    with started(build(tmp_path, "evil_name.c")) as target:
        text = stack(target.pid).stdout
    assert "\x1b" not in text and "\\x1b[2Jgone" in text


def test_a_target_that_is_no_number_is_a_usage_error() -> None:
    for arguments in ([], ["nginx"], ["-1"]):
        assert CliRunner().invoke(unspool, ["stack", *arguments]).exit_code == 2
