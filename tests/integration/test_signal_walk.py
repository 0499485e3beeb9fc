"""A signal handler walks from every instruction: the program in core/tests/signal, built and run.

On aarch64 it runs under qemu-user, which delivers signals between any two instructions when its blocks have
one each; a processor of the kind "max" signs return addresses where the code asks for it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.compilers import run

CORE = Path(__file__).parents[2] / "core"
PROGRAM = CORE / "tests" / "signal"

AARCH64_GCC = ("aarch64-linux-gnu-gcc",)
AARCH64_CLANG = ("clang-19", "--target=aarch64-linux-gnu")
QEMU = ("qemu-aarch64-static",)
SIGNING = (*QEMU, "-cpu", "max,pauth-impdef=on")

INCLUDES = [f"-I{CORE / 'include'}", f"-I{CORE / 'src'}"]
# A table's bounds come through PT_GNU_EH_FRAME, which static programs have on request only. Canaries
# would bring instructions that are never reached, tail calls would leave no caller.
OPTIONS = [
    "-std=c17",
    "-static",
    "-Wl,--eh-frame-hdr",
    "-fasynchronous-unwind-tables",
    "-fno-stack-protector",
    "-fno-optimize-sibling-calls",
]

BUILDS = {
    "aarch64-gcc": (AARCH64_GCC, ("-O2", "-mbranch-protection=none"), QEMU),
    "aarch64-gcc-O0": (AARCH64_GCC, ("-O0", "-mbranch-protection=none"), QEMU),
    "aarch64-gcc-O3-no-fp": (AARCH64_GCC, ("-O3", "-fomit-frame-pointer"), QEMU),
    "aarch64-gcc-signed": (AARCH64_GCC, ("-O2", "-mbranch-protection=standard"), SIGNING),
    "aarch64-gcc-leaves-signed": (AARCH64_GCC, ("-O2", "-mbranch-protection=pac-ret+leaf+bti"), SIGNING),
    "aarch64-clang": (AARCH64_CLANG, ("-O2", "-mbranch-protection=none"), QEMU),
    "aarch64-clang-signed": (AARCH64_CLANG, ("-O2", "-mbranch-protection=standard"), SIGNING),
    "x86_64-gcc": (("gcc",), ("-O2",), ()),
    "x86_64-gcc-O0": (("gcc",), ("-O0",), ()),
    "x86_64-clang": (("clang-19",), ("-O2",), ()),
}


@pytest.fixture(scope="module")
def core_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the core's objects are kept, in a folder a compiler."""
    return tmp_path_factory.mktemp("core")


def core_objects(compiler: tuple[str, ...], core_folder: Path) -> list[Path]:
    """The core, compiled once a compiler."""
    folder = core_folder / "-".join(compiler)
    folder.mkdir(exist_ok=True)
    objects = [folder / f"{source.stem}.o" for source in sorted((CORE / "src").glob("*.c"))]
    for target in objects:
        if not target.exists():
            run(
                *compiler, "-std=c17", "-O2", *INCLUDES, "-c", CORE / "src" / f"{target.stem}.c", "-o", target
            )
    return objects


def singly(runner: tuple[str, ...]) -> list[str]:
    """qemu with one instruction a block, an option that was renamed in QEMU 8.1."""
    if not runner:
        return []
    option = "-one-insn-per-tb" if "-one-insn-per-tb" in run(runner[0], "--help") else "-singlestep"
    return [runner[0], option, *runner[1:]]


@pytest.mark.parametrize("name", BUILDS)
def test_true_callers_at_every_instruction(name: str, tmp_path: Path, core_folder: Path) -> None:
    compiler, options, runner = BUILDS[name]
    for tool in (compiler[0], *runner[:1]):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    arch = "aarch64" if name.startswith("aarch64") else "x86_64"
    sources = [*sorted(PROGRAM.glob("*.c")), PROGRAM / f"functions_{arch}.S"]
    program = tmp_path / "program"
    run(
        *compiler,
        *OPTIONS,
        *options,
        *INCLUDES,
        *sources,
        *core_objects(compiler, core_folder),
        "-o",
        program,
    )
    done = subprocess.run([*singly(runner), program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
