"""unspool import and unspool view as a user types them: what they print, write, and their exit statuses."""

import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests import perf_writer as perf
from tests.small_library import IMAGE_BASE, Library
from unspool import How
from unspool.capture.perf_data import PerfData
from unspool.capture.samples import SampleBatch
from unspool.cli.import_ import as_recording, import_
from unspool.core_interface import GUESS
from unspool.profile import Profile

PID = 42
STACK = 0xFFFF_0000_1000
AARCH64_REGISTERS = (1 << 33) - 1
FIELDS = perf.IP | perf.TID | perf.TIME | perf.PERIOD | perf.REGS_USER | perf.STACK_USER


def mapping(given: Library) -> bytes:
    segment = next(s for s in given.binary.segments if s.executable)
    start = IMAGE_BASE + segment.address // 4096 * 4096
    offset = segment.file_offset // 4096 * 4096
    return perf.mmap2(PID, start, 0x1000, offset, given.binary.path, 2, build_id=given.binary.build_id)


def aarch64_records(given: Library) -> list[bytes]:
    """inner, a leaf, is interrupted: its return address is in lr."""
    at = given.at
    values = [0] * 33
    values[29], values[30], values[31], values[32] = STACK + 32, at("middle_return"), STACK, at("inner_body")
    stack = perf.words(at("outer_return"), 0, 0, 0, 0, at("root_return"))
    sample = perf.sample(
        *(perf.words(at("inner_body")), perf.ids(PID, PID), perf.words(3), perf.words(1000)),
        *(perf.words(perf.ABI_64, *values), perf.stack(stack, 64)),
    )
    return [perf.comm(PID, "prog", 1), mapping(given), sample, perf.FINISHED_ROUND]


@pytest.fixture
def given(library: Callable[[str], Library]) -> Library:
    return library("aarch64")


@pytest.fixture
def perf_data(given: Library, tmp_path: Path) -> Path:
    """One sample of an aarch64 program, whatever machine this is."""
    event = perf.Attribute(FIELDS, registers=AARCH64_REGISTERS, stack_size=64)
    path = tmp_path / "perf.data"
    features = {perf.ARCH: perf.text_feature("aarch64"), perf.COMMAND: command("perf", "record")}
    path.write_bytes(perf.perf_file([event], aarch64_records(given), features))
    return path


def command(*words: str) -> bytes:
    return len(words).to_bytes(4, "little") + b"".join(map(perf.text_feature, words))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(import_, [str(argument) for argument in arguments])


def test_an_aarch64_recording_is_walked_anywhere(given: Library, perf_data: Path) -> None:
    """Also on a machine of another architecture."""
    source = PerfData(str(perf_data))
    (batch,) = [happening for happening in source if isinstance(happening, SampleBatch)]
    source.close()
    labels = ("inner_body", "middle_return", "outer_return", "root_return")
    assert batch.addresses.tolist() == [given.at(label) for label in labels]
    assert batch.how.tolist() == [How.INTERRUPTED, How.CFI, How.CFI, How.CFI]
    assert batch.complete.tolist() == [True]


def test_a_recording_is_written(perf_data: Path, tmp_path: Path) -> None:
    """With names, and what perf knew; the last line says what is in it and what to do next."""
    output = tmp_path / "out.unspool"
    result = run(perf_data, "-o", output)
    assert result.exit_code == 0
    assert f"{output}: 1 samples (1 complete, 0 guessed, 0 cut)" in result.output
    assert f"unspool report {output}" in result.output
    profile = Profile.open(str(output))
    assert (profile.meta["command"], profile.meta["perf_command"]) == ("prog", "perf record")
    assert {"middle", "outer", "root"} <= set(profile.functions)


def test_nothing_is_overwritten(perf_data: Path, tmp_path: Path) -> None:
    """What is there stays as it is."""
    output = tmp_path / "out.unspool"
    output.write_text("mine")
    result = run(perf_data, "-o", output)
    assert result.exit_code == 1
    assert "it is there already" in result.output
    assert output.read_text() == "mine"


def test_what_can_be_read_of_a_damaged_file_is_imported(perf_data: Path, tmp_path: Path) -> None:
    """The damage is told, and the exit status is 1."""
    data = perf_data.read_bytes()
    offset, size = struct.unpack_from("<QQ", data, 40)  # of the records; what follows is cut off
    perf_data.write_bytes(data[: offset + size + 10])
    output = tmp_path / "out.unspool"
    result = run(perf_data, "-o", output)
    assert result.exit_code == 1
    assert "damaged: the file is cut short" in result.output
    with sqlite3.connect(output) as connection:
        assert connection.execute("SELECT count(*) FROM samples").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM problems").fetchone()[0] > 0


def test_a_file_without_samples(tmp_path: Path) -> None:
    """It is said, and the exit status is 1."""
    path = tmp_path / "empty.data"
    path.write_bytes(perf.perf_file([perf.Attribute(FIELDS)], [perf.comm(PID, "prog", 1)]))
    result = run(path, "-o", tmp_path / "out.unspool")
    assert result.exit_code == 1
    assert "has no sample" in result.output


def test_what_is_no_perf_data(tmp_path: Path) -> None:
    """Nothing is written."""
    path = tmp_path / "notes.txt"
    path.write_text("not a recording")
    result = run(path, "-o", tmp_path / "out.unspool")
    assert result.exit_code == 1
    assert "is no perf.data file" in result.output
    assert not (tmp_path / "out.unspool").exists()


def test_other_verbs_take_perf_data(perf_data: Path) -> None:
    """A recording is made for as long as it is looked at."""
    with as_recording(str(perf_data)) as path:
        assert len(Profile.open(path).sample_time) == 1
    assert not Path(path).exists()
    with as_recording("some.unspool") as path:
        assert path == "some.unspool"


@pytest.mark.parametrize("has_lr", [True, False])
def test_a_leaf_has_its_caller_in_lr(given: Library, tmp_path: Path, has_lr: bool) -> None:
    """aarch64 with frame pointers, as perf records it: lr names the leaf's caller, which the kernel's chain
    leaves out. It counts once, and only where the file says that the return address is in lr."""
    at = given.at
    fields = FIELDS & ~perf.STACK_USER | perf.CALLCHAIN
    leaf = [at("inner_body"), at("outer_return"), at("root_return")]
    chains = (leaf, [leaf[0], at("middle_return"), *leaf[1:]], [at("outer_return") - 4, at("root_return")])
    samples = [
        perf.sample(
            *(perf.words(chain[0]), perf.ids(PID, PID), perf.words(number + 3), perf.words(1000)),
            *(perf.chain(perf.USER_MARK, *chain), perf.words(perf.ABI_64, at("middle_return") | 0x5A << 56)),
        )
        for number, chain in enumerate(chains)
    ]
    records = [perf.comm(PID, "prog", 1), mapping(given), *samples, perf.FINISHED_ROUND]
    event = perf.Attribute(fields, registers=1 << 30 if has_lr else 1 << 29)
    path = tmp_path / "perf.data"
    path.write_bytes(perf.perf_file([event], records, {perf.ARCH: perf.text_feature("aarch64")}))
    source = PerfData(str(path))
    (batch,) = [happening for happening in source if isinstance(happening, SampleBatch)]
    source.close()
    stacks = np.split(batch.addresses, batch.offsets[1:-1].astype(int))
    whole = [leaf[0], at("middle_return"), *leaf[1:]]
    assert [stack.tolist() for stack in stacks] == [whole if has_lr else leaf, whole, chains[2]]
    assert batch.how[1] == (How.CFI if has_lr else How.FRAME_POINTER | GUESS)
