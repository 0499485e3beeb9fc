"""Which programs are stepped, and how they are built.

A program checks its own result and exits with 0. Those in programs/ are small and go through one part of
the system each; those in workloads/ do what programs do, as long as they are let. Each is built in several
ways; the quick slice takes one build of each program in programs/.
"""

import sys
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from subprocess import DEVNULL, run

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("*.c*"))

GCC, CLANG, MUSL = "gcc", "clang-19", "musl-gcc"
CXX = {GCC: "g++", CLANG: "clang++-19"}
# A compiler and its flags; -g0: nothing here may depend on debug information.
BUILDS: dict[str, tuple[str, list[str]]] = {
    "O0": (GCC, ["-O0"]),
    "O2": (GCC, ["-O2"]),
    "O3": (GCC, ["-O3"]),
    "O0-omit": (GCC, ["-O0", "-fomit-frame-pointer"]),
    "O2-fp": (GCC, ["-O2", "-fno-omit-frame-pointer"]),
    "O2-cet": (GCC, ["-O2", "-fcf-protection=full"]),
    "O2-static": (GCC, ["-O2", "-static"]),
    "Os": (GCC, ["-Os"]),
    "O2-lto": (GCC, ["-O2", "-flto"]),
    "O2-pgo": (GCC, ["-O2", "-freorder-blocks-and-partition"]),
    "O2-static-pie": (GCC, ["-O2", "-static-pie"]),
    "clang-O2": (CLANG, ["-O2"]),
    "clang-O3-lld": (CLANG, ["-O3", "-fuse-ld=lld"]),
    "musl-O2": (MUSL, ["-O2", "-static"]),
}
RUST_BUILDS: dict[str, list[str]] = {
    "rust-O0": ["-Copt-level=0"],
    "rust-O3": ["-Copt-level=3"],
    "rust-O2-fp": ["-Copt-level=2", "-Cforce-frame-pointers=yes"],
    "rust-Os-lto": ["-Copt-level=s", "-Clto=fat", "-Ccodegen-units=1"],
}
EVERYWHERE = [build for build in BUILDS if build != "O2-pgo"]
QUICK = {  # the build of a program that CI steps; "O2" for the others
    "calls": "O3",
    "containers": "O0",
    "coroutines": "O2-fp",
    "exceptions": "O0",
    "jumps": "O0-omit",
    "lifetime": "O0",
    "memory": "O2-static",
    "print": "O2-cet",
    "sort": "O0-omit",
    "stack_shapes": "O2-static",
    "threads": "O0",
}
FROM_THE_LOADER = {("sort", "O2"), ("lifetime", "O0"), ("exceptions", "O2-cet"), ("threads", "O2-static")}
WITH_THREADS = {"threads", "processes", "collections"}
# What a program needs that a build does not have.
WITHOUT = {
    "lifetime": {"O2-static", "O2-static-pie", "musl-O2"},  # it opens a library at run time
    "coroutines": {"musl-O2"},  # makecontext
    "trampoline": {"clang-O2", "clang-O3-lld"},  # nested functions
    "containers": {"musl-O2"},  # a C++ library
    "exceptions": {"musl-O2"},
    "memory": {"musl-O2"},  # malloc_trim
    "strings": {"musl-O2"},  # rawmemchr
}


@dataclass(frozen=True)
class Workload:
    """A program that is stepped as far as its limit."""

    source: str
    argument: str
    steps: int
    builds: tuple[str, ...]
    libraries: tuple[str, ...] = ()


WORKLOADS = [
    Workload("processes.c", "12", 2_000_000, ("O2", "Os", "O2-static", "clang-O2", "musl-O2")),
    Workload("arrays.py", "1000", 4_000_000, ("python",)),
    Workload("interpreter.py", "1000", 4_000_000, ("python",)),
    Workload("collections.rs", "1000", 3_000_000, tuple(RUST_BUILDS)),
    Workload("crypto.c", "1000", 4_000_000, ("O2", "clang-O3-lld"), ("-lcrypto",)),
    Workload("compression.c", "64", 4_000_000, ("O2", "Os", "clang-O2"), ("-lz", "-lzstd")),
    Workload(
        "table.cpp",
        "1000",
        3_000_000,
        ("O0", "Os", "O2-lto", "O2-pgo", "O2-static-pie", "clang-O2", "clang-O3-lld", "O2"),
    ),
    Workload(
        "numbers.c",
        "20000",
        2_000_000,
        ("O2", "Os", "O2-lto", "O2-pgo", "O2-static-pie", "clang-O2", "clang-O3-lld", "musl-O2"),
    ),
]


@dataclass(frozen=True)
class Combination:
    """One program in one build."""

    source: Path
    build: str
    quick: bool
    arguments: tuple[str, ...] = ()
    steps: int | None = None  # where it is left off
    libraries: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.source.stem}-{self.build}"

    @property
    def threads(self) -> bool:
        """Every thread is stepped, not only the first."""
        return self.source.stem in WITH_THREADS

    @property
    def born(self) -> bool:
        """Only threads that the program starts are stepped: what comes before would take hours."""
        return self.build == "python"

    @property
    def from_entry(self) -> bool:
        """The loader's work before the program's entry point is not stepped."""
        return not self.born and (self.source.stem, self.build) not in FROM_THE_LOADER

    @cached_property
    def key(self) -> str:
        """What this program is: its source, how it is built, and how far it is stepped."""
        compiler = [] if self.born else self._command(Path())
        text = [self.source.read_text(), self.build, *compiler, *self.arguments, str(self.steps)]
        return sha256("\0".join(text).encode()).hexdigest()

    def command(self, folder: Path) -> list[str]:
        """What is run, built in folder when need be. Raises CalledProcessError."""
        program = [sys.executable, str(self.source)] if self.born else [str(self.compile(folder))]
        return [*program, *self.arguments]

    def _command(self, program: Path) -> list[str]:
        if self.source.suffix == ".rs":
            return ["rustc", "--edition=2021", *RUST_BUILDS[self.build], str(self.source), "-o", str(program)]
        compiler, flags = BUILDS[self.build]
        is_cxx = self.source.suffix == ".cpp"
        command = [CXX[compiler], "-std=c++17"] if is_cxx else [compiler, "-std=gnu17"]
        libraries = [*self.libraries, "-lm", "-lpthread"]
        return [*command, "-g0", "-w", *flags, str(self.source), "-o", str(program), *libraries]

    def compile(self, folder: Path) -> Path:
        """The program, built in folder unless a newer one is there. Raises CalledProcessError."""
        program = folder / self.name
        if program.exists() and program.stat().st_mtime > self.source.stat().st_mtime:
            return program
        if self.build == "O2-pgo":
            profile = folder / f"{self.name}.profile"
            run([*self._command(program), f"-fprofile-dir={profile}", "-fprofile-generate"], check=True)
            run([str(program), "20"], check=True, stdout=DEVNULL)
            run([*self._command(program), f"-fprofile-dir={profile}", f"-fprofile-use={profile}"], check=True)
        else:
            run(self._command(program), check=True)
        return program


def combinations() -> list[Combination]:
    """All of them: workloads, then the small programs in every build."""
    workloads = [
        Combination(HERE / "workloads" / w.source, build, False, (w.argument,), w.steps, w.libraries)
        for w in WORKLOADS
        for build in w.builds
    ]
    programs = [
        Combination(source, build, build == QUICK.get(source.stem, "O2"))
        for source in PROGRAMS
        for build in EVERYWHERE
        if build not in WITHOUT.get(source.stem, ())
    ]
    return workloads + programs
