"""Names for a recording's frames: from the binaries, if they are still the same, now or later."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.compilers import build, run
from unspool import Binary, Symbolizer
from unspool.capture.samples import BinaryKind, CodeEntry, CodeFile, CodeMap, Event, SampleBatch
from unspool.cli import unspool
from unspool.profile import Profile, RecordingWriter
from unspool.profile.binary_search import find_binary
from unspool.profile.naming import Namer, NamingProgress
from unspool.unwind import How

CODE = """
#include <stdlib.h>
static inline __attribute__((always_inline)) int inner(int n) { return n * abs(n); }
__attribute__((noinline)) int outer(int n) {
    return inner(n) + 1;
}
int main(int argc, char **argv) { return outer(argc) + argv[0][0]; }
"""
BASE = 0x5555_0000_0000


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return build(tmp_path, "program", "gcc", "-g", "-O2", code=CODE)


def identity(path: Path, /, **changes: object) -> CodeFile:
    with Binary.open(path) as binary:
        assert binary.build_id is not None
        status = path.stat()
        facts = {
            "path": str(path),
            "build_id": binary.build_id.hex(),
            "arch": binary.arch,
            "image_address": binary.image_address,
            "size": status.st_size,
            "mtime": status.st_mtime_ns,
        }
    return CodeFile(**(facts | changes))  # type: ignore[arg-type]


def address_of(path: Path, name: str) -> int:
    """A function's relative address."""
    with Binary.open(path) as binary:
        symbols = binary.symbols
        index = next(i for i in range(len(symbols)) if symbols.name(i) == name)
        return int(symbols.address[index]) - binary.image_address


def recorded(
    path: Path,
    file: CodeFile,
    addresses: list[int],
    *,
    finish: bool = True,
    progress: Callable[[NamingProgress], None] | None = None,
) -> Path:
    """One stack with these relative addresses in a file; all but the first are those of the byte after a
    call."""
    hows = [How.INTERRUPTED, *[How.CFI] * (len(addresses) - 1)]
    with RecordingWriter.create(path, {}, [Event("cpu", "nanoseconds")], is_live=False) as writer:
        writer.add(
            SampleBatch(
                *(1, 0, np.array([5], np.uint64), np.array([1]), np.array([1], np.uint64)),
                *(np.zeros(1, np.uint8), np.zeros(1, np.uint8), np.array([0, len(addresses)], np.uint64)),
                np.array([BASE + address + bool(i) for i, address in enumerate(addresses)], np.uint64),
                np.array(hows, np.uint8),
                CodeMap([CodeEntry(BASE, BASE + 0x10_0000, BASE, file)], "x86_64"),
            )
        )
        if finish:
            writer.finish(Symbolizer(), progress=progress)
    return path


def names(path: Path) -> list[str]:
    """Of all frames, innermost first, with inlined functions."""
    profile = Profile.open(str(path))
    found, node = [], int(profile.sample_stack[0])
    while node >= 0:
        frame = profile.stack_frame[node]
        entries = profile.line_function[profile.line_offsets[frame] : profile.line_offsets[frame + 1]]
        found += [profile.functions[function] for function in entries]
        node = int(profile.stack_parent[node])
    return found


def state(path: Path) -> str:
    return Profile.open(str(path)).binary_symbols[0].state


def test_functions_lines_and_inlined_calls(program: Path, tmp_path: Path) -> None:
    """A caller's address is the one of its call."""
    addresses = [address_of(program, "outer"), address_of(program, "main")]
    path = recorded(tmp_path / "r.unspool", identity(program), addresses)
    assert names(path) == ["inner", "outer", "main"]
    profile = Profile.open(str(path))
    assert set(profile.files) == {str(program.with_suffix(".c"))}
    assert state(path) == "lines"
    assert set(profile.function_binary.tolist()) == {0}


def test_a_call_at_the_end_of_a_function_is_its_own(program: Path, tmp_path: Path) -> None:
    """The byte after it belongs to the next function, which is never named."""
    with Binary.open(program) as binary:
        symbols = binary.symbols
        index = next(i for i in range(len(symbols)) if symbols.name(i) == "outer")
        last = address_of(program, "outer") + int(symbols.size[index]) - 1
    path = recorded(tmp_path / "r.unspool", identity(program), [address_of(program, "main"), last])
    assert names(path)[-1] == "outer"


def test_a_file_that_changed_is_not_used(program: Path, tmp_path: Path) -> None:
    """Another one at its path has other functions at these addresses."""
    file, address = identity(program), address_of(program, "outer")
    build(tmp_path, "program", "gcc", "-g", "-O0", code=CODE.replace("outer", "other"))
    path = recorded(tmp_path / "r.unspool", file, [address])
    assert names(path) == [f"program+{address:#x}"]
    assert state(path) == "changed"
    assert "it is not the file that was recorded" in Profile.open(str(path)).binary_symbols[0].note


@pytest.mark.parametrize(("change", "problem"), [("mtime", "written to since"), ("size", "bytes, not")])
def test_without_a_build_id_size_and_time_tell(tmp_path: Path, change: str, problem: str) -> None:
    program = build(tmp_path, "program", "gcc", "-g", "-Wl,--build-id=none", code=CODE)
    status = program.stat()
    file = CodeFile(str(program), None, "x86_64", size=status.st_size, mtime=status.st_mtime_ns)
    same = find_binary(file, [])
    assert same.binary is not None and not same.note
    same.binary.close()
    if change == "mtime":
        os.utime(program, ns=(1, 1))
    else:
        with program.open("ab") as opened:
            opened.write(b"more")
    found = find_binary(file, [])
    assert found.binary is None and found.state == "changed"
    assert problem in found.note


def test_nothing_proves_it(program: Path) -> None:
    """With neither build id nor size a file is used, and it is said."""
    found = find_binary(CodeFile(str(program), None, "x86_64"), [])
    assert found.binary is not None and "nothing proves" in found.note
    found.binary.close()


def test_a_file_for_another_machine(program: Path) -> None:
    found = find_binary(CodeFile(str(program), None, "aarch64"), [])
    assert (found.binary, found.state) == (None, "changed")


def test_a_missing_file_is_found_by_its_build_id(program: Path, tmp_path: Path) -> None:
    """In a directory laid out as /usr/lib/debug is, or with the file's own name, or path."""
    file = identity(program)
    assert file.build_id is not None
    folder = tmp_path / "elsewhere"
    places = [
        folder / ".build-id" / file.build_id[:2] / file.build_id[2:],
        folder / ".build-id" / file.build_id[:2] / f"{file.build_id[2:]}.debug",
        folder / program.name,
        Path(f"{folder}{program}"),
    ]
    kept = shutil.move(program, tmp_path / "kept")
    assert find_binary(file, [str(folder)]).state == "missing"
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kept, place)
        found = find_binary(file, [str(folder)])
        assert found.binary is not None, place
        found.binary.close()
        place.unlink()
    build(tmp_path, "program", "gcc", "-O0", code=CODE.replace("outer", "other"))
    shutil.move(program, folder / program.name)
    assert find_binary(file, [str(folder)]).state == "missing"


def test_a_file_of_a_container_is_found_by_its_path_there(program: Path) -> None:
    """The process whose root it was has ended."""
    found = find_binary(identity(program, path=f"/proc/999999999/root{program}"), [])
    assert found.binary is not None
    found.binary.close()


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    """What a file says is no reason to wait, to read a device, or to fail."""
    os.mkfifo(tmp_path / "fifo")
    for path in (
        str(tmp_path / "fifo"),
        str(tmp_path),
        "/dev/zero",
        "",
        "relative",
        "nul\0byte",
        "/a" * 5000,
    ):
        assert find_binary(CodeFile(path, "00" * 20, "x86_64"), [str(tmp_path)]).state == "missing"


def test_the_vdso_is_ours_or_nobodys() -> None:
    """It is in memory only."""
    assert find_binary(CodeFile("[vdso]", "00" * 20, "x86_64", BinaryKind.VDSO), []).state == "missing"
    line = next(line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[vdso]"))
    start, end = (int(address, 16) for address in line.split()[0].split("-"))
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        memory.seek(start)
        own = Binary.from_bytes(memory.read(end - start))
    assert own.build_id is not None
    found = find_binary(CodeFile("[vdso]", own.build_id.hex(), own.arch, BinaryKind.VDSO), [])
    assert found.binary is not None and found.binary.build_id == own.build_id


def symbolized(path: Path, *options: str) -> str:
    result = CliRunner().invoke(unspool, ["symbolize", str(path), *options])
    assert result.exit_code == 0, result.output
    return result.output


def test_names_come_later(program: Path, tmp_path: Path) -> None:
    """First only functions are known; then a debug file is there, and replaces them."""
    debug, folder = tmp_path / "program.debug", tmp_path / "debug"
    run("objcopy", "--only-keep-debug", str(program), str(debug))
    run("objcopy", "--strip-debug", str(program))
    addresses = [address_of(program, "outer"), address_of(program, "main")]
    path = recorded(tmp_path / "r.unspool", identity(program), addresses)
    assert (names(path), state(path)) == (["outer", "main"], "functions")
    assert Profile.open(str(path)).files == []
    folder.mkdir()
    assert "functions only" in symbolized(path, "--debug-dir", str(folder))
    build_id = identity(program).build_id
    assert build_id is not None
    place = folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    place.parent.mkdir(parents=True)
    shutil.copy(debug, place)
    assert "functions, files, lines and inlined calls" in symbolized(path, "--debug-dir", str(folder))
    assert (names(path), state(path)) == (["inner", "outer", "main"], "lines")
    profile = Profile.open(str(path))
    assert sorted(profile.functions) == ["inner", "main", "outer"]
    assert profile.binary_symbols[0].debug_file == str(place)


def test_names_stay_when_the_file_is_gone(program: Path, tmp_path: Path) -> None:
    """And the command says so."""
    path = recorded(tmp_path / "r.unspool", identity(program), [address_of(program, "outer")])
    program.unlink()
    assert "not found, its names stay as they were" in symbolized(path)
    assert (names(path), state(path)) == (["inner", "outer"], "lines")


def test_what_a_dead_writer_left_is_named_later(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.unspool"
    recorded(path, identity(program), [address_of(program, "outer")], finish=False)
    assert state(path) == ""
    symbolized(path)
    assert names(path) == ["inner", "outer"]


def test_a_recording_in_the_making_is_not_changed(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.unspool"
    with RecordingWriter.create(path, {}, [Event("cpu", "nanoseconds")]):
        result = CliRunner().invoke(unspool, ["symbolize", str(path)])
    assert result.exit_code == 1
    assert "still being written" in result.output


def test_only_what_is_left_stays_in_the_tables(program: Path, tmp_path: Path) -> None:
    """Functions and files that no frame has any more go, and the numbers of the others close up."""
    path = recorded(tmp_path / "r.unspool", identity(program), [address_of(program, "outer")])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE functions SET name = 'stray' WHERE id = 0")
        connection.execute("UPDATE files SET path = 'stray.c'")
        Namer(connection, Symbolizer(), debug_dirs=()).name_files()
    profile = Profile.open(str(path))
    assert sorted(profile.functions) == ["inner", "outer"]
    assert len(profile.files) == 1


def test_progress(program: Path, tmp_path: Path) -> None:
    """It begins at nothing and ends when all is done."""
    path = recorded(tmp_path / "r.unspool", identity(program), [address_of(program, "outer")])
    told: list[NamingProgress] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        Namer(connection, Symbolizer(), progress=told.append).name_files()
    assert told[0] == (0, 1, str(program))
    assert told[-1] == (1, 1, "")


@pytest.mark.parametrize("when", [0, 1, 2])
def test_interrupted_naming_leaves_no_names(program: Path, tmp_path: Path, when: int) -> None:
    """Whoever presses Ctrl-C has a whole recording, which can be named later."""
    path = tmp_path / "r.unspool"
    told: list[NamingProgress] = []

    def interrupt(progress: NamingProgress) -> None:
        told.append(progress)
        if len(told) > when:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorded(path, identity(program), [address_of(program, "outer")], progress=interrupt)
    profile = Profile.open(str(path))
    assert (profile.total_weight(), profile.is_finished, state(path)) == (1, False, "")
    symbolized(path)
    assert names(path) == ["inner", "outer"]


def test_a_function_without_a_name_is_called_by_where_it_begins(program: Path, tmp_path: Path) -> None:
    """Its unwind information says where: all its addresses are one function."""
    outer, main = address_of(program, "outer"), address_of(program, "main")
    run("strip", "--strip-all", str(program))
    path = recorded(tmp_path / "r.unspool", identity(program), [outer + 1, main, outer + 3, 0x20])
    assert names(path) == [
        f"program+{outer:#x}",
        f"program+{main:#x}",
        f"program+{outer:#x}",
        "program+0x21",  # the file's header: nothing begins there
    ]
    profile = Profile.open(str(path))
    assert profile.functions.count(f"program+{outer:#x}") == 1
    assert not profile.function_is_named.any()
    assert state(path) == "none"


def test_binaries_that_are_open_are_used(program: Path, tmp_path: Path) -> None:
    """The source may hold files that nobody finds any more."""
    file = identity(program)
    path = tmp_path / "r.unspool"
    with Binary.open(program) as opened:
        program.unlink()
        writer = RecordingWriter.create(path, {}, [Event("cpu", "nanoseconds")])
        with writer:
            writer.add(
                SampleBatch(
                    *(1, 0, np.array([5], np.uint64), np.array([1]), np.array([1], np.uint64)),
                    *(np.zeros(1, np.uint8), np.zeros(1, np.uint8), np.array([0, 1], np.uint64)),
                    np.array([BASE + address_of_open(opened, "outer")], np.uint64),
                    np.array([How.INTERRUPTED], np.uint8),
                    CodeMap([CodeEntry(BASE, BASE + 0x10_0000, BASE, file)], "x86_64"),
                )
            )
            writer.finish(Symbolizer(), {file: opened})
    assert names(path) == ["inner", "outer"]


def address_of_open(binary: Binary, name: str) -> int:
    symbols = binary.symbols
    index = next(i for i in range(len(symbols)) if symbols.name(i) == name)
    return int(symbols.address[index]) - binary.image_address
