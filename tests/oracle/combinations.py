"""Which programs are stepped, and how they are built.

A program's source is in programs/; it checks its own result and exits with 0. Each is built in every way
that BUILDS lists; the quick slice takes one build of each program.
"""

from dataclasses import dataclass
from pathlib import Path
from subprocess import run

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("*.c*"))

# -g0: nothing here may depend on debug information.
BUILDS: dict[str, list[str]] = {
    "O0": ["-O0"],
    "O2": ["-O2"],
    "O3": ["-O3"],
    "O0-omit": ["-O0", "-fomit-frame-pointer"],
    "O2-fp": ["-O2", "-fno-omit-frame-pointer"],
    "O2-cet": ["-O2", "-fcf-protection=full"],
    "O2-static": ["-O2", "-static"],
}
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
WITH_THREADS = {"threads"}
NOT_STATIC = {"lifetime"}  # it opens a library at run time


@dataclass(frozen=True)
class Combination:
    """One program in one build."""

    source: Path
    build: str
    quick: bool

    @property
    def name(self) -> str:
        return f"{self.source.stem}-{self.build}"

    @property
    def threads(self) -> bool:
        """Every thread is stepped, not only the first."""
        return self.source.stem in WITH_THREADS

    @property
    def from_entry(self) -> bool:
        """The loader's work before the program's entry point is not stepped."""
        return (self.source.stem, self.build) not in FROM_THE_LOADER

    def compile(self, folder: Path) -> Path:
        """The program, built in folder unless a newer one is there. Raises CalledProcessError."""
        program = folder / self.name
        if program.exists() and program.stat().st_mtime > self.source.stat().st_mtime:
            return program
        compiler = ["g++", "-std=c++17"] if self.source.suffix == ".cpp" else ["gcc", "-std=gnu17"]
        command = [*compiler, "-g0", "-w", *BUILDS[self.build], str(self.source), "-o", str(program), "-lm"]
        run(command, check=True)
        return program


def combinations() -> list[Combination]:
    """All of them."""
    return [
        Combination(source, build, build == QUICK.get(source.stem, "O2"))
        for source in PROGRAMS
        for build in BUILDS
        if not (build == "O2-static" and source.stem in NOT_STATIC)
    ]
