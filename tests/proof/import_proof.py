"""The proof of `unspool import`: recordings of real programs, read by unspool and by `perf script`.

    python -m tests.proof.import_proof [--keep FOLDER] [NAME...]

Both must have the same samples of the same events. Where a stack differs, the kind of the difference is told
with examples. Explained are: perf ends earlier than we do; perf goes astray where we reach the root by proved
frames; perf goes on where libgcc's unwinder may have overwritten its frame (perf_comparison.OVERWRITTEN).
Everything else, where perf goes on or the two disagree, may be one stack in 200 at most. `perf
script` is asked for its own unwinding, not for names: those are proved elsewhere."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.proof.perf_comparison import DIFFERS, EQUAL, PERF_GOES_ON, Result, compare

PROGRAMS = Path(__file__).with_name("programs")
RECORD = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "499"]
DWARF = ["--call-graph", "dwarf,16384"]
SECONDS = 2
UNEXPLAINED = 1 / 200
CPP = """#include <iostream>
#include <map>
#include <regex>
int f%d() { return std::regex_match("aab", std::regex("a+b")); }
"""
QUIET = subprocess.DEVNULL


def numpy_program(folder: Path) -> list[str]:
    code = "import time, numpy as np\nt = time.time()\nwhile time.time() - t < 2:\n"
    code += (
        " a = np.random.rand(120, 120); np.linalg.svd(a); np.sort(a, None); sorted(map(str, range(3000)))\n"
    )
    (folder / "work.py").write_text(code)
    return [sys.executable, str(folder / "work.py")]


def rust_program(folder: Path) -> list[str]:
    _build(["rustc", "-O", "-g", "-o", str(folder / "words"), str(PROGRAMS / "words.rs")])
    return ["timeout", "-s", "INT", str(SECONDS), str(folder / "words"), "1000000"]


def cpp_program(folder: Path) -> list[str]:
    (folder / "one.cpp").write_text(CPP % 1)
    return ["g++", "-O1", "-c", str(folder / "one.cpp"), "-o", str(folder / "one.o")]


def java_program(folder: Path) -> list[str]:
    _build(["javac", "-d", str(folder), str(PROGRAMS / "Workload.java")])
    options = ["-XX:+PreserveFramePointer", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit"]
    return ["timeout", str(SECONDS), "java", *options, "-cp", str(folder), "Workload"]


def exceptions_program(folder: Path) -> list[str]:
    source = PROGRAMS.parents[1] / "oracle" / "workloads" / "table.cpp"
    _build(["g++", "-std=c++17", "-O2", "-fomit-frame-pointer", "-o", str(folder / "table"), str(source)])
    return [str(folder / "table"), "30000"]


def build_program(folder: Path) -> list[str]:
    for number in range(3):
        (folder / f"f{number}.cpp").write_text(CPP % number)
    objects = " ".join(f"f{number}.o" for number in range(3))
    (folder / "Makefile").write_text(f"all: {objects}\n%.o: %.cpp\n\tg++ -O1 -c $< -o $@\n")
    return ["make", "-s", "-B", "-j2", "-C", str(folder)]


@contextmanager
def redis(folder: Path) -> Iterator[int]:
    """A server under load; its pid."""
    port = "17391"
    server = subprocess.Popen(["redis-server", "--port", port, "--save", ""], stdout=QUIET)
    time.sleep(0.5)
    load = subprocess.Popen(
        ["redis-benchmark", "-p", port, "-n", "10000000", "-q", "-t", "set,lpush"], stdout=QUIET, stderr=QUIET
    )
    try:
        yield server.pid
    finally:
        for process in (load, server):
            process.terminate()
            process.wait()


@contextmanager
def postgresql(folder: Path) -> Iterator[int]:
    """A database under load; the pid of one of its backends."""
    binaries = max(Path("/usr/lib/postgresql").glob("*/bin"))
    data = folder / "postgresql"
    data.mkdir()
    as_user = ["setpriv", "--reuid", "nobody", "--clear-groups"] if os.getuid() == 0 else []
    if as_user:
        for readable in (folder, folder.parent):
            readable.chmod(0o755)
        _build(["chown", "nobody", str(data)])
    where = ["-h", str(data), "-p", "17392"]
    _build([*as_user, str(binaries / "initdb"), "-D", str(data)])
    server = subprocess.Popen(
        [
            *as_user,
            str(binaries / "postgres"),
            "-D",
            str(data),
            "-k",
            str(data),
            "-p",
            "17392",
            "-c",
            "fsync=off",
        ],
        stdout=QUIET,
        stderr=QUIET,
    )
    time.sleep(2)
    _build([*as_user, str(binaries / "pgbench"), *where, "-i", "-s", "1", "postgres"])
    load = subprocess.Popen(
        [*as_user, str(binaries / "pgbench"), *where, "-c", "1", "-T", "60", "postgres"],
        stdout=QUIET,
        stderr=QUIET,
    )
    time.sleep(0.5)
    try:
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        yield int(children[-1])
    finally:
        load.terminate()
        load.wait()
        server.send_signal(signal.SIGINT)
        server.wait()


def command(program: Callable[[Path], list[str]], *options: str) -> Callable[[Path, Path], None]:
    """Records a command from its start to its end."""

    def record(folder: Path, output: Path) -> None:
        words = program(folder)
        subprocess.run(
            [*RECORD, *options, "-o", str(output), *words], stdout=QUIET, stderr=QUIET, check=False
        )

    return record


def attached(program: Callable[[Path], object]) -> Callable[[Path, Path], None]:
    """Records a process that runs for a while."""

    def record(folder: Path, output: Path) -> None:
        with program(folder) as pid:  # type: ignore[attr-defined]
            run = [*RECORD, *DWARF, "-p", str(pid), "-o", str(output), "sleep", str(SECONDS)]
            subprocess.run(run, check=True, stdout=QUIET, stderr=QUIET)

    return record


def whole_system(folder: Path, output: Path) -> None:
    """All processors, while something runs."""
    words = cpp_program(folder)
    subprocess.run([*RECORD, *DWARF, "-a", "-o", str(output), *words], check=True, stdout=QUIET, stderr=QUIET)


def two_events(folder: Path, output: Path) -> None:
    """CPU time and page faults."""
    run = [*RECORD, "-e", "page-faults", *DWARF, "-o", str(output), *cpp_program(folder)]
    subprocess.run(run, check=True, stdout=QUIET, stderr=QUIET)


RECORDINGS: dict[str, Callable[[Path, Path], None]] = {
    "python and numpy": command(numpy_program, *DWARF),
    "rust": command(rust_program, *DWARF),
    "rust, frame pointers": command(rust_program, "-g"),
    "c++ (g++)": command(cpp_program, *DWARF),
    "c++ with exceptions": command(exceptions_program, *DWARF),
    "jvm with a perf map": command(java_program, *DWARF),
    "a build of many processes": command(build_program, *DWARF),
    "a build, compressed": command(build_program, "-z", *DWARF),
    "build ids in mappings": command(cpp_program, "--buildid-mmap", *DWARF),
    "redis": attached(redis),
    "postgresql": attached(postgresql),
    "two events": two_events,
    "all processors": whole_system,
}


def _build(words: list[str]) -> None:
    subprocess.run(words, check=True, stdout=QUIET, stderr=QUIET)


def unexplained(result: Result) -> int:
    """Stacks where perf knows more, or other frames, and we can't say that we know better."""
    return sum(count for kind, count in result.kinds.items() if kind.startswith((PERF_GOES_ON, DIFFERS)))


def report(name: str, result: Result) -> bool:
    """Prints it. Returns whether it holds."""
    odd = unexplained(result)
    holds = result.same_samples and result.samples > 0 and odd <= result.samples * UNEXPLAINED
    print(
        f"{'ok' if holds else 'FAILED':7}{name}: {result.samples} samples, {result.kinds[EQUAL]} equal stacks"
    )
    if not result.same_samples:
        print(f"       {len(result.only_ours)} samples only ours, {len(result.only_perfs)} only perf's")
    for kind, count in result.kinds.most_common():
        if kind != EQUAL:
            print(f"       {count:6} {kind}")
            if kind.startswith((PERF_GOES_ON, DIFFERS)):
                print(
                    "\n".join(
                        f"              {line}" for line in "\n".join(result.examples[kind]).splitlines()
                    )
                )
    for problem in result.problems:
        print(f"       {problem}")
    return holds


def main(names: list[str], keep: Path | None) -> int:
    holds = True
    with tempfile.TemporaryDirectory(prefix="import-proof-") as temporary:
        for name in names or RECORDINGS:
            folder = Path(temporary) / name.replace(" ", "-")
            folder.mkdir()
            output = (keep or folder) / f"{name.replace(' ', '-')}.data"
            if not output.exists():
                RECORDINGS[name](folder, output)
            holds &= report(name, compare(output))
    return 0 if holds else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path, help="put the recordings there, and use those that are there")
    parser.add_argument("names", nargs="*", choices=[*RECORDINGS, []], metavar="NAME")
    arguments = parser.parse_args()
    sys.exit(main(arguments.names, arguments.keep))
