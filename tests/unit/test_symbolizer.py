"""Symbolizer.lookup from end to end: programs built here, and what is wrong with them."""

from __future__ import annotations

import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compilers import build, run
from unspool import Binary
from unspool.cache import Cache
from unspool.symbols import Location, Symbolizer, symcache_build

CODE = """
#include <stdio.h>
#include <stdlib.h>
static inline __attribute__((always_inline)) int innermost(int n) { return n * abs(n); }
static inline __attribute__((always_inline)) int inner(int n) {
    return innermost(n) + 3;
}
__attribute__((noinline)) int outer(int n) {
    return inner(n) + 1;
}
__attribute__((noinline)) int split(int n) {
    if (__builtin_expect(n < -1000, 0)) {
        puts("rare");
        for (int i = 0; i < 30; i++) n ^= puts("x") * i;
        abort();
    }
    return n + 1;
}
int main(int argc, char **argv) { return outer(argc) + split(argc) + argv[0][0]; }
"""


def address_of(binary: Binary, name: str) -> int:
    """A function's relative address."""
    symbols = binary.symbols
    index = next(i for i in range(len(symbols)) if symbols.name(i) == name)
    return int(symbols.address[index]) - binary.image_address


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("symbolizer"), "program", "gcc", "-g", "-O2", code=CODE)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_inlined_calls_innermost_first(program: Path) -> None:
    file = str(program.with_suffix(".c"))
    with Binary.open(program) as binary:
        assert Symbolizer().lookup(binary, address_of(binary, "outer")) == (
            Location("innermost", "innermost", file, 4, True),
            Location("inner", "inner", file, 6, True),
            Location("outer", "outer", file, 9, False),
        )


def test_the_cold_part_of_a_function_has_the_functions_name(program: Path) -> None:
    with Binary.open(program) as binary:
        symbols = binary.symbols
        cold = next(i for i in range(len(symbols)) if symbols.name(i) == "split.cold")
        start = address_of(binary, "split.cold")
        addresses = np.arange(start, start + int(symbols.size[cold]), dtype=np.uint64)
        found = Symbolizer().lookup_many(binary, addresses)
        assert {place.function for chain in found.chains for place in chain} == {"split"}
        assert {place.line for chain in found.chains for place in chain} & {13, 14, 15}


def test_cxx_names_are_demangled_and_raw_names_kept(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(
        "struct B { template <class T> [[gnu::noinline]] T f(T n) { return n; } };\n"
        "int main(int n, char **) { return B().f(n); }\n"
    )
    run("g++", "-g", "-O1", "-o", tmp_path / "program", source)
    with Binary.open(tmp_path / "program") as binary:
        (place,) = Symbolizer().lookup(binary, address_of(binary, "_ZN1B1fIiEET_S1_"))
        assert place == ("int B::f<int>(int)", "_ZN1B1fIiEET_S1_", str(source), 1, False)


def test_many_addresses_are_answered_at_once(program: Path) -> None:
    with Binary.open(program) as binary:
        symbolizer = Symbolizer()
        start = address_of(binary, "outer")
        addresses = np.array([start, 1 << 63, start, *range(0x2000), start + 1], dtype=np.uint64)
        found = symbolizer.lookup_many(binary, addresses)
        assert found.which.dtype == np.int64 and len(found.which) == len(addresses)
        assert len(set(found.chains)) == len(found.chains)
        for address, number in zip(addresses.tolist(), found.which.tolist(), strict=True):
            assert found.chains[number] == symbolizer.lookup(binary, address)
        assert found.chains[found.which[1]] == ()
        none = symbolizer.lookup_many(binary, np.array([], dtype=np.uint64))
        assert len(none.which) == 0 and none.chains == ()


@pytest.mark.parametrize("address", [-1, -(1 << 70), 1 << 32, (1 << 64) - 1, 1 << 64, 1 << 80])
def test_addresses_outside_have_no_answer(program: Path, address: int) -> None:
    with Binary.open(program) as binary:
        assert Symbolizer().lookup(binary, address) == ()


def test_without_debug_information_the_symbol_table_answers(tmp_path: Path) -> None:
    with Binary.open(build(tmp_path, "program", "gcc", "-O2", code=CODE)) as binary:
        symbolizer = Symbolizer()
        assert symbolizer.lookup(binary, address_of(binary, "outer") + 1) == (
            Location("outer", "outer", None, None, False),
        )
        findings = symbolizer.findings(binary)
        assert findings.debug_file is None and findings.symbol_count > 10
        assert findings.notes[0].what == (
            f"{binary.path}: no debug information, hence no files, lines and inlined calls"
        )


def test_nothing_at_all_is_said(tmp_path: Path) -> None:
    code = "void _start(void) { for (;;); }"
    path = build(tmp_path, "program", "gcc", "-s", "-static", "-nostdlib", code=code)
    with Binary.open(path) as binary:
        symbolizer = Symbolizer()
        assert symbolizer.lookup(binary, binary.entry - binary.image_address) == ()
        assert any("no symbols were found" in note.what for note in symbolizer.findings(binary).notes)


def test_an_object_file_has_symbols_only(tmp_path: Path) -> None:
    with Binary.open(build(tmp_path, "program.o", "gcc", "-g", "-c", "-O2", code=CODE)) as binary:
        (place,) = Symbolizer().lookup(binary, address_of(binary, "outer"))
        assert (place.function, place.line) == ("outer", None)


def test_a_program_that_is_not_position_independent(tmp_path: Path) -> None:
    with Binary.open(build(tmp_path, "program", "gcc", "-g", "-O2", "-no-pie", code=CODE)) as binary:
        assert binary.image_address == 0x400000
        places = Symbolizer().lookup(binary, address_of(binary, "outer"))
        assert [place.line for place in places] == [4, 6, 9]


def test_an_aarch64_program(tmp_path: Path) -> None:
    path = build(tmp_path, "program", "aarch64-linux-gnu-gcc", "-g", "-O2", code=CODE)
    with Binary.open(path) as binary:
        places = Symbolizer().lookup(binary, address_of(binary, "outer"))
        assert [place.line for place in places] == [4, 6, 9]


def test_many_threads_may_ask(program: Path) -> None:
    with Binary.open(program) as binary:
        symbolizer = Symbolizer()
        start = address_of(binary, "outer")
        answers: list[tuple[Location, ...]] = []

        def ask() -> None:
            answers.append(symbolizer.lookup(binary, start))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 8 and len(set(answers)) == 1


# ---------------------------------------------------------------- the cache


def forbid_building(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symcache_build, "_in_child", lambda _: pytest.fail("built again"))


def test_a_file_is_read_once(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Binary.open(program) as binary:
        expected = Symbolizer().lookup(binary, address_of(binary, "outer"))
    forbid_building(monkeypatch)
    with Binary.open(program) as binary:
        assert Symbolizer().lookup(binary, address_of(binary, "outer")) == expected


def test_without_the_cache_nothing_is_written(program: Path, own_cache: Path) -> None:
    with Binary.open(program) as binary:
        assert len(Symbolizer(cache=False).lookup(binary, address_of(binary, "outer"))) == 3
    assert not own_cache.exists()


def test_notes_about_the_file_are_kept_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path, "program", "gcc", "-g", "-O2", "-gsplit-dwarf", code=CODE)
    with Binary.open(path) as binary:
        expected = Symbolizer().findings(binary).notes
        assert len(expected) == 1
    forbid_building(monkeypatch)
    with Binary.open(path) as binary:
        assert Symbolizer().findings(binary).notes == expected


def test_damaged_files_of_the_cache_are_built_anew(program: Path, own_cache: Path) -> None:
    with Binary.open(program) as binary:
        start = address_of(binary, "outer")
        expected = Symbolizer().lookup(binary, start)
    (path,) = own_cache.glob("unspool/symbols-*/*")
    whole = path.read_bytes()
    kind, cache = symcache_build._kind(), Cache.of_user()
    content = cache.read(kind, path.name)
    assert content is not None
    damaged = [b"", whole[:-1], whole[:100], os.urandom(5000)]
    for data in damaged:
        path.write_bytes(data)
        with Binary.open(program) as binary:
            assert Symbolizer().lookup(binary, start) == expected
        assert path.read_bytes() == whole
    inside = [b"", content[:-4], content[100:], b"\xff" * 4]
    inside += [b"[]\2\0\0\0", b"null\4\0\0\0", b"[[9],1,0,0]\x0b\0\0\0"]
    for data in inside:  # the checksum is right, what it covers is not
        cache.write(kind, path.name, data)
        with Binary.open(program) as binary:
            assert Symbolizer().lookup(binary, start) == expected


# ---------------------------------------------------------------- damaged DWARF


def section_ranges(path: Path) -> dict[str, tuple[int, int]]:
    with Binary.open(path) as binary:
        return {s.name: (s.offset, s.size) for s in binary.sections if s.name.startswith(".debug_")}


def test_damaged_dwarf_is_a_note_or_an_answer(program: Path, tmp_path: Path) -> None:
    choice = random.Random(int(os.environ.get("UNSPOOL_SEED", "1")))
    whole, ranges = program.read_bytes(), section_ranges(program)
    outcomes = set()
    for round in range(int(os.environ.get("UNSPOOL_ROUNDS", "40"))):
        data = bytearray(whole)
        for _ in range(choice.randrange(1, 30)):
            offset, size = ranges[f".debug_{choice.choice(['info', 'abbrev', 'line', 'rnglists'])}"]
            data[offset + choice.randrange(size)] = choice.choice((0, 0xFF, 0x80, choice.randrange(256)))
        path = tmp_path / f"damaged{round}"
        path.write_bytes(data)
        with Binary.open(path) as binary:
            symbolizer = Symbolizer(cache=False)
            start = address_of(binary, "outer")
            found = symbolizer.lookup_many(binary, np.arange(start, start + 16, dtype=np.uint64))
            assert all(found.chains)
            outcomes.add(symbolizer.findings(binary, ask_packages=False).has_lines)
        path.unlink()
    assert outcomes == {True, False}


def test_a_section_of_zeros_or_noise_is_no_crash(program: Path, tmp_path: Path) -> None:
    whole = program.read_bytes()
    for name, (offset, size) in section_ranges(program).items():
        for fill in (bytes(size), b"\xff" * size, random.Random(4).randbytes(size)):
            (tmp_path / "damaged").write_bytes(whole[:offset] + fill + whole[offset + size :])
            with Binary.open(tmp_path / "damaged") as binary:
                chain = Symbolizer(cache=False).lookup(binary, address_of(binary, "outer"))
                assert chain[-1].raw_name, name


def child_doing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Let the process that reads DWARF do something else."""
    script = tmp_path / "symcache_child.py"
    script.write_text(f"import os, resource, sys\n{code}")
    monkeypatch.setattr(symcache_build, "__file__", str(tmp_path / "symcache_build.py"))


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os.kill(os.getpid(), 11)", "reading it ended with signal 11"),
        ("os.abort()", "reading it ended with signal 6"),
        ("print('a message', file=sys.stderr); sys.exit(1)", "a message"),
        ("sys.exit(3)", "reading it ended with status 3"),
        ("sys.stdout.write('SYMC and garbage')", "symbolic made a symcache without a header"),
        ("pass", "symbolic made a symcache without a header"),
        ("sys.stdout.buffer.write(b'SYMC' + bytes(100))", "a symcache of version 0"),
        ("resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass", "takes more than 30 seconds"),
        ("print('memory allocation of 9 bytes failed', file=sys.stderr); os.abort()", "MiB of memory"),
    ],
)
def test_the_process_that_reads_dwarf_may_fail(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    child_doing(monkeypatch, tmp_path, code)
    with Binary.open(program) as binary:
        symbolizer = Symbolizer(cache=False)
        assert [p.function for p in symbolizer.lookup(binary, address_of(binary, "outer"))] == ["outer"]
        assert any(reason in note.what for note in symbolizer.findings(binary, ask_packages=False).notes)


def test_the_process_that_reads_dwarf_has_limits(program: Path, tmp_path: Path) -> None:
    script = Path(symcache_build.__file__).with_name("symcache_child.py")
    with program.open("rb") as file:
        descriptor = file.fileno()

        def result(memory: int, seconds: int) -> subprocess.CompletedProcess[bytes]:
            command: list[Any] = [sys.executable, "-P", script, str(descriptor), str(memory), str(seconds)]
            return subprocess.run(command, capture_output=True, pass_fds=(descriptor,))

        assert result(1 << 30, 30).stdout.startswith(b"SYMC")
        assert result(1 << 24, 30).returncode != 0
        spent = result(1 << 30, 0)
        assert spent.returncode in (0, -signal.SIGKILL, -signal.SIGXCPU)


def test_a_line_table_that_unfolds_without_end_is_bounded(program: Path, tmp_path: Path) -> None:
    # Special opcodes only: as many rows as bytes, 20 million of them.
    with Binary.open(program) as binary:
        section = binary.section(".debug_line")
        assert section is not None
        header = bytes(section.data[:60])
    big = tmp_path / "line"
    body = bytes([0, 9, 2]) + struct.pack("<Q", 0x1000) + b"\xff" * 20_000_000
    big.write_bytes(struct.pack("<I", 56 + len(body)) + header[4:60] + body)
    run("objcopy", f"--update-section=.debug_line={big}", program, tmp_path / "damaged")
    with Binary.open(tmp_path / "damaged") as binary:
        chain = Symbolizer(cache=False).lookup(binary, address_of(binary, "outer"))
        assert chain[-1].raw_name == "outer"


def stub_names(path: Path) -> dict[str, int]:
    """The relative address of each stub of the linker's that has a name."""
    with Binary.open(path) as binary:
        found: dict[str, int] = {}
        for name in (".plt", ".plt.sec", ".plt.got"):
            section = binary.section(name)
            start = section.address - binary.image_address if section is not None else 0
            for address in range(start, start + (section.size if section is not None else 0), 4):
                for location in Symbolizer().lookup(binary, address):
                    assert location.function is not None and location.file is None
                    found.setdefault(location.function, address)
        return found


CALLS = """
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) { return puts(argv[0]) + rand() + (getenv("x") == 0); }
"""


@pytest.mark.parametrize(
    "options", [["-fcf-protection"], ["-fcf-protection=none"], ["-Wl,-z,now"], ["-no-pie"]]
)
def test_stubs_of_the_linker_have_their_functions_names(tmp_path: Path, options: list[str]) -> None:
    path = build(tmp_path, "program", "gcc", "-O2", "-Wl,-z,lazy", *options, code=CALLS)
    found = stub_names(path)
    assert {"puts@plt", "rand@plt", "getenv@plt"} <= found.keys()
    assert found.keys() <= {"puts@plt", "rand@plt", "getenv@plt", "__cxa_finalize@plt"}
    disassembly = run("objdump", "-d", "--no-show-raw-insn", path)
    with Binary.open(path) as binary:
        for name in ("puts@plt", "getenv@plt"):
            address = found[name] + binary.image_address
            assert re.search(rf"^0*{address:x} <{name}>:$", disassembly, re.M)


def test_stubs_of_an_aarch64_program(tmp_path: Path) -> None:
    path = build(tmp_path, "program", "aarch64-linux-gnu-gcc", "-O2", code=CALLS)
    found = stub_names(path)
    with Binary.open(path) as binary:
        disassembly = run("aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", path)
        for name in ("puts@plt", "getenv@plt"):
            assert re.search(rf"^0*{found[name] + binary.image_address:x} <{name}>:$", disassembly, re.M)


def test_names_by_which_glibc_calls_itself_are_not_shown(tmp_path: Path) -> None:
    code = """
    int internal(int n) __asm__("__GI_public");
    __attribute__((noinline)) int internal(int n) { return n * 3; }
    extern int public(int n) __attribute__((alias("__GI_public")));
    int alone(int n) __asm__("__GI_alone");
    __attribute__((noinline)) int alone(int n) { return n * 5; }
    int main(int argc, char **argv) { return public(argc) + alone(argc) + argv[0][0]; }
    """
    path = build(tmp_path, "program", "gcc", "-g", "-O2", code=code)
    with Binary.open(path) as binary:
        (public,) = Symbolizer().lookup(binary, address_of(binary, "public"))
        (alone,) = Symbolizer().lookup(binary, address_of(binary, "__GI_alone"))
    assert (public.function, public.raw_name) == ("public", "public")
    assert alone.function == "alone"
